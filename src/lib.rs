//! Backpressure-aware async queue and admission control.

mod error;
mod ledger;
mod machine;
mod rate;
mod refusal;
mod tick;
mod words;

pub use error::{BuildError, RateError};
pub use rate::Rate;
pub use tick::Tick;
