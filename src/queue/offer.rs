//! An offer on terms of its own.

use std::fmt;
use std::time::Duration;

use super::parcel::{Extras, Parcel};
use super::refused::Refused;
use super::send::{Accepted, SendItem, finish};
use super::sender::Sender;
use super::terms::{Terms, terms_setters};
use super::ticket::Ticket;
use crate::refusal::Reason;

/// An item with the terms it is offered on; made by [`Sender::offer`].
///
/// # Examples
/// ```
/// use sluicegate::Rate;
/// use sluicegate::queue::{Builder, Ending, Priority};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// let (tx, rx) = Builder::new(Rate::per_second(10)).build()?;
/// let ticket = tx.offer("report").cost(3).priority(Priority::High).track().await?;
/// rx.recv().await.expect("a job is queued").ack();
/// assert_eq!(ticket.await, Ending::Acked);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "an offer does nothing until it is sent"]
pub struct Offer<'a, T> {
    sender: &'a Sender<T>,
    item: T,
    terms: Terms,
}

impl<'a, T> Offer<'a, T> {
    pub(crate) fn new(sender: &'a Sender<T>, item: T) -> Self {
        Self {
            sender,
            item,
            terms: Terms::new(),
        }
    }

    terms_setters!();

    /// Sends the item, waiting in line for a place if need be.
    ///
    /// # Errors
    /// As [`Sender::send`], and what the terms add: [`Reason::TooCostly`], [`Reason::TooLate`], [`Reason::Cancelled`].
    ///
    /// # Cancel safety
    /// As [`Sender::send`]: dropped in line, it leaves the line and drops the item.
    pub async fn send(self) -> Result<Accepted, Refused<T>> {
        let Self {
            sender,
            item,
            terms,
        } = self;
        let extras = Extras::of(&terms);
        SendItem::new(sender.core(), terms, item, extras, None).await
    }

    /// Sends the item, staying in line for at most `stay`.
    ///
    /// # Errors
    /// As [`send`](Self::send), and [`Reason::TimedOut`] after `stay`.
    ///
    /// # Cancel safety
    /// As [`Sender::send`]: dropped in line, it leaves the line and drops the item.
    pub async fn send_within(self, stay: Duration) -> Result<Accepted, Refused<T>> {
        let Self {
            sender,
            item,
            terms,
        } = self;
        let extras = Extras::of(&terms);
        SendItem::new(sender.core(), terms, item, extras, Some(stay)).await
    }

    /// Sends the item if the queue takes it now.
    ///
    /// # Errors
    /// As [`Sender::try_send`], and what the terms add.
    pub fn try_send(self) -> Result<Accepted, Refused<T>> {
        let Self {
            sender,
            item,
            terms,
        } = self;
        let mut extras = Extras::of(&terms);
        let mut item = Some(item);
        let placed = sender.core().step(|state, now, after| {
            let ask = terms.ask(now, &state.spec);
            if terms.is_cancelled() {
                return Err(state.machine.refuse(now, &ask, Reason::Cancelled));
            }
            let place = state.machine.try_offer(now, &ask, &mut after.fx)?;
            let item = item.take().expect("it is placed once");
            Ok(state.put_on(
                &terms,
                now,
                place,
                Parcel {
                    item,
                    extras: extras.take(),
                },
                after,
            ))
        });
        finish(placed, item)
    }

    /// Sends the item as [`send`](Self::send) does, and returns a future of how the job ends.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    /// As [`Sender::send`]: dropped in line, it leaves the line and drops the item.
    pub async fn track(self) -> Result<Ticket, Refused<T>> {
        let Self {
            sender,
            item,
            terms,
        } = self;
        let (end, ticket) = Ticket::pair();
        let extras = Extras::tracked(&terms, end);
        SendItem::new(sender.core(), terms, item, extras, None).await?;
        Ok(ticket)
    }
}

impl<T> fmt::Debug for Offer<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer")
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}
