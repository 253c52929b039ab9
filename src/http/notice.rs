//! What a client is told: how the limits stand, as one decision left them.

use std::time::Duration;

use crate::decision::{Decision, Verdict};
use crate::policy::Limit;
use crate::rate::Rate;
use crate::tick::Tick;

/// How one limit stands after a decision.
///
/// # Examples
/// ```
/// use sluicegate::http::{HeaderDialect, Notice, ResetSemantics, Standing};
/// use sluicegate::{Limit, Policy, Rate, Tick};
///
/// let limit: Limit = Rate::per_second(10).burst(100).into();
/// let mut state = limit.start(Tick::ZERO);
/// let decision = limit.check(&mut state, Tick::ZERO, 64);
///
/// let standings = [Standing::of("user", &limit, &decision)];
/// let notice = Notice::granted(&standings, 64, decision.at);
/// let fields = HeaderDialect::ListDraft.encode(&notice, ResetSemantics::Full);
/// let texts: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
/// assert_eq!(texts, ["ratelimit-policy: \"user\";q=100;w=10", "ratelimit: \"user\";r=36;t=7"]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Standing<'a> {
    pub(super) name: &'a str,
    pub(super) quota: u64,
    pub(super) window: Option<Duration>,
    pub(super) unit: QuotaUnit,
    pub(super) remaining: u64,
    pub(super) next_unit_in: Option<Duration>,
    pub(super) full_in: Option<Duration>,
    pub(super) is_refusing: bool,
}

/// What a quota is counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QuotaUnit {
    /// Requests, or their cost.
    #[default]
    Requests,
    /// Bytes of content.
    ContentBytes,
    /// Requests being served at once.
    ConcurrentRequests,
}

impl<'a> Standing<'a> {
    /// How a limit stands after its decision.
    #[must_use]
    pub fn of(name: &'a str, limit: &Limit, decision: &Decision) -> Self {
        Self {
            name,
            quota: limit.quota(),
            window: Some(limit.window()),
            unit: QuotaUnit::Requests,
            remaining: decision.remaining,
            next_unit_in: Some(decision.next_unit_in),
            full_in: Some(decision.reset_after),
            is_refusing: !decision.is_granted(),
        }
    }

    /// How a bound of requests being served at once stands. It has no window, and nobody knows when one ends.
    #[must_use]
    pub const fn in_flight(name: &'a str, most: u64, running: u64) -> Self {
        Self {
            name,
            quota: most,
            window: None,
            unit: QuotaUnit::ConcurrentRequests,
            remaining: most.saturating_sub(running),
            next_unit_in: None,
            full_in: None,
            is_refusing: false,
        }
    }

    /// How a queue stands that drains at a rate: room, and the time until it is empty if nobody else comes.
    #[must_use]
    pub fn queue(name: &'a str, capacity: u64, depth: u64, rate: Rate) -> Self {
        let emptied = |units: u64| {
            let nanos = u128::from(units) * rate.period().as_nanos();
            duration(nanos.div_ceil(u128::from(rate.count())))
        };
        Self {
            name,
            quota: capacity,
            window: Some(emptied(capacity)),
            unit: QuotaUnit::Requests,
            remaining: capacity.saturating_sub(depth),
            next_unit_in: Some(emptied(u64::from(depth >= capacity))),
            full_in: Some(emptied(depth)),
            is_refusing: false,
        }
    }

    /// The same, as the one that refused.
    #[must_use]
    pub const fn refusing(mut self) -> Self {
        self.is_refusing = true;
        self
    }

    /// The same, counted in another unit.
    #[must_use]
    pub const fn counted_in(mut self, unit: QuotaUnit) -> Self {
        self.unit = unit;
        self
    }

    /// Quota and window in whole seconds: scaled up to them where that comes out whole, else without a window.
    pub(super) fn policy(&self) -> (u64, Option<u64>) {
        let Some(window) = self.window.filter(|window| !window.is_zero()) else {
            return (self.quota, None);
        };
        let seconds = ceil(window).max(1);
        let (nanos, whole) = (window.as_nanos(), u128::from(seconds) * 1_000_000_000);
        let exact = u128::from(self.quota) * whole;
        let scaled = (exact + nanos / 2) / nanos;
        // The window of a bucket is known to a nanosecond, so its multiples are to as many.
        let is_whole = exact.abs_diff(scaled * nanos) <= scaled;
        match u64::try_from(scaled) {
            Ok(quota) if is_whole => (quota, Some(seconds)),
            _ => (self.quota, None),
        }
    }
}

/// Everything that header fields tell, out of one decision.
#[derive(Clone, Copy, Debug)]
pub struct Notice<'a> {
    pub(super) standings: &'a [Standing<'a>],
    pub(super) cost: u64,
    pub(super) at: Tick,
    pub(super) refused: bool,
    pub(super) retry_after: Option<u64>,
}

impl<'a> Notice<'a> {
    /// Tells how things stand after a request of so much cost was let through at `at`.
    #[must_use]
    pub const fn granted(standings: &'a [Standing<'a>], cost: u64, at: Tick) -> Self {
        Self {
            standings,
            cost,
            at,
            refused: false,
            retry_after: None,
        }
    }

    /// Tells that it was refused, and after what wait it is worth coming again; `None` if it never is.
    ///
    /// Clients are told whole seconds, rounded up and at least 1.
    #[must_use]
    pub fn refused(
        standings: &'a [Standing<'a>],
        cost: u64,
        at: Tick,
        wait: Option<Duration>,
    ) -> Self {
        Self {
            refused: true,
            retry_after: wait.map(|wait| ceil(wait).max(1)),
            ..Self::granted(standings, cost, at)
        }
    }

    /// The same, telling to come back after so many seconds instead.
    #[must_use]
    pub const fn retry_after(mut self, seconds: Option<u64>) -> Self {
        self.retry_after = seconds;
        self
    }

    /// The one that is closest to refusing: fewest further requests of this cost, then the longest time.
    pub(super) fn tightest(&self) -> Option<&'a Standing<'a>> {
        let cost = self.cost.max(1);
        let fits = |standing: &&Standing<'_>| {
            (
                !standing.is_refusing,
                standing.remaining / cost,
                std::cmp::Reverse(standing.full_in),
            )
        };
        self.standings.iter().min_by_key(fits)
    }
}

/// Wait until this decision's cost fits; `None` for one that never does.
pub(super) const fn wait(decision: &Decision) -> Option<Duration> {
    match decision.verdict {
        Verdict::Granted => Some(Duration::ZERO),
        Verdict::Refused { retry_after } => Some(retry_after),
        Verdict::Never { .. } => None,
    }
}

/// Whole seconds, rounded up.
pub(super) const fn ceil(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_add((duration.subsec_nanos() > 0) as u64)
}

fn duration(nanos: u128) -> Duration {
    let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
    Duration::new(seconds, (nanos % 1_000_000_000) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_told_in_whole_seconds_or_not_at_all() {
        let policy = |quota, window| {
            let standing = Standing {
                window,
                ..Standing::in_flight("a", quota, 0)
            };
            standing.policy()
        };
        let millis = |millis| Some(Duration::from_millis(millis));
        assert_eq!(policy(10, millis(100)), (100, Some(1)));
        assert_eq!(policy(100, millis(60_000)), (100, Some(60)));
        assert_eq!(policy(7, millis(1500)), (7, None));
        assert_eq!(policy(3, millis(1500)), (4, Some(2)));
        assert_eq!(policy(5, None), (5, None));
        assert_eq!(
            policy(1, Some(Duration::from_nanos(1))),
            (1_000_000_000, Some(1))
        );
        assert_eq!(policy(u64::MAX, millis(1)), (u64::MAX, None));
        // A bucket of 10 at 3/s takes 3.333... s, known to a nanosecond.
        let limit = Limit::from(Rate::per_second(3).burst(10));
        assert_eq!(policy(10, Some(limit.window())), (12, Some(4)));
    }

    #[test]
    fn the_tightest_has_room_for_the_fewest_and_then_the_longest_time() {
        let standing = |name, remaining, full_in| Standing {
            remaining,
            full_in: Some(Duration::from_secs(full_in)),
            ..Standing::in_flight(name, 100, 0)
        };
        let all = [
            standing("a", 9, 1),
            standing("b", 7, 1),
            standing("c", 6, 9),
        ];
        let name = |cost| {
            let notice = Notice::granted(&all, cost, Tick::ZERO);
            notice.tightest().map(|standing| standing.name)
        };
        assert_eq!(name(1), Some("c"));
        assert_eq!(name(0), Some("c"));
        // 7 and 6 both have room for one more of 5.
        assert_eq!(name(5), Some("c"));
        let all = [
            standing("a", 9, 1),
            standing("b", 7, 10),
            standing("c", 6, 9),
        ];
        let notice = Notice::granted(&all, 5, Tick::ZERO);
        assert_eq!(notice.tightest().map(|standing| standing.name), Some("b"));
    }
}
