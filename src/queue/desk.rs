//! Who is served by departures: consumers of a queue, or the futures of a turnstile.

use std::task::Waker;
use std::time::Duration;

use super::consumers::Consumers;
use super::parcel::Parcel;
use super::turns::Turns;
use super::wakers::Wakers;
use crate::machine::Machine;
use crate::tick::Tick;

/// One of the two.
#[derive(Debug)]
pub(crate) enum Desk {
    Consumers(Consumers),
    Turns(Turns),
}

impl Desk {
    /// Whether nobody waits, so that no departure has anybody to wake.
    #[inline]
    pub(crate) fn is_deserted(&self) -> bool {
        match self {
            Self::Consumers(consumers) => consumers.is_deserted(),
            Self::Turns(_) => false,
        }
    }

    /// Whether somebody is on the way for all who wait, and a driver that is `armed` comes in time to call the next.
    pub(crate) fn is_summoned(&self, now: Tick, grain: Duration, armed: Option<Tick>) -> bool {
        match self {
            Self::Consumers(consumers) => consumers.are_summoned(now, grain, armed),
            Self::Turns(_) => false,
        }
    }

    /// Wakes whoever is to take the departure that is due now, if any.
    pub(crate) fn call<T>(
        &mut self,
        now: Tick,
        machine: &mut Machine<Parcel<T>>,
        wakers: &mut Wakers,
    ) {
        match self {
            Self::Consumers(consumers) => {
                let grain = machine.settings().grain;
                let ready = || machine.readiness(now).is_ok();
                if let Some(waker) = consumers.call(now, grain, ready) {
                    wakers.push(waker);
                }
                consumers.lingerers().call(machine, wakers);
            }
            Self::Turns(turns) => turns.call(now, machine, wakers),
        }
    }

    /// Wakes all consumers, as there will be no more jobs. The futures of a turnstile are told one by one.
    pub(crate) fn call_all(&mut self, wakers: &mut Wakers) {
        if let Self::Consumers(consumers) = self {
            consumers.call_all(wakers);
        }
    }

    /// A job was taken. Returns a waker to be dropped unlocked.
    #[inline]
    pub(crate) fn taken(&mut self, consumer: Option<u64>) -> Option<Waker> {
        match self {
            Self::Consumers(consumers) => consumers.taken(consumer),
            Self::Turns(turns) => {
                turns.taken();
                None
            }
        }
    }

    /// Whether the next departure has somebody to wake.
    pub(crate) fn awaits_departure<T>(&self, machine: &Machine<Parcel<T>>) -> bool {
        match self {
            Self::Consumers(consumers) => consumers.awaits_departure(),
            Self::Turns(turns) => turns.awaits_departure(machine),
        }
    }

    /// When an unanswered wake-up calls the next one.
    pub(crate) fn second_call(&self, grain: Duration) -> Option<Tick> {
        match self {
            Self::Consumers(consumers) => consumers.second_call(grain),
            Self::Turns(turns) => turns.second_call(grain),
        }
    }

    /// The consumers of a queue.
    pub(crate) fn consumers(&mut self) -> &mut Consumers {
        match self {
            Self::Consumers(consumers) => consumers,
            Self::Turns(_) => unreachable!("a turnstile has no receivers"),
        }
    }

    /// The futures of a turnstile.
    pub(crate) fn turns(&mut self) -> &mut Turns {
        match self {
            Self::Turns(turns) => turns,
            Self::Consumers(_) => unreachable!("only a turnstile has turns"),
        }
    }
}
