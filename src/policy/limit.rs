//! Any of the five limits as one value, and its state.

use std::time::Duration;

use super::fixed_window::WindowState;
use super::gcra::{BucketState, Gcra};
use super::sliding_counter::CounterState;
use super::sliding_log::LogState;
use super::{FixedWindow, LeakyBucket, Policy, SlidingCounter, SlidingLog, TokenBucket};
use crate::decision::Decision;
use crate::tick::{Fine, Tick};

/// One of the five rate limits.
///
/// Its text form reads back what it prints: `token_bucket 10/s burst 50`, `leaky_bucket 10/s depth 5`,
/// `fixed_window 100 per 1min aligned 0s`, `sliding_log 100 per 1min`, `sliding_counter 100 per 1min`; a bucket that does
/// not start full ends in `initial 0`.
///
/// # Examples
/// ```
/// use sluicegate::{Limit, Rate};
///
/// let limit: Limit = "token_bucket 10/s burst 50".parse()?;
/// assert_eq!(limit, Rate::per_second(10).burst(50).into());
/// assert_eq!(limit.to_string(), "token_bucket 10/s burst 50");
/// assert!("fixed_window 0 per 1min".parse::<Limit>().is_err());
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// A burst at once, then the rate.
    TokenBucket(TokenBucket),
    /// The rate, with little or no burst; as a meter.
    LeakyBucket(LeakyBucket),
    /// So many per window, counted anew in each.
    FixedWindow(FixedWindow),
    /// So many in any window, exactly.
    SlidingLog(SlidingLog),
    /// So many in any window, estimated from two counts.
    SlidingCounter(SlidingCounter),
}

/// State of a [`Limit`]. One of another kind than the limit counts as fresh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitState {
    /// Of a token bucket.
    TokenBucket(BucketState),
    /// Of a leaky bucket.
    LeakyBucket(BucketState),
    /// Of a fixed window.
    FixedWindow(WindowState),
    /// Of a sliding log.
    SlidingLog(LogState),
    /// Of a sliding counter.
    SlidingCounter(CounterState),
}

impl Limit {
    /// Most that passes at once: the burst, the depth, or the limit of a window.
    #[must_use]
    pub const fn quota(&self) -> u64 {
        match self {
            Self::TokenBucket(rule) => rule.quota(),
            Self::LeakyBucket(rule) => rule.quota(),
            Self::FixedWindow(rule) => rule.quota(),
            Self::SlidingLog(rule) => rule.quota(),
            Self::SlidingCounter(rule) => rule.quota(),
        }
    }

    /// Time in which the quota comes back: the window, or how long a bucket takes from empty to full.
    #[must_use]
    pub fn window(&self) -> Duration {
        match self {
            Self::TokenBucket(rule) => rule.window(),
            Self::LeakyBucket(rule) => rule.window(),
            Self::FixedWindow(rule) => rule.window(),
            Self::SlidingLog(rule) => rule.window(),
            Self::SlidingCounter(rule) => rule.window(),
        }
    }

    /// The numbers of a bucket; `None` for the rules that count in windows.
    #[inline]
    pub(crate) const fn bucket(&self) -> Option<Gcra> {
        match self {
            Self::TokenBucket(rule) => Some(rule.core()),
            Self::LeakyBucket(rule) => Some(rule.core()),
            Self::FixedWindow(_) | Self::SlidingLog(_) | Self::SlidingCounter(_) => None,
        }
    }

    /// Whether a fresh state is one in which the whole quota is free.
    pub(crate) const fn starts_full(&self) -> bool {
        match self {
            Self::TokenBucket(rule) => rule.starts_with() == rule.quota(),
            _ => true,
        }
    }

    /// The same limit with a fresh state in which the whole quota is free.
    pub(crate) const fn starting_full(self) -> Self {
        match self {
            Self::TokenBucket(rule) => Self::TokenBucket(rule.initial(rule.quota())),
            _ => self,
        }
    }

    /// As [`peek`](Policy::peek); in a bucket a grant leaves half of it, or what the cost leaves.
    pub(crate) fn peek_keeping_half(&self, state: &LimitState, now: Tick, cost: u64) -> Decision {
        match (self.bucket(), state.bucket()) {
            (Some(core), Some(bucket)) if self.fits(state) => {
                core.peek(bucket, now, cost, core.half_kept(cost))
            }
            (Some(_), _) => self.peek_keeping_half(&self.start(now), now, cost),
            (None, _) => self.peek(state, now, cost),
        }
    }

    /// Gives a cost back at `now`; after its window that is a no-op.
    pub(crate) fn refund_at(&self, state: &mut LimitState, charged_at: Tick, cost: u64, now: Tick) {
        let past = |core: Gcra| core.is_past(charged_at, now);
        if !self.bucket().is_some_and(past) {
            self.refund(state, charged_at, cost);
        }
    }

    /// Whether the state is of this kind of limit.
    pub(crate) const fn fits(&self, state: &LimitState) -> bool {
        matches!(
            (self, state),
            (Self::TokenBucket(_), LimitState::TokenBucket(_))
                | (Self::LeakyBucket(_), LimitState::LeakyBucket(_))
                | (Self::FixedWindow(_), LimitState::FixedWindow(_))
                | (Self::SlidingLog(_), LimitState::SlidingLog(_))
                | (Self::SlidingCounter(_), LimitState::SlidingCounter(_))
        )
    }

    /// The state under this limit of someone whom `old` counted until now: what is used stays used, in units.
    pub(crate) fn adopt(&self, state: &LimitState, old: &Self, now: Tick) -> LimitState {
        match (self, old, state) {
            (Self::TokenBucket(new), Self::TokenBucket(old), LimitState::TokenBucket(state)) => {
                LimitState::TokenBucket(rescaled(new.core(), old.core(), state, now))
            }
            (Self::LeakyBucket(new), Self::LeakyBucket(old), LimitState::LeakyBucket(state)) => {
                LimitState::LeakyBucket(rescaled(new.core(), old.core(), state, now))
            }
            (Self::FixedWindow(new), Self::FixedWindow(old), LimitState::FixedWindow(state)) => {
                LimitState::FixedWindow(new.adopted(state, old, now))
            }
            _ if self.fits(state) => state.clone(),
            _ => self.start(now),
        }
    }
}

/// `tat' = now + (tat - now) * T' / T`: the lead is so many units, and stays so many.
fn rescaled(new: Gcra, old: Gcra, state: &BucketState, now: Tick) -> BucketState {
    let now = now.max(state.last);
    let lead = state.tat.minus(Fine::at(now));
    BucketState {
        tat: Fine::at(now).plus(lead.scaled(new.interval(), old.interval())),
        last: state.last,
    }
}

impl LimitState {
    pub(crate) const fn bucket(&self) -> Option<&BucketState> {
        match self {
            Self::TokenBucket(state) | Self::LeakyBucket(state) => Some(state),
            Self::FixedWindow(_) | Self::SlidingLog(_) | Self::SlidingCounter(_) => None,
        }
    }

    pub(crate) const fn bucket_mut(&mut self) -> Option<&mut BucketState> {
        match self {
            Self::TokenBucket(state) | Self::LeakyBucket(state) => Some(state),
            Self::FixedWindow(_) | Self::SlidingLog(_) | Self::SlidingCounter(_) => None,
        }
    }
}

/// Calls the rule with the state of its own kind; any other state counts as fresh.
macro_rules! dispatch {
    ($limit:expr, $state:expr, |$rule:ident, $own:ident| $call:expr, else $fresh:expr) => {
        match ($limit, $state) {
            (Limit::TokenBucket($rule), LimitState::TokenBucket($own)) => $call,
            (Limit::LeakyBucket($rule), LimitState::LeakyBucket($own)) => $call,
            (Limit::FixedWindow($rule), LimitState::FixedWindow($own)) => $call,
            (Limit::SlidingLog($rule), LimitState::SlidingLog($own)) => $call,
            (Limit::SlidingCounter($rule), LimitState::SlidingCounter($own)) => $call,
            _ => $fresh,
        }
    };
}

impl Policy for Limit {
    type State = LimitState;

    fn start(&self, now: Tick) -> LimitState {
        match self {
            Self::TokenBucket(rule) => LimitState::TokenBucket(rule.start(now)),
            Self::LeakyBucket(rule) => LimitState::LeakyBucket(rule.start(now)),
            Self::FixedWindow(rule) => LimitState::FixedWindow(rule.start(now)),
            Self::SlidingLog(rule) => LimitState::SlidingLog(rule.start(now)),
            Self::SlidingCounter(rule) => LimitState::SlidingCounter(rule.start(now)),
        }
    }

    fn peek(&self, state: &LimitState, now: Tick, cost: u64) -> Decision {
        dispatch!(self, state, |rule, own| rule.peek(own, now, cost), else {
            self.peek(&self.start(now), now, cost)
        })
    }

    fn refund(&self, state: &mut LimitState, charged_at: Tick, cost: u64) {
        dispatch!(self, state, |rule, own| rule.refund(own, charged_at, cost), else {});
    }

    fn is_idle(&self, state: &LimitState, now: Tick) -> bool {
        dispatch!(self, state, |rule, own| rule.is_idle(own, now), else true)
    }

    fn charge(&self, state: &mut LimitState, at: Tick, cost: u64) {
        if cost > 0 && !self.fits(state) {
            *state = self.start(at);
        }
        dispatch!(self, state, |rule, own| rule.charge(own, at, cost), else {});
    }
}

macro_rules! from_each {
    ($($kind:ident),*) => {$(
        impl From<$kind> for Limit {
            fn from(rule: $kind) -> Self {
                Self::$kind(rule)
            }
        }
    )*};
}

from_each!(
    TokenBucket,
    LeakyBucket,
    FixedWindow,
    SlidingLog,
    SlidingCounter
);
