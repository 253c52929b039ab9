//! The machine driven by invented instants.

mod behaviour;
mod laws;
mod million;

use std::time::Duration;

use crate::machine::{Ask, Effects, Machine, Place, Preset, Spec, Taken};
use crate::rate::Rate;
use crate::tick::Tick;
use crate::words::Priority;

pub(super) const GRAIN: Duration = Duration::from_micros(2500);

pub(super) fn spec(rate: Rate) -> Spec {
    Spec::new(Preset::Lossless, Some(rate), GRAIN)
}

pub(super) fn unpaced() -> Spec {
    Spec::new(Preset::Unpaced, None, GRAIN)
}

pub(super) fn machine(spec: &Spec) -> Machine<u64> {
    Machine::new(
        spec.resolve().expect("the test's settings are valid"),
        Tick::ZERO,
    )
}

pub(super) fn ms(ms: u64) -> Tick {
    Tick::from_nanos(ms * 1_000_000)
}

pub(super) fn cost(cost: u64) -> Ask {
    Ask {
        cost,
        ..Ask::default()
    }
}

pub(super) fn critical(cost: u64) -> Ask {
    Ask {
        cost,
        priority: Priority::Critical,
        ..Ask::default()
    }
}

/// Offers and sends in one go; panics if refused.
#[track_caller]
pub(super) fn put(machine: &mut Machine<u64>, now: Tick, ask: &Ask, item: u64) -> Effects<u64> {
    let mut fx = Effects::new();
    let place = machine.try_offer(now, ask, &mut fx).expect("there is room");
    machine.send(now, place, item, &mut fx);
    fx
}

#[track_caller]
pub(super) fn place(machine: &mut Machine<u64>, now: Tick, ask: &Ask) -> Place {
    machine
        .try_offer(now, ask, &mut Effects::new())
        .expect("there is room")
}

#[track_caller]
pub(super) fn take(machine: &mut Machine<u64>, now: Tick) -> Taken<u64> {
    machine
        .take(now, &mut Effects::new())
        .expect("a departure is due")
}
