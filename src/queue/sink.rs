//! A sender as a sink: it makes whoever forwards into it wait, and loses nothing.
//!
//! ```text
//!   plain:      poll_ready: offer --granted--> spot --start_send--> queued
//!                                               +--lapsed meanwhile--> held
//!   with terms: start_send: held --flush or the next poll_ready: offer--> queued
//!   refused: closed, too costly --> an error, the item stays held
//!            otherwise --> sleep for the retry_after, offer anew
//! ```
//! - I1  At most one item is held, and while one is, the sink is not ready.
//! - I2  A spot is a granted offer that is not collected: idle, it lapses and goes to the next in line.

mod refused;
mod spot;

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_sink::Sink;
use futures_util::future::BoxFuture;
use tokio::task::coop::poll_proceed;

use self::refused::{bury, is_final, is_hopeless, poll_rest, sleep_off};
use self::spot::{Spot, fill, plain, stand};
use super::line::Line;
use super::parcel::{Extras, Parcel};
use super::sender::Sender;
use super::terms::Terms;
use crate::refusal::{Reason, Refusal};

/// What each item is offered on.
type TermsOf<T> = Box<dyn Fn(&T) -> Terms + Send + Sync>;

/// A [`Sink`] that puts its items into a queue; made by [`Sender::into_sink`] or [`Sender::into_sink_with`].
///
/// It stays pending through pressure, pauses and full lines: refused, it waits for the
/// [`retry_after`](Refusal::retry_after) (100 ms where there is none) and offers again, so a stream that is forwarded
/// into it is slowed down and arrives in order. Its only errors are [`Closed`](Reason::Closed) and
/// [`TooCostly`](Reason::TooCostly); the item is then still held, see [`take_held`](Self::take_held).
///
/// A sink that is ready and given no item does not keep its place from the others: after a second it goes to the next in
/// line. An item that comes later is held until a place is found for it, so flush after the last one, as `send`,
/// `send_all` and `forward` do. An item that is held when the sink is dropped is dropped with it.
///
/// An item whose own [`Terms`] have become hopeless (its token fired, or it could not start in time even in an empty
/// queue) ends as a dead letter with the refusal as its cause; the ledger counts its offers as refused.
///
/// # Examples
/// ```
/// use futures_util::{StreamExt, stream};
/// use sluicegate::Rate;
/// use sluicegate::queue::Builder;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// let (tx, rx) = Builder::new(Rate::per_second(100)).max_depth(10).build()?;
/// let producer = tokio::spawn(stream::iter(0..1000).map(Ok).forward(tx.into_sink()));
/// let mut jobs = rx; // a receiver is a stream
/// let mut next = 0;
/// while let Some(job) = jobs.next().await {
///     assert_eq!(job.into_inner(), next);
///     next += 1;
/// }
/// assert_eq!(next, 1000);
/// producer.await??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "sinks do nothing unless polled"]
pub struct SenderSink<T> {
    /// `None` once closed, with the refusal of whatever comes then.
    sender: Result<Sender<T>, Refusal>,
    /// `None` = cost 1 and nothing else, so that a place can be taken before its item is known.
    terms_of: Option<TermsOf<T>>,
    spot: Option<Spot>,
    held: Option<Held<T>>,
    /// Sleep after a refusal.
    rest: Option<BoxFuture<'static, ()>>,
}

/// An item that has no place yet.
struct Held<T> {
    /// Taken as it is placed.
    item: Option<T>,
    terms: Terms,
    line: Line,
}

impl<T> Sender<T> {
    /// Turns it into a sink that takes a place of cost 1 for an item before it asks for the item.
    pub fn into_sink(self) -> SenderSink<T> {
        SenderSink::new(self, None)
    }

    /// Turns it into a sink that offers every item on terms of its own.
    ///
    /// As the terms are known by the item only, the sink holds one item until it has a place: until the next
    /// `poll_ready`, or a flush.
    pub fn into_sink_with(
        self,
        terms: impl Fn(&T) -> Terms + Send + Sync + 'static,
    ) -> SenderSink<T> {
        SenderSink::new(self, Some(Box::new(terms)))
    }
}

impl<T> SenderSink<T> {
    fn new(sender: Sender<T>, terms_of: Option<TermsOf<T>>) -> Self {
        Self {
            sender: Ok(sender),
            terms_of,
            spot: None,
            held: None,
            rest: None,
        }
    }

    /// Takes back the item that has no place yet, if there is one; its offer leaves the line.
    ///
    /// After an error this is the item that was refused. After [`TooCostly`](Reason::TooCostly) the sink goes on once it
    /// has been taken.
    pub fn take_held(&mut self) -> Option<T> {
        let mut held = self.held.take()?;
        self.rest = None;
        if let Ok(sender) = &self.sender {
            held.line.leave(sender.core());
        }
        held.item
    }

    /// Finds a place for the item that is held, if one is.
    fn poll_held(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        let Self {
            sender, held, rest, ..
        } = self;
        while let Some(offer) = held {
            let sender = sender.as_ref().map_err(Clone::clone)?;
            ready!(poll_rest(rest, cx));
            let Held { item, terms, line } = offer;
            let mut extras = Extras::of(terms);
            let placed = line.poll(
                sender.core(),
                cx,
                terms,
                None,
                |state, now, place, after| {
                    let item = item.take().expect("it is placed once");
                    let extras = extras.take();
                    state.put_on(terms, now, place, Parcel { item, extras }, after);
                },
            );
            if let Err(refusal) = ready!(placed) {
                *line = Line::Fresh;
                if is_final(&refusal) {
                    return Poll::Ready(Err(refusal));
                }
                if !is_hopeless(sender.core(), terms) {
                    *rest = Some(sleep_off(sender.core(), &refusal));
                    continue;
                }
                if let Some(item) = item.take() {
                    bury(sender.core(), item, terms, refusal);
                }
            }
            *held = None;
        }
        Poll::Ready(Ok(()))
    }

    /// Gets a place for an item to come.
    fn poll_spot(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        let Self {
            sender, spot, rest, ..
        } = self;
        let core = sender.as_ref().map_err(Clone::clone)?.core();
        let budget = ready!(poll_proceed(cx));
        loop {
            ready!(poll_rest(rest, cx));
            let mut waker = None;
            // First without a waker, as cloning one is foreign code that most polls can do without.
            let look = loop {
                let has_waker = waker.is_some();
                let look = stand(core, spot, &mut waker);
                if has_waker || look != Ok(false) {
                    break look;
                }
                waker = Some(cx.waker().clone());
            };
            match look {
                Ok(true) => {
                    budget.made_progress();
                    return Poll::Ready(Ok(()));
                }
                Ok(false) => return Poll::Pending,
                Err(refusal) if is_final(&refusal) => return Poll::Ready(Err(refusal)),
                Err(refusal) => *rest = Some(sleep_off(core, &refusal)),
            }
        }
    }

    /// Puts an item into the place that stands ready, or holds it.
    fn put(&mut self, item: T) -> Result<(), Refusal> {
        let sender = self.sender.as_ref().map_err(Clone::clone);
        let mut item = Some(item);
        let (line, result) = match (self.spot.take(), sender) {
            (Some(spot), Ok(sender)) => {
                let core = sender.core();
                match fill(core, spot, &mut item) {
                    Ok(None) => return Ok(()),
                    Ok(Some(line)) => (line, Ok(())),
                    Err(refusal) if is_final(&refusal) => (Line::Fresh, Err(refusal)),
                    Err(refusal) => {
                        self.rest = Some(sleep_off(core, &refusal));
                        (Line::Fresh, Ok(()))
                    }
                }
            }
            (_, sender) => (Line::Fresh, sender.map(drop)),
        };
        self.held = Some(Held {
            item,
            terms: Terms::new(),
            line,
        });
        result
    }
}

impl<T> Sink<T> for SenderSink<T> {
    type Error = Refusal;

    /// Waits for a place, or, with terms, until the last item has one.
    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        ready!(self.poll_held(cx))?;
        if self.terms_of.is_none() {
            return self.poll_spot(cx);
        }
        Poll::Ready(self.sender.as_ref().map(drop).map_err(Clone::clone))
    }

    /// Puts the item into its place, or holds it; see [`SenderSink`].
    ///
    /// # Panics
    /// While an item is held: only a sink that is ready takes another.
    fn start_send(mut self: Pin<&mut Self>, item: T) -> Result<(), Self::Error> {
        assert!(
            self.held.is_none(),
            "start_send on a sink that is not ready"
        );
        let Some(terms_of) = &self.terms_of else {
            return self.put(item);
        };
        let terms = terms_of(&item);
        self.held = Some(Held {
            item: Some(item),
            terms,
            line: Line::Fresh,
        });
        self.sender.as_ref().map(drop).map_err(Clone::clone)
    }

    /// Waits until every item has its place in the queue; not for any departure.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.poll_held(cx)
    }

    /// Flushes, and lets go of the queue: if this was the last sender, it closes.
    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        ready!(self.poll_held(cx))?;
        self.leave();
        if let Ok(sender) = &self.sender {
            let ask = plain();
            let closed = sender
                .core()
                .look(|state, _| state.machine.refusal(&ask, Reason::Closed, None));
            self.sender = Err(closed);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T> SenderSink<T> {
    /// Gives up what it has in line.
    fn leave(&mut self) {
        let Ok(sender) = &self.sender else { return };
        if let Some(spot) = self.spot.take() {
            spot.into_line().leave(sender.core());
        }
        if let Some(held) = &mut self.held {
            held.line.leave(sender.core());
        }
    }
}

impl<T> Drop for SenderSink<T> {
    fn drop(&mut self) {
        self.leave();
    }
}

// The item is never pinned.
impl<T> Unpin for SenderSink<T> {}

impl<T> fmt::Debug for SenderSink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SenderSink")
            .field("sender", &self.sender)
            .field("is_ready", &self.spot.is_some())
            .field("is_holding", &self.held.is_some())
            .finish_non_exhaustive()
    }
}
