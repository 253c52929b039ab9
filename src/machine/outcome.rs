//! What the machine hands out and hands back: places, jobs, effects.

use std::time::Duration;

use crate::key::Key;
use crate::ledger::Ledger;
use crate::machine::tenants::TenantId;
use crate::refusal::Refusal;
use crate::tick::Tick;
use crate::words::{Exit, Pressure, Priority};

/// What an offer asks for, with every instant on the queue's clock.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// At least 1; a cost of 0 is charged as 1 by whoever makes the ask.
    pub(crate) cost: u64,
    pub(crate) priority: Priority,
    /// Whose job it is, and the share it has.
    pub(crate) tenant: Option<(Key, u64)>,
    /// Binds the job for good, retries included.
    pub(crate) expires_at: Option<Tick>,
    /// Binds its first start only.
    pub(crate) expires_in: Option<Duration>,
    /// Time that the job takes once started; it must end before it expires.
    pub(crate) run_estimate: Option<Duration>,
}

impl Default for Ask {
    fn default() -> Self {
        Self {
            cost: 1,
            priority: Priority::Normal,
            tenant: None,
            expires_at: None,
            expires_in: None,
            run_estimate: None,
        }
    }
}

/// Whose it is, and in which lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) priority: Priority,
    pub(crate) tenant: TenantId,
}

/// A place in the queue that is paid for. It must come back through `send` or `give_back`.
#[must_use = "a place that is neither used nor given back holds depth for ever"]
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) cost: u64,
    pub(crate) owner: Owner,
    pub(crate) offered_at: Tick,
    pub(crate) expiry: Expiry,
}

/// Latest instants at which a job may start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expiry {
    /// Of the first start; [`Tick::MAX`] = never.
    pub(crate) first: Tick,
    /// Of any start; [`Tick::MAX`] = never.
    pub(crate) any: Tick,
}

/// Handle of an offer in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WaiterKey(pub(crate) u64);

/// Handle of a queued job; stale once the job has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct JobKey {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Answer to an offer that can wait.
#[derive(Debug)]
pub(crate) enum Offered {
    Admitted(Place),
    Waiting(WaiterKey),
    Refused(Refusal),
}

/// Answer to a waiter that asks how it stands. `Ready` and `Refused` end its key.
#[derive(Debug)]
pub(crate) enum Collected {
    Ready(Place),
    Waiting,
    Refused(Refusal),
}

/// What became of an item put into its place.
#[derive(Debug)]
pub(crate) struct Queued {
    /// `None` if the queue had ended or the job had expired: it is among the effects then.
    pub(crate) key: Option<JobKey>,
    /// Cost in the queue, this job included.
    pub(crate) depth: u64,
    pub(crate) expected_wait: Duration,
}

/// A job on its way to a consumer.
#[derive(Debug)]
pub(crate) struct Taken<P> {
    pub(crate) payload: P,
    pub(crate) run: InFlight,
}

/// What is known of a job in flight. It must come back through one of the settling calls.
#[must_use = "a job in flight that is never settled holds its place for ever"]
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    pub(crate) cost: u64,
    /// What the schedule was charged: the cost, unless corrected or riding along in a batch.
    pub(crate) charged: u64,
    pub(crate) owner: Owner,
    /// 1 at the first start.
    pub(crate) attempt: u32,
    pub(crate) departed_at: Tick,
    /// From its offer (or from the instant its retry was due) to its departure.
    pub(crate) waited: Duration,
    /// See [`Expiry::any`].
    pub(crate) expires_at: Tick,
}

/// How a job ended that is not put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    Acked,
    Failed,
    Abandoned,
}

/// Why no job was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// Nothing may leave now or later without a new event: empty, delayed or reserved only.
    Empty,
    /// A job is ready and leaves at this instant at the earliest.
    NotDue(Tick),
    /// A job is ready, but the queue is paused or its in-flight bound is reached.
    Held,
    /// Closed and nothing queued, delayed or reserved.
    Closed,
}

/// A job that left the queue without a consumer.
#[derive(Debug)]
pub(crate) struct Gone<P> {
    pub(crate) payload: P,
    pub(crate) exit: Exit,
    pub(crate) waited: Duration,
    /// Starts it had.
    pub(crate) attempts: u32,
}

/// What a step asks the outer half to do once its lock is released.
#[derive(Debug)]
pub(crate) struct Effects<P> {
    /// Waiters whose place or refusal can be collected.
    pub(crate) wake: Vec<WaiterKey>,
    /// Jobs to dead-letter.
    pub(crate) gone: Vec<Gone<P>>,
    /// Jobs that the deadline of a drain gives back, oldest first.
    pub(crate) returned: Vec<Gone<P>>,
    /// New state of the ladder.
    pub(crate) pressure: Option<Pressure>,
}

impl<P> Effects<P> {
    pub(crate) fn is_empty(&self) -> bool {
        self.wake.is_empty() && self.returned.is_empty() && self.pressure.is_none()
    }

    pub(crate) const fn new() -> Self {
        Self {
            wake: Vec::new(),
            gone: Vec::new(),
            returned: Vec::new(),
            pressure: None,
        }
    }
}

/// The count of jobs that ended this way.
pub(super) fn exit_count(ledger: &mut Ledger, exit: Exit) -> &mut u64 {
    match exit {
        Exit::Expired => &mut ledger.expired,
        Exit::Evicted => &mut ledger.evicted,
        Exit::Cancelled => &mut ledger.cancelled,
        Exit::Failed => &mut ledger.failed,
        Exit::Abandoned => &mut ledger.abandoned,
        Exit::Returned => &mut ledger.returned,
    }
}
