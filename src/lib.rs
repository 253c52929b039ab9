//! Backpressure-aware async queue and admission control.

mod clock;
mod decision;
mod error;
mod key;
#[allow(dead_code, unreachable_pub, reason = "its driver follows")]
mod ledger;
#[allow(dead_code, reason = "its driver follows")]
mod machine;
#[allow(dead_code, reason = "its driver follows")]
mod policy;
mod rate;
#[allow(dead_code, unreachable_pub, reason = "its driver follows")]
mod refusal;
mod sync;
mod tick;
mod timer;
#[allow(dead_code, unreachable_pub, reason = "its driver follows")]
mod words;

#[cfg(feature = "quanta")]
pub use clock::FastClock;
pub use clock::{Clock, ManualClock, TokioClock};
pub use decision::{Decision, Limited, Verdict};
pub use error::{AcquireError, BuildError, LimitError, RateError};
pub use key::{IntoKey, Key};
pub use policy::{
    FixedWindow, LeakyBucket, Limit, LimitState, Policy, SlidingCounter, SlidingLog, TokenBucket,
};
pub use rate::Rate;
pub use tick::Tick;
