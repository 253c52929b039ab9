//! The simulator: known results of queueing theory, and sums that must come out.

mod callers;
mod fleet;
mod laws;
mod overload;
mod sizes;
