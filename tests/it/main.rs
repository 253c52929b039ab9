//! The promises of the crate, one module each, in one binary.

mod chart;
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "config")]
mod config;
mod contract;
mod fair;
mod gate;
mod held;
mod layering;
mod limits;
#[cfg(feature = "metrics")]
mod observe;
mod options;
mod queue;
#[cfg(feature = "sim")]
mod sim;
mod streams;
mod trace;
mod trouble;
mod workers;
