//! The machine driven by invented instants.

mod costs;
mod departing;
mod dice;
mod door;
mod ending;
mod fair;
mod held;
mod laws;
mod metastable;
mod million;
mod pacing;
mod plainly;
mod shares;

use std::time::Duration;

use crate::machine::{Ask, Effects, Machine, Offered, Place, Preset, Spec, Taken, WaiterKey};
use crate::rate::Rate;
use crate::refusal::Reason;
use crate::tick::Tick;
use crate::words::Priority;

pub(super) const SECOND: Duration = Duration::from_secs(1);
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

#[track_caller]
pub(super) fn refused(machine: &mut Machine<u64>, now: Tick, ask: &Ask) -> Reason {
    let refusal = machine
        .try_offer(now, ask, &mut Effects::new())
        .expect_err("no room");
    refusal.reason()
}

#[track_caller]
pub(super) fn waits(
    machine: &mut Machine<u64>,
    now: Tick,
    ask: &Ask,
    stay: Option<Duration>,
) -> WaiterKey {
    match machine.offer(now, ask, stay, &mut Effects::new()) {
        Offered::Waiting(key) => key,
        other => panic!("did not wait: {other:?}"),
    }
}

pub(super) fn bounded(max: u64, low: u64, high: u64, waiters: u64) -> Machine<u64> {
    let mut spec = unpaced();
    spec.max_depth = Some(max);
    spec.watermarks = Some((low, high));
    spec.max_waiters = Some(waiters);
    machine(&spec)
}
