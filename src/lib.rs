//! Backpressure-aware async queue and admission control.

mod clock;
#[cfg(feature = "config")]
pub mod config;
mod decision;
mod error;
mod gate;
mod key;
mod ledger;
mod limiter;
mod machine;
#[cfg(feature = "metrics")]
pub mod observe;
mod policy;
pub mod queue;
mod rate;
mod refusal;
#[cfg(feature = "sim")]
pub mod sim;
mod sync;
mod tally;
#[cfg(feature = "metrics")]
mod telemetry;
mod tick;
mod timer;
mod words;

#[cfg(feature = "quanta")]
pub use clock::FastClock;
pub use clock::{Clock, ManualClock, TokioClock};
pub use decision::{Decision, Limited, Verdict};
pub use error::{AcquireError, BuildError, LimitError, RateError};
pub use gate::{Cause, Denied, Gate, GateOffer};
pub use key::{IntoKey, Key};
pub use limiter::{
    Admission, Charge, Deciding, Hierarchy, HierarchyBuilder, KeyedLimiter, KeyedLimiterBuilder,
    Local, RateLimiter, Reservation, Ruling, Store, WhenKeysFull,
};
pub use policy::{
    FixedWindow, LeakyBucket, Limit, LimitState, Policy, Recommendation, Requirements,
    SlidingCounter, SlidingLog, TokenBucket,
};
pub use queue::paced::{Paced, PacedExt, paced};
pub use rate::Rate;
pub use tick::Tick;

/// The program in the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
