//! What a queue tells whoever measures it.

use super::core::Core;
use super::state::State;
use crate::key::Key;
use crate::ledger::Ledger;
use crate::telemetry::roll::{Detail, Look, Measured, TENANTS, Totals};
use crate::tick::Tick;
use crate::words::Priority;

impl<T: Send> Measured for Core<T> {
    fn look(&self) -> Look {
        Self::look(self, |state, now| look(state, now, self.outlet.lost()))
    }

    fn detail(&self) -> Detail {
        Self::look(self, |state, now| detail(state, now, self.outlet.lost()))
    }
}

fn look<T>(state: &State<T>, now: Tick, dead_letters_lost: u64) -> Look {
    let machine = &state.machine;
    let settings = machine.settings();
    Look {
        totals: totals(state, dead_letters_lost),
        depth: machine.depth(),
        max_depth: settings.max_depth,
        pressure: machine.pressure(),
        paused: machine.paused().is_some(),
        rate: settings.rate,
        oldest_wait: machine.oldest_wait(now),
        since_departure: machine.last_departure().map(|at| now - at),
    }
}

fn detail<T>(state: &State<T>, now: Tick, dead_letters_lost: u64) -> Detail {
    let machine = &state.machine;
    let settings = machine.settings();
    let (tenants, tenants_known) = busiest(machine.tenants());
    let mut others = machine.ledger();
    tenants
        .iter()
        .for_each(|(_, ledger)| others.subtract(ledger));
    Detail {
        look: look(state, now, dead_letters_lost),
        pressure_for: now - machine.pressure_since(),
        health: machine.health(now),
        pause: machine.paused().cloned(),
        closed: machine.is_closed(),
        marks: (settings.low, settings.high),
        max_waiters: settings.max_waiters,
        max_in_flight: settings.max_in_flight,
        rate_now: machine.rate(),
        owed: machine.owed(now),
        tenants,
        tenants_known,
        others,
    }
}

/// The tenants with the most offers, most first, and how many there are. One pass: the queue stands still meanwhile.
fn busiest<'a>(tenants: impl Iterator<Item = (&'a Key, &'a Ledger)>) -> (Vec<(Key, Ledger)>, u64) {
    let mut busiest: Vec<(&Key, &Ledger)> = Vec::with_capacity(TENANTS + 1);
    let mut known = 0;
    for (key, ledger) in tenants {
        known += 1;
        let at = busiest.partition_point(|(_, other)| other.offered >= ledger.offered);
        if at < TENANTS {
            busiest.insert(at, (key, ledger));
            busiest.truncate(TENANTS);
        }
    }
    let owned = busiest.into_iter();
    let owned = owned.map(|(key, ledger)| (key.clone(), *ledger));
    (owned.collect(), known)
}

/// The part that outlives the queue.
pub(super) fn totals<T>(state: &State<T>, dead_letters_lost: u64) -> Totals {
    Totals {
        ledger: state.machine.ledger(),
        tally: *state.machine.tally(),
        dead_letters_lost,
        lanes: Priority::ALL.map(|priority| *state.machine.lane(priority)),
    }
}
