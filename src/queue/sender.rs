//! The producers' handle.

use std::fmt;
use std::time::Duration;

use tokio::sync::watch;

use super::control::Control;
use super::core::Core;
use super::offer::Offer;
use super::parcel::{Extras, Parcel};
use super::permit::{Permit, Reserve, ReserveOwned};
use super::refused::Refused;
use super::send::{Accepted, SendItem, finish};
use super::snapshot::Snapshot;
use super::terms::{Plain, Terms};
use crate::machine::Ask;
use crate::refusal::{Reason, Refusal};
use crate::sync::{Arc, Ordering, Weak};
use crate::words::Pressure;

/// Handle to put jobs into a queue; clones share it.
///
/// The queue closes when the last sender is dropped: what is queued still leaves, and no receiver waits for more.
///
/// Producers that can wait use [`send`](Self::send) or, with the place first and the item second,
/// [`reserve`](Self::reserve). Producers that cannot use [`try_send`](Self::try_send), and are told when to come back.
/// Both feel the same pressure, see [`Pressure`].
pub struct Sender<T> {
    core: Arc<Core<T>>,
}

impl<T> Sender<T> {
    pub(crate) fn new(core: Arc<Core<T>>) -> Self {
        Self { core }
    }

    pub(crate) const fn core(&self) -> &Arc<Core<T>> {
        &self.core
    }

    /// Sends an item with cost 1, waiting in line for a place if need be.
    ///
    /// The line is served in the order of first polls; nobody overtakes.
    ///
    /// # Errors
    /// [`Refused`] gives the item back: the queue is closed, the line is full, or the item could not start in time.
    ///
    /// # Cancel safety
    /// Dropped in line, it leaves the line at once, and the item is dropped with it; it was not sent. To keep the item,
    /// [`reserve`](Self::reserve) first.
    ///
    /// # Examples
    /// ```
    /// use sluicegate::Rate;
    /// use sluicegate::queue::Builder;
    /// use std::time::Duration;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
    /// let (tx, rx) = Builder::new(Rate::per_second(10)).max_depth(2).build()?;
    /// tokio::spawn(async move {
    ///     for n in 0..10 {
    ///         tx.send(n).await.expect("the receiver is there"); // slowed down to what leaves
    ///     }
    /// });
    /// let start = tokio::time::Instant::now();
    /// while let Some(job) = rx.recv().await {
    ///     job.ack();
    /// }
    /// assert!(start.elapsed() >= Duration::from_millis(850));
    /// # Ok::<(), sluicegate::BuildError>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn send(&self, item: T) -> Result<Accepted, Refused<T>> {
        SendItem::new(&self.core, Plain, item, Extras::plain(), None).await
    }

    /// Sends an item, staying in line for at most `stay`.
    ///
    /// Only the stay in line is bounded: a job that got its place waits for its departure as any other.
    ///
    /// # Errors
    /// As [`send`](Self::send), and [`TimedOut`](super::Reason::TimedOut) after `stay`.
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub async fn send_within(&self, item: T, stay: Duration) -> Result<Accepted, Refused<T>> {
        SendItem::new(&self.core, Plain, item, Extras::plain(), Some(stay)).await
    }

    /// Sends an item with cost 1 if the queue takes it now.
    ///
    /// # Errors
    /// [`Refused`] gives the item back. The reason is [`Full`](super::Reason::Full) if the cost does not fit under the bound, and
    /// [`Overloaded`](super::Reason::Overloaded) if it would, but the queue is past its high mark (while it is
    /// [`Elevated`](Pressure::Elevated), too) or others stand in line: they go first, so under producers that wait all
    /// the time this stays refused.
    pub fn try_send(&self, item: T) -> Result<Accepted, Refused<T>> {
        let ask = Ask::default();
        let (mut item, mut extras) = (Some(item), Extras::plain());
        let placed = self.core.step(|state, now, after| {
            let place = state.machine.try_offer(now, &ask, &mut after.fx)?;
            let item = item.take().expect("it is placed once");
            let extras = extras.take();
            let parcel = Parcel { item, extras };
            Ok(state.machine.send(now, place, parcel, &mut after.fx))
        });
        finish(placed, item)
    }

    /// The refusal that an offer on these terms meets now, counted as one; `None` if it would not be refused.
    pub(crate) fn refused_now(&self, terms: &Terms, try_form: bool) -> Option<Refusal> {
        self.core.step(|state, now, after| {
            let ask = terms.ask(now, &state.spec);
            if terms.is_cancelled() {
                return Some(state.machine.refuse(now, &ask, Reason::Cancelled));
            }
            state
                .machine
                .refuse_hopeless(now, &ask, try_form, &mut after.fx)
        })
    }

    /// Waits in line for a place of cost 1, without an item.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    /// Dropped in line, it leaves the line at once and takes nothing.
    pub async fn reserve(&self) -> Result<Permit<'_, T>, Refusal> {
        self.reserve_with(Terms::new()).await
    }

    /// Waits in line for a place of cost `cost`.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    /// Dropped in line, it leaves the line at once and takes nothing.
    pub async fn reserve_cost(&self, cost: u64) -> Result<Permit<'_, T>, Refusal> {
        self.reserve_with(Terms::new().cost(cost)).await
    }

    /// Waits in line for a place on these terms; they bind the job that is sent through the permit.
    ///
    /// # Errors
    /// As [`send`](Self::send), and what the terms add.
    ///
    /// # Cancel safety
    /// Dropped in line, it leaves the line at once and takes nothing.
    pub async fn reserve_with(&self, terms: Terms) -> Result<Permit<'_, T>, Refusal> {
        Reserve::new(&self.core, terms).await
    }

    /// Takes a place of cost 1 if there is one now.
    ///
    /// # Errors
    /// As [`try_send`](Self::try_send).
    pub fn try_reserve(&self) -> Result<Permit<'_, T>, Refusal> {
        let ask = Ask::default();
        let place = self
            .core
            .step(|state, now, after| state.machine.try_offer(now, &ask, &mut after.fx))?;
        Ok(Permit::new(&self.core, place, Terms::new()))
    }

    /// Waits in line for a place that borrows nothing, so that it can be kept in a struct or sent to a task.
    ///
    /// The future counts as a sender: it keeps the queue open.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    /// Dropped in line, it leaves the line at once and takes nothing.
    pub fn reserve_owned(&self) -> ReserveOwned<T> {
        self.reserve_owned_with(Terms::new())
    }

    /// As [`reserve_owned`](Self::reserve_owned), on these terms.
    ///
    /// # Cancel safety
    /// Dropped in line, it leaves the line at once and takes nothing.
    pub fn reserve_owned_with(&self, terms: Terms) -> ReserveOwned<T> {
        ReserveOwned::new(self.clone(), terms)
    }

    /// Begins an offer of an item on terms of its own.
    pub fn offer(&self, item: T) -> Offer<'_, T> {
        Offer::new(self, item)
    }

    /// State of the ladder, read without a lock.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        self.core.pressure()
    }

    /// Receiver that is told whenever the state of the ladder changes; a newer state is never overwritten by an older.
    #[must_use]
    pub fn watch_pressure(&self) -> watch::Receiver<Pressure> {
        self.core.watch_pressure()
    }

    /// Cost in the queue, read without a lock.
    #[must_use]
    pub fn depth(&self) -> u64 {
        self.core.depth()
    }

    /// Numbers of this instant.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.core.snapshot()
    }

    /// The operator's handle.
    #[must_use]
    pub fn control(&self) -> Control {
        Control::new(self.core.port())
    }

    /// Takes no more offers: those in line are refused, what is queued still leaves. `true` if this call did it.
    pub fn close(&self) -> bool {
        self.core.close()
    }

    /// Whether the queue takes no more offers.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.core.is_closed()
    }

    /// Waits until the queue takes no more offers.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub async fn closed(&self) {
        self.core.closed.cancelled().await;
    }

    /// A handle that does not keep the queue open.
    #[must_use]
    pub fn downgrade(&self) -> WeakSender<T> {
        WeakSender {
            core: Arc::downgrade(&self.core),
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        // Relaxed: whoever clones holds one, so the count cannot be zero.
        self.core.senders.fetch_add(1, Ordering::Relaxed);
        Self {
            core: Arc::clone(&self.core),
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // Acquire and release: the close comes after all that the other senders did.
        if self.core.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.core.close();
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&self.core).finish()
    }
}

/// Handle that does not keep a queue open.
pub struct WeakSender<T> {
    core: Weak<Core<T>>,
}

impl<T> WeakSender<T> {
    /// A sender, unless the last one is gone.
    #[must_use]
    pub fn upgrade(&self) -> Option<Sender<T>> {
        let core = self.core.upgrade()?;
        // Never from zero: the queue was closed then. Relaxed: nothing is published by counting up.
        core.senders
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |senders| {
                (senders > 0).then_some(senders + 1)
            })
            .ok()?;
        Some(Sender { core })
    }
}

impl<T> Clone for WeakSender<T> {
    fn clone(&self) -> Self {
        Self {
            core: Weak::clone(&self.core),
        }
    }
}

impl<T> fmt::Debug for WeakSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakSender")
    }
}
