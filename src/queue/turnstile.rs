//! The queue when there is nothing to hand over: one waits for one's turn, and works oneself.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use super::after::After;
use super::control::Control;
use super::core::Core;
use super::enter::Enter;
use super::parcel::Parcel;
use super::snapshot::Snapshot;
use super::state::State;
use super::terms::Terms;
use crate::machine::{InFlight, NotTaken, Settled};
use crate::refusal::{Reason, Refusal};
use crate::sync::{Arc, Ordering};
use crate::tick::Tick;
#[cfg(feature = "tower")]
use crate::words::Pressure;

/// A gate that lets callers through at a rate; clones share it.
///
/// It is a queue whose jobs are the callers themselves: the same line, bounds, refusals and ledger, without an item and
/// without a consumer. What a caller does with its [`Turn`] is in flight until the turn is dropped.
///
/// # Examples
/// ```
/// use sluicegate::Rate;
/// use sluicegate::queue::Builder;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// let database = Builder::new(Rate::per_second(100)).max_in_flight(8).turnstile()?;
/// let rows = database.run(async { /* query the database */ 3 }).await?;
/// assert_eq!(rows, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Turnstile {
    core: Arc<Core<()>>,
}

impl Turnstile {
    pub(crate) fn new(core: Arc<Core<()>>) -> Self {
        Self { core }
    }

    /// Waits for a turn of cost 1.
    ///
    /// # Errors
    /// [`Refusal`] as for [`Sender::send`](super::Sender::send); one that expires while it waits for its departure is
    /// refused as [`TooLate`](Reason::TooLate).
    ///
    /// # Cancel safety
    /// Dropping it leaves the line, or the queue; its turn goes to the next.
    pub fn enter(&self) -> Enter {
        self.enter_with(Terms::new())
    }

    /// Waits for a turn on these terms.
    ///
    /// # Errors
    /// As [`enter`](Self::enter), and what the terms add.
    ///
    /// # Cancel safety
    /// Dropping it leaves the line, or the queue; its turn goes to the next.
    pub fn enter_with(&self, terms: Terms) -> Enter {
        Enter::new(self.clone(), terms)
    }

    /// Takes a turn of cost 1 if a departure is due now and nobody waits for it.
    ///
    /// # Errors
    /// As [`Sender::try_send`](super::Sender::try_send). Where the queue has room, but no turn is due now, it is refused
    /// as [`Overloaded`](Reason::Overloaded), [`Paused`](Reason::Paused) if it is, with the time to the next departure
    /// that nobody waits for.
    pub fn try_enter(&self) -> Result<Turn, Refusal> {
        let run = self.core.step(try_enter)?;
        Ok(self.turn(run))
    }

    /// Waits for a turn, then runs `work` in it.
    ///
    /// # Errors
    /// As [`enter`](Self::enter); `work` is dropped unpolled then.
    ///
    /// # Cancel safety
    /// Dropped before the turn, it leaves the queue and `work` has not begun. Dropped after, `work` is dropped where it
    /// stands, and its turn is over.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Refusal> {
        let turn = self.enter().await?;
        let result = work.await;
        drop(turn);
        Ok(result)
    }

    /// The operator's handle.
    #[must_use]
    pub fn control(&self) -> Control {
        Control::new(self.core.port())
    }

    /// Numbers of this instant.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.core.snapshot()
    }

    /// Lets nobody in any more: those in line at the door are refused [`Closed`](Reason::Closed), those who have their
    /// place still get their turn. `true` if this call did it.
    pub fn close(&self) -> bool {
        self.core.close()
    }

    /// Whether it lets nobody in any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.core.is_closed()
    }

    /// What an offer on these terms would be told now if it could not so much as stand in line; counted as refused.
    #[cfg(feature = "tower")]
    pub(crate) fn refused_now(&self, terms: &Terms) -> Option<Refusal> {
        self.core.step(|state, now, after| {
            let ask = terms.ask(now, &state.spec);
            state
                .machine
                .refuse_hopeless(now, &ask, false, &mut after.fx)
        })
    }

    /// State of the ladder, read without a lock.
    #[cfg(feature = "tower")]
    pub(crate) fn pressure(&self) -> Pressure {
        self.core.pressure()
    }

    pub(crate) const fn core(&self) -> &Arc<Core<()>> {
        &self.core
    }

    pub(crate) fn turn(&self, run: InFlight) -> Turn {
        Turn {
            core: Arc::clone(&self.core),
            run: Some(run),
        }
    }
}

impl Clone for Turnstile {
    fn clone(&self) -> Self {
        // Relaxed: whoever clones holds one, so the count cannot be zero.
        self.core.senders.fetch_add(1, Ordering::Relaxed);
        Self {
            core: Arc::clone(&self.core),
        }
    }
}

impl Drop for Turnstile {
    fn drop(&mut self) {
        // Acquire and release: the end comes after all that the other handles did.
        if self.core.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.core
                .step(|state, now, after| state.machine.end(now, &mut after.fx));
        }
    }
}

impl fmt::Debug for Turnstile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Turnstile").field(&self.core).finish()
    }
}

/// A turn: proof that its holder may act now. Dropping it settles it, and frees its place in flight.
#[must_use = "a turn that is dropped is over"]
pub struct Turn {
    core: Arc<Core<()>>,
    run: Option<InFlight>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            self.core.step(|state, now, after| {
                state
                    .machine
                    .settle(now, run, Settled::Acked, &mut after.fx);
            });
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Turn").field(&self.run).finish()
    }
}

/// Counted as refused wherever that is known before the offer is made; a turn that is then not due is given back.
fn try_enter(state: &mut State<()>, now: Tick, after: &mut After<()>) -> Result<InFlight, Refusal> {
    let terms = Terms::new();
    let ask = terms.ask(now, &state.spec);
    state.machine.advance(now, &mut after.fx);
    let busy = state.machine.ledger().in_flight >= state.machine.settings().max_in_flight;
    if !state.machine.is_closed() {
        if state.machine.paused().is_some() {
            return Err(state.machine.refuse(now, &ask, Reason::Paused));
        }
        if busy || state.machine.readiness(now) != Err(NotTaken::Empty) {
            return Err(state.machine.refuse(now, &ask, Reason::Overloaded));
        }
    }
    let place = state.machine.try_offer(now, &ask, &mut after.fx)?;
    let key = state
        .machine
        .send(now, place, Parcel::plain(()), &mut after.fx)
        .key;
    let due = match key.map(|key| state.machine.take_key(now, key, &mut after.fx)) {
        Some(Ok(taken)) => {
            state.desk.turns().taken();
            return Ok(taken.run);
        }
        Some(Err(NotTaken::NotDue(at))) => at - now,
        _ => Duration::ZERO,
    };
    if let Some(key) = key {
        state.machine.cancel_job(now, key, &mut after.fx);
    }
    let after = due + state.machine.settings().grain;
    Err(Refusal {
        retry_after: Some(after),
        ..refusal(state, now, &terms, Reason::Overloaded)
    })
}

/// A refusal beside the machine's own: the ledger counts its offer as admitted, and under the way it ended.
pub(crate) fn refusal(state: &State<()>, now: Tick, terms: &Terms, reason: Reason) -> Refusal {
    let ask = terms.ask(now, &state.spec);
    let settings = state.machine.settings();
    let retry_after = (reason != Reason::Closed).then(|| {
        let again = state.machine.would_refuse(now, &ask, false);
        again
            .and_then(|refusal| refusal.retry_after)
            .unwrap_or(settings.grain)
    });
    Refusal {
        reason,
        retry_after,
        depth: state.machine.depth(),
        max_depth: settings.max_depth,
        cost: ask.cost,
        pressure: state.machine.pressure(),
        queue: settings.name.clone(),
    }
}
