//! Counts of what a layer did.

use super::caller::Unidentified;
use super::forwarded::Note;
use crate::sync::Ordering;
use crate::sync::process::AtomicU64;

/// What a layer has done since it was built; requests add up: each is in exactly one of the first seven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EdgeCounts {
    /// Let through by the limits, or without any.
    pub allowed: u64,
    /// Refused by a limit, with 429 or 503.
    pub rejected: u64,
    /// Let through in a dry run although a limit refused.
    pub shadow_rejected: u64,
    /// Let through because a rule exempts them, or as preflights.
    pub exempt: u64,
    /// Let through without the store that should have decided.
    pub error_allowed: u64,
    /// Refused because the store could not be asked.
    pub error_rejected: u64,
    /// Refused by the queue, with 503.
    pub queue_rejected: u64,
    /// Counted with the strict share because the caller is not known; these are in the numbers above too.
    pub unidentified: u64,
    /// Of them, those with nothing to identify them by.
    pub missing: u64,
    /// Of them, those whose identity cannot be read.
    pub malformed: u64,
    /// Of them, those whose identity is too long.
    pub too_long: u64,
    /// Refused with a cost that can never fit: a mistake in the configuration.
    pub too_costly: u64,
}

macro_rules! tally {
    ($($name:ident),*) => {
        /// The same as counters.
        #[derive(Debug, Default)]
        pub(super) struct Counters { $(pub(super) $name: Counter),* }

        impl Counters {
            pub(super) fn read(&self) -> EdgeCounts {
                EdgeCounts { $($name: self.$name.read()),* }
            }
        }
    };
}

tally!(
    allowed,
    rejected,
    shadow_rejected,
    exempt,
    error_allowed,
    error_rejected,
    queue_rejected,
    unidentified,
    missing,
    malformed,
    too_long,
    too_costly
);

impl Counters {
    pub(super) fn unidentified(&self, why: Unidentified) {
        self.unidentified.add();
        match why {
            Unidentified::Missing => self.missing.add(),
            Unidentified::Malformed => self.malformed.add(),
            Unidentified::TooLong => self.too_long.add(),
        }
    }
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self) {
        // Relaxed: a count orders nothing else.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds one; whether it was the first.
    pub(super) fn is_first(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) == 0
    }

    pub(super) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts of forwarding headers that an operator should look at.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    untrusted: Counter,
    malformed: Counter,
}

impl Tallies {
    pub(super) fn note(&self, note: Note) {
        match note {
            Note::Untrusted => {
                if self.untrusted.is_first() {
                    warn(
                        "a forwarding header came from a peer that is no trusted proxy; it is not believed",
                    );
                }
            }
            Note::Malformed | Note::AllTrusted | Note::TooLong => {
                if self.malformed.is_first() {
                    warn("a forwarding header could not be read to its end");
                }
            }
        }
    }

    pub(super) fn untrusted(&self) -> u64 {
        self.untrusted.read()
    }

    pub(super) fn malformed(&self) -> u64 {
        self.malformed.read()
    }
}

/// One line in the log; said once, however often it happens.
#[cfg(feature = "tracing")]
pub(super) fn warn(what: &'static str) {
    tracing::warn!(target: "sluicegate::http", "{what}");
}

/// Nobody listens without feature `tracing`; it is counted all the same.
#[cfg(not(feature = "tracing"))]
pub(super) fn warn(_: &'static str) {}
