//! Backpressure-aware async queue and admission control.

mod clock;
mod error;
mod rate;
mod sync;
mod tick;
mod timer;

#[cfg(feature = "quanta")]
pub use clock::FastClock;
pub use clock::{Clock, ManualClock, TokioClock};
pub use error::{BuildError, RateError};
pub use rate::Rate;
pub use tick::Tick;
