//! The simulator: known results of queueing theory, and sums that must come out.

mod laws;
mod overload;
