//! A place in a line as a future: sleeps on its own timer, and gives the place back when dropped.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures_util::future::BoxFuture;

use super::line::Standing;
use crate::error::AcquireError;
use crate::tick::Tick;

/// Where a place was taken.
pub(crate) trait Place: Unpin {
    /// Serves who is due, and says how this place stands.
    fn poll_place(&self, waker: Waker) -> Standing;

    /// Gives the place back, or the grant if it came already.
    fn cancel(&self);

    fn sleep_until(&self, deadline: Tick) -> BoxFuture<'static, ()>;
}

/// Waits for the turn of a place.
pub(crate) struct Waiting<P: Place> {
    place: P,
    sleep: Option<(Tick, BoxFuture<'static, ()>)>,
    /// Whether dropping this gives the place back.
    owned: bool,
}

impl<P: Place> Waiting<P> {
    /// Waits for a place that nobody else looks after.
    pub(crate) fn new(place: P) -> Self {
        Self {
            place,
            sleep: None,
            owned: true,
        }
    }

    /// Waits for a place that is held elsewhere.
    pub(crate) fn beside(place: P) -> Self {
        let mut waiting = Self::new(place);
        waiting.owned = false;
        waiting
    }
}

impl<P: Place> Future for Waiting<P> {
    type Output = Result<(), AcquireError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            let until = match this.place.poll_place(cx.waker().clone()) {
                Standing::Done(result) => {
                    this.owned = false;
                    return Poll::Ready(result);
                }
                Standing::Until(until) => until,
            };
            let sleep = match &mut this.sleep {
                Some((tick, sleep)) if *tick == until => sleep,
                other => {
                    let sleep = this.place.sleep_until(until);
                    &mut other.insert((until, sleep)).1
                }
            };
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            this.sleep = None;
        }
    }
}

impl<P: Place> Drop for Waiting<P> {
    fn drop(&mut self) {
        if self.owned {
            self.place.cancel();
        }
    }
}
