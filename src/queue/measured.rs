//! What a queue tells whoever measures it.

use super::core::Core;
use super::state::State;
use crate::telemetry::roll::{Look, Measured, Totals};
use crate::tick::Tick;
use crate::words::Priority;

impl<T: Send> Measured for Core<T> {
    fn look(&self) -> Look {
        Self::look(self, |state, now| look(state, now, self.outlet.lost()))
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

/// The part that outlives the queue.
pub(super) fn totals<T>(state: &State<T>, dead_letters_lost: u64) -> Totals {
    Totals {
        ledger: state.machine.ledger(),
        tally: *state.machine.tally(),
        dead_letters_lost,
        lanes: Priority::ALL.map(|priority| *state.machine.lane(priority)),
    }
}
