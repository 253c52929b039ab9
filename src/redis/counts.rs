//! What has happened at the limits, counted.

use crate::sync::{AtomicU64, Ordering};

/// Numbers of what has happened since the limits were built; each only grows.
///
/// They are read one by one, so together they are only roughly of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Decisions that granted, degraded ones included.
    pub granted: u64,
    /// Decisions that refused, degraded ones included.
    pub refused: u64,
    /// Decisions whose outcome on the server is unknown, or that could not ask it: made by the policy for that.
    pub unknown: u64,
    /// Those of them that did not even try, as the server had failed too often.
    pub skipped: u64,
    /// Calls to which no reply came in time.
    pub timeouts: u64,
    /// Calls that failed otherwise.
    pub errors: u64,
    /// Decisions that shared a call with an earlier one.
    pub merged: u64,
    /// Decisions that went together with others, about other keys.
    pub gathered: u64,
    /// Decisions refused from memory.
    pub remembered: u64,
    /// Charges given back.
    pub refunds: u64,
    /// Refunds that may not have reached the server.
    pub refunds_lost: u64,
    /// Times that a server had to be told a script.
    pub script_loads: u64,
    /// Connections made or tried.
    pub connects: u64,
    /// Commands handed to a connection.
    pub sent: u64,
}

/// One of the numbers that are counted here.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) granted: Counter,
    pub(super) refused: Counter,
    pub(super) unknown: Counter,
    pub(super) skipped: Counter,
    pub(super) timeouts: Counter,
    pub(super) errors: Counter,
    pub(super) merged: Counter,
    pub(super) gathered: Counter,
    pub(super) remembered: Counter,
    pub(super) refunds: Counter,
    pub(super) refunds_lost: Counter,
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    /// The part of the numbers that is counted here.
    pub(super) fn read(&self) -> Counts {
        Counts {
            granted: self.granted.read(),
            refused: self.refused.read(),
            unknown: self.unknown.read(),
            skipped: self.skipped.read(),
            timeouts: self.timeouts.read(),
            errors: self.errors.read(),
            merged: self.merged.read(),
            gathered: self.gathered.read(),
            remembered: self.remembered.read(),
            refunds: self.refunds.read(),
            refunds_lost: self.refunds_lost.read(),
            ..Counts::default()
        }
    }
}
