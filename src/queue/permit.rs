//! Places that are paid for, and the futures of them.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::core::Core;
use super::line::Line;
use super::parcel::{Extras, Parcel};
use super::send::Accepted;
use super::sender::Sender;
use super::terms::Terms;
use crate::machine::Place;
use crate::refusal::Refusal;
use crate::sync::Arc;

/// A place in the queue that is paid for, from [`Sender::reserve`].
///
/// Sending through it cannot fail. It outlives the close of the queue: receivers wait for its item. Dropped unused it
/// gives the place to the next in line. A permit that is held and not used takes part of the depth from everybody.
#[must_use = "an unused permit gives its place back when it is dropped"]
pub struct Permit<'a, T> {
    core: &'a Arc<Core<T>>,
    seat: Seat,
}

/// As [`Permit`], borrowing nothing; from [`Sender::reserve_owned`].
#[must_use = "an unused permit gives its place back when it is dropped"]
pub struct OwnedPermit<T> {
    core: Arc<Core<T>>,
    seat: Seat,
}

/// What both hold: the place until it is used, and the terms for its job.
struct Seat {
    place: Option<Place>,
    terms: Terms,
}

impl Seat {
    fn send<T>(&mut self, core: &Arc<Core<T>>, item: T) -> Accepted {
        let place = self.place.take().expect("a permit is used once, by value");
        let extras = Extras::of(&self.terms);
        let parcel = Parcel { item, extras };
        core.step(|state, now, after| state.put_on(&self.terms, now, place, parcel, after))
            .into()
    }

    fn give_back<T>(&mut self, core: &Arc<Core<T>>) {
        if let Some(place) = self.place.take() {
            core.step(|state, now, after| state.machine.give_back(now, place, &mut after.fx));
        }
    }
}

impl<'a, T> Permit<'a, T> {
    pub(crate) fn new(core: &'a Arc<Core<T>>, place: Place, terms: Terms) -> Self {
        Self {
            core,
            seat: Seat {
                place: Some(place),
                terms,
            },
        }
    }

    /// Puts the item into the place.
    ///
    /// It cannot fail. A job that expired meanwhile, whose token has fired, or which finds no receiver left ends as a
    /// dead letter.
    pub fn send(mut self, item: T) -> Accepted {
        self.seat.send(self.core, item)
    }
}

impl<T> OwnedPermit<T> {
    pub(crate) fn new(core: Arc<Core<T>>, place: Place, terms: Terms) -> Self {
        Self {
            core,
            seat: Seat {
                place: Some(place),
                terms,
            },
        }
    }

    /// As [`Permit::send`].
    pub fn send(mut self, item: T) -> Accepted {
        self.seat.send(&self.core, item)
    }
}

impl<T> Drop for Permit<'_, T> {
    fn drop(&mut self) {
        self.seat.give_back(self.core);
    }
}

impl<T> Drop for OwnedPermit<T> {
    fn drop(&mut self) {
        self.seat.give_back(&self.core);
    }
}

impl<T> fmt::Debug for Permit<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("place", &self.seat.place)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for OwnedPermit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedPermit")
            .field("place", &self.seat.place)
            .finish_non_exhaustive()
    }
}

/// Future of a [`Permit`].
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Reserve<'a, T> {
    core: &'a Arc<Core<T>>,
    terms: Terms,
    line: Line,
}

impl<'a, T> Reserve<'a, T> {
    pub(crate) fn new(core: &'a Arc<Core<T>>, terms: Terms) -> Self {
        Self {
            core,
            terms,
            line: Line::Fresh,
        }
    }
}

impl<'a, T> Future for Reserve<'a, T> {
    type Output = Result<Permit<'a, T>, Refusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { core, terms, line } = &mut *self;
        line.poll(core, cx, terms, None, |_, _, place, _| place)
            .map_ok(|place| Permit::new(core, place, mem::take(terms)))
    }
}

impl<T> Drop for Reserve<'_, T> {
    fn drop(&mut self) {
        self.line.leave(self.core);
    }
}

/// Future of an [`OwnedPermit`]; made by [`Sender::reserve_owned`].
///
/// It counts as a sender until it is ready: it keeps the queue open.
///
/// # Cancel safety
/// Dropped in line, it leaves the line at once and takes nothing.
#[must_use = "futures do nothing unless polled"]
pub struct ReserveOwned<T> {
    sender: Sender<T>,
    terms: Terms,
    line: Line,
}

impl<T> ReserveOwned<T> {
    pub(crate) fn new(sender: Sender<T>, terms: Terms) -> Self {
        Self {
            sender,
            terms,
            line: Line::Fresh,
        }
    }
}

impl<T> Future for ReserveOwned<T> {
    type Output = Result<OwnedPermit<T>, Refusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            sender,
            terms,
            line,
        } = &mut *self;
        let core = sender.core();
        line.poll(core, cx, terms, None, |_, _, place, _| place)
            .map_ok(|place| OwnedPermit::new(Arc::clone(core), place, mem::take(terms)))
    }
}

impl<T> Drop for ReserveOwned<T> {
    fn drop(&mut self) {
        self.line.leave(self.sender.core());
    }
}

impl<T> fmt::Debug for ReserveOwned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReserveOwned")
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}
