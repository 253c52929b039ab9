//! What lies under the queue's one lock, and what every step does before it lets go of it.

use std::collections::HashMap;
use std::task::Waker;

use super::after::After;
use super::dead_letters::DeadLetter;
use super::desk::Desk;
use super::journal::Journal;
use super::parcel::{Extras, Parcel};
use super::terms::Asks;
use super::watch::{NewWatch, Subject};
use crate::machine::{Gone, JobKey, Machine, NotTaken, Place, Queued, Spec, Taken, WaiterKey};
use crate::tick::Tick;
use crate::words::Exit;

/// The machine, and who waits for it.
pub(crate) struct State<T> {
    pub(crate) machine: Machine<Parcel<T>>,
    /// As the machine's settings were asked for, so that a change derives anew what was left open.
    pub(crate) spec: Spec,
    /// Offers in line that have been polled, and are woken when they can collect.
    pub(crate) waiters: HashMap<WaiterKey, Waker>,
    pub(crate) desk: Desk,
    pub(crate) driver: DriverSeat,
    /// Whether a job ever had a token: until then no departure looks for one.
    pub(crate) has_tokens: bool,
    /// Futures that wait for the end of a drain, and what it gave back for them.
    pub(crate) drains: usize,
    pub(crate) returned: Vec<DeadLetter<T>>,
    pub(crate) phase: Phase,
    /// Whether acknowledgements were last said to be counted aside.
    pub(crate) acks_wait: bool,
    pub(crate) journal: Journal,
    /// Sequence of the states of pressure, so that publishing them late does no harm.
    pub(crate) sequence: u64,
}

/// How far the end of the queue has been announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Open,
    Closed,
    /// Nothing left, or the drain's time is up.
    Drained,
    /// No more dead letters either.
    Over,
}

/// Where the driver sits.
#[derive(Debug, Default)]
pub(crate) struct DriverSeat {
    pub(crate) running: bool,
    /// When it will wake by itself; `None` = when it is woken.
    pub(crate) armed: Option<Tick>,
    /// `None` while it runs or is on its way.
    pub(crate) waker: Option<Waker>,
    /// Tokens it has not seen yet.
    pub(crate) watches: Vec<NewWatch>,
}

impl<T> State<T> {
    /// Puts a parcel into its place, and has its token watched.
    pub(crate) fn put(
        &mut self,
        now: Tick,
        place: Place,
        mut parcel: Parcel<T>,
        after: &mut After<T>,
    ) -> Queued {
        // A tenant that the machine knows by name is not remembered twice.
        if let Some(extras) = &parcel.extras
            && extras.is_tenant_only()
            && self.machine.tenant_of(place.owner).is_some()
        {
            parcel.extras = None;
        }
        let queued = self.machine.send(now, place, parcel, &mut after.fx);
        if let Some(key) = queued.key {
            self.watch_job(now, key, after);
        }
        queued
    }

    /// Offers and puts an item without terms, if it can go the short way of the machine; `None` = it was not asked for.
    #[inline]
    pub(crate) fn put_plainly(
        &mut self,
        now: Tick,
        item: impl FnOnce() -> T,
        after: &mut After<T>,
    ) -> Option<Queued> {
        let parcel = || Parcel::plain(item());
        self.machine.put_plainly(now, parcel, &mut after.fx)
    }

    /// As [`put`](Self::put), of a parcel that was made on these terms.
    #[inline]
    pub(crate) fn put_on(
        &mut self,
        terms: &impl Asks,
        now: Tick,
        place: Place,
        mut parcel: Parcel<T>,
        after: &mut After<T>,
    ) -> Queued {
        if let (None, Some(terms)) = (&parcel.extras, terms.terms())
            && self.machine.tenant_of(place.owner).is_none()
        {
            parcel.extras = Extras::of_tenant(terms);
        }
        self.put(now, place, parcel, after)
    }

    /// Has the token of a queued job watched, if it has one; takes the job out at once if the token has fired.
    pub(crate) fn watch_job(&mut self, now: Tick, key: JobKey, after: &mut After<T>) {
        let extras = self
            .machine
            .payload_mut(key)
            .and_then(|parcel| parcel.extras.as_mut());
        let Some((token, extras)) =
            extras.and_then(|extras| Some((extras.terms.token().cloned()?, extras)))
        else {
            return;
        };
        self.has_tokens = true;
        let (watch, new) = NewWatch::pair(Subject::Job(key), &token);
        if let Some(replaced) = extras.watch.replace(watch) {
            after.rare().unwatched.push(replaced);
        }
        if token.is_cancelled() {
            self.machine.cancel_job(now, key, &mut after.fx);
        } else {
            self.driver.watch(new);
        }
    }

    /// Takes the next job, unless its token has fired: such a job never starts.
    #[inline(always)] // What it returns is large: handed over in memory, it costs more than finding it.
    pub(crate) fn take(
        &mut self,
        now: Tick,
        consumer: Option<u64>,
        after: &mut After<T>,
    ) -> Result<Taken<Parcel<T>>, NotTaken> {
        self.skip_cancelled(now, after);
        let taken = self.machine.take(now, &mut after.fx)?;
        after.drop_later(self.desk.taken(consumer));
        Ok(taken)
    }

    /// Takes out the jobs that would go next and whose tokens have fired.
    #[inline]
    pub(crate) fn skip_cancelled(&mut self, now: Tick, after: &mut After<T>) {
        if self.has_tokens {
            self.skip_fired(now, after);
        }
    }

    fn skip_fired(&mut self, now: Tick, after: &mut After<T>) {
        loop {
            // What is too old goes first, or it would hide a job whose token has fired.
            self.machine.skip_stale(now, &mut after.fx);
            let next = self.machine.next_job();
            let Some(key) = next.filter(|key| self.is_cancelled(*key)) else {
                return;
            };
            self.machine.cancel_job(now, key, &mut after.fx);
        }
    }

    fn is_cancelled(&mut self, key: JobKey) -> bool {
        self.machine
            .payload_mut(key)
            .is_some_and(|parcel| parcel.is_cancelled())
    }

    /// Whether [`conclude`](Self::conclude) would find nobody to wake and nothing to tell, as after most steps.
    #[inline]
    pub(crate) fn is_quiet(&self, now: Tick) -> bool {
        let soonest = self.machine.soonest();
        !self.machine.is_closed()
            && self.acks_wait == self.machine.lets_acks_wait()
            && (self.desk.is_deserted() || self.is_summoned(now))
            && (soonest == Tick::MAX || self.driver.armed.is_some_and(|armed| armed <= soonest))
            && self.driver.watches.is_empty()
            && !Journal::is_on()
    }

    /// As long as one consumer is on the way, the others are not woken.
    #[cold]
    fn is_summoned(&self, now: Tick) -> bool {
        let grain = self.machine.settings().grain;
        self.desk.is_summoned(now, grain, self.driver.armed)
    }

    /// The last part of every step, still under the lock: finds whom to wake and tells the driver.
    pub(crate) fn conclude(&mut self, now: Tick, lost: u64, after: &mut After<T>) {
        for key in after.fx.wake.drain(..) {
            if let Some(waker) = self.waiters.remove(&key) {
                after.wakers.push(waker);
            }
        }
        self.collect_returned(after);
        if self.machine.is_closed() {
            self.announce_end(after);
        }
        self.desk.call(now, &mut self.machine, &mut after.wakers);
        let news = self.journal.look(now, &self.machine, lost);
        if !news.is_empty() {
            after.rare().news = news;
        }
        self.arm(after);
        if let Some(pressure) = after.fx.pressure.take() {
            self.sequence += 1;
            after.publish = Some((self.sequence, pressure));
        }
    }

    /// Keeps for the callers of a drain what its deadline gave back; without a caller they are dead letters.
    fn collect_returned(&mut self, after: &mut After<T>) {
        if after.fx.returned.is_empty() {
            return;
        }
        if self.drains == 0 {
            after.fx.gone.append(&mut after.fx.returned);
            return;
        }
        for gone in std::mem::take(&mut after.fx.returned) {
            let (letter, extras) = letter(gone);
            self.returned.push(letter);
            if let Some(extras) = extras {
                after.rare().ended.push((extras, Exit::Returned));
            }
        }
    }

    fn announce_end(&mut self, after: &mut After<T>) {
        if self.phase == Phase::Open {
            self.phase = Phase::Closed;
            after.closed = true;
        }
        if self.machine.is_exhausted() {
            self.desk.call_all(&mut after.wakers);
        }
        if self.phase == Phase::Closed && self.machine.is_drained() {
            self.phase = Phase::Drained;
            after.drained = true;
        }
        if self.phase == Phase::Drained && self.drains == 0 {
            let ledger = self.machine.ledger();
            if ledger.waiting + ledger.reserved + ledger.queued + ledger.in_flight == 0 {
                self.phase = Phase::Over;
                after.over = true;
            }
        }
    }

    /// Has the driver awake at the next event.
    fn arm(&mut self, after: &mut After<T>) {
        let grain = self.machine.settings().grain;
        let departure = self.desk.awaits_departure(&self.machine);
        let event = self.machine.foresee(departure);
        let next = earlier(event, self.desk.second_call(grain));
        let next = earlier(next, self.journal.next());
        let seat = &mut self.driver;
        let sooner = match (next, seat.armed) {
            (Some(next), Some(armed)) => next < armed,
            (next, armed) => next.is_some() && armed.is_none(),
        };
        if sooner {
            seat.armed = next;
        }
        if sooner || !seat.watches.is_empty() {
            if seat.running {
                if let Some(waker) = seat.waker.take() {
                    after.wakers.push(waker);
                }
            } else {
                seat.running = true;
                after.start = true;
            }
        }
    }
}

impl DriverSeat {
    pub(crate) fn watch(&mut self, new: NewWatch) {
        // Where the driver is kept from running, the tokens of jobs that have left must not pile up.
        if self.watches.len() >= SWEEP && self.watches.len().is_power_of_two() {
            self.watches.retain(|watch| !watch.is_over());
        }
        self.watches.push(new);
    }
}

/// The dead letter of a job that left the queue, and what it had beside its item.
pub(crate) fn letter<T>(
    gone: Gone<Parcel<T>>,
) -> (DeadLetter<T>, Option<Box<super::parcel::Extras>>) {
    let Gone {
        payload: Parcel { item, mut extras },
        exit,
        waited,
        attempts,
        ..
    } = gone;
    (
        DeadLetter {
            item,
            exit,
            waited,
            attempts,
            cause: extras.as_mut().and_then(|extras| extras.cause.take()),
        },
        extras,
    )
}

fn earlier(a: Option<Tick>, b: Option<Tick>) -> Option<Tick> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// New tokens among which the dead ones are looked for.
const SWEEP: usize = 64;
