//! The whole queue as a pure state machine: no clock, no lock, no runtime, no waker.
//! (skeleton: signatures only; bodies land on main soon)
#![allow(unused_variables, dead_code, missing_debug_implementations)]
use std::sync::Arc;
use std::time::Duration;
mod outcome;
mod settings;
pub(crate) use outcome::*;
pub(crate) use settings::{Preset, Settings, Spec};
use crate::ledger::Ledger;
use crate::refusal::{Reason, Refusal};
use crate::tick::Tick;
use crate::words::{Exit, Health, Pressure, Priority};

pub(crate) struct Machine<P> { p: Option<P> }

impl<P> Machine<P> {
    pub(crate) fn new(settings: Settings, now: Tick) -> Self { todo!() }
    // Every call clamps `now` to the latest seen, first lets pass what was due by then (as `advance`), and re-judges the ladder at its end.

    // -- offers
    /// For who cannot wait (`try_*`): a place now, or a refusal. May evict (victims in fx.gone).
    pub(crate) fn try_offer(&mut self, now: Tick, ask: &Ask, fx: &mut Effects<P>) -> Result<Place, Refusal> { todo!() }
    /// For who can wait. `stay` = longest stay in line (send_within); None = only max_wait and expiry bound it.
    pub(crate) fn offer(&mut self, now: Tick, ask: &Ask, stay: Option<Duration>, fx: &mut Effects<P>) -> Offered { todo!() }
    /// Would `offer` refuse now? Changes nothing (Gate asks before it charges the edge). Not counted.
    pub(crate) fn would_refuse(&self, now: Tick, ask: &Ask, try_form: bool) -> Option<Refusal> { todo!() }
    /// Counts an offer that was refused before it reached the machine (its token had fired): offered + refused.
    pub(crate) fn refuse(&mut self, now: Tick, ask: &Ask, reason: Reason) -> Refusal { todo!() }
    /// A waiter's poll. Ends the key unless `Waiting`. A waiter that was passed over (lapsed) stands in line again.
    pub(crate) fn collect(&mut self, now: Tick, key: WaiterKey, fx: &mut Effects<P>) -> Collected { todo!() }
    /// The waiter's future was dropped. Ends the key; a granted place goes to the next.
    pub(crate) fn leave(&mut self, now: Tick, key: WaiterKey, fx: &mut Effects<P>) { todo!() }
    /// The waiter's cancellation token fired: refused `Cancelled`, to be collected (key is among fx.wake). No-op on a stale key.
    pub(crate) fn cancel_waiter(&mut self, now: Tick, key: WaiterKey, fx: &mut Effects<P>) { todo!() }

    // -- places and jobs
    /// Puts an item into its place. Cannot fail: if the queue has ended or the job expired, it is in fx.gone.
    pub(crate) fn send(&mut self, now: Tick, place: Place, payload: P, fx: &mut Effects<P>) -> Queued { todo!() }
    /// A permit dropped unused.
    pub(crate) fn give_back(&mut self, now: Tick, place: Place, fx: &mut Effects<P>) { todo!() }
    /// Changes the payload of a queued job in place (turnstiles keep a waker there).
    pub(crate) fn payload_mut(&mut self, key: JobKey) -> Option<&mut P> { todo!() }
    /// A queued job's token fired, or a turnstile's future was dropped: Exit::Cancelled in fx.gone. false on a stale key.
    pub(crate) fn cancel_job(&mut self, now: Tick, key: JobKey, fx: &mut Effects<P>) -> bool { todo!() }

    // -- departures
    /// Takes the job that goes next, if a departure is due.
    pub(crate) fn take(&mut self, now: Tick, fx: &mut Effects<P>) -> Result<Taken<P>, NotTaken> { todo!() }
    /// Takes up to `most` jobs as ONE departure (recv_batch): charged one unit in all.
    pub(crate) fn take_batch(&mut self, now: Tick, most: usize, out: &mut Vec<Taken<P>>, fx: &mut Effects<P>) -> Result<(), NotTaken> { todo!() }
    /// Takes this very job if a departure is due (turnstile; the outer half says whose turn it is). Err(Empty) on a stale key.
    pub(crate) fn take_key(&mut self, now: Tick, key: JobKey, fx: &mut Effects<P>) -> Result<Taken<P>, NotTaken> { todo!() }
    /// Whether a job could be taken now: same answers as `take`, nothing changes.
    pub(crate) fn readiness(&self, now: Tick) -> Result<(), NotTaken> { todo!() }
    /// The job that `take` would choose next.
    pub(crate) fn next_job(&self) -> Option<JobKey> { todo!() }
    /// Moves a ready job out of the order (its future is late); it stays queued, may be taken by key, and `next_job` skips it.
    pub(crate) fn set_aside(&mut self, key: JobKey) { todo!() }
    pub(crate) fn settle(&mut self, now: Tick, run: InFlight, how: Settled, fx: &mut Effects<P>) { todo!() }
    /// Puts a job back after `delay` (retry). Err((exit, payload)) where it ends instead: attempts used up (Failed), queue closed or ended (Returned).
    pub(crate) fn retry(&mut self, now: Tick, run: InFlight, payload: P, delay: Duration, fx: &mut Effects<P>) -> Result<JobKey, (Exit, P)> { todo!() }
    /// As `retry`, but no attempt counts (defer).
    pub(crate) fn defer(&mut self, now: Tick, run: InFlight, payload: P, delay: Duration, fx: &mut Effects<P>) -> Result<JobKey, (Exit, P)> { todo!() }
    /// Corrects what a job in flight was charged.
    pub(crate) fn settle_cost(&mut self, now: Tick, run: &mut InFlight, actual: u64) { todo!() }

    // -- time
    /// Lets pass what is due by `now`: expiry, deadlines, lapse, retries due, ends of intervals, drain deadline.
    pub(crate) fn advance(&mut self, now: Tick, fx: &mut Effects<P>) { todo!() }
    /// When `advance` or (if `consumers` wait) a departure is due next. Departure due in the past = a tick <= now.
    pub(crate) fn next_event(&self, consumers: bool) -> Option<Tick> { todo!() }

    // -- control
    pub(crate) fn apply(&mut self, now: Tick, settings: Settings, fx: &mut Effects<P>) { todo!() }
    pub(crate) fn pause(&mut self, now: Tick, why: Arc<str>, fx: &mut Effects<P>) { todo!() }
    pub(crate) fn resume(&mut self, now: Tick, fx: &mut Effects<P>) { todo!() }
    /// No more offers; waiters are refused `Closed`; what is queued still leaves. Idempotent; true if this call did it.
    pub(crate) fn close(&mut self, now: Tick, fx: &mut Effects<P>) -> bool { todo!() }
    /// No receiver is left: close, and everything queued or delayed is Exit::Returned in fx.gone.
    pub(crate) fn end(&mut self, now: Tick, fx: &mut Effects<P>) { todo!() }
    /// Closes and, at `deadline`, gives back in fx.returned what is queued or delayed then. An earlier drain's sooner deadline stays.
    pub(crate) fn drain(&mut self, now: Tick, deadline: Tick, fx: &mut Effects<P>) { todo!() }
    /// Closed and nothing waiting, reserved, queued, delayed or in flight; or the drain's deadline has passed.
    pub(crate) fn is_drained(&self) -> bool { todo!() }
    /// Closed and nothing queued, delayed or reserved (recv answers None), in flight does not count.
    pub(crate) fn is_exhausted(&self) -> bool { todo!() }

    // -- looking
    pub(crate) fn settings(&self) -> &Settings { todo!() }
    pub(crate) fn ledger(&self) -> Ledger { todo!() }
    pub(crate) fn lane(&self, priority: Priority) -> &Ledger { todo!() }
    pub(crate) fn depth(&self) -> u64 { todo!() }
    pub(crate) fn pressure(&self) -> Pressure { todo!() }
    pub(crate) fn is_closed(&self) -> bool { todo!() }
    pub(crate) fn paused(&self) -> Option<&Arc<str>> { todo!() }
    /// Units of departure owed by lateness now.
    pub(crate) fn owed(&self, now: Tick) -> u64 { todo!() }
    /// Age of the job that waits longest (since its offer, or since its retry was due).
    pub(crate) fn oldest_wait(&self, now: Tick) -> Option<Duration> { todo!() }
    pub(crate) fn health(&self, now: Tick) -> Health { todo!() }
    pub(crate) fn last_departure(&self) -> Option<Tick> { todo!() }
}
