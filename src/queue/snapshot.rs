//! Numbers of a queue, all of one instant.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::key::Key;
use crate::ledger::Ledger;
use crate::machine::Machine;
use crate::rate::Rate;
use crate::tick::Tick;
use crate::words::{Pressure, Priority};

/// State of a queue at one instant; taking it locks the queue for a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Cost of what is queued, waits for a retry, or is reserved by a permit.
    pub depth: u64,
    /// Bound of the depth. Only requeued jobs lift the depth above it.
    pub max_depth: u64,
    /// Offers standing in line at the door.
    pub waiting: u64,
    /// Jobs handed out and not settled.
    pub in_flight: u64,
    /// State of the ladder.
    pub pressure: Pressure,
    /// Rate at which jobs leave now, on a ramp or adapted; `None` if the queue is not paced.
    pub rate: Option<Rate>,
    /// Cost that is owed: departures which fell due and were not taken.
    pub owed: u64,
    /// Age of the queued job that has waited longest.
    pub oldest_wait: Option<Duration>,
    /// Where every job is, or how it ended.
    pub ledger: Ledger,
    /// Dead letters that were dropped because their outlet was full.
    pub dead_letters_lost: u64,
}

impl Snapshot {
    pub(crate) fn of<P>(machine: &Machine<P>, now: Tick, dead_letters_lost: u64) -> Self {
        let ledger = machine.ledger();
        Self {
            depth: machine.depth(),
            max_depth: machine.settings().max_depth,
            waiting: ledger.waiting,
            in_flight: ledger.in_flight,
            pressure: machine.pressure(),
            rate: machine.rate(),
            owed: machine.owed(now),
            oldest_wait: machine.oldest_wait(now),
            ledger,
            dead_letters_lost,
        }
    }
}

/// The ledger of a queue, told apart by lane and by tenant, all of one instant.
///
/// The lanes add up to the whole, and so do the tenants with the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledgers {
    /// By priority, least urgent first.
    pub lanes: BTreeMap<Priority, Ledger>,
    /// By tenant, as far as they are remembered.
    pub tenants: HashMap<Key, Ledger>,
    /// Jobs of no tenant, and of tenants that are not remembered by name.
    pub others: Ledger,
}

impl Ledgers {
    pub(crate) fn of<P>(machine: &Machine<P>) -> Self {
        let lanes = Priority::ALL.map(|lane| (lane, *machine.lane(lane)));
        Self {
            lanes: lanes.into(),
            tenants: machine
                .tenants()
                .map(|(key, own)| (key.clone(), *own))
                .collect(),
            others: machine.others(),
        }
    }
}
