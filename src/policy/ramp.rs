//! A rate on its way to another one, in even steps over a set time.

use std::time::Duration;

use crate::rate::Rate;
use crate::tick::Tick;

/// Linear way from one rate to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ramp {
    from: Rate,
    to: Rate,
    start: Tick,
    over: Duration,
}

impl Ramp {
    /// Starts a way of `over`; one shorter than a step is over at once.
    pub(crate) fn new(from: Rate, to: Rate, start: Tick, over: Duration) -> Self {
        Self {
            from,
            to,
            start,
            over,
        }
    }

    /// The rate at `now`; exactly the last one from the end on.
    pub(crate) fn rate(&self, now: Tick) -> Rate {
        let passed = now - self.start;
        if passed >= self.over {
            return self.to;
        }
        // Below the end, so the quotient is below the number of steps.
        let step = passed.as_nanos() * STEPS / self.over.as_nanos().max(1);
        self.from.toward(self.to, step as u64, STEPS as u64)
    }

    /// When the rate changes next; `None` once it has arrived.
    pub(crate) fn next(&self, now: Tick) -> Option<Tick> {
        let passed = now - self.start;
        let step = self.over.div_f64(STEPS as f64).max(LEAST_STEP);
        (passed < self.over).then(|| {
            let taken = passed.as_nanos() / step.as_nanos() + 1;
            let next = step.as_nanos().saturating_mul(taken);
            let next = Duration::from_nanos(u64::try_from(next).unwrap_or(u64::MAX));
            self.start + next.min(self.over)
        })
    }
}

/// Steps of one per cent: nobody behind the queue feels a single one.
const STEPS: u128 = 100;
/// Timers are not asked for more than this.
const LEAST_STEP: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ramp_climbs_evenly_and_arrives_exactly() {
        let (from, to) = (Rate::per_second(10), Rate::per_second(1010));
        let ramp = Ramp::new(from, to, Tick::ZERO, Duration::from_secs(10));
        let mut now = Tick::ZERO;
        let mut last = 0.0;
        while let Some(next) = ramp.next(now) {
            assert!(next > now);
            now = next;
            let rate = ramp.rate(now).per_second_f64();
            let expected = 10.0 + (now - Tick::ZERO).as_secs_f64() * 100.0;
            assert!(
                rate > last && (rate - expected).abs() < 11.0,
                "{rate} for {expected}"
            );
            last = rate;
        }
        assert_eq!(ramp.rate(now), to);
    }

    #[test]
    fn a_ramp_of_no_time_is_there_at_once() {
        let ramp = Ramp::new(
            Rate::per_day(1),
            Rate::per_second(5),
            Tick::ZERO,
            Duration::ZERO,
        );
        assert_eq!(ramp.rate(Tick::ZERO), Rate::per_second(5));
        assert_eq!(ramp.next(Tick::ZERO), None);
    }

    #[test]
    fn a_ramp_down_from_the_fastest_to_the_slowest_stays_between_them() {
        let (from, to) = (Rate::per_second(1_000_000_000), Rate::per_day(1));
        let ramp = Ramp::new(from, to, Tick::ZERO, Duration::from_secs(1));
        for ms in 0..1000 {
            let rate = ramp.rate(Tick::from_nanos(ms * 1_000_000)).per_second_f64();
            assert!((1e-5..=1e9).contains(&rate), "{rate}");
        }
    }
}
