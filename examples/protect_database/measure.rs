//! What one run counts while it goes on, and what is left of it afterwards.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::chart::{Timeline, percentile};
use crate::database::{Order, Totals};

/// Counts of a run, shared by all its tasks.
#[derive(Debug)]
pub(crate) struct Measure {
    start: Instant,
    counts: Mutex<Counts>,
}

/// What has been counted so far.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    /// Jobs whose producer has offered them at least once.
    pub(crate) offered: u64,
    /// Sum of what was acknowledged.
    pub(crate) acknowledged: Totals,
    /// Jobs that ended without being written.
    pub(crate) failed: u64,
    /// Writes that the database refused, by its message, whether tried again or not.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Commits over time.
    pub(crate) commits: Timeline,
    /// Refused writes over time.
    pub(crate) troubles: Timeline,
    /// Time of the last answer.
    pub(crate) ended: Duration,
    latencies: Vec<Duration>,
}

impl Measure {
    /// Starts the time of a run.
    pub(crate) fn start() -> Self {
        let counts = Counts {
            offered: 0,
            acknowledged: Totals::default(),
            failed: 0,
            errors: BTreeMap::new(),
            commits: Timeline::new(STEP),
            troubles: Timeline::new(STEP),
            ended: Duration::ZERO,
            latencies: Vec::new(),
        };
        Self {
            start: Instant::now(),
            counts: Mutex::new(counts),
        }
    }

    /// Instant at which a job arrives.
    pub(crate) fn due(&self, arrival: Duration) -> Instant {
        self.start + arrival
    }

    pub(crate) fn offered(&self) {
        self.lock().offered += 1;
    }

    /// Counts a commit of an order that arrived at `due`; waiting of any kind is part of its latency.
    pub(crate) fn committed(&self, order: Order, due: Instant) {
        let now = Instant::now();
        let mut counts = self.lock();
        counts.acknowledged.add(order);
        counts.latencies.push(now.saturating_duration_since(due));
        counts.ended = now - self.start;
        counts.commits.add(now - self.start);
    }

    /// Counts a write that the database refused.
    pub(crate) fn refused_by_database(&self, error: &rusqlite::Error) {
        let at = self.start.elapsed();
        let mut counts = self.lock();
        *counts.errors.entry(error.to_string()).or_default() += 1;
        counts.troubles.add(at);
        counts.ended = at;
    }

    /// Counts a job that ended without being written.
    pub(crate) fn failed(&self) {
        self.lock().failed += 1;
    }

    /// Commits and failures so far.
    pub(crate) fn settled(&self) -> (u64, u64) {
        let counts = self.lock();
        (counts.acknowledged.rows, counts.failed)
    }

    /// All counts, the latencies in order.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = self.lock().clone();
        counts.latencies.sort_unstable();
        // Both run to the last answer, so that they stand one below the other.
        let end = counts.ended + Duration::from_nanos(1);
        counts.commits.end_at(end);
        counts.troubles.end_at(end);
        counts
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect("no holder panics")
    }
}

impl Counts {
    /// Latency of commits from arrival, below which a share of them lies.
    pub(crate) fn latency(&self, share: f64) -> Option<Duration> {
        percentile(&self.latencies, share)
    }
}

/// Step of the charts.
pub(crate) const STEP: Duration = Duration::from_millis(100);
