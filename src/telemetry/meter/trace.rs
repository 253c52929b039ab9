//! The last minutes of a limiter: one sample a second, and the demand on each endpoint over ten minutes.

use std::collections::VecDeque;
use std::time::Duration;

use super::shard::Shard;
use crate::tick::Tick;

/// Samples of one limiter, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    samples: VecDeque<Sample>,
    /// By number of the endpoint.
    demand: Vec<Demand>,
}

/// A moment of a limiter; counts since it began.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) at: Tick,
    pub(crate) offered: u64,
    pub(crate) refused: u64,
    /// Refusals and units charged, by level.
    pub(crate) levels: Box<[(u64, u64)]>,
}

/// Requests to an endpoint, second by second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Demand {
    before: [u64; 3],
    /// Oldest first, without a gap.
    pub(crate) seconds: VecDeque<Second>,
}

/// Requests, refusals and units of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Second {
    pub(crate) offered: u32,
    pub(crate) refused: u32,
    pub(crate) units: u32,
}

impl Trace {
    /// Whether the last sample is a second old; after a clock was set back, none is until it has caught up.
    pub(crate) fn is_due(&self, now: Tick) -> bool {
        let last = self.samples.back();
        last.is_none_or(|last| now - last.at >= SHORTEST)
    }

    pub(crate) fn add(&mut self, counts: &Shard, now: Tick) {
        if !self.is_due(now) {
            return;
        }
        let span = self.samples.back().map(|last| now - last.at);
        let sample = Sample::of(counts, now);
        if self.samples.len() == MOST {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        self.demand
            .resize_with(counts.endpoints.len(), Demand::default);
        for (demand, counts) in self.demand.iter_mut().zip(&counts.endpoints) {
            demand.add([counts.offered(), counts.refused(), counts.units], span);
        }
    }

    pub(crate) fn samples(&self) -> impl ExactSizeIterator<Item = &Sample> {
        self.samples.iter()
    }

    /// The latest sample that is at least so old.
    pub(crate) fn before(&self, now: Tick, span: Duration) -> Option<&Sample> {
        let mut samples = self.samples.iter().rev();
        samples.find(|sample| now - sample.at + SLACK >= span)
    }

    pub(crate) fn demand(&self, endpoint: usize) -> Option<&Demand> {
        self.demand.get(endpoint)
    }
}

impl Sample {
    pub(crate) fn of(counts: &Shard, at: Tick) -> Self {
        let levels = counts.levels.iter();
        Self {
            at,
            offered: counts.offered(),
            refused: counts.refused(),
            levels: levels
                .map(|level| (level.told.refused(), level.told.consumed))
                .collect(),
        }
    }
}

impl Demand {
    fn add(&mut self, counts: [u64; 3], span: Option<Duration>) {
        let before = std::mem::replace(&mut self.before, counts);
        let new = |at: usize| counts[at].saturating_sub(before[at]);
        let (offered, refused, units) = (new(0), new(1), new(2));
        // What came before the first sample came at unknown times.
        let Some(span) = span else { return };
        let seconds = (span + Duration::from_millis(500)).as_secs().max(1);
        // A sample that came late is spread evenly over its seconds.
        for second in 0..seconds.min(TEN_MINUTES as u64) {
            let part = |count: u64| {
                let upto =
                    |second: u64| u128::from(count) * u128::from(second) / u128::from(seconds);
                u32::try_from(upto(second + 1) - upto(second)).unwrap_or(u32::MAX)
            };
            if self.seconds.len() == TEN_MINUTES {
                self.seconds.pop_front();
            }
            self.seconds.push_back(Second {
                offered: part(offered),
                refused: part(refused),
                units: part(units),
            });
        }
    }
}

/// Five minutes, and where they began.
pub(crate) const MOST: usize = 301;
/// Seconds of demand that are kept.
pub(crate) const TEN_MINUTES: usize = 600;
/// Time between two samples, less what a thread may be early.
const SHORTEST: Duration = Duration::from_millis(950);
/// As much may a sample be younger than asked for.
const SLACK: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_sample_is_spread_over_its_seconds() {
        let mut demand = Demand::default();
        let second = Duration::from_secs(1);
        demand.add([7, 0, 7], None);
        demand.add([10, 1, 10], Some(second));
        demand.add([20, 3, 22], Some(3 * second + second / 10));
        let seconds = demand.seconds.iter();
        let seconds: Vec<_> = seconds.map(|s| (s.offered, s.refused, s.units)).collect();
        assert_eq!(seconds, [(3, 1, 3), (3, 0, 4), (3, 1, 4), (4, 1, 4)]);
        demand.add([30, 3, 30], Some(Duration::from_secs(u64::MAX)));
        assert_eq!(demand.seconds.len(), TEN_MINUTES, "a clock that was set");
    }
}
