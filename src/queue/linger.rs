//! Consumers that could take a job now and wait for others to take along.
//!
//! The jobs stay queued meanwhile: whoever else asks may have them, and a consumer that goes away has taken nothing.

use std::task::Waker;

use super::parcel::Parcel;
use super::wakers::Wakers;
use crate::machine::Machine;
use crate::tick::Tick;

/// All of them; there are few.
#[derive(Debug, Default)]
pub(crate) struct Lingerers {
    all: Vec<Lingerer>,
    last_id: u64,
}

#[derive(Debug)]
struct Lingerer {
    id: u64,
    /// Jobs that it takes at most.
    most: u64,
    /// When it will take what there is.
    until: Tick,
    waker: Waker,
}

impl Lingerers {
    /// Waits until more jobs may go along, under `id`, a new one if there is none yet. Returns a replaced waker, to be
    /// dropped unlocked.
    pub(crate) fn enroll(
        &mut self,
        id: &mut Option<u64>,
        most: u64,
        until: Tick,
        waker: Waker,
    ) -> Option<Waker> {
        let replaced = id.and_then(|id| self.leave(id));
        let id = *id.get_or_insert_with(|| {
            self.last_id += 1;
            self.last_id
        });
        self.all.push(Lingerer {
            id,
            most,
            until,
            waker,
        });
        replaced
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Does not linger any more. Returns the waker, to be dropped unlocked.
    pub(crate) fn leave(&mut self, id: u64) -> Option<Waker> {
        let index = self.all.iter().position(|lingerer| lingerer.id == id)?;
        Some(self.all.swap_remove(index).waker)
    }

    /// Wakes those that have nothing to wait for any more.
    pub(crate) fn call<T>(&mut self, machine: &Machine<Parcel<T>>, wakers: &mut Wakers) {
        if self.all.is_empty() {
            return;
        }
        let called = |lingerer: &mut Lingerer| {
            linger(machine, lingerer.most, lingerer.until) < lingerer.until
        };
        for lingerer in self.all.extract_if(.., called) {
            wakers.push(lingerer.waker);
        }
    }
}

/// Until when it is worth waiting for more than what is ready, at most `until`; [`Tick::ZERO`] = not at all.
pub(crate) fn linger<T>(machine: &Machine<Parcel<T>>, most: u64, until: Tick) -> Tick {
    let most = most.min(machine.room_in_flight());
    if machine.ready() >= most || machine.is_closed() {
        return Tick::ZERO;
    }
    // A job must not expire for being waited with: it goes while a late timer is still in time.
    let grain = machine.settings().grain;
    machine
        .first_expiry()
        .map_or(until, |expiry| until.min(expiry.before(grain)))
}
