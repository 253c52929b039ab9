//! The core of both buckets: the generic cell rate algorithm (ITU-T I.371; ATM Forum TM 4.0, virtual scheduling).
//!
//! One instant is kept, the theoretical arrival time `tat`: when a caller who had kept exactly to the rate would be due
//! again. With the interval `T` of one unit and the tolerance `B = depth T`, a cost `n` at `now` fits when
//! `max(tat, now) + n T - now <= B`, and then moves `tat` to `max(tat, now) + n T`.
//!
//! `T` is cut off at 2^-64 ns. For n units the sum is then off by less than n 2^-64 ns, while two different verdicts of
//! the exact rational rule for `count` per period lie at least 1/count ns apart: with up to 1e9 units a second, every
//! decision equals that rule's until 1.8e10 units have passed without a pause, and is within 2^-64 T of it for ever.

use std::time::Duration;

use super::LONGEST;
use crate::decision::{Decision, Verdict};
use crate::error::LimitError;
use crate::rate::Rate;
use crate::tick::{Fine, Tick};

/// Numbers of one bucket, worked out once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gcra {
    interval: Fine,
    tolerance: Fine,
    depth: u64,
}

/// State of a bucket: its theoretical arrival time, and when it was last charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketState {
    pub(crate) tat: Fine,
    pub(crate) last: Tick,
}

impl BucketState {
    pub(crate) const fn new(tat: Fine) -> Self {
        Self {
            tat,
            last: Tick::ZERO,
        }
    }
}

impl Gcra {
    pub(crate) const fn new(
        rate: Rate,
        depth: u64,
        field: &'static str,
    ) -> Result<Self, LimitError> {
        if depth == 0 {
            return Err(LimitError::Zero { field });
        }
        let interval = rate.interval();
        match interval.0.checked_mul(depth as u128) {
            Some(tolerance) if tolerance <= (LONGEST as u128) << 64 => Ok(Self {
                interval,
                tolerance: Fine(tolerance),
                depth,
            }),
            _ => Err(LimitError::TooSlow { rate, burst: depth }),
        }
    }

    pub(crate) const fn interval(self) -> Fine {
        self.interval
    }

    pub(crate) const fn tolerance(self) -> Fine {
        self.tolerance
    }

    pub(crate) const fn depth(self) -> u64 {
        self.depth
    }

    /// Time from empty to full, rounded up.
    pub(crate) fn window(self) -> Duration {
        self.tolerance.duration()
    }

    /// `tat` of a bucket that holds `units` at `now`.
    pub(crate) fn holding(self, now: Tick, units: u64) -> Fine {
        let used = self.depth.saturating_sub(units);
        Fine::at(now).plus(self.interval.times(used))
    }

    /// The latest `tat` of a bucket that nobody waits for; one of a limit that was larger is clamped to it.
    #[inline]
    pub(crate) fn furthest(self, now: Tick) -> Fine {
        Fine::at(now).plus(self.tolerance)
    }

    /// Units that stay in an elevated bucket after `cost`: half of it, or what the cost leaves.
    pub(crate) const fn half_kept(self, cost: u64) -> u64 {
        let (half, rest) = (self.depth / 2, self.depth.saturating_sub(cost));
        if half < rest { half } else { rest }
    }

    /// `tat` after a cost, if it is granted and leaves at least `kept` units in the bucket.
    #[inline(always)]
    pub(crate) fn fit(self, tat: Fine, now: Tick, cost: u64, kept: u64) -> Option<Fine> {
        let charged = self.charged(tat, now, cost);
        let most = Fine::at(now).plus(self.room(kept));
        // A sum that stands at the end of time did not fit an instant: then nothing is granted any more.
        let fits = charged <= most && cost <= self.depth && charged < Fine(u128::MAX);
        (fits || cost == 0).then_some(charged)
    }

    /// Judges a cost; a grant leaves at least `kept` units in the bucket.
    #[inline]
    pub(crate) fn judge(self, tat: Fine, now: Tick, cost: u64, kept: u64) -> Decision {
        let granted = self.fit(tat, now, cost, kept).is_some();
        self.decision(tat, now, cost, kept, granted)
    }

    /// What there is to say of a cost that was granted or not, as [`fit`](Self::fit) told.
    ///
    /// Inlined, so that a caller who only asks for the verdict does not pay for the other numbers.
    #[inline(always)]
    pub(crate) fn decision(
        self,
        tat: Fine,
        now: Tick,
        cost: u64,
        kept: u64,
        granted: bool,
    ) -> Decision {
        let before = tat.minus(Fine::at(now));
        let after = before.plus(self.interval.times(cost));
        let verdict = if granted {
            Verdict::Granted
        } else if cost > self.depth {
            Verdict::Never {
                max_cost: self.depth,
            }
        } else {
            let wait = after.minus(self.room(kept)).duration();
            Verdict::Refused {
                retry_after: wait.max(Duration::from_nanos(1)),
            }
        };
        let lead = if granted { after } else { before };
        let remaining = self.tolerance.minus(lead).over(self.interval);
        Decision {
            at: now,
            verdict,
            limit: self.depth,
            remaining,
            next_unit_in: match remaining {
                0 => lead.plus(self.interval).minus(self.tolerance).duration(),
                _ => Duration::ZERO,
            },
            reset_after: lead.duration(),
        }
    }

    /// What a caller may use of the tolerance who has to leave `kept` units.
    #[inline]
    fn room(self, kept: u64) -> Fine {
        self.tolerance.minus(self.interval.times(kept))
    }

    /// `tat` after a cost, whether it fitted or is charged ahead.
    #[inline]
    pub(crate) fn charged(self, tat: Fine, at: Tick, cost: u64) -> Fine {
        match cost {
            0 => tat,
            _ => tat.max(Fine::at(at)).plus(self.interval.times(cost)),
        }
    }

    /// `tat` after giving back a cost that was charged at `charged_at`.
    pub(crate) fn refunded(self, tat: Fine, charged_at: Tick, cost: u64) -> Fine {
        let charged = Fine::at(charged_at);
        // Before its charge the bucket was at most full, so the refund does not reach further back than that.
        tat.minus(self.interval.times(cost)).max(tat.min(charged))
    }

    /// Whether a charge at `charged_at` has surely been refilled by `now`.
    pub(crate) fn is_past(self, charged_at: Tick, now: Tick) -> bool {
        Fine::at(now) >= Fine::at(charged_at).plus(self.tolerance)
    }

    pub(crate) fn peek(self, state: &BucketState, now: Tick, cost: u64, kept: u64) -> Decision {
        self.judge(state.tat, now.max(state.last), cost, kept)
    }

    pub(crate) fn charge(self, state: &mut BucketState, at: Tick, cost: u64) {
        if cost > 0 {
            state.tat = self.charged(state.tat, at, cost);
            state.last = state.last.max(at);
        }
    }

    pub(crate) fn refund(self, state: &mut BucketState, charged_at: Tick, cost: u64) {
        if !self.is_past(charged_at, state.last) {
            state.tat = self.refunded(state.tat, charged_at, cost);
        }
    }

    /// Whether the bucket holds what a fresh one with `initial` units would.
    pub(crate) fn is_fresh(self, state: &BucketState, now: Tick, initial: u64) -> bool {
        state.tat.max(Fine::at(now)) == self.holding(now, initial)
    }
}
