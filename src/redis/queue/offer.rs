//! An offer: one item, what is said about it, and how long it may wait at the door.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tokio::sync::SemaphorePermit;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::codec::Codec;
use super::core::{Core, Verdict};
use super::delivery::headers_text;
use super::error::{Error, ErrorKind, OfferError};
use super::sender::Accepted;
use crate::queue::Refused;
use crate::refusal::{Reason, Refusal};
use crate::sync::{AtomicU64, Ordering};

/// An offer in the making.
#[must_use = "an offer is made by one of its last words"]
pub struct Offer<'a, T, C> {
    core: &'a Core,
    codec: &'a C,
    item: T,
    id: Option<String>,
    headers: BTreeMap<String, String>,
}

impl<'a, T, C: Codec<T>> Offer<'a, T, C> {
    pub(super) fn new(core: &'a Core, codec: &'a C, item: T) -> Self {
        Self {
            core,
            codec,
            item,
            id: None,
            headers: BTreeMap::new(),
        }
    }

    /// Names the offer, so that the same offer made again within
    /// [`remember_ids`](super::Builder::remember_ids) is not a second job. An answer that is lost is then asked for again.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Adds a header, which the consumer sees beside the item.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// See [`Sender::send`](super::Sender::send).
    ///
    /// # Errors
    /// As there.
    pub async fn send(self) -> Result<Accepted, OfferError<T>> {
        self.wait(None).await
    }

    /// See [`Sender::send_within`](super::Sender::send_within).
    ///
    /// # Errors
    /// As there.
    pub async fn send_within(self, within: Duration) -> Result<Accepted, OfferError<T>> {
        self.wait(Some(within)).await
    }

    /// See [`Sender::try_send`](super::Sender::try_send).
    ///
    /// # Errors
    /// As there.
    pub async fn try_send(self) -> Result<Accepted, OfferError<T>> {
        let (parcel, item) = self.packed()?;
        match parcel.once(false).await {
            Ok(Verdict::Taken {
                id,
                depth,
                wait,
                twice,
            }) => Ok(accepted(id, depth, wait, twice)),
            Ok(Verdict::Refused(refusal)) => Err(parcel.refused(item, refusal)),
            Err(error) => Err(OfferError::Failed { item, error }),
        }
    }

    async fn wait(self, within: Option<Duration>) -> Result<Accepted, OfferError<T>> {
        let (parcel, item) = self.packed()?;
        match parcel.in_line(within).await {
            Ok(accepted) => Ok(accepted),
            Err(Outcome::Refused(refusal)) => Err(parcel.refused(item, refusal)),
            Err(Outcome::Failed(error)) => Err(OfferError::Failed { item, error }),
        }
    }

    fn packed(self) -> Result<(Parcel<'a>, T), OfferError<T>> {
        let Self {
            core,
            codec,
            item,
            id,
            headers,
        } = self;
        let payload = match codec.encode(&item) {
            Ok(payload) => payload,
            Err(error) => {
                let error = ErrorKind::Encode(error).into();
                return Err(OfferError::Failed { item, error });
            }
        };
        let bytes = payload.len() as u64;
        let most = core.max_payload;
        if bytes > most {
            let error = ErrorKind::TooLarge { bytes, most }.into();
            return Err(OfferError::Failed { item, error });
        }
        let parcel = Parcel {
            core,
            payload,
            id,
            headers: headers_text(&headers),
            is_remembered: true,
        };
        Ok((parcel, item))
    }
}

impl<T, C> fmt::Debug for Offer<'_, T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer")
            .field("queue", &self.core.name)
            .field("id", &self.id)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

/// What goes over the wire.
pub(super) struct Parcel<'a> {
    pub(super) core: &'a Core,
    pub(super) payload: Vec<u8>,
    pub(super) id: Option<String>,
    pub(super) headers: String,
    /// Whether an offer under the same id counts as this one.
    pub(super) is_remembered: bool,
}

enum Outcome {
    Refused(Refusal),
    Failed(Error),
}

impl Parcel<'_> {
    /// One offer; with an id, an answer that is lost is asked for again.
    pub(super) async fn once(&self, waits: bool) -> Result<Verdict, Error> {
        let mut tries = TRIES;
        loop {
            tries -= 1;
            let id = self.id.as_deref();
            let answer = self
                .core
                .offer(&self.payload, id, &self.headers, self.is_remembered, waits)
                .await;
            match answer {
                Err(error)
                    if id.is_some() && self.is_remembered && error.may_have_run() && tries > 0 => {}
                answer => return answer,
            }
        }
    }

    /// Stands in line until there is room.
    async fn in_line(&self, within: Option<Duration>) -> Result<Accepted, Outcome> {
        let core = self.core;
        let since = Instant::now();
        let most = core.settings.lock().max_wait;
        let most = Some(most).filter(|most| *most > Duration::ZERO);
        let until = match (within, most) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
        .and_then(|wait| since.checked_add(wait));
        let _turn = self.turn(until).await?;
        loop {
            let refusal = match self.once(true).await {
                Ok(Verdict::Taken {
                    id,
                    depth,
                    wait,
                    twice,
                }) => return Ok(accepted(id, depth, wait, twice)),
                Ok(Verdict::Refused(refusal)) => refusal,
                Err(error) => return Err(Outcome::Failed(error)),
            };
            let pause = match refusal.reason {
                Reason::Full | Reason::Overloaded => refusal.retry_after.unwrap_or(LOOK).min(LOOK),
                Reason::Paused => LOOK,
                _ => return Err(Outcome::Refused(refusal)),
            };
            let back = Instant::now() + pause;
            match until {
                Some(until) if until <= back => {
                    sleep_until(until).await;
                    return Err(Outcome::Refused(Refusal {
                        reason: Reason::TimedOut,
                        ..refusal
                    }));
                }
                _ => sleep_until(back).await,
            }
        }
    }

    async fn turn(
        &self,
        until: Option<Instant>,
    ) -> Result<(SemaphorePermit<'_>, Waiting<'_>), Outcome> {
        let core = self.core;
        let waiting = Waiting::new(&core.waiting);
        // One of them is being served, and stands in no line.
        if waiting.before > core.max_waiters {
            return Err(Outcome::Refused(self.local(Reason::WaitersFull)));
        }
        let turn = core.line.acquire();
        let turn = match until {
            Some(until) => timeout_at(until, turn).await,
            None => Ok(turn.await),
        };
        match turn {
            Ok(Ok(turn)) => Ok((turn, waiting)),
            // The line is never closed.
            Ok(Err(_)) | Err(_) => Err(Outcome::Refused(self.local(Reason::TimedOut))),
        }
    }

    /// A refusal by this process, which has not asked the server how things stand: the depth is what it may be.
    fn local(&self, reason: Reason) -> Refusal {
        let settings = self.core.settings.lock();
        let interval = settings.rate.interval().duration();
        let waiting = self.core.waiting.load(Ordering::Relaxed);
        let ahead = u32::try_from(waiting / 2).unwrap_or(u32::MAX);
        Refusal {
            reason,
            retry_after: Some(interval.saturating_mul(ahead.max(1))),
            depth: settings.high,
            max_depth: settings.max_depth,
            cost: 1,
            pressure: *self.core.pressure.borrow(),
            queue: Some(crate::sync::Arc::clone(&self.core.name)),
        }
    }

    fn refused<T>(&self, item: T, refusal: Refusal) -> OfferError<T> {
        // Relaxed: a number for people.
        self.core.refused.fetch_add(1, Ordering::Relaxed);
        OfferError::Refused(Refused::new(item, refusal))
    }
}

/// Counts one that waits.
struct Waiting<'a> {
    count: &'a AtomicU64,
    before: u64,
}

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicU64) -> Self {
        // Relaxed: the count bounds memory, the line orders the offers.
        let before = count.fetch_add(1, Ordering::Relaxed);
        Self { count, before }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

fn accepted(id: String, depth: u64, wait: Duration, is_duplicate: bool) -> Accepted {
    Accepted {
        id,
        depth,
        expected_wait: wait,
        is_duplicate,
    }
}

/// Longest time between two questions of a line's head: the rate may be changed meanwhile.
const LOOK: Duration = Duration::from_millis(250);
/// Questions after which an offer with an id is given up.
const TRIES: u32 = 3;
