//! The simulator: known results of queueing theory, and sums that must come out.

mod callers;
mod fleet;
mod laws;
#[cfg(feature = "config")]
mod mangled;
mod overload;
mod sizes;
