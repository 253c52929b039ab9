//! What the ledger does not tell: refusals by reason, departures, and how long things took.
//!
//! Counted where the ledger is, under the same lock, so that its counts and these agree at every instant and no
//! operation pays for an atomic of its own. Durations are kept in fixed buckets.
//!
//! - I1  the refusals by reason add up to the ledger's.
//! - I2  every departure is in flight, or has been processed once.

// Only what is published reads it.
#![cfg_attr(not(feature = "metrics"), allow(dead_code))]

use std::time::Duration;

use crate::refusal::Reason;
use crate::tick::nanos;

/// Counts of one queue beside its ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Refusals, in the order of [`Reason::ALL`].
    pub(crate) refused: [u64; Reason::ALL.len()],
    /// Jobs handed to a consumer, every retry anew.
    pub(crate) departed: u64,
    /// Waits that ended in a departure.
    pub(crate) drained: Histogram,
    /// Waits of queued jobs that ended without one.
    pub(crate) dropped: Histogram,
    /// Depth that an arriving job made.
    pub(crate) depth: Histogram,
    /// Times in flight, by [`Processed`].
    pub(crate) processing: [Histogram; 3],
}

/// How a job's time in flight ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Processed {
    Ok,
    Error,
    Retry,
}

impl Processed {
    pub(crate) const ALL: [Self; 3] = [Self::Ok, Self::Error, Self::Retry];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Retry => "retry",
        }
    }
}

impl Tally {
    pub(crate) const fn refuse(&mut self, reason: Reason) {
        self.refused[reason as usize] += 1;
    }

    #[inline]
    pub(crate) fn arrive(&mut self, depth: u64) {
        self.depth.observe(&DEPTHS, depth);
    }

    #[inline]
    pub(crate) fn depart(&mut self, waited: Duration) {
        self.departed += 1;
        self.drained.observe(&WAITS, nanos(waited));
    }

    pub(crate) fn eject(&mut self, waited: Duration) {
        self.dropped.observe(&WAITS, nanos(waited));
    }

    pub(crate) fn process(&mut self, how: Processed, took: Duration) {
        self.processing[how as usize].took(took);
    }

    /// Adds jobs that were done well, by their times in flight.
    pub(crate) fn add_done(&mut self, took: &Histogram) {
        self.processing[Processed::Ok as usize].add(took);
    }

    /// Adds the counts of another queue.
    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.refused.iter_mut().zip(other.refused) {
            *mine += theirs;
        }
        self.departed += other.departed;
        self.drained.add(&other.drained);
        self.dropped.add(&other.dropped);
        self.depth.add(&other.depth);
        for (mine, theirs) in self.processing.iter_mut().zip(&other.processing) {
            mine.add(theirs);
        }
    }
}

/// Values in buckets: how many, and their sum, so that the mean of a bucket stands for all that is in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Histogram {
    pub(crate) buckets: [Bucket; BOUNDS + 1],
}

/// Counts of the buckets of a [`Histogram`].
pub(crate) type Buckets = [u64; BOUNDS + 1];

/// One bucket of a [`Histogram`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(crate) count: u64,
    /// A million jobs a second that wait for a minute pass 64 bits within minutes.
    pub(crate) sum: u128,
}

impl Histogram {
    /// Nothing observed.
    pub(crate) const EMPTY: Self = Self {
        buckets: [Bucket { count: 0, sum: 0 }; BOUNDS + 1],
    };

    /// Adds a time in flight.
    #[inline]
    pub(crate) fn took(&mut self, time: Duration) {
        self.observe(&WORK, nanos(time));
    }

    #[inline]
    pub(crate) fn observe(&mut self, bounds: &[u64; BOUNDS], value: u64) {
        // Of a queue that keeps up, nearly every value is in the first one.
        let bucket = if value <= bounds[0] {
            0
        } else {
            bounds.partition_point(|bound| *bound < value)
        };
        let bucket = &mut self.buckets[bucket];
        bucket.count += 1;
        bucket.sum += u128::from(value);
    }

    /// Values in each bucket.
    pub(crate) fn counts(&self) -> Buckets {
        self.buckets.map(|bucket| bucket.count)
    }

    /// Values in it.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.count).sum()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            mine.count += theirs.count;
            mine.sum += theirs.sum;
        }
    }
}

const BOUNDS: usize = 13;
const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// Upper bounds of the buckets of waits, in nanoseconds: from a busy queue's to those of an outage.
pub(crate) const WAITS: [u64; BOUNDS] = [
    MS,
    5 * MS,
    20 * MS,
    50 * MS,
    100 * MS,
    200 * MS,
    500 * MS,
    S,
    2 * S,
    5 * S,
    10 * S,
    30 * S,
    60 * S,
];
/// Upper bounds of the buckets of times in flight, in nanoseconds: what calls to databases and services take.
pub(crate) const WORK: [u64; BOUNDS] = [
    MS,
    5 * MS,
    10 * MS,
    25 * MS,
    50 * MS,
    100 * MS,
    250 * MS,
    500 * MS,
    S,
    2_500 * MS,
    5 * S,
    10 * S,
    30 * S,
];
/// Upper bounds of the buckets of the waits that limiters advise, in nanoseconds.
pub(crate) const RETRIES: [u64; BOUNDS] = [
    100 * MS,
    250 * MS,
    500 * MS,
    S,
    2 * S,
    5 * S,
    10 * S,
    30 * S,
    60 * S,
    300 * S,
    600 * S,
    1_800 * S,
    3_600 * S,
];
/// Upper bounds of the buckets of depths, in cost.
pub(crate) const DEPTHS: [u64; BOUNDS] =
    [0, 1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_belongs_below_it() {
        let mut histogram = Histogram::default();
        for value in [0, MS, MS + 1, 60 * S, 60 * S + 1] {
            histogram.observe(&WAITS, value);
        }
        let counts = histogram.buckets.map(|bucket| bucket.count);
        assert_eq!(counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(histogram.count(), 5);
    }

    #[test]
    fn every_reason_has_its_own_count() {
        let mut tally = Tally::default();
        Reason::ALL
            .into_iter()
            .for_each(|reason| tally.refuse(reason));
        assert_eq!(tally.refused, [1; Reason::ALL.len()]);
    }
}
