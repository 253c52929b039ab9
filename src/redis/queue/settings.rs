//! What the whole fleet obeys, as the server keeps it: whole numbers, and the schedule as exact fractions.

use std::time::Duration;

use super::error::{Error, ErrorKind};
use crate::rate::Rate;

/// A span in microseconds as a fraction, reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fraction {
    pub(super) num: u128,
    pub(super) den: u128,
}

impl Fraction {
    fn new(num: u128, den: u128) -> Self {
        let by = gcd(num, den).max(1);
        Self {
            num: num / by,
            den: den / by,
        }
    }

    /// The interval between two departures at this rate.
    pub(super) fn interval(rate: Rate) -> Self {
        Self::new(
            rate.period().as_nanos(),
            u128::from(rate.count()) * NANOS_PER_MICRO,
        )
    }

    /// The interval at a pace given in thousandths.
    fn faster(self, pace: u32) -> Self {
        Self::new(self.num * 1_000, self.den * u128::from(pace))
    }

    /// So many of them, in whole microseconds, rounded down.
    pub(super) fn times(self, units: u64) -> u64 {
        let whole = self.num.saturating_mul(u128::from(units)) / self.den.max(1);
        u64::try_from(whole).unwrap_or(u64::MAX)
    }
}

/// What is asked for, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) rate: Rate,
    pub(super) max_depth: u64,
    pub(super) low: u64,
    pub(super) high: u64,
    /// 0 = no bound, here and below.
    pub(super) max_in_flight: u64,
    pub(super) max_attempts: u32,
    pub(super) claim_after: Duration,
    pub(super) expire_after: Duration,
    pub(super) max_wait: Duration,
    pub(super) catch_up: u64,
    /// Thousandths.
    pub(super) pace: u32,
    pub(super) dead_letters: u64,
}

impl Settings {
    /// Checks them all; an error names the field, the value and the rule.
    pub(super) fn checked(self) -> Result<Self, Error> {
        let rule = |text: String| Err(Error::from(ErrorKind::Setting { rule: text }));
        if self.max_depth == 0 || self.max_depth > MOST_JOBS {
            return rule(format!(
                "max_depth is from 1 to {MOST_JOBS}, got {}",
                self.max_depth
            ));
        }
        let (low, high, max) = (self.low, self.high, self.max_depth);
        if low >= high || high > max {
            return rule(format!(
                "watermarks keep to low < high <= max_depth, got {low}, {high} and {max}"
            ));
        }
        if self.dead_letters > MOST_JOBS {
            return rule(format!(
                "dead_letters is at most {MOST_JOBS}, got {}",
                self.dead_letters
            ));
        }
        let claim = self.claim_after;
        if !(SHORTEST_CLAIM..=LONGEST_SPAN).contains(&claim) {
            return rule(format!(
                "claim_after is from {SHORTEST_CLAIM:?} to {LONGEST_SPAN:?}, got {claim:?}"
            ));
        }
        for (name, span) in [
            ("expire_after", self.expire_after),
            ("max_wait", self.max_wait),
        ] {
            if span > LONGEST_SPAN {
                return rule(format!("{name} is at most {LONGEST_SPAN:?}, got {span:?}"));
            }
        }
        if self.pace < 1_000 || self.pace > 1_000_000 {
            let pace = f64::from(self.pace) / 1e3;
            return rule(format!("catch_up_pace is from 1 to 1000, got {pace}"));
        }
        // The scripts count in doubles, which are exact up to 2^53; a factor of eight is left.
        let interval = Fraction::interval(self.rate);
        let peak = interval.faster(self.pace);
        let spans = [interval, peak].map(|of| {
            let ahead = u128::from(self.catch_up.max(u64::from(MOST_AT_ONCE)) + 2);
            let behind = u128::from(interval.times(self.catch_up)) + GRAIN.as_micros() + 1;
            (of.num * ahead).max(of.den * behind)
        });
        if spans.into_iter().any(|span| span > EXACT) {
            return rule(format!(
                "a rate of {} with a catch_up of {} cannot be kept exactly by the server",
                self.rate, self.catch_up
            ));
        }
        Ok(self)
    }

    /// As the server keeps them, in the order in which a conflict is reported.
    pub(super) fn pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = vec![("rate", self.rate.to_string())];
        pairs.extend(self.schedule());
        pairs.extend([
            ("max", self.max_depth.to_string()),
            ("low", self.low.to_string()),
            ("high", self.high.to_string()),
            ("flight", self.max_in_flight.to_string()),
            ("attempts", self.max_attempts.to_string()),
            ("claim", self.claim_after.as_millis().to_string()),
            ("expire", self.expire_after.as_micros().to_string()),
            ("patience", self.max_wait.as_micros().to_string()),
            ("letters", self.dead_letters.to_string()),
        ]);
        pairs
    }

    /// Those of the schedule alone.
    pub(super) fn schedule(&self) -> Vec<(&'static str, String)> {
        let interval = Fraction::interval(self.rate);
        let peak = interval.faster(self.pace);
        vec![
            ("num", interval.num.to_string()),
            ("den", interval.den.to_string()),
            ("pnum", peak.num.to_string()),
            ("pden", peak.den.to_string()),
            ("catch", interval.times(self.catch_up).to_string()),
            ("units", self.catch_up.to_string()),
            ("pace", self.pace.to_string()),
            ("grain", GRAIN.as_micros().to_string()),
        ]
    }
}

/// What falls due in 100 ms, and at least what falls due within the grain, and 1.
pub(super) fn default_catch_up(rate: Rate) -> u64 {
    rate.units_in(CATCH_UP)
        .max(rate.units_in_ceil(GRAIN))
        .max(1)
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

const NANOS_PER_MICRO: u128 = 1_000;
/// Most jobs that one call takes.
pub(super) const MOST_AT_ONCE: u32 = 1_000;
/// Usual lateness of a consumer: its timer, and the way to the server.
pub(super) const GRAIN: Duration = Duration::from_micros(2_500);
const CATCH_UP: Duration = Duration::from_millis(100);
const MOST_JOBS: u64 = 1 << 32;
const SHORTEST_CLAIM: Duration = Duration::from_millis(100);
const LONGEST_SPAN: Duration = Duration::from_secs(366 * 86_400);
const EXACT: u128 = 1 << 50;

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(rate: Rate) -> Settings {
        Settings {
            rate,
            max_depth: 100,
            low: 50,
            high: 80,
            max_in_flight: 0,
            max_attempts: 20,
            claim_after: Duration::from_secs(30),
            expire_after: Duration::ZERO,
            max_wait: Duration::ZERO,
            catch_up: default_catch_up(rate),
            pace: 1_100,
            dead_letters: 100,
        }
    }

    #[test]
    fn intervals_are_exact_fractions() {
        let thirds = Fraction::interval(Rate::per_second(3));
        assert_eq!((thirds.num, thirds.den), (1_000_000, 3));
        assert_eq!(thirds.times(3_000_000), 1_000_000_000_000);
        let day = Fraction::interval(Rate::per_day(1));
        assert_eq!((day.num, day.den), (86_400_000_000, 1));
    }

    #[test]
    fn rates_from_one_a_day_to_a_million_a_second_can_be_kept() {
        for rate in [
            Rate::per_day(1),
            Rate::per_hour(7),
            Rate::per_second(200),
            Rate::per_second(7_001),
            Rate::per_second(999_983),
        ] {
            assert!(settings(rate).checked().is_ok(), "{rate}");
        }
    }

    #[test]
    fn what_cannot_be_kept_is_refused_by_name() {
        let of = |change: fn(&mut Settings)| {
            let mut asked = settings(Rate::per_second(10));
            change(&mut asked);
            asked.checked().expect_err("it breaks a rule").to_string()
        };
        assert!(of(|s| s.max_depth = 0).contains("max_depth"));
        assert!(of(|s| s.low = 80).contains("watermarks"));
        assert!(of(|s| s.high = 101).contains("watermarks"));
        assert!(of(|s| s.claim_after = Duration::from_millis(1)).contains("claim_after"));
        assert!(of(|s| s.max_wait = Duration::MAX).contains("max_wait"));
        assert!(of(|s| s.pace = 999).contains("catch_up_pace is from 1 to 1000, got 0.999"));
        assert!(of(|s| s.catch_up = u64::MAX / 2).contains("catch_up"));
    }
}
