//! Leaky bucket as a meter: it decides and holds nothing back.

use std::time::Duration;

use super::Policy;
use super::gcra::{BucketState, Gcra};
use crate::decision::Decision;
use crate::error::LimitError;
use crate::rate::Rate;
use crate::tick::Tick;

/// Fills by the cost of what passes, leaks without pause at `rate`, and refuses what would overflow `depth`.
///
/// | | |
/// |---|---|
/// | bound | any closed window `w` lets at most `depth + rate w` through |
/// | bursts | up to `depth`; with depth 1 none at all: units pass at least one interval apart |
/// | memory | one instant (16 bytes) per key |
/// | error | none: decisions equal the exact rational rule's |
///
/// This is the leaky bucket *as a meter* (Turner 1986): what does not fit is refused at once. The leaky bucket *as a
/// queue*, which stores jobs and lets them out at a steady pace, is the crate's queue. As a meter it is the mirror image
/// of the token bucket and decides alike for the same numbers; it says better what is meant when the point is an even
/// spacing rather than a burst.
///
/// # Examples
/// ```
/// use sluicegate::{LeakyBucket, Policy, Rate, Tick};
/// use std::time::Duration;
///
/// let rule = LeakyBucket::new(Rate::per_second(10), 1)?;
/// let mut state = rule.start(Tick::ZERO);
/// assert!(rule.check(&mut state, Tick::ZERO, 1).is_granted());
/// let refused = rule.check(&mut state, Tick::from_nanos(1), 1);
/// assert_eq!(refused.retry_after(), Some(Duration::from_nanos(99_999_999)));
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    rate: Rate,
    core: Gcra,
}

impl LeakyBucket {
    /// Makes an empty bucket that holds `depth` units.
    ///
    /// # Errors
    /// If the depth is 0, or takes longer than 292 years to leak.
    pub const fn new(rate: Rate, depth: u64) -> Result<Self, LimitError> {
        match Gcra::new(rate, depth, "depth") {
            Ok(core) => Ok(Self { rate, core }),
            Err(error) => Err(error),
        }
    }

    /// Units that leak per time.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Units that fit the bucket.
    #[must_use]
    pub const fn quota(&self) -> u64 {
        self.core.depth()
    }

    /// Time in which a full bucket leaks out, rounded up to a nanosecond.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.core.window()
    }

    pub(crate) const fn core(&self) -> Gcra {
        self.core
    }
}

impl Policy for LeakyBucket {
    type State = BucketState;

    fn start(&self, now: Tick) -> BucketState {
        BucketState::new(self.core.holding(now, self.core.depth()))
    }

    fn peek(&self, state: &BucketState, now: Tick, cost: u64) -> Decision {
        self.core.peek(state, now, cost, 0)
    }

    fn refund(&self, state: &mut BucketState, charged_at: Tick, cost: u64) {
        self.core.refund(state, charged_at, cost);
    }

    fn is_idle(&self, state: &BucketState, now: Tick) -> bool {
        self.core.is_fresh(state, now, self.core.depth())
    }

    fn charge(&self, state: &mut BucketState, at: Tick, cost: u64) {
        self.core.charge(state, at, cost);
    }
}
