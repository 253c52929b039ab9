//! When the next departure is due: an absolute schedule with bounded, paced catch-up.
//!
//! Two meters must agree to each departure, as the sustained and the peak rate of an ATM traffic contract do (ITU-T
//! I.371). Both are GCRA, judged before the cost is added (post-paid), so a departure of any cost may start when its
//! meter is due and delays the ones behind it.
//!
//! - **sustained**: departure k is due on the absolute schedule; a late departure does not push later ones back, but
//!   at most `catch_up` units are owed, what is owed beyond that is forgiven.
//! - **peak**: what is owed is repaid at `pace` times the rate, with a tolerance of one grain of time, so that no
//!   stall ends in a salvo.
//!
//! Any closed window `w` holds at most `min(floor(w R + catch_up) + 1, floor(pace R (w + grain)) + 1)` units, the cost
//! of its last departure not counted.
//!
//! - I1  no departure before its due instant.
//! - I2  the peak interval is not longer than the sustained one.

use std::time::Duration;

use crate::rate::Rate;
use crate::tick::{Fine, Tick};

/// The two meters of a paced queue.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pace: Pace,
    /// When the next departure is due by the sustained meter; in the past while departures are late.
    sustained: Fine,
    /// Theoretical arrival time of the peak meter.
    peak: Fine,
}

/// What a schedule is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    interval: Fine,
    peak_interval: Fine,
    allowance: Fine,
    grain: Fine,
}

impl Pace {
    /// `pace_ppm`: how fast what is owed is repaid, in millionths of the rate, at least 1,000,000.
    pub(crate) fn new(rate: Rate, catch_up: u64, pace_ppm: u64, grain: Duration) -> Self {
        let interval = rate.interval();
        Self {
            interval,
            peak_interval: interval.scaled(Fine(MILLION), Fine(u128::from(pace_ppm))),
            allowance: interval.times(catch_up),
            grain: Fine::span(grain),
        }
    }
}

/// Most cost that is owed unless somebody says otherwise: what falls due in 100 ms, and what a late timer can owe.
pub(crate) fn usual_catch_up(rate: Rate, grain: Duration) -> u64 {
    rate.units_in(CATCH_UP)
        .max(rate.units_in_ceil(grain))
        .max(1)
}

impl Schedule {
    /// Starts a schedule whose first departure is due at `now`.
    pub(crate) fn new(pace: Pace, now: Tick) -> Self {
        let schedule = Self {
            pace,
            sustained: Fine::at(now),
            peak: Fine::ZERO,
        };
        schedule.debug_invariants();
        schedule
    }

    /// Earliest instant of the next departure.
    #[inline]
    pub(crate) fn due(&self) -> Tick {
        self.sustained.max(self.peak_due()).ceil()
    }

    /// Forgives what is owed: work begins at `now`, and idle time earns nothing.
    #[inline]
    pub(crate) fn begin(&mut self, now: Tick) {
        self.sustained = self.sustained.max(Fine::at(now));
    }

    /// Charges a departure that happens at `now`, not before [`due`](Self::due) (keeps I1).
    #[inline]
    pub(crate) fn depart(&mut self, now: Tick, cost: u64) {
        debug_assert!(now >= self.due(), "departure before its time (I1)");
        let now = Fine::at(now);
        let Pace {
            interval,
            peak_interval,
            allowance,
            ..
        } = self.pace;
        self.sustained = self
            .sustained
            .max(now.minus(allowance))
            .plus(interval.times(cost));
        self.peak = self.peak.max(now).plus(peak_interval.times(cost));
    }

    /// Corrects the charge of an earlier departure; a refund goes no further than what may be owed.
    ///
    /// The peak meter gives back only what the `latest` departure was charged too much: what it was charged for earlier
    /// ones has been waited for already, and giving that back would make a salvo.
    pub(crate) fn correct(&mut self, now: Tick, charged: u64, actual: u64, latest: bool) {
        let Pace {
            interval,
            peak_interval,
            allowance,
            ..
        } = self.pace;
        self.peak = match actual.checked_sub(charged) {
            Some(more) => self.peak.plus(peak_interval.times(more)),
            None if latest => self.peak.minus(peak_interval.times(charged - actual)),
            None => self.peak,
        };
        let floor = Fine::at(now).minus(allowance).min(self.sustained);
        self.sustained = match actual.checked_sub(charged) {
            Some(more) => self.sustained.plus(interval.times(more)),
            None => self
                .sustained
                .minus(interval.times(charged - actual))
                .max(floor),
        };
    }

    /// Changes the rate: lead and debt are kept in units, so they scale with the interval.
    pub(crate) fn retune(&mut self, now: Tick, pace: Pace) {
        let old = std::mem::replace(&mut self.pace, pace);
        let now = Fine::at(now);
        self.sustained = rescale(self.sustained, now, pace.interval, old.interval);
        self.peak = rescale(self.peak, now, pace.peak_interval, old.peak_interval);
        self.debug_invariants();
    }

    /// Units that lateness owes at `now`.
    pub(crate) fn owed(&self, now: Tick) -> u64 {
        let late = Fine::at(now).minus(self.sustained).min(self.pace.allowance);
        u64::try_from(late.0 / self.pace.interval.0.max(1)).unwrap_or(u64::MAX)
    }

    /// Time from `now` until a job starts that has `ahead` units before it; `idle` = no departure is owed.
    pub(crate) fn wait(&self, now: Tick, ahead: u64, idle: bool) -> Duration {
        let now = Fine::at(now);
        let Pace {
            interval,
            peak_interval,
            allowance,
            ..
        } = self.pace;
        let from = if idle { now } else { now.minus(allowance) };
        let sustained = self.sustained.max(from).plus(interval.times(ahead));
        let peak = self.peak_due().max(now).plus(peak_interval.times(ahead));
        sustained.max(peak).minus(now).duration()
    }

    /// Time that `units` departures take at the rate.
    pub(crate) fn span(&self, units: u64) -> Duration {
        self.pace.interval.times(units).duration()
    }

    #[inline]
    fn peak_due(&self) -> Fine {
        self.peak.minus(self.pace.grain)
    }

    fn debug_invariants(&self) {
        debug_assert!(self.pace.peak_interval <= self.pace.interval, "I2");
    }
}

/// `instant` with its distance to `now` scaled from the old interval to the new one.
fn rescale(instant: Fine, now: Fine, new: Fine, old: Fine) -> Fine {
    if instant > now {
        now.plus(instant.minus(now).scaled(new, old))
    } else {
        now.minus(now.minus(instant).scaled(new, old))
    }
}

const MILLION: u128 = 1_000_000;
/// Longest stall whose departures are made up for.
const CATCH_UP: Duration = Duration::from_millis(100);
/// Pace at which what is owed is repaid unless somebody says otherwise, in millionths of the rate.
pub(crate) const USUAL_PACE_PPM: u64 = 1_100_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GRAIN: Duration = Duration::from_micros(2500);

    fn schedule(rate: Rate, catch_up: u64, ppm: u64) -> Schedule {
        Schedule::new(Pace::new(rate, catch_up, ppm, GRAIN), Tick::ZERO)
    }

    /// Departures of a backlog that is asked for at the given late instants, greedily.
    fn run(schedule: &mut Schedule, wakes: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut now = 0;
        let mut left = Vec::new();
        for &(late, cost) in wakes {
            now = schedule.due().as_nanos().max(now) + late;
            schedule.depart(Tick::from_nanos(now), cost);
            left.push((now, cost));
        }
        left
    }

    proptest! {
        #[test]
        fn departures_keep_the_envelope_over_every_window(
            count in 1_u64..20_000, catch_up in 0_u64..50, ppm in 1_000_000_u64..3_000_000,
            wakes in prop::collection::vec((prop_oneof![Just(0), 0..1_000_000_u64, 0..4_000_000_000_u64], 1..6_u64), 1..80),
        ) {
            let rate = Rate::per_second(count);
            let mut schedule = schedule(rate, catch_up, ppm);
            let left = run(&mut schedule, &wakes);
            for from in 0..left.len() {
                let mut units = 0;
                for to in from..left.len() {
                    let w = left[to].0 - left[from].0;
                    // The cost of the last departure is not counted: it is paid for afterwards.
                    let sustained = u128::from(w) * u128::from(count) / 1_000_000_000 + u128::from(catch_up);
                    let grained = u128::from(w) + GRAIN.as_nanos();
                    let peak = grained * u128::from(count) * u128::from(ppm) / 1_000_000_000_000_000;
                    prop_assert!(units <= sustained.min(peak), "{units} > min({sustained}, {peak}) in {w} ns");
                    units += u128::from(left[to].1);
                }
            }
        }

        #[test]
        fn a_backlog_leaves_at_exactly_the_rate(count in 1_u64..2_000_000, late in 0_u64..2_000_000) {
            // Every wake is late by less than the grain; catch-up makes up for all of it.
            let rate = Rate::per_second(count);
            let catch_up = rate.units_in(Duration::from_millis(100)).max(rate.units_in_ceil(GRAIN)).max(1);
            let mut schedule = schedule(rate, catch_up, 1_100_000);
            let mut left = 0_u128;
            let mut now = 0;
            while left < 2_000 {
                now = schedule.due().as_nanos().max(now) + late;
                while schedule.due().as_nanos() <= now {
                    schedule.depart(Tick::from_nanos(now), 1);
                    left += 1;
                }
            }
            let due = u128::from(now) * u128::from(count) / 1_000_000_000 + 1;
            let slack = u128::from(count) * u128::from(late + 2_500_000) / 1_000_000_000 + 2;
            prop_assert!(left <= due, "{left} of {due}: ahead of the schedule");
            prop_assert!(left + slack >= due, "{left} of {due}: behind by more than the lateness");
        }

        #[test]
        fn a_rate_change_keeps_lead_and_debt_in_units(
            old in 1_u64..1_000_000, new in 1_u64..1_000_000, lead in 0_u64..10,
        ) {
            let mut schedule = schedule(Rate::per_second(old), 0, 1_000_000);
            schedule.depart(Tick::ZERO, lead);
            schedule.retune(Tick::ZERO, Pace::new(Rate::per_second(new), 0, 1_000_000, Duration::ZERO));
            let expected = u128::from(lead) * 1_000_000_000 / u128::from(new);
            prop_assert!(u128::from(schedule.due().as_nanos()).abs_diff(expected) <= 2);
        }
    }

    #[test]
    fn a_stall_ends_in_no_salvo() {
        let rate = Rate::per_second(1000);
        let mut schedule = schedule(rate, 100, 1_100_000);
        let stall = 10_000_000_000;
        let mut now = stall;
        let mut left = Vec::new();
        while now <= stall + 1_000_000_000 {
            schedule.depart(Tick::from_nanos(now), 1);
            left.push(now);
            now = schedule.due().as_nanos().max(now);
        }
        let first_grain = left.iter().filter(|at| **at < stall + 2_500_000).count();
        assert!(first_grain <= 6, "{first_grain} at once");
        // A second after the stall: its own thousand and the hundred that may be owed.
        assert!((1090..=1101).contains(&left.len()), "{}", left.len());
    }

    #[test]
    fn idle_time_earns_nothing() {
        let mut schedule = schedule(Rate::per_second(10), 50, 1_000_000);
        let later = Tick::from_nanos(3_600_000_000_000);
        schedule.begin(later);
        schedule.depart(later, 1);
        assert_eq!(schedule.due() - later, Duration::from_millis(100));
    }

    #[test]
    fn strict_spacing_is_never_closer_than_the_interval() {
        let mut schedule = schedule(Rate::per_second(100), 0, 1_000_000);
        let left = run(
            &mut schedule,
            &[(7_000_000, 1), (0, 1), (900, 1), (31_000_000, 1), (0, 1)],
        );
        assert!(
            left.windows(2)
                .all(|pair| pair[1].0 - pair[0].0 >= 10_000_000),
            "{left:?}"
        );
    }

    #[test]
    fn a_million_departures_at_three_a_second_end_on_the_exact_nanosecond() {
        let mut schedule = schedule(Rate::per_second(3), 1, 1_100_000);
        for _ in 0..1_000_000 {
            schedule.depart(schedule.due(), 1);
        }
        // 1,000,000 / 3 s, rounded up.
        assert_eq!(schedule.due(), Tick::from_nanos(333_333_333_333_334));
    }

    #[test]
    fn the_slowest_and_costliest_saturate() {
        let mut schedule = schedule(Rate::per_day(1), u64::MAX, 1_000_000);
        schedule.depart(Tick::MAX, u64::MAX);
        assert_eq!(schedule.due(), Tick::MAX);
        assert_eq!(
            schedule.wait(Tick::ZERO, u64::MAX, true),
            Tick::MAX - Tick::ZERO
        );
    }
}
