//! The promises of the crate, one module each, in one binary.

mod chart;
mod held;
mod layering;
mod options;
mod trace;
