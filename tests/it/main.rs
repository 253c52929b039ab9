//! The promises of the crate, one module each, in one binary.

mod chart;
mod held;
mod layering;
mod limits;
mod options;
mod queue;
#[cfg(feature = "sim")]
mod sim;
mod streams;
mod trace;
mod workers;
