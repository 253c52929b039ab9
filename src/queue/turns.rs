//! Futures of a turnstile waiting for their turn: whose is next, and what happens to one that is late.
//!
//! ```text
//!   queued --first in order, departure due--> called --polled--> turn
//!                                               | not polled within a grain
//!                                               v
//!                                              late --polled--> called first, at the next departure
//! ```
//! - I1  At most one is called at a time.
//! - I2  A late one is out of the machine's order (`set_aside`) and goes before everybody there once it is polled.

use std::collections::VecDeque;
use std::time::Duration;

use super::parcel::Parcel;
use super::wakers::Wakers;
use crate::machine::{JobKey, Machine};
use crate::tick::Tick;

/// Who was called, and who is back from being late.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    called: Option<(JobKey, Tick)>,
    /// In the order in which they came back; keys that have left since are skipped.
    back: VecDeque<JobKey>,
    /// Set aside and not polled since.
    late: Vec<JobKey>,
}

impl Turns {
    /// Wakes the head if a departure is due and nobody is on the way for it.
    pub(crate) fn call<T>(
        &mut self,
        now: Tick,
        machine: &mut Machine<Parcel<T>>,
        wakers: &mut Wakers,
    ) {
        if let Some((key, at)) = self.called {
            let grain = machine.settings().grain;
            let here = machine.payload_mut(key).is_some();
            if here && now < at + grain {
                return;
            }
            self.called = None;
            if here && machine.readiness(now).is_ok() {
                self.back.retain(|back| *back != key);
                machine.set_aside(key);
                self.late.push(key);
            }
        }
        self.forget_left(machine);
        let Some(key) = self.head(machine) else {
            return;
        };
        if machine.readiness(now).is_ok() {
            self.called = Some((key, now));
            let extras = machine
                .payload_mut(key)
                .and_then(|parcel| parcel.extras.as_mut());
            if let Some(waker) = extras.and_then(|extras| extras.waker.take()) {
                wakers.push(waker);
            }
        }
    }

    /// Whether it is this one's turn once a departure is due; asked by its own poll, which ends its being late.
    pub(crate) fn is_head<T>(&mut self, key: JobKey, machine: &Machine<Parcel<T>>) -> bool {
        if let Some(index) = self.late.iter().position(|late| *late == key) {
            self.late.swap_remove(index);
            self.back.push_back(key);
        }
        self.called.is_some_and(|(called, _)| called == key)
            // One that is back need not wait for those who are back too: each departure serves whoever asks first.
            || self.back.contains(&key)
            || self.head(machine) == Some(key)
    }

    /// Its poll found no departure due: it is called again when there is one.
    pub(crate) fn waits_on(&mut self, key: JobKey) {
        if self.called.is_some_and(|(called, _)| called == key) {
            self.called = None;
        }
    }

    /// A job was taken.
    pub(crate) fn taken(&mut self) {
        self.called = None;
    }

    pub(crate) fn awaits_departure<T>(&self, machine: &Machine<Parcel<T>>) -> bool {
        self.called.is_none() && self.head(machine).is_some()
    }

    pub(crate) fn second_call(&self, grain: Duration) -> Option<Tick> {
        self.called.map(|(_, at)| at + grain)
    }

    fn head<T>(&self, machine: &Machine<Parcel<T>>) -> Option<JobKey> {
        self.back.front().copied().or_else(|| machine.next_job())
    }

    /// Keys of futures that were dropped, or whose jobs ended.
    fn forget_left<T>(&mut self, machine: &mut Machine<Parcel<T>>) {
        if !self.back.is_empty() {
            self.back.retain(|key| machine.payload_mut(*key).is_some());
        }
        if !self.late.is_empty() {
            self.late.retain(|key| machine.payload_mut(*key).is_some());
        }
    }
}
