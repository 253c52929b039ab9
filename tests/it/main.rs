//! The promises of the crate, one module each, in one binary.

mod chart;
mod fair;
mod held;
mod layering;
mod limits;
mod options;
mod queue;
mod trace;
mod trouble;
