//! A caller on its way through a turnstile.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::sync::oneshot;
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
        // Where others are queued, a newcomer nearly always has to wait: what it waits with comes along at once.
        let mut wait = None;
        let mut look = Look::NotYet;
        if let Stage::InLine(line) = stage {
            let mut mine = None;
            if core.depth() > 0 {
                let (new, ticket) = Wait::new(cx, true);
                (wait, mine) = (Some(new), ticket);
            }
            let placed = line.poll(core, cx, terms, None, |state, now, place, after| {
                let parcel = Parcel {
                    item: (),
                    extras: Extras::of_turn(terms),
                };
                let key = state.put(now, place, parcel, after).key?;
                look = look_or_wait(state, now, key, &mut wait, after);
                Some(key)
            });
            match ready!(placed) {
                Ok(Some(key)) => {
                    let waits = matches!(look, Look::NotYet) && mine.is_some();
                    *stage = Stage::Queued(key, mine.filter(|_| waits));
                    if waits {
                        return Poll::Pending;
                    }
                }
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
        if let Look::NotYet = look {
            let budget = ready!(poll_proceed(cx));
            look = core.step(|state, now, after| take_turn(state, now, *key, after));
            if let Look::NotYet = look {
                // Whoever has to wait is told of an end other than its turn.
                let (new, mine) = Wait::new(cx, ticket.is_none());
                let wait = &mut Some(new);
                look = core.step(|state, now, after| look_or_wait(state, now, *key, wait, after));
                if mine.is_some() {
                    *ticket = mine;
                }
            }
            if let Look::NotYet = look {
                return Poll::Pending;
            }
            budget.made_progress();
        }
        let result = match look {
            Look::NotYet => unreachable!("whoever waits has returned"),
            Look::Turn(run, parcel) => {
                drop(parcel);
                Ok(gate.turn(run))
            }
            Look::Gone => {
                let ending = ticket.as_mut().and_then(Ticket::now);
                Err(core.look(|state, now| lost(state, now, terms, ending)))
            }
        };
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
    /// The turn, and what is to be dropped unlocked.
    Turn(InFlight, Parcel<()>),
    NotYet,
    Gone,
}

/// What a future waits with, made before the lock is taken.
struct Wait {
    waker: Waker,
    end: Option<oneshot::Sender<Ending>>,
    spare: Box<Extras>,
}

impl Wait {
    fn new(cx: &Context<'_>, ticketed: bool) -> (Self, Option<Ticket>) {
        let (end, mine) = ticketed.then(Ticket::pair).unzip();
        let wait = Self {
            waker: cx.waker().clone(),
            end,
            spare: Box::default(),
        };
        (wait, mine)
    }
}

/// Takes its turn, or is woken when it comes, if there is something to `wait` with.
fn look_or_wait(
    state: &mut State<()>,
    now: Tick,
    key: JobKey,
    wait: &mut Option<Wait>,
    after: &mut After<()>,
) -> Look {
    let look = take_turn(state, now, key, after);
    if let Look::NotYet = look
        && let Some(parcel) = state.machine.payload_mut(key)
        && let Some(Wait { waker, end, spare }) = wait.take()
    {
        let extras = parcel.extras.get_or_insert(spare);
        after.drop_later(extras.waker.replace(waker));
        if end.is_some() {
            extras.ticket = end;
        }
        state.desk.turns().waits_on(key);
    }
    look
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
            Look::Turn(taken.run, taken.payload)
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
