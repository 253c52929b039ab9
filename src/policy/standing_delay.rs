//! Tells a queue that never empties from a good burst: by the shortest wait of an interval, not by the depth.
//!
//! The rule is the one folly's `Codel` uses for servers, after "Controlling Queue Delay" (Nichols and Jacobson, 2012):
//! a burst that is worked off has at least one job in each interval that hardly waited; a standing queue has none.

use std::time::Duration;

use crate::tick::Tick;

/// Detector of standing delay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandingDelay {
    target: Duration,
    interval: Duration,
    shortest: Option<Duration>,
    /// End of the present interval; none runs while the queue is empty.
    end: Option<Tick>,
    standing: bool,
}

impl StandingDelay {
    /// Watches for a shortest wait above `target` over every `interval`.
    pub(crate) fn new(target: Duration, interval: Duration) -> Self {
        Self {
            target,
            interval,
            shortest: None,
            end: None,
            standing: false,
        }
    }

    pub(crate) fn is_set_to(&self, target: Duration, interval: Duration) -> bool {
        (self.target, self.interval) == (target, interval)
    }

    /// Starts an interval if none runs; called while there is depth. Returns its end.
    pub(crate) fn begin(&mut self, now: Tick) -> Tick {
        *self.end.get_or_insert(now + self.interval)
    }

    /// Notes the wait of a job that starts.
    pub(crate) fn observe(&mut self, waited: Duration) {
        self.shortest = Some(
            self.shortest
                .map_or(waited, |shortest| shortest.min(waited)),
        );
    }

    /// Ends the interval that is over at `now`; `oldest` = age of the oldest job, if there is one.
    pub(crate) fn finish(&mut self, now: Tick, oldest: Option<Duration>) {
        if !self.is_over(now) {
            return;
        }
        // Without a departure nothing else tells the wait than the age of who still waits.
        let shortest = self.shortest.take().or(oldest);
        self.standing = shortest.is_some_and(|shortest| shortest > self.target);
        self.end = oldest.map(|_| now + self.interval);
    }

    /// Whether an interval is over at `now`.
    pub(crate) fn is_over(&self, now: Tick) -> bool {
        self.end.is_some_and(|end| end <= now)
    }

    /// When the present interval ends.
    pub(crate) fn end(&self) -> Option<Tick> {
        self.end
    }

    pub(crate) fn is_standing(&self) -> bool {
        self.standing
    }

    /// Age beyond which a job is not worth starting while delay stands.
    pub(crate) fn stale_after(&self) -> Duration {
        self.target.saturating_mul(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Tick {
        Tick::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn one_short_wait_clears_an_interval() {
        let mut delay = StandingDelay::new(5 * MS, 100 * MS);
        delay.begin(at(0));
        delay.observe(80 * MS);
        delay.observe(4 * MS);
        delay.finish(at(100), Some(MS));
        assert!(!delay.is_standing());
    }

    #[test]
    fn waits_above_the_target_stand_until_an_interval_is_good() {
        let mut delay = StandingDelay::new(5 * MS, 100 * MS);
        delay.begin(at(0));
        delay.observe(6 * MS);
        delay.finish(at(99), Some(MS));
        assert!(!delay.is_standing(), "not before the interval ends");
        delay.finish(at(100), Some(MS));
        assert!(delay.is_standing());
        delay.observe(5 * MS);
        delay.finish(at(200), Some(MS));
        assert!(!delay.is_standing(), "at the target is good");
    }

    #[test]
    fn an_interval_without_departures_uses_the_age_of_the_oldest() {
        let mut delay = StandingDelay::new(5 * MS, 100 * MS);
        delay.begin(at(0));
        delay.finish(at(100), Some(100 * MS));
        assert!(delay.is_standing());
        delay.finish(at(200), None);
        assert!(!delay.is_standing(), "an empty queue has no delay");
        assert_eq!(delay.end(), None);
    }
}
