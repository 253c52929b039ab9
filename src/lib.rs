//! Backpressure-aware async queue and admission control.

mod error;
#[allow(dead_code, unreachable_pub, reason = "its driver follows")]
mod ledger;
#[allow(dead_code, reason = "its driver follows")]
mod machine;
#[allow(dead_code, reason = "its driver follows")]
mod policy;
mod rate;
#[allow(dead_code, unreachable_pub, reason = "its driver follows")]
mod refusal;
mod tick;
#[allow(dead_code, unreachable_pub, reason = "its driver follows")]
mod words;

pub use error::{BuildError, RateError};
pub use rate::Rate;
pub use tick::Tick;
