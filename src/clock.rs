//! Where time comes from: the one place that reads it.
//!
//! Rules and the machine are told `now`; the engine asks a [`Clock`]. A clock may be real ([`TokioClock`],
//! `FastClock`) or moved by hand ([`ManualClock`]). The real ones start at Unix time, so that windows aligned to the
//! clock minute are, and share one anchor pair per process, so that all their readings can be compared.

mod any;
#[cfg(feature = "quanta")]
mod fast;
mod manual;
mod real;

use std::fmt::Debug;

use futures_util::future::BoxFuture;

pub(crate) use self::any::AnyClock;
#[cfg(feature = "quanta")]
pub use self::fast::FastClock;
pub use self::manual::ManualClock;
pub use self::real::TokioClock;
use crate::tick::Tick;

/// Source of time for limiters and queues.
///
/// A reading older than the last one counts as the last one, so a clock that steps back does no harm. Both methods
/// are called from many threads. `now` may be called while a limiter or a queue holds its lock: it must not call back
/// into them, nor block.
pub trait Clock: Send + Sync + Debug + 'static {
    /// Reads the time, in nanoseconds since an epoch of the clock's choice.
    fn now(&self) -> Tick;

    /// Waits until [`now`](Self::now) reads `deadline` or later; done at once if it does already.
    ///
    /// May be late, never early. The future may be created in one place and polled in another, within a runtime or
    /// without. Cancel safe: dropping it forgets the sleep.
    fn sleep_until(&self, deadline: Tick) -> BoxFuture<'static, ()>;
}
