//! A caller on its way through a turnstile.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::task::coop::poll_proceed;

use super::after::After;
use super::line::Line;
use super::parcel::{Extras, Parcel};
use super::state::State;
use super::terms::Terms;
use super::ticket::{Ending, Ticket};
use super::turnstile::{Turn, Turnstile, refusal};
use crate::machine::{InFlight, JobKey, NotTaken};
use crate::refusal::{Reason, Refusal};
use crate::tick::Tick;

/// Future of a [`Turn`]; made by [`Turnstile::enter`].
///
/// It keeps the turnstile open. A due turn wakes the future at the head; if that is not polled within a grain of the
/// timer, the next one's turn is called too, and the late one takes the first departure after it is polled again.
///
/// # Cancel safety
/// Dropping it leaves the line, or the queue; its turn goes to the next.
#[must_use = "futures do nothing unless polled"]
pub struct Enter {
    gate: Turnstile,
    terms: Terms,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// At the door.
    InLine(Line),
    /// Has its place, and waits for its departure.
    Queued(JobKey, Option<Ticket>),
    Over,
}

impl Enter {
    pub(crate) const fn new(gate: Turnstile, terms: Terms) -> Self {
        Self {
            gate,
            terms,
            stage: Stage::InLine(Line::Fresh),
        }
    }
}

impl Future for Enter {
    type Output = Result<Turn, Refusal>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { gate, terms, stage } = &mut *self;
        let core = gate.core();
        if let Stage::InLine(line) = stage {
            let placed = line.poll(core, cx, terms, None, |state, now, place, after| {
                let parcel = Parcel {
                    item: (),
                    extras: Extras::of_turn(terms),
                };
                state.put(now, place, parcel, after).key
            });
            match ready!(placed) {
                Ok(Some(key)) => *stage = Stage::Queued(key, None),
                // Expired in line, or the turnstile ended, while the place was on its way.
                Ok(None) => {
                    *stage = Stage::Over;
                    return Poll::Ready(Err(core.look(|state, now| lost(state, now, terms, None))));
                }
                Err(refusal) => {
                    *stage = Stage::Over;
                    return Poll::Ready(Err(refusal));
                }
            }
        }
        let Stage::Queued(key, ticket) = stage else {
            panic!("polled after it was ready")
        };
        let budget = ready!(poll_proceed(cx));
        let mut look = core.step(|state, now, after| take_turn(state, now, *key, after));
        if let Look::NotYet = look {
            let waker = cx.waker().clone();
            // Whoever has to wait is told of an end other than its turn.
            let new = ticket.is_none().then(Ticket::pair);
            let (end, mine) = new.map_or((None, None), |(end, mine)| (Some(end), Some(mine)));
            let spare = Box::<Extras>::default();
            look = core.step(|state, now, after| {
                let look = take_turn(state, now, *key, after);
                let parcel = state.machine.payload_mut(*key);
                match (&look, parcel) {
                    (Look::NotYet, Some(parcel)) => {
                        let extras = parcel.extras.get_or_insert(spare);
                        after.drop_later(extras.waker.replace(waker));
                        if end.is_some() {
                            extras.ticket = end;
                        }
                        state.desk.turns().waits_on(*key);
                    }
                    _ => after.drop_later(Some(waker)),
                }
                look
            });
            if mine.is_some() {
                *ticket = mine;
            }
        }
        let result = match look {
            Look::NotYet => return Poll::Pending,
            Look::Turn(run) => Ok(gate.turn(run)),
            Look::Gone => {
                let ending = ticket.as_mut().and_then(Ticket::now);
                Err(core.look(|state, now| lost(state, now, terms, ending)))
            }
        };
        budget.made_progress();
        *stage = Stage::Over;
        Poll::Ready(result)
    }
}

impl Drop for Enter {
    fn drop(&mut self) {
        let core = self.gate.core();
        match mem::replace(&mut self.stage, Stage::Over) {
            Stage::InLine(mut line) => line.leave(core),
            Stage::Queued(key, ticket) => {
                core.step(|state, now, after| {
                    state.machine.cancel_job(now, key, &mut after.fx);
                });
                drop(ticket);
            }
            Stage::Over => {}
        }
    }
}

impl fmt::Debug for Enter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enter")
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

enum Look {
    Turn(InFlight),
    NotYet,
    Gone,
}

fn take_turn(state: &mut State<()>, now: Tick, key: JobKey, after: &mut After<()>) -> Look {
    state.machine.advance(now, &mut after.fx);
    let Some(parcel) = state.machine.payload_mut(key) else {
        return Look::Gone;
    };
    if parcel.is_cancelled() {
        state.machine.cancel_job(now, key, &mut after.fx);
        return Look::Gone;
    }
    if !state.desk.turns().is_head(key, &state.machine) {
        return Look::NotYet;
    }
    match state.machine.take_key(now, key, &mut after.fx) {
        Ok(mut taken) => {
            state.desk.turns().taken();
            if let Some(watch) = taken.payload.unwatch() {
                after.rare().unwatched.push(watch);
            }
            Look::Turn(taken.run)
        }
        Err(NotTaken::Empty | NotTaken::Closed) => Look::Gone,
        Err(NotTaken::NotDue(_) | NotTaken::Held) => Look::NotYet,
    }
}

/// What a future is told that had its place and lost it.
fn lost(state: &State<()>, now: Tick, terms: &Terms, ending: Option<Ending>) -> Refusal {
    let reason = match ending {
        Some(Ending::Cancelled) => Reason::Cancelled,
        Some(Ending::Evicted) => Reason::Full,
        Some(Ending::Returned) => Reason::Closed,
        None if terms.is_cancelled() => Reason::Cancelled,
        None if state.machine.is_closed() => Reason::Closed,
        _ => Reason::TooLate,
    };
    refusal(state, now, terms, reason)
}
