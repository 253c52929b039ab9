//! Consumers waiting for a departure: who is woken for which.
//!
//! A due departure wakes the consumer that has waited longest; while it is on its way that departure is *summoned* and
//! wakes nobody else. Taking a job ends the summons and lets the next departure call its own consumer.
//!
//! - I1  The line is ordered by id, which is the order of first polls. A woken consumer keeps its place until it takes.
//! - I2  `idle` counts the consumers in line that are not woken.
//! - I3  A summons that is not answered within a grain may call the next one too: a shelved future delays a job by one
//!   grain, never for ever. A summons whose future is dropped or finds nothing ends at once.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use super::linger::Lingerers;
use super::wakers::Wakers;
use crate::tick::Tick;

/// The line of consumers.
#[derive(Debug, Default)]
pub(crate) struct Consumers {
    line: VecDeque<Consumer>,
    idle: usize,
    last_id: u64,
    summons: Option<Summons>,
    lingerers: Lingerers,
}

#[derive(Debug)]
struct Consumer {
    id: u64,
    /// `None` once woken.
    waker: Option<Waker>,
}

#[derive(Clone, Copy, Debug)]
struct Summons {
    id: u64,
    at: Tick,
}

impl Consumers {
    /// Waits in line under `id`, a new one if there is none yet. Returns a replaced waker, to be dropped unlocked.
    pub(crate) fn enroll(&mut self, id: &mut Option<u64>, waker: Waker) -> Option<Waker> {
        if let Some(index) = id.and_then(|id| self.find(id)) {
            let consumer = &mut self.line[index];
            let replaced = consumer.waker.replace(waker);
            if replaced.is_none() {
                self.idle += 1;
            }
            self.answer(*id);
            return replaced;
        }
        self.last_id += 1;
        *id = Some(self.last_id);
        self.line.push_back(Consumer {
            id: self.last_id,
            waker: Some(waker),
        });
        self.idle += 1;
        None
    }

    /// Leaves the line without a job: the summons passes on. Returns the waker, to be dropped unlocked.
    pub(crate) fn leave(&mut self, id: u64) -> Option<Waker> {
        self.answer(Some(id));
        let waker = self.line.remove(self.find(id)?)?.waker;
        if waker.is_some() {
            self.idle -= 1;
        }
        waker
    }

    /// A job was taken, by a consumer in line or by a newcomer. Returns the waker, to be dropped unlocked.
    #[inline]
    pub(crate) fn taken(&mut self, id: Option<u64>) -> Option<Waker> {
        self.summons = None;
        id.and_then(|id| self.leave(id))
    }

    /// Picks the consumer to wake for a departure that is `ready`, unless one is on its way for it.
    pub(crate) fn call(
        &mut self,
        now: Tick,
        grain: Duration,
        ready: impl FnOnce() -> bool,
    ) -> Option<Waker> {
        if self.idle == 0 || self.summons.is_some_and(|summons| now < summons.at + grain) {
            return None;
        }
        self.summons = None;
        if !ready() {
            return None;
        }
        let consumer = self
            .line
            .iter_mut()
            .find(|consumer| consumer.waker.is_some())?;
        self.summons = Some(Summons {
            id: consumer.id,
            at: now,
        });
        self.idle -= 1;
        consumer.waker.take()
    }

    /// Whether nobody waits who is not on the way.
    #[inline]
    pub(crate) const fn is_deserted(&self) -> bool {
        self.idle == 0 && self.lingerers.is_empty()
    }

    /// Whether one is on the way for all who wait, and a driver that is `armed` comes in time to call the next.
    pub(crate) fn are_summoned(&self, now: Tick, grain: Duration, armed: Option<Tick>) -> bool {
        let second = self.second_call(grain).filter(|second| now < *second);
        self.lingerers.is_empty()
            && second.is_some_and(|second| armed.is_some_and(|armed| armed <= second))
    }

    /// Those for whom a departure is due, and who wait for more jobs to take along.
    pub(crate) const fn lingerers(&mut self) -> &mut Lingerers {
        &mut self.lingerers
    }

    /// Wakes everybody: there will be no more jobs.
    pub(crate) fn call_all(&mut self, wakers: &mut Wakers) {
        if self.idle > 0 {
            self.idle = 0;
            self.line
                .iter_mut()
                .filter_map(|consumer| consumer.waker.take())
                .for_each(|waker| {
                    wakers.push(waker);
                });
        }
    }

    /// Whether the next departure has somebody to wake.
    pub(crate) const fn awaits_departure(&self) -> bool {
        self.idle > 0 && self.summons.is_none()
    }

    /// When an unanswered summons calls the next consumer.
    pub(crate) fn second_call(&self, grain: Duration) -> Option<Tick> {
        self.summons
            .filter(|_| self.idle > 0)
            .map(|summons| summons.at + grain)
    }

    fn find(&self, id: u64) -> Option<usize> {
        self.line
            .binary_search_by_key(&id, |consumer| consumer.id)
            .ok()
    }

    fn answer(&mut self, id: Option<u64>) {
        if self.summons.is_some_and(|summons| Some(summons.id) == id) {
            self.summons = None;
        }
    }
}
