//! Handle for producers.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use tokio::sync::watch;

use super::codec::{Codec, Json};
use super::core::Core;
use super::error::{Error, OfferError};
use super::handle::Queue;
use super::offer::Offer;
use super::snapshot::Snapshot;
use crate::sync::Arc;
use crate::words::Pressure;

/// Handle for producers; clones share one line at this process's door.
///
/// Offers of one process that wait are taken in their order. Between processes no order is promised.
pub struct Sender<T, C = Json> {
    core: Arc<Core>,
    codec: C,
    items: PhantomData<fn(T)>,
}

/// What came of an offer that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Accepted {
    /// The job's name on the server.
    pub id: String,
    /// Jobs that wait, with this one.
    pub depth: u64,
    /// Time until it starts, as far as can be told now.
    pub expected_wait: Duration,
    /// Whether the same offer had been taken before, so that there is no second job.
    pub is_duplicate: bool,
}

impl<T, C: Codec<T>> Sender<T, C> {
    pub(super) fn new(core: &Arc<Core>, codec: C) -> Self {
        Self {
            core: Arc::clone(core),
            codec,
            items: PhantomData,
        }
    }

    /// Offers an item, and waits in line while there is no room.
    ///
    /// # Errors
    /// A refusal if the queue is closed, the line full, or the wait too long by [`max_wait`](super::Builder::max_wait);
    /// an error if the server gives no answer.
    ///
    /// # Cancel safety
    /// Dropped in line it leaves the line, and drops the item; the job may be in the queue.
    pub async fn send(&self, item: T) -> Result<Accepted, OfferError<T>> {
        self.offer(item).send().await
    }

    /// Offers an item, and waits in line for at most `within`.
    ///
    /// # Errors
    /// As [`send`](Self::send), and [`TimedOut`](crate::queue::Reason::TimedOut).
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub async fn send_within(&self, item: T, within: Duration) -> Result<Accepted, OfferError<T>> {
        self.offer(item).send_within(within).await
    }

    /// Offers an item, and is refused if there is no room now.
    ///
    /// # Errors
    /// A refusal that says when to come back, or an error if the server gives no answer.
    ///
    /// # Cancel safety
    /// Dropped, the job may be in the queue.
    pub async fn try_send(&self, item: T) -> Result<Accepted, OfferError<T>> {
        self.offer(item).try_send().await
    }

    /// Begins an offer with an id or with headers.
    pub fn offer(&self, item: T) -> Offer<'_, T, C> {
        Offer::new(&self.core, &self.codec, item)
    }

    /// State of the ladder as this process last heard of it.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        self.control().pressure()
    }

    /// See [`Queue::watch_pressure`].
    #[must_use]
    pub fn watch_pressure(&self) -> watch::Receiver<Pressure> {
        self.control().watch_pressure()
    }

    /// See [`Queue::snapshot`].
    ///
    /// # Errors
    /// A server that does not answer.
    pub async fn snapshot(&self) -> Result<Snapshot, Error> {
        self.control().snapshot().await
    }

    /// See [`Queue::close`].
    ///
    /// # Errors
    /// A server that does not answer.
    pub async fn close(&self) -> Result<(), Error> {
        self.control().close().await
    }

    /// The queue.
    #[must_use]
    pub fn control(&self) -> Queue {
        Queue::new(Arc::clone(&self.core))
    }
}

impl<T, C: Clone> Clone for Sender<T, C> {
    fn clone(&self) -> Self {
        Self {
            core: Arc::clone(&self.core),
            codec: self.codec.clone(),
            items: PhantomData,
        }
    }
}

impl<T, C> fmt::Debug for Sender<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("queue", &self.core.name)
            .finish_non_exhaustive()
    }
}
