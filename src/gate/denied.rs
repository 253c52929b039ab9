//! Who said no, and the item back.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::limiter::Ruling;
use crate::queue::Refusal;
use crate::sync::SyncCell;

/// Which half of a [`Gate`](super::Gate) refused.
#[derive(Clone, Debug)]
pub enum Cause {
    /// The edge: a limit is used up. Nothing was charged.
    Edge(Ruling),
    /// The queue. What the edge had charged was given back.
    Queue(Refusal),
}

/// Refusal of a [`Gate`](super::Gate); it gives the item back.
pub struct Denied<T> {
    item: SyncCell<T>,
    cause: Cause,
}

impl<T> Denied<T> {
    pub(super) fn new(item: T, cause: Cause) -> Self {
        Self {
            item: SyncCell::new(item),
            cause,
        }
    }

    /// Which half refused, with its numbers.
    #[must_use]
    pub fn cause(&self) -> Cause {
        self.cause.clone()
    }

    /// Time after which a caller who comes alone gets in; `None` where coming back does not help or its time is not
    /// known.
    ///
    /// Of several limits that refuse, it is the longest wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match &self.cause {
            Cause::Edge(ruling) => ruling.retry_after(),
            Cause::Queue(refusal) => refusal.retry_after(),
        }
    }

    /// The item that was not taken.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.item.into_inner()
    }

    /// Item and cause.
    #[must_use]
    pub fn into_parts(self) -> (T, Cause) {
        (self.item.into_inner(), self.cause)
    }
}

impl<T> fmt::Debug for Denied<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Denied")
            .field("cause", &self.cause)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Denied<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Queue(refusal) => refusal.fmt(f),
            Cause::Edge(ruling) => {
                f.write_str("limit ")?;
                if let Some(level) = ruling.binding() {
                    write!(f, "{level} ")?;
                }
                match ruling.retry_after() {
                    Some(after) => write!(f, "is used up, retry after {after:?}"),
                    None => f.write_str("can never grant this cost"),
                }
            }
        }
    }
}

impl<T> Error for Denied<T> {}
