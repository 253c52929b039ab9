//! The last minutes of every label: one sample a second, from which trends, rates and percentiles are read.
//!
//! Bounded: [`MOST`] samples a label, and labels whose queues have ended are forgotten at the next sample. Samples hold
//! counts since the queue began, so what lies between two of them is exact, however late the second was taken.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::roll::{Entry, Look, Measured, QUEUES};
use crate::clock::{Clock, TokioClock};
use crate::sync::process::Mutex;
use crate::sync::{Arc, Weak};
use crate::tally::Buckets;
use crate::tick::Tick;
use crate::words::Pressure;

/// A moment of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) at: Tick,
    pub(crate) offered: u64,
    pub(crate) admitted: u64,
    pub(crate) refused: u64,
    pub(crate) departed: u64,
    pub(crate) acked: u64,
    pub(crate) depth: u64,
    pub(crate) waiting: u64,
    pub(crate) in_flight: u64,
    pub(crate) pressure: Pressure,
}

impl Sample {
    pub(crate) fn of(look: &Look, at: Tick) -> Self {
        let ledger = &look.totals.ledger;
        Self {
            at,
            offered: ledger.offered,
            admitted: ledger.admitted,
            refused: ledger.refused,
            departed: look.totals.tally.departed,
            acked: ledger.acked,
            depth: look.depth,
            waiting: ledger.waiting,
            in_flight: ledger.in_flight,
            pressure: look.pressure,
        }
    }
}

/// Counts of the buckets of waits and of times in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spreads {
    pub(crate) waits: Buckets,
    pub(crate) processing: Buckets,
}

impl Spreads {
    pub(crate) fn of(look: &Look) -> Self {
        let tally = &look.totals.tally;
        let mut processing = Buckets::default();
        for histogram in &tally.processing {
            let counts = histogram.counts();
            processing
                .iter_mut()
                .zip(counts)
                .for_each(|(sum, count)| *sum += count);
        }
        Self {
            waits: tally.drained.counts(),
            processing,
        }
    }
}

/// Samples of one queue, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// Where the queue lies, by which it is told apart from one that has its label after it.
    of: usize,
    samples: VecDeque<Sample>,
    spreads: VecDeque<(Tick, Spreads)>,
}

impl History {
    fn add(&mut self, of: usize, look: &Look, now: Tick) {
        let sample = Sample::of(look, now);
        let last = self.samples.back();
        let fell = last.is_some_and(|last| sample.offered < last.offered);
        if of != self.of || fell {
            *self = Self {
                of,
                ..Self::default()
            };
        } else if last.is_some_and(|last| now - last.at < SHORTEST) {
            return;
        }
        push(&mut self.samples, sample, MOST);
        push(&mut self.spreads, (now, Spreads::of(look)), MINUTE);
    }

    pub(crate) fn samples(&self) -> impl ExactSizeIterator<Item = &Sample> {
        self.samples.iter()
    }

    /// The latest sample that is at least so old.
    pub(crate) fn before(&self, now: Tick, span: Duration) -> Option<&Sample> {
        let mut samples = self.samples.iter().rev();
        samples.find(|sample| now - sample.at + SLACK >= span)
    }

    /// Buckets as they were a minute ago, or when it was first seen.
    pub(crate) fn spreads_before(&self, now: Tick) -> Spreads {
        let minute = Duration::from_secs(60);
        let mut recent = self.spreads.iter().rev();
        let base = recent.find(|(at, _)| now - *at + SLACK >= minute);
        // A queue that is younger began with nothing.
        base.map_or_else(Spreads::default, |(_, spreads)| *spreads)
    }
}

fn push<V>(values: &mut VecDeque<V>, value: V, most: usize) {
    if values.len() == most {
        values.pop_front();
    }
    values.push_back(value);
}

/// Takes a sample of every queue that has none of this second.
pub(crate) fn sample() {
    let now = TokioClock.now();
    let entries = QUEUES.entries();
    for Entry { label, living, .. } in &entries {
        // What several share has no one history.
        let [queue] = living.as_slice() else { continue };
        let of = address(queue);
        let Some(look) = queue.upgrade().map(|queue| queue.look()) else {
            continue;
        };
        let mut histories = HISTORIES.lock();
        let history = histories.entry(Arc::clone(label)).or_default();
        history.add(of, &look, now);
    }
    // Dropped outside the lock.
    let _ended = {
        let mut histories = HISTORIES.lock();
        let lives = |label: &Arc<str>| {
            let entry = entries.binary_search_by(|entry| entry.label.cmp(label));
            entry.is_ok_and(|at| entries[at].living.len() == 1)
        };
        let all = std::mem::take(&mut *histories);
        let (kept, ended): (BTreeMap<_, _>, BTreeMap<_, _>) =
            all.into_iter().partition(|(label, _)| lives(label));
        *histories = kept;
        ended
    };
}

/// The samples of a queue; empty if none were taken yet.
pub(crate) fn of(label: &str, queue: &Weak<dyn Measured>) -> History {
    let histories = HISTORIES.lock();
    let known = histories.get(label);
    let known = known.filter(|history| history.of == address(queue));
    known.cloned().unwrap_or_default()
}

fn address(queue: &Weak<dyn Measured>) -> usize {
    queue.as_ptr().cast::<()>() as usize
}

static HISTORIES: Mutex<BTreeMap<Arc<str>, History>> = Mutex::new(BTreeMap::new());

/// Five minutes, and where they began.
pub(crate) const MOST: usize = 301;
/// A minute, and where it began, with a sample that came late.
const MINUTE: usize = 62;
/// Time between two samples, less what a thread may be early.
const SHORTEST: Duration = Duration::from_millis(950);
/// As much may a sample be younger than asked for.
const SLACK: Duration = Duration::from_millis(50);

/// Times within a histogram's buckets below which a share of the counted lies; `None` if nothing was counted.
pub(crate) fn quantile(bounds: &[u64], counts: &Buckets, share: f64) -> Option<Duration> {
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return None;
    }
    let rank = (share * total as f64).max(1.0);
    let mut below = 0.0;
    for (index, count) in counts.iter().enumerate() {
        let count = *count as f64;
        if count > 0.0 && below + count >= rank {
            let floor = index.checked_sub(1).map_or(0, |before| bounds[before]);
            // Beyond the last bound nothing is known but that.
            let ceiling = bounds.get(index).copied().unwrap_or(floor);
            let within = (ceiling - floor) as f64 * ((rank - below) / count);
            return Some(Duration::from_nanos(floor + within as u64));
        }
        below += count;
    }
    bounds.last().copied().map(Duration::from_nanos)
}

/// What was counted between two looks.
pub(crate) fn since(now: &Buckets, before: &Buckets) -> Buckets {
    let mut counts = *now;
    let pairs = counts.iter_mut().zip(before);
    pairs.for_each(|(count, before)| *count = count.saturating_sub(*before));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::WAITS;

    const SECOND: u64 = 1_000_000_000;

    fn look(offered: u64) -> Look {
        let mut look = Look {
            totals: crate::telemetry::roll::Totals::default(),
            depth: offered / 2,
            max_depth: 100,
            pressure: Pressure::Healthy,
            paused: false,
            rate: None,
            oldest_wait: None,
            since_departure: None,
        };
        look.totals.ledger.offered = offered;
        look
    }

    fn at(seconds: u64) -> Tick {
        Tick::from_nanos(seconds * SECOND)
    }

    #[test]
    fn a_history_holds_five_minutes_whatever_the_clock_does() {
        let mut history = History::default();
        for second in 0..1000 {
            history.add(1, &look(second), at(second));
            // Within the same second, and after a step back: no sample.
            history.add(1, &look(second), at(second) + SHORTEST / 2);
            history.add(1, &look(second), at(second / 2));
        }
        assert_eq!(history.samples().len(), MOST);
        assert_eq!(history.spreads.len(), MINUTE);
        let first = history.samples().next().expect("there are many");
        assert_eq!((first.at, first.offered), (at(699), 699));
        let minute = Duration::from_secs(60);
        let before = history.before(at(999), minute).expect("it is there");
        assert_eq!(before.at, at(939));
        assert!(history.before(at(999), 6 * minute).is_none());
    }

    #[test]
    fn the_next_queue_of_a_label_starts_anew() {
        let mut history = History::default();
        history.add(1, &look(50), at(0));
        history.add(2, &look(60), at(1));
        assert_eq!(history.samples().len(), 1);
        history.add(2, &look(59), at(2));
        assert_eq!(history.samples().len(), 1, "counts never fall");
    }

    #[test]
    fn quantiles_lie_within_their_buckets() {
        let mut counts = Buckets::default();
        assert_eq!(quantile(&WAITS, &counts, 0.5), None);
        // A hundred between 5 and 20 ms.
        counts[2] = 100;
        let millis = |share| quantile(&WAITS, &counts, share).map(|time| time.as_micros());
        assert_eq!(millis(0.5), Some(12_500));
        assert_eq!(millis(1.0), Some(20_000));
        assert_eq!(millis(0.0), Some(5_150), "the first of them");
        // One in a hundred beyond the last bound.
        counts[13] = 1;
        let last = quantile(&WAITS, &counts, 1.0);
        assert_eq!(last, Some(Duration::from_secs(60)));
    }
}
