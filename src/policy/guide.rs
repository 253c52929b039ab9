//! Which limit to take, as code: requirements in, one recommendation out, whatever the combination.

use std::time::Duration;

use super::{FixedWindow, LONGEST, LeakyBucket, Limit, SlidingCounter, SlidingLog, TokenBucket};
use crate::error::LimitError;
use crate::rate::Rate;

/// What a limit has to do; [`recommend`](Self::recommend) says which one does it.
///
/// The trade-offs behind the answer:
///
/// | limit | lets bursts through | precision | memory per key |
/// |---|---|---|---|
/// | [`FixedWindow`] | yes, twice its limit at a seam | low: the seam | low: 16 bytes |
/// | sliding window, both kinds below | no | medium to high | medium |
/// | [`SlidingLog`] | no | high: exact | high: 16 bytes per unit of the limit |
/// | [`SlidingCounter`] | a little, at the edges | medium to high: an estimate | low: two counts |
/// | [`LeakyBucket`], and the queue | no | high: exact | low: 16 bytes; the queue holds its jobs |
/// | [`TokenBucket`] | yes, as many as you say | high: exact | low: 16 bytes |
///
/// Bursts without steadiness are a token bucket, steadiness without bursts is the leaky bucket as a queue, and both
/// together are a Gate: a token bucket at the door and the queue behind it. Exactness over a period is a log where its
/// memory is affordable (64 MiB over all keys), else a counter. What asks for none of these is served by the cheapest, a
/// fixed window. A limit shared by several processes lives in the Redis store.
///
/// # Examples
/// ```
/// use sluicegate::{Limit, Rate, Requirements};
///
/// // Bursts in, a steady flow out: seems a contradiction, and is a Gate.
/// let both = Requirements::new(Rate::per_second(10)).burst(50).steady(true).recommend();
/// assert_eq!(both.limit.to_string(), "token_bucket 10/s burst 50");
/// assert!(both.implementation.contains("Gate"));
///
/// // Exact for a million callers takes too much memory for a log.
/// let many = Requirements::new(Rate::per_minute(100)).exact(true).keys(1_000_000).recommend();
/// assert!(matches!(many.limit, Limit::SlidingCounter(_)));
/// ```
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirements {
    rate: Rate,
    burst: u64,
    keys: u64,
    processes: u64,
    exact: bool,
    steady: bool,
}

/// What to build for given [`Requirements`], and what it then holds to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recommendation {
    /// The limit, with its numbers.
    pub limit: Limit,
    /// The type of this crate that carries it.
    pub implementation: &'static str,
    /// Why this one, in a sentence.
    pub why: String,
    /// Most that it lets through.
    pub bound: String,
}

impl Requirements {
    /// Asks for so many units per time, with nothing else required.
    pub const fn new(rate: Rate) -> Self {
        Self {
            rate,
            burst: 1,
            keys: 1,
            processes: 1,
            exact: false,
            steady: false,
        }
    }

    /// Units that may pass at once after idleness; 0 and 1 both ask for none. Default 1.
    pub const fn burst(mut self, units: u64) -> Self {
        self.burst = if units == 0 { 1 } else { units };
        self
    }

    /// Callers that are counted apart; 0 counts as 1. Default 1, which is one limit for all.
    pub const fn keys(mut self, keys: u64) -> Self {
        self.keys = if keys == 0 { 1 } else { keys };
        self
    }

    /// Whether no span of one period may ever see more than the count. Default false.
    pub const fn exact(mut self, exact: bool) -> Self {
        self.exact = exact;
        self
    }

    /// Whether what passes must be spread evenly for whoever is behind. Default false.
    pub const fn steady(mut self, steady: bool) -> Self {
        self.steady = steady;
        self
    }

    /// Processes that share the limit; 0 counts as 1. Default 1.
    pub const fn processes(mut self, processes: u64) -> Self {
        self.processes = if processes == 0 { 1 } else { processes };
        self
    }

    /// Chooses; there is an answer for every combination.
    #[must_use]
    pub fn recommend(&self) -> Recommendation {
        let cut = self.shortened();
        let Self { rate, burst, .. } = cut;
        let count = rate.count();
        let period = rate.period();
        let entries = u128::from(self.keys) * u128::from(count);
        let log_bytes = entries.saturating_mul(ENTRY);
        // A period of the exact limits bounds the burst too; who wants a larger one is served by a bucket.
        let bursty = burst > 1 && (!self.exact || burst > count);
        let (limit, why, bound) = match (bursty || (burst > 1 && self.steady), self.steady) {
            (true, steady) => (
                cut.bucket(),
                if steady {
                    format!(
                        "bursts of {burst} pass the door, and the queue behind it lets them out at {rate}"
                    )
                } else {
                    format!("bursts of {burst} pass at once, and {rate} after them")
                },
                format!("{burst} + w x {rate} in any closed window w"),
            ),
            (false, true) => (
                LeakyBucket::new(rate, 1).map(Limit::from),
                format!("no bursts, and a steady flow of {rate} for whoever is behind"),
                format!("1 + w x {rate} in any closed window w, and the catch-up after a stall"),
            ),
            (false, false) if self.exact && log_bytes <= BUDGET => (
                SlidingLog::new(count, period).map(Limit::from),
                format!("exact over any period, for at most {log_bytes} bytes of log"),
                format!("{count} in any {period:?}"),
            ),
            (false, false) if self.exact => (
                SlidingCounter::new(count, period).map(Limit::from),
                format!("the closest to exact: a log would take up to {log_bytes} bytes"),
                format!(
                    "below 2 x {count} in any {period:?}; {count} if the period before was empty"
                ),
            ),
            (false, false) => (
                FixedWindow::new(count, period).map(Limit::from),
                "nothing else is required, and this is the cheapest".to_owned(),
                format!("{count} in each window of {period:?}; 2 x {count} across a seam"),
            ),
        };
        let limit = limit.expect("a shortened rate and burst make a valid limit");
        Recommendation {
            limit,
            implementation: self.implementation(),
            why: if cut == *self {
                why
            } else {
                format!("{why}; numbers beyond 292 years are cut to what instants can hold")
            },
            bound,
        }
    }

    const fn implementation(&self) -> &'static str {
        let shared = self.processes > 1;
        match (self.steady, self.burst > 1, shared, self.keys > 1) {
            (true, true, false, _) => "Gate: a Hierarchy in front of the queue",
            (true, true, true, _) => {
                "Gate: a Hierarchy on the Redis store in front of the Redis queue"
            }
            (true, false, false, _) => "queue, or a Turnstile if there is nothing to hand over",
            (true, false, true, _) => "queue on Redis",
            (false, _, true, _) => "Hierarchy on the Redis store",
            (false, _, false, true) => "KeyedLimiter",
            (false, _, false, false) => "RateLimiter",
        }
    }

    fn bucket(&self) -> Result<Limit, LimitError> {
        TokenBucket::new(self.rate, self.burst).map(Limit::from)
    }

    /// The same requirements with a period and a burst that every limit accepts.
    fn shortened(mut self) -> Self {
        let longest = Duration::from_nanos(LONGEST);
        if self.rate.period() > longest {
            let rate = Rate::new(self.rate.count(), longest);
            self.rate = rate.expect("neither the count nor the period is zero");
        }
        let fits = self.rate.units_in(longest).max(1);
        self.burst = self.burst.min(fits);
        self
    }
}

/// Bytes of one entry of a log.
const ENTRY: u128 = 16;
/// Memory beyond which a log is not recommended: what a service can spare without noticing.
const BUDGET: u128 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(asked: Requirements, limit: &str, implementation: &str) {
        let answer = asked.recommend();
        assert_eq!(answer.limit.to_string(), limit);
        assert!(answer.implementation.contains(implementation), "{answer:?}");
    }

    #[test]
    fn each_row_of_the_table_is_recommended_to_whoever_needs_it() {
        let asked = Requirements::new(Rate::per_minute(100));
        check(asked, "fixed_window 100 per 1min", "RateLimiter");
        check(asked.keys(50), "fixed_window 100 per 1min", "KeyedLimiter");
        check(asked.exact(true), "sliding_log 100 per 1min", "RateLimiter");
        check(
            asked.exact(true).keys(1 << 20),
            "sliding_counter 100 per 1min",
            "KeyedLimiter",
        );
        check(asked.steady(true), "leaky_bucket 100/min depth 1", "queue");
        check(
            asked.burst(50),
            "token_bucket 100/min burst 50",
            "RateLimiter",
        );
        check(
            asked.burst(50).steady(true),
            "token_bucket 100/min burst 50",
            "Gate",
        );
    }

    #[test]
    fn contradictions_and_sharing_have_an_answer_of_their_own() {
        let asked = Requirements::new(Rate::per_minute(100)).processes(3);
        check(asked, "fixed_window 100 per 1min", "Redis");
        check(
            asked.burst(50).steady(true),
            "token_bucket 100/min burst 50",
            "Redis",
        );
        // Exact already lets a burst of the whole count through; a larger one takes a bucket.
        check(
            asked.exact(true).burst(50),
            "sliding_log 100 per 1min",
            "Redis",
        );
        check(
            asked.exact(true).burst(500),
            "token_bucket 100/min burst 500",
            "Redis",
        );
    }

    proptest! {
        #[test]
        fn guide_is_total(
            (count, period) in (1..=u64::MAX, 1..=u64::MAX),
            (burst, keys, processes) in any::<(u64, u64, u64)>(),
            (exact, steady) in any::<(bool, bool)>(),
        ) {
            let rate = Rate::new(count, Duration::from_nanos(period)).expect("both are above zero");
            let asked = Requirements::new(rate).burst(burst).keys(keys).processes(processes);
            let answer = asked.exact(exact).steady(steady).recommend();
            prop_assert!(!answer.implementation.is_empty() && !answer.why.is_empty() && !answer.bound.is_empty());
            prop_assert_eq!(answer.implementation.contains("Redis"), processes > 1);
        }
    }
}
