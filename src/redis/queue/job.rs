//! A job in the hands of a consumer, until it is settled.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::core::{Core, Settling};
use super::dead_letters::Death;
use super::delivery::{Guard, Raw, headers_of};
use super::error::Error;
use crate::queue::Backoff;
use crate::sync::Arc;
use crate::tick::Tick;

/// A job that has departed: the item, and the duty to say what became of it.
///
/// While it lives, this process tells the server that it is being worked on. Dropped unsettled, because its consumer
/// panicked or gave up, it is as if its process had died: another consumer has it after the
/// [claim time](super::Builder::claim_after), and the start counts.
///
/// Every verb that settles takes it by value, and is safe to be repeated by this crate when an answer is lost. Dropped
/// before its answer came, the job may be settled or not; if not, it comes again.
#[must_use = "a job that is dropped unsettled comes again"]
pub struct Job<T> {
    core: Arc<Core>,
    item: T,
    raw: Raw,
    guard: Guard,
}

impl<T> Job<T> {
    pub(super) fn new(core: &Arc<Core>, item: T, mut raw: Raw, guard: Guard) -> Self {
        // The item is what is kept of it.
        raw.payload = Vec::new();
        Self {
            core: Arc::clone(core),
            item,
            raw,
            guard,
        }
    }

    /// Its name on the server; a job that comes back has another one.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.raw.id
    }

    /// The [id](super::Offer::id) of its offer.
    #[must_use]
    pub fn offer_id(&self) -> Option<&str> {
        Some(self.raw.key.as_str()).filter(|key| !key.is_empty())
    }

    /// The headers of its offer.
    #[must_use]
    pub fn headers(&self) -> BTreeMap<String, String> {
        headers_of(&self.raw.headers)
    }

    /// Time from its offer to this departure, on the server's clock.
    #[must_use]
    pub fn waited(&self) -> Duration {
        Core::tick(self.raw.departed) - Core::tick(self.raw.offered)
    }

    /// When it departed, on the server's clock, since Unix time began. Spacing is judged on these instants.
    #[must_use]
    pub fn departed_at(&self) -> Tick {
        Core::tick(self.raw.departed)
    }

    /// Which start this is, as the server counts: 1 at the first.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.raw.attempt
    }

    /// Fencing token: together with the [id](Self::id) it names this delivery and no other.
    #[must_use]
    pub const fn token(&self) -> u32 {
        self.raw.token
    }

    /// Whether the server said that it is another consumer's by now. Its settlement will be refused.
    #[must_use]
    pub fn is_taken_over(&self) -> bool {
        self.guard.is_lost()
    }

    /// Why its last attempt failed, if whoever put it back said so.
    #[must_use]
    pub fn last_cause(&self) -> Option<&str> {
        Some(self.raw.cause.as_str()).filter(|cause| !cause.is_empty())
    }

    /// How it died before it was put back among the living, oldest first.
    #[must_use]
    pub fn history(&self) -> Vec<Death> {
        Death::read(&self.raw.history)
    }

    /// The job is done: the server deletes it.
    ///
    /// # Errors
    /// [`TakenOver`](super::ErrorKind::TakenOver), or a server that does not answer: then it comes again.
    pub async fn ack(self) -> Result<(), Error> {
        self.into_inner().await.map(drop)
    }

    /// The job is done; hands out its item.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub async fn into_inner(self) -> Result<T, Error> {
        self.settle("ack", Duration::ZERO, "").await?;
        Ok(self.item)
    }

    /// The job failed for good: it is dead-lettered.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub async fn fail(self) -> Result<(), Error> {
        self.settle("fail", Duration::ZERO, "").await
    }

    /// As [`fail`](Self::fail), with the cause for its letter, of which the first 1,000 characters are kept.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub async fn fail_because(
        self,
        error: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Result<(), Error> {
        let cause = shortened(&error.into().to_string());
        self.settle("fail", Duration::ZERO, &cause).await
    }

    /// The attempt failed: puts the job back, to leave again after the back-off, behind what is queued then.
    ///
    /// There is always room for it, above the bound if need be. With its [attempts](super::Builder::max_attempts) used
    /// up it is dead-lettered in the same step. The delay is kept by the server, whoever dies meanwhile.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub async fn retry(self, after: impl Into<Backoff>) -> Result<(), Error> {
        let delay = after.into().delay(self.raw.attempt);
        self.settle("retry", delay, "").await
    }

    /// As [`retry`](Self::retry), and keeps why.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub async fn retry_because(
        self,
        error: impl Into<Box<dyn StdError + Send + Sync>>,
        after: impl Into<Backoff>,
    ) -> Result<(), Error> {
        let delay = after.into().delay(self.raw.attempt);
        let cause = shortened(&error.into().to_string());
        self.settle("retry", delay, &cause).await
    }

    /// The downstream asked for patience: puts the job back for `delay`, and this start does not count as an attempt.
    ///
    /// # Errors
    /// As [`ack`](Self::ack).
    pub async fn defer(self, delay: Duration) -> Result<(), Error> {
        self.settle("defer", delay, "").await
    }

    async fn settle(&self, how: &'static str, delay: Duration, cause: &str) -> Result<(), Error> {
        let settling = Settling {
            id: &self.raw.id,
            token: self.raw.token,
            how,
            delay,
            cause,
            headers: "",
        };
        self.core.settle(&settling).await.map(drop)
    }
}

/// A cause as far as it is kept.
pub(super) fn shortened(cause: &str) -> String {
    cause.chars().take(LONGEST_CAUSE).collect()
}

impl<T> Deref for Job<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.item
    }
}

impl<T> DerefMut for Job<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.item
    }
}

impl<T> fmt::Debug for Job<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("id", &self.raw.id)
            .field("token", &self.raw.token)
            .field("attempt", &self.raw.attempt)
            .finish_non_exhaustive()
    }
}

const LONGEST_CAUSE: usize = 1_000;
