//! The future that places an item, and what its acceptance tells.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::after::After;
use super::core::Core;
use super::line::Line;
use super::parcel::{Extras, Parcel};
use super::refused::Refused;
use super::state::State;
use super::terms::Asks;
use crate::machine::Queued;
use crate::refusal::Refusal;
use crate::sync::Arc;

/// What is known of a job at its acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Cost in the queue, this job included.
    pub depth: u64,
    /// Predicted time to its start, if consumers keep up and nothing more urgent comes.
    pub expected_wait: Duration,
}

impl From<Queued> for Accepted {
    fn from(queued: Queued) -> Self {
        Self {
            depth: queued.depth,
            expected_wait: queued.expected_wait,
        }
    }
}

/// Future that places an item: one lock from the offer to the queue where there is room.
#[must_use = "futures do nothing unless polled"]
pub(crate) struct SendItem<'a, T, A> {
    core: &'a Arc<Core<T>>,
    terms: A,
    item: Option<T>,
    extras: Option<Box<Extras>>,
    stay: Option<Duration>,
    line: Line,
}

impl<'a, T, A> SendItem<'a, T, A> {
    pub(crate) fn new(
        core: &'a Arc<Core<T>>,
        terms: A,
        item: T,
        extras: Option<Box<Extras>>,
        stay: Option<Duration>,
    ) -> Self {
        Self {
            core,
            terms,
            item: Some(item),
            extras,
            stay,
            line: Line::Fresh,
        }
    }
}

// Neither the item nor its terms are ever pinned.
impl<T, A> Unpin for SendItem<'_, T, A> {}

impl<T, A: Asks> Future for SendItem<'_, T, A> {
    type Output = Result<Accepted, Refused<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            core,
            terms,
            item,
            extras,
            stay,
            line,
        } = &mut *self;
        let bare = terms.terms().is_none() && extras.is_none();
        let item = Cell::from_mut(item);
        let take = || item.take().expect("it is placed once");
        let short = |state: &mut State<T>, now, after: &mut After<T>| {
            bare.then(|| state.put_plainly(now, take, after).map(Accepted::from))
                .flatten()
        };
        let poll = line.poll_shortly(core, cx, terms, *stay, short, |state, now, place, after| {
            let (item, extras) = (take(), extras.take());
            state
                .put_on(terms, now, place, Parcel { item, extras }, after)
                .into()
        });
        poll.map(|placed| finish(placed, item.take()))
    }
}

impl<T, A> Drop for SendItem<'_, T, A> {
    fn drop(&mut self) {
        self.line.leave(self.core);
    }
}

/// Acceptance, or the refusal with the item that was not placed.
pub(crate) fn finish<T>(
    placed: Result<impl Into<Accepted>, Refusal>,
    item: Option<T>,
) -> Result<Accepted, Refused<T>> {
    match placed {
        Ok(accepted) => Ok(accepted.into()),
        Err(refusal) => Err(Refused::new(
            item.expect("an item that was refused was not placed"),
            refusal,
        )),
    }
}
