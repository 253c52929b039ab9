//! Decisions under way, which give back what nobody waits for any more.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;

use super::limits::Limits;
use crate::limiter::{Ruling, Store as _};

/// A decision of [`Limits`]: asked for when it is first polled.
///
/// # Cancel safety
/// Dropped before it is done, it goes on in a task until its deadline, and gives back what it was granted.
#[must_use = "nothing is decided until it is polled"]
pub struct Deciding(Careful<Ruling>);

/// Future whose rulings are given back if it is dropped half-way.
pub(super) struct Careful<T: Granted> {
    future: Option<BoxFuture<'static, T>>,
    polled: bool,
    limits: Limits,
}

/// Rulings that can be given back.
pub(super) trait Granted: Send + 'static {
    fn give_back(self, limits: &Limits);
}

impl Granted for Ruling {
    fn give_back(self, limits: &Limits) {
        if self.is_granted() {
            limits.refund(self.charge());
        }
    }
}

impl Granted for Vec<Ruling> {
    fn give_back(self, limits: &Limits) {
        for ruling in self {
            ruling.give_back(limits);
        }
    }
}

impl Deciding {
    pub(super) fn new(limits: Limits, future: BoxFuture<'static, Ruling>) -> Self {
        Self(Careful::new(limits, future))
    }
}

impl<T: Granted> Careful<T> {
    pub(super) fn new(limits: Limits, future: BoxFuture<'static, T>) -> Self {
        Self {
            future: Some(future),
            polled: false,
            limits,
        }
    }
}

impl Future for Deciding {
    type Output = Ruling;

    /// # Panics
    /// If it is polled again after it was done, or outside of a tokio runtime.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ruling> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<T: Granted> Future for Careful<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.polled = true;
        let future = self.future.as_mut();
        let future = future.expect("a decision is polled until it is done");
        let poll = future.as_mut().poll(cx);
        if poll.is_ready() {
            self.future = None;
        }
        poll
    }
}

impl<T: Granted> Drop for Careful<T> {
    fn drop(&mut self) {
        let Some(future) = self.future.take().filter(|_| self.polled) else {
            return;
        };
        let limits = self.limits.clone();
        // Without a runtime nothing answers any more.
        if let Some(runtime) = self.limits.runtime() {
            runtime.spawn(async move { future.await.give_back(&limits) });
        }
    }
}

impl fmt::Debug for Deciding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deciding")
            .field("done", &self.0.future.is_none())
            .finish()
    }
}
