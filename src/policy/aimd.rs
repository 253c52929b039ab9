//! A rate that follows what the downstream can bear: additive increase, multiplicative decrease.
//!
//! Once an interval the outcomes of that interval are judged by absolute standards, never by the recent past: a slow
//! hour does not become the new normal. A bad interval cuts the rate mildly. Good ones win it back: first quickly, by
//! half the distance to where trouble began, then by even steps. A rate that is not used does not grow.
//!
//! After Chiu and Jain, "Analysis of the increase and decrease algorithms" (1989), with the fast recovery of TCP.

use std::time::Duration;

use crate::error::BuildError;
use crate::rate::{Rate, Span};
use crate::tick::Tick;

/// How a queue's rate follows its downstream.
///
/// The rate stays between [`floor`](Self::floor) and [`ceiling`](Self::ceiling). From half of the ceiling it is back at
/// nine tenths within 25 good intervals; a cut to a tenth and a return within 60.
///
/// # Examples
/// ```
/// use sluicegate::Rate;
/// use sluicegate::queue::Aimd;
/// use std::time::Duration;
///
/// let follow = Aimd {
///     target_run_time: Some(Duration::from_millis(50)),
///     ..Aimd::between(Rate::per_second(20), Rate::per_second(400))
/// };
/// # let _ = follow;
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aimd {
    /// Slowest rate; what the downstream can bear at its worst.
    pub floor: Rate,
    /// Fastest rate, and the one it starts at.
    pub ceiling: Rate,
    /// Mean run time above which an interval is bad. Default none: only failures count. Lower reacts sooner.
    pub target_run_time: Option<Duration>,
    /// Share of failed jobs above which an interval is bad, from 0 to 1. Default 0.05.
    pub max_failures: f64,
    /// What a bad interval leaves of the rate, above 0 and below 1. Default 0.8. Higher is milder and slower.
    pub cut: f64,
    /// How often it is judged. Default 1 s; at least 10 ms. Longer is calmer and slower.
    pub interval: Duration,
}

impl Aimd {
    /// Follows between two rates, with the defaults of all else.
    #[must_use]
    pub const fn between(floor: Rate, ceiling: Rate) -> Self {
        Self {
            floor,
            ceiling,
            target_run_time: None,
            max_failures: 0.05,
            cut: 0.8,
            interval: Duration::from_secs(1),
        }
    }

    /// # Errors
    /// The first field that breaks its rule.
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        if self.floor.per_second_f64() > self.ceiling.per_second_f64() {
            let rule = format!("must not be above the ceiling, which is {}", self.ceiling);
            return Err(BuildError::setting("floor", self.floor, rule));
        }
        if !(0.0..=1.0).contains(&self.max_failures) {
            return Err(BuildError::setting(
                "max_failures",
                self.max_failures,
                "must be from 0 to 1",
            ));
        }
        if !(self.cut > 0.0 && self.cut < 1.0) {
            return Err(BuildError::setting(
                "cut",
                self.cut,
                "must be above 0 and below 1",
            ));
        }
        if self.interval < LEAST_INTERVAL {
            let rule = format!("must be at least {LEAST_INTERVAL:?}");
            return Err(BuildError::setting("interval", Span(self.interval), rule));
        }
        Ok(())
    }
}

/// What one interval has shown.
#[derive(Clone, Copy, Debug, Default)]
struct Samples {
    jobs: u64,
    failed: u64,
    run_time: Duration,
    departed: u64,
    strained: bool,
}

impl Samples {
    fn is_empty(&self) -> bool {
        self.jobs == 0 && self.departed == 0 && !self.strained
    }
}

/// The rate as it is now, and what is being learnt.
#[derive(Clone, Debug)]
pub(crate) struct Follower {
    config: Aimd,
    /// Units per second.
    rate: f64,
    /// Where trouble began last: the quick part of the recovery ends near it.
    trouble: f64,
    quick: bool,
    samples: Samples,
    started: Tick,
}

impl Follower {
    pub(crate) fn new(config: Aimd, now: Tick) -> Self {
        let rate = config.ceiling.per_second_f64();
        let samples = Samples::default();
        Self {
            config,
            rate,
            trouble: rate,
            quick: false,
            samples,
            started: now,
        }
    }

    pub(crate) fn rate(&self) -> Rate {
        let Aimd { floor, ceiling, .. } = self.config;
        if self.rate >= ceiling.per_second_f64() {
            ceiling
        } else if self.rate <= floor.per_second_f64() {
            floor
        } else {
            Rate::from_per_second_f64(self.rate)
        }
    }

    pub(crate) fn departed(&mut self, now: Tick, cost: u64) {
        self.open(now);
        self.samples.departed = self.samples.departed.saturating_add(cost);
    }

    /// A job ended; cancelled and abandoned ones say nothing about the downstream and are not told here.
    pub(crate) fn settled(&mut self, now: Tick, run_time: Duration, failed: bool) {
        self.open(now);
        let samples = &mut self.samples;
        samples.jobs += 1;
        samples.failed += u64::from(failed);
        samples.run_time = samples.run_time.saturating_add(run_time);
    }

    /// The downstream itself says that it is strained.
    pub(crate) fn strained(&mut self, now: Tick) {
        self.open(now);
        self.samples.strained = true;
    }

    /// When the present interval ends; none runs while nothing happens.
    pub(crate) fn next(&self) -> Option<Tick> {
        (!self.samples.is_empty()).then(|| self.started + self.config.interval)
    }

    fn open(&mut self, now: Tick) {
        if self.samples.is_empty() {
            self.started = now;
        }
    }

    /// Ends the interval that is over at `now`; whether the rate has changed.
    pub(crate) fn judge(&mut self, now: Tick) -> bool {
        if self.next().is_none_or(|end| now < end) {
            return false;
        }
        let samples = std::mem::take(&mut self.samples);
        let span = (now - self.started).as_secs_f64();
        self.started = now;
        let before = self.rate;
        let Aimd {
            floor,
            ceiling,
            cut,
            ..
        } = self.config;
        let (floor, ceiling) = (floor.per_second_f64(), ceiling.per_second_f64());
        if self.is_bad(&samples) {
            self.trouble = self.rate;
            self.rate = (self.rate * cut).max(floor);
            self.quick = true;
        } else if samples.jobs > 0 && samples.departed as f64 >= 0.5 * before * span {
            if self.quick && self.rate < NEAR * self.trouble {
                self.rate += (self.trouble - self.rate) / 2.0;
            } else {
                self.quick = false;
                self.rate += (ceiling - floor) / EVEN_STEPS;
            }
            self.rate = self.rate.min(ceiling);
        }
        self.rate != before
    }

    fn is_bad(&self, samples: &Samples) -> bool {
        if samples.strained {
            return true;
        }
        if samples.jobs == 0 {
            return false;
        }
        let failures = samples.failed as f64 / samples.jobs as f64;
        let mean = samples.run_time.as_secs_f64() / samples.jobs as f64;
        failures > self.config.max_failures
            || self
                .config
                .target_run_time
                .is_some_and(|target| mean > target.as_secs_f64())
    }
}

const LEAST_INTERVAL: Duration = Duration::from_millis(10);
/// The quick recovery stops short of where trouble began.
const NEAR: f64 = 0.9;
/// Intervals from floor to ceiling by even steps.
const EVEN_STEPS: f64 = 50.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn follower() -> Follower {
        let config = Aimd {
            target_run_time: Some(Duration::from_millis(20)),
            ..Aimd::between(Rate::per_second(20), Rate::per_second(1000))
        };
        Follower::new(config, Tick::ZERO)
    }

    /// One interval beside a downstream that bears so many a second: beyond it, its run time grows.
    fn interval(follower: &mut Follower, second: u64, capacity: f64) -> f64 {
        let start = Tick::from_nanos((second - 1) * 1_000_000_000);
        let rate = follower.rate().per_second_f64();
        let run = if rate > capacity { 100 } else { 5 };
        follower.departed(start, rate as u64);
        for _ in 0..rate as u64 {
            follower.settled(start, Duration::from_millis(run), false);
        }
        follower.judge(Tick::from_nanos(second * 1_000_000_000));
        follower.rate().per_second_f64()
    }

    #[test]
    fn the_rate_follows_a_capacity_that_halves_and_comes_back() {
        let mut follower = follower();
        for second in 1..=60 {
            interval(&mut follower, second, 500.0);
        }
        let mut seen = Vec::new();
        for second in 61..=120 {
            seen.push(interval(&mut follower, second, 500.0));
        }
        let mean = seen.iter().sum::<f64>() / seen.len() as f64;
        assert!((400.0..=520.0).contains(&mean), "{mean}");
        let back = (121..).find(|second| interval(&mut follower, *second, 2000.0) >= 900.0);
        assert!(back.is_some_and(|second| second <= 145), "{back:?}");
    }

    #[test]
    fn a_slow_hour_does_not_become_the_new_normal() {
        let mut follower = follower();
        for second in 1..=3600 {
            let rate = interval(&mut follower, second, 0.0);
            assert!(rate >= 20.0, "below the floor");
        }
        assert_eq!(follower.rate(), Rate::per_second(20));
        let back = (3601..).find(|second| interval(&mut follower, *second, 2000.0) >= 900.0);
        assert!(back.is_some_and(|second| second <= 3660), "{back:?}");
    }

    #[test]
    fn a_rate_that_is_not_used_does_not_grow() {
        let mut follower = follower();
        interval(&mut follower, 1, 0.0);
        let cut = follower.rate();
        for second in 2..100 {
            let start = Tick::from_nanos((second - 1) * 1_000_000_000);
            follower.departed(start, 1);
            follower.settled(start, Duration::ZERO, false);
            assert!(!follower.judge(Tick::from_nanos(second * 1_000_000_000)));
        }
        assert_eq!(follower.rate(), cut);
    }

    #[test]
    fn an_interval_without_outcomes_changes_nothing_unless_strained() {
        let mut follower = follower();
        follower.departed(Tick::ZERO, 10_000);
        assert!(!follower.judge(Tick::from_nanos(1_000_000_000)));
        follower.strained(Tick::from_nanos(1_000_000_000));
        assert!(follower.judge(Tick::from_nanos(2_000_000_000)));
    }
}
