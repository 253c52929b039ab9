//! What a sink does after a refusal.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::queue::core::Core;
use crate::queue::dead_letters::DeadLetter;
use crate::queue::terms::Terms;
use crate::refusal::{Reason, Refusal};
use crate::sync::Arc;
use crate::words::Exit;

/// Whether the sleep is over, if there is one.
pub(super) fn poll_rest(
    rest: &mut Option<BoxFuture<'static, ()>>,
    cx: &mut Context<'_>,
) -> Poll<()> {
    if let Some(sleep) = rest {
        ready!(sleep.as_mut().poll(cx));
        *rest = None;
    }
    Poll::Ready(())
}

/// What no waiting helps against.
pub(super) const fn is_final(refusal: &Refusal) -> bool {
    matches!(refusal.reason(), Reason::Closed | Reason::TooCostly)
}

/// Sleep until a refused offer may be made again.
pub(super) fn sleep_off<T>(core: &Core<T>, refusal: &Refusal) -> BoxFuture<'static, ()> {
    let until = core.clock.now() + refusal.retry_after().unwrap_or(PAUSED);
    core.timer.sleep_until(&core.clock, until)
}

/// Whether the terms would not be met by an empty queue either, now or later.
pub(super) fn is_hopeless<T>(core: &Core<T>, terms: &Terms) -> bool {
    terms.is_cancelled()
        || core.look(|state, now| {
            let settings = state.machine.settings();
            let grain = settings.rate.map_or(Duration::ZERO, |_| settings.grain);
            state
                .machine
                .expiry(now, &terms.ask(now, &state.spec))
                .first
                < now + grain
        })
}

/// Writes the letter of an item that was never placed.
pub(super) fn bury<T>(core: &Arc<Core<T>>, item: T, terms: &Terms, refusal: Refusal) {
    let exit = if terms.is_cancelled() {
        Exit::Cancelled
    } else {
        Exit::Expired
    };
    let letter = DeadLetter {
        item,
        exit,
        waited: Duration::ZERO,
        attempts: 0,
        cause: Some(Box::new(refusal)),
    };
    core.step(|_, _, after| after.rare().letters.push((letter, None)));
}

/// How often a refused sink asks again while nobody can say when the queue will go on.
const PAUSED: Duration = Duration::from_millis(100);
