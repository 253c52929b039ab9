//! What all handles of a queue share: one lock, and the discipline around it.
//!
//! Everything that happens is a *step* ([`Core::step`]): read the clock, lock, let the machine decide, find out whom to
//! wake, unlock, and only then run what is foreign.
//!
//! - I1  Foreign code (wakers, drops of items, tickets, observers) never runs under the lock.
//! - I2  Nobody awaits while holding it.
//! - I3  After every step whoever can go on has been woken, and the driver wakes in time for what time alone brings.

use std::fmt;
use std::task::Waker;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::after::After;
use super::dead_letters::Outlet;
use super::desk::Desk;
use super::journal::Journal;
use super::port::Port;
use super::snapshot::Snapshot;
use super::state::{DriverSeat, Phase, State};
use super::tuning::DownstreamVitals;
use super::watch::NewWatch;
use crate::clock::Clock;
use crate::machine::{Acks, InFlight, Machine, Settings, Spec};
use crate::sync::{
    Apart, Arc, AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, process,
};
// Whoever measures is outside of what is modelled: its locks are those of the process.
#[cfg(all(feature = "metrics", not(sluicegate_loom)))]
use crate::telemetry::roll::Seat;
use crate::tick::Tick;
use crate::timer::Timer;
use crate::words::Pressure;

/// The shared half of every handle. Handles, permits and jobs keep it alive; the driver does not.
pub(crate) struct Core<T> {
    room: Apart<Mutex<Room<T>>>,
    /// Jobs done that nobody has to hear of at once; locked after the room, if both are.
    acks: Apart<Mutex<Acks>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) timer: Timer,
    pub(crate) outlet: Outlet<T>,
    /// Fires once the queue takes no more offers.
    pub(crate) closed: CancellationToken,
    /// Fires once it is closed and empty, or a drain's time is up.
    pub(crate) drained: CancellationToken,
    /// Where the driver runs, until that runtime ends.
    pub(crate) runtime: Mutex<Option<Handle>>,
    pressure: watch::Sender<Pressure>,
    /// Sequence of the state that was published last; changed while the channel's own lock is held.
    published: process::AtomicU64,
    depth: Apart<AtomicU64>,
    level: AtomicU32,
    pub(crate) senders: AtomicUsize,
    pub(crate) receivers: AtomicUsize,
    links: Links<T>,
    /// Where it is measured under its label.
    #[cfg(all(feature = "metrics", not(sluicegate_loom)))]
    seat: Seat,
    vitals: Mutex<Option<Vitals>>,
}

/// What the lock guards: the state, and what the present step leaves to do. Between two steps that is nothing, so a step
/// which leaves nothing has made and dropped nothing either.
struct Room<T> {
    state: State<T>,
    after: After<T>,
}

/// Whom the driver asks how the downstream fares, how often, and when it did last.
struct Vitals {
    source: Arc<dyn DownstreamVitals>,
    interval: Duration,
    asked: Tick,
}

/// What the driver does between two of its steps.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// When to come back; `None` = when woken.
    pub(crate) next: Option<Tick>,
    /// Tokens to watch from now on.
    pub(crate) watches: Vec<NewWatch>,
}

/// What needs `T: Send + 'static`, bound where that is known.
pub(crate) struct Links<T> {
    pub(crate) start: fn(&Arc<Core<T>>),
    pub(crate) port: fn(Arc<Core<T>>) -> Arc<dyn Port>,
}

/// What a queue is made of, beside its settings.
pub(crate) struct Parts<T> {
    pub(crate) spec: Spec,
    pub(crate) settings: Settings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) timer: Timer,
    /// `None` = no letters are written.
    pub(crate) dead_letters: Option<usize>,
    pub(crate) desk: Desk,
    pub(crate) runtime: Option<Handle>,
    pub(crate) links: Links<T>,
}

impl<T> Core<T> {
    pub(crate) fn new(parts: Parts<T>) -> Arc<Self> {
        let now = parts.clock.now();
        #[cfg(all(feature = "metrics", not(sluicegate_loom)))]
        let seat = Seat::take(parts.settings.name.as_deref());
        let machine = Machine::new(parts.settings, now);
        let state = State {
            journal: Journal::new(&machine),
            machine,
            spec: parts.spec,
            waiters: std::collections::HashMap::new(),
            desk: parts.desk,
            driver: DriverSeat::default(),
            has_tokens: false,
            drains: 0,
            returned: Vec::new(),
            phase: Phase::Open,
            acks_wait: false,
            sequence: 0,
        };
        Arc::new(Self {
            room: Apart(Mutex::new(Room {
                state,
                after: After::new(),
            })),
            acks: Apart::default(),
            clock: parts.clock,
            timer: parts.timer,
            outlet: parts.dead_letters.map_or_else(Outlet::silent, Outlet::new),
            closed: CancellationToken::new(),
            drained: CancellationToken::new(),
            runtime: Mutex::new(parts.runtime),
            pressure: watch::Sender::new(Pressure::Healthy),
            published: process::AtomicU64::new(0),
            depth: Apart(AtomicU64::new(0)),
            level: AtomicU32::new(Pressure::Healthy as u32),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(1),
            links: parts.links,
            vitals: Mutex::new(None),
            #[cfg(all(feature = "metrics", not(sluicegate_loom)))]
            seat,
        })
    }

    /// Lets something happen; see the module's docs.
    pub(crate) fn step<R>(
        self: &Arc<Self>,
        happens: impl FnOnce(&mut State<T>, Tick, &mut After<T>) -> R,
    ) -> R {
        let now = self.clock.now();
        let mut room = self.room.lock();
        let Room { state, after } = &mut *room;
        let result = happens(state, now, after);
        if after.is_quiet() && after.fx.is_empty() && state.is_quiet(now) {
            // Relaxed: as in `conclude`.
            self.depth.store(state.machine.depth(), Ordering::Relaxed);
        } else {
            self.conclude(state, now, after);
            self.leave(room);
        }
        result
    }

    /// As [`step`](Self::step), for what goes by the ledger.
    pub(crate) fn exact_step<R>(
        self: &Arc<Self>,
        happens: impl FnOnce(&mut State<T>, Tick, &mut After<T>) -> R,
    ) -> R {
        self.step(|state, now, after| {
            self.take_over(state);
            happens(state, now, after)
        })
    }

    /// The driver's step: lets pass what is due, and says in `turn` what to do next.
    pub(crate) fn drive(
        self: &Arc<Self>,
        waker: Waker,
        turn: &mut Turn,
        happens: impl FnOnce(&mut State<T>, Tick, &mut After<T>),
    ) {
        let now = self.clock.now();
        let mut room = self.room.lock();
        let Room { state, after } = &mut *room;
        // While its seat holds no waker it is not woken: it is here already.
        let armed = state.driver.armed.take();
        after.drop_later(state.driver.waker.take());
        turn.watches.append(&mut state.driver.watches);
        state.machine.advance(now, &mut after.fx);
        happens(state, now, after);
        self.conclude(state, now, after);
        state.driver.waker = Some(waker);
        if state.driver.armed.is_none() {
            // Coming back for nothing once costs less than being called for each of many short stays in line.
            state.driver.armed = armed.filter(|at| *at > now);
        }
        turn.next = state.driver.armed;
        self.leave(room);
    }

    /// Unlocks, and does what the step has left to do.
    fn leave(self: &Arc<Self>, mut room: MutexGuard<'_, Room<T>>) {
        if room.after.is_quiet() {
            return;
        }
        if room.after.only_wakes() {
            let wakers = std::mem::take(&mut room.after.wakers);
            drop(room);
            return wakers.wake_all();
        }
        let after = room.after.take();
        drop(room);
        after.run(self);
    }

    /// Counts a job that is done, where that changes nothing but counts; `false` if it has to be a step.
    pub(crate) fn ack(&self, run: &InFlight) -> bool {
        let now = self.clock.now();
        let aside = self.acks.lock().count(now, run);
        // What a tenant's job changes is in its own ledger.
        aside || self.room.lock().state.machine.settle_quietly(now, run)
    }

    /// Counts jobs that are done, as far as that changes nothing but counts, and marks those it has counted.
    pub(crate) fn ack_many<'a>(&self, jobs: impl Iterator<Item = (&'a InFlight, &'a mut bool)>) {
        let now = self.clock.now();
        let mut acks = self.acks.lock();
        for (run, counted) in jobs {
            *counted = acks.count(now, run);
        }
    }

    /// Has the machine know of all jobs done. After a close it knows at once.
    fn take_over(&self, state: &mut State<T>) {
        state.machine.take_over(&mut self.acks.lock());
    }

    /// Looks at the state without letting anything happen.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&State<T>, Tick) -> R) -> R {
        let now = self.clock.now();
        let mut room = self.room.lock();
        self.take_over(&mut room.state);
        look(&room.state, now)
    }

    fn conclude(&self, state: &mut State<T>, now: Tick, after: &mut After<T>) {
        let wait = state.machine.lets_acks_wait();
        if wait != state.acks_wait {
            state.acks_wait = wait;
            self.take_over(state);
        }
        state.conclude(now, self.outlet.lost(), after);
        if after.has_letters() {
            after.posted = true;
            self.outlet.expect();
        }
        // Relaxed: single numbers for whoever looks without the lock; the ledger is exact.
        self.depth.store(state.machine.depth(), Ordering::Relaxed);
        if let Some((_, pressure)) = after.publish {
            self.level.store(pressure as u32, Ordering::Relaxed);
        }
    }

    /// Sets whom the driver asks how the downstream fares.
    pub(crate) fn set_vitals(&self, vitals: Option<(Arc<dyn DownstreamVitals>, Duration)>) {
        let new = vitals.map(|(source, interval)| Vitals {
            source,
            interval,
            asked: Tick::ZERO,
        });
        let old = std::mem::replace(&mut *self.vitals.lock(), new);
        // Foreign, so dropped unlocked.
        drop(old);
    }

    /// Whether the downstream says, at most once an interval, that it is strained.
    pub(crate) fn is_strained(&self) -> bool {
        let now = self.clock.now();
        let source = {
            let mut vitals = self.vitals.lock();
            let due = vitals
                .as_mut()
                .filter(|vitals| now - vitals.asked >= vitals.interval);
            due.map(|vitals| {
                vitals.asked = now;
                Arc::clone(&vitals.source)
            })
        };
        source.is_some_and(|source| source.is_strained())
    }

    /// Lets it be seen by whoever measures.
    #[cfg(all(feature = "metrics", not(sluicegate_loom)))]
    pub(crate) fn show(self: &Arc<Self>)
    where
        T: Send + 'static,
    {
        let weak: crate::sync::Weak<Self> = Arc::downgrade(self);
        self.seat.fill(weak);
    }

    pub(crate) fn start_driver(self: &Arc<Self>) {
        (self.links.start)(self);
    }

    /// The driver is gone: the next cause for one starts another.
    pub(crate) fn unseat_driver(&self) {
        let seat = std::mem::take(&mut self.room.lock().state.driver);
        drop(seat);
    }

    pub(crate) fn port(self: &Arc<Self>) -> Arc<dyn Port> {
        (self.links.port)(Arc::clone(self))
    }

    /// Tells the watchers, unless they were told of a later state already.
    pub(crate) fn publish(&self, sequence: u64, pressure: Pressure) {
        self.pressure.send_if_modified(|last| {
            // Relaxed: this closure runs under the channel's lock.
            if self.published.load(Ordering::Relaxed) >= sequence {
                return false;
            }
            self.published.store(sequence, Ordering::Relaxed);
            std::mem::replace(last, pressure) != pressure
        });
    }

    pub(crate) fn watch_pressure(&self) -> watch::Receiver<Pressure> {
        self.pressure.subscribe()
    }

    /// State of the ladder, without the lock.
    pub(crate) fn pressure(&self) -> Pressure {
        match self.level.load(Ordering::Relaxed) {
            0 => Pressure::Healthy,
            1 => Pressure::Elevated,
            _ => Pressure::Overloaded,
        }
    }

    /// Cost in the queue, without the lock.
    pub(crate) fn depth(&self) -> u64 {
        self.depth.load(Ordering::Relaxed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.look(|state, _| state.machine.is_closed())
    }

    pub(crate) fn close(self: &Arc<Self>) -> bool {
        self.step(|state, now, after| state.machine.close(now, &mut after.fx))
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.look(|state, now| Snapshot::of(&state.machine, now, self.outlet.lost()))
    }
}

impl<T> Drop for Core<T> {
    fn drop(&mut self) {
        // The driver ends when it finds nothing to drive.
        if let Some(waker) = self.room.0.get_mut().state.driver.waker.take() {
            waker.wake();
        }
        #[cfg(all(feature = "metrics", not(sluicegate_loom)))]
        {
            let lost = self.outlet.lost();
            let state = &mut self.room.0.get_mut().state;
            state.machine.take_over(self.acks.0.get_mut());
            let totals = super::measured::totals(state, lost);
            self.seat.leave(&totals);
        }
    }
}

impl<T> fmt::Debug for Core<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("depth", &self.depth())
            .field("pressure", &self.pressure())
            .finish_non_exhaustive()
    }
}
