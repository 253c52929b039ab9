//! Token bucket: a burst at once after idleness, then the rate.

use std::time::Duration;

use super::Policy;
use super::gcra::{BucketState, Gcra};
use crate::decision::Decision;
use crate::error::LimitError;
use crate::rate::Rate;
use crate::tick::Tick;

/// Holds up to `burst` tokens, refilled without pause at `rate`; a cost takes as many.
///
/// | | |
/// |---|---|
/// | bound | any closed window `w` lets at most `burst + rate w` through |
/// | bursts | yes, up to `burst` after idleness |
/// | memory | one instant (16 bytes) per key |
/// | error | none: decisions equal the exact rational rule's |
///
/// It starts full, see [`initial`](Self::initial). For a queue at a fixed rate behind the limit use the crate's queue:
/// this rule decides at once and holds nothing back. The arithmetic is the generic cell rate algorithm of ITU-T I.371.
///
/// # Examples
/// ```
/// use sluicegate::{Policy, Rate, Tick};
/// use std::time::Duration;
///
/// // 50 at once, then 10 a second.
/// let rule = Rate::per_second(10).burst(50);
/// let mut state = rule.start(Tick::ZERO);
/// assert!(rule.check(&mut state, Tick::ZERO, 50).is_granted());
/// let refused = rule.check(&mut state, Tick::ZERO, 1);
/// assert_eq!(refused.retry_after(), Some(Duration::from_millis(100)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    rate: Rate,
    initial: u64,
    core: Gcra,
}

impl TokenBucket {
    /// Makes a bucket that holds `burst` units and starts full.
    ///
    /// # Errors
    /// If the burst is 0, or takes longer than 292 years to fill.
    pub const fn new(rate: Rate, burst: u64) -> Result<Self, LimitError> {
        match Gcra::new(rate, burst, "burst") {
            Ok(core) => Ok(Self {
                rate,
                initial: burst,
                core,
            }),
            Err(error) => Err(error),
        }
    }

    /// Starts with `units` instead of a full bucket; more than the burst counts as the burst.
    ///
    /// Keyed limiters refuse a start below the burst: they could not forget an idle key without taking its tokens.
    #[must_use]
    pub const fn initial(mut self, units: u64) -> Self {
        let burst = self.core.depth();
        self.initial = if units < burst { units } else { burst };
        self
    }

    /// Preset for a public interface: 100 at once, then 10 a second.
    #[must_use]
    pub const fn public_api() -> Self {
        Rate::per_second(10).burst(100)
    }

    /// Preset for callers who have signed in: 500 at once, then 50 a second.
    #[must_use]
    pub const fn authenticated() -> Self {
        Rate::per_second(50).burst(500)
    }

    /// Preset for writes: 20 at once, then 2 a second.
    #[must_use]
    pub const fn writes() -> Self {
        Rate::per_second(2).burst(20)
    }

    /// Preset for expensive operations: 5 at once, then one in 2 seconds.
    #[must_use]
    pub const fn expensive() -> Self {
        Rate::per_minute(30).burst(5)
    }

    /// Units that come back per time.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Units that fit the bucket.
    #[must_use]
    pub const fn quota(&self) -> u64 {
        self.core.depth()
    }

    /// Units that a fresh bucket holds.
    #[must_use]
    pub const fn starts_with(&self) -> u64 {
        self.initial
    }

    /// Time in which an empty bucket fills, rounded up to a nanosecond.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.core.window()
    }

    pub(crate) const fn core(&self) -> Gcra {
        self.core
    }
}

impl Rate {
    /// Makes a token bucket of this rate that lets `burst` units pass at once.
    ///
    /// # Panics
    /// If the burst is 0 or takes longer than 292 years to fill; [`TokenBucket::new`] returns an error instead.
    #[must_use]
    #[track_caller]
    pub const fn burst(self, burst: u64) -> TokenBucket {
        match TokenBucket::new(self, burst) {
            Ok(bucket) => bucket,
            Err(LimitError::Zero { .. }) => panic!("a burst is at least 1"),
            Err(_) => panic!("a burst fills within 292 years"),
        }
    }
}

impl Policy for TokenBucket {
    type State = BucketState;

    fn start(&self, now: Tick) -> BucketState {
        BucketState::new(self.core.holding(now, self.initial))
    }

    fn peek(&self, state: &BucketState, now: Tick, cost: u64) -> Decision {
        self.core.peek(state, now, cost, 0)
    }

    fn refund(&self, state: &mut BucketState, charged_at: Tick, cost: u64) {
        self.core.refund(state, charged_at, cost);
    }

    fn is_idle(&self, state: &BucketState, now: Tick) -> bool {
        self.core.is_fresh(state, now, self.initial)
    }

    fn charge(&self, state: &mut BucketState, at: Tick, cost: u64) {
        self.core.charge(state, at, cost);
    }
}
