//! A refusal that gives the item back.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::refusal::{Reason, Refusal};
use crate::sync::SyncCell;
use crate::words::Pressure;

/// Refusal that gives the item back.
pub struct Refused<T> {
    item: SyncCell<T>,
    refusal: Refusal,
}

impl<T> Refused<T> {
    pub(crate) fn new(item: T, refusal: Refusal) -> Self {
        Self {
            item: SyncCell::new(item),
            refusal,
        }
    }

    /// Why.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        self.refusal.reason()
    }

    /// See [`Refusal::retry_after`].
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.refusal.retry_after()
    }

    /// See [`Refusal::retry_after_secs`].
    #[must_use]
    pub fn retry_after_secs(&self) -> Option<u64> {
        self.refusal.retry_after_secs()
    }

    /// See [`Refusal::depth`].
    #[must_use]
    pub const fn depth(&self) -> u64 {
        self.refusal.depth()
    }

    /// See [`Refusal::pressure`].
    #[must_use]
    pub const fn pressure(&self) -> Pressure {
        self.refusal.pressure()
    }

    /// See [`Refusal::queue`].
    #[must_use]
    pub fn queue(&self) -> Option<&str> {
        self.refusal.queue()
    }

    /// The refusal alone.
    #[must_use]
    pub const fn refusal(&self) -> &Refusal {
        &self.refusal
    }

    /// The item that was not taken.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.item.into_inner()
    }

    /// Item and refusal.
    #[must_use]
    pub fn into_parts(self) -> (T, Refusal) {
        (self.item.into_inner(), self.refusal)
    }
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("refusal", &self.refusal)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.refusal.fmt(f)
    }
}

impl<T> Error for Refused<T> {}

impl<T> From<Refused<T>> for Refusal {
    fn from(refused: Refused<T>) -> Self {
        refused.refusal
    }
}
