//! Pure rules: arithmetic on a state, an instant and a cost. No clock, no lock, no waiting.
//!
//! The five limits are [`TokenBucket`], [`LeakyBucket`], [`FixedWindow`], [`SlidingLog`] and [`SlidingCounter`];
//! [`Limit`] is any of them. Every rule judges first and charges after, so that several rules can be judged together
//! before any of them is charged.
//!
//! The queue has three rules of its own: the departure [`schedule`], the [`ladder`] of pressure and
//! [`standing_delay`].

pub(crate) mod aimd;
mod fixed_window;
mod gcra;
mod guide;
pub(crate) mod ladder;
#[cfg(test)]
mod laws;
mod leaky_bucket;
mod limit;
mod limit_text;
pub(crate) mod ramp;
pub(crate) mod schedule;
mod sliding_counter;
mod sliding_log;
pub(crate) mod standing_delay;
mod token_bucket;
#[cfg(test)]
mod traps;

pub use fixed_window::FixedWindow;
pub use guide::{Recommendation, Requirements};
pub use leaky_bucket::LeakyBucket;
pub use limit::{Limit, LimitState};
pub use sliding_counter::SlidingCounter;
pub use sliding_log::SlidingLog;
pub use token_bucket::TokenBucket;

pub(crate) use fixed_window::WindowState;
pub(crate) use gcra::{BucketState, Gcra};
#[cfg(feature = "redis")]
pub(crate) use sliding_counter::CounterState;

use std::fmt::Debug;

use crate::decision::Decision;
use crate::tick::Tick;

/// Rule that decides about costs, given its state and the time; sealed.
///
/// A rule is a value without memory: whoever keeps the state decides where it lives and what clock it is judged by.
/// Instants may come from any clock. A reading older than the last that was charged counts as that one, so a clock that
/// goes back never lets more through.
///
/// # Examples
/// ```
/// use sluicegate::{Policy, Rate, SlidingLog, Tick};
/// use std::time::Duration;
///
/// let rule = SlidingLog::new(2, Duration::from_secs(60))?;
/// let mut state = rule.start(Tick::ZERO);
/// let first = rule.check(&mut state, Tick::ZERO, 2);
/// assert!(first.is_granted());
/// assert!(!rule.check(&mut state, Tick::ZERO, 1).is_granted());
///
/// rule.refund(&mut state, first.at, 2);
/// assert!(rule.is_idle(&state, Tick::ZERO));
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
pub trait Policy: sealed::Sealed {
    /// What the rule remembers of earlier charges.
    type State: Clone + Debug + Send + Sync + 'static;

    /// Makes the state of someone who was never charged.
    fn start(&self, now: Tick) -> Self::State;

    /// Charges `cost` if it fits; a refusal changes nothing, a cost of 0 is granted and changes nothing.
    fn check(&self, state: &mut Self::State, now: Tick, cost: u64) -> Decision {
        let decision = self.peek(state, now, cost);
        if decision.is_granted() {
            self.charge(state, decision.at, cost);
        }
        decision
    }

    /// Says what [`check`](Self::check) would, and charges nothing. With cost 0 it tells what is left now.
    fn peek(&self, state: &Self::State, now: Tick, cost: u64) -> Decision;

    /// Gives back a `cost` that was charged at `charged_at`, the decision's [`at`](Decision::at).
    ///
    /// Never gives back more than the rule still holds against that instant. What was charged longer ago than the
    /// rule's window is forgotten already: giving it back changes nothing.
    fn refund(&self, state: &mut Self::State, charged_at: Tick, cost: u64);

    /// Whether the state is equal to a fresh one, so that it can be forgotten.
    fn is_idle(&self, state: &Self::State, now: Tick) -> bool;

    /// Charges what was judged to fit.
    #[doc(hidden)]
    fn charge(&self, state: &mut Self::State, at: Tick, cost: u64);
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::TokenBucket {}
    impl Sealed for super::LeakyBucket {}
    impl Sealed for super::FixedWindow {}
    impl Sealed for super::SlidingLog {}
    impl Sealed for super::SlidingCounter {}
    impl Sealed for super::Limit {}
}

/// Longest span that a limit may cover: instants that lie two of them after now still fit.
pub(crate) const LONGEST: u64 = (1 << 63) - 1;
