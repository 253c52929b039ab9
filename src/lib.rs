//! Backpressure-aware async queue and admission control.

mod error;
mod rate;
mod sync;
mod tick;

pub use error::{BuildError, RateError};
pub use rate::Rate;
pub use tick::Tick;
