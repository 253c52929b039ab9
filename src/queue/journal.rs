//! Changes of a queue's state, told through `tracing`, each kind at most once a second.
//!
//! Every step compares, under the queue's lock, what is with what was told, and tells the difference once the lock is
//! released. What changes again within the second is told at its end, with the number of changes; so the last event of
//! each kind is how things are. Nothing is compared while nobody listens.

use std::sync::Arc;
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing::{info, warn};

use crate::machine::Machine;
use crate::rate::Rate;
use crate::tick::Tick;
use crate::words::{Health, Pressure};

/// What was told last.
#[derive(Debug)]
pub(crate) struct Journal {
    pressure: Told<Pressure>,
    paused: Told<Option<Arc<str>>>,
    rate: Told<Option<Rate>>,
    health: Told<Health>,
    lost: Told<u64>,
    /// When it has something to tell that no step brings.
    next: Option<Tick>,
}

impl Journal {
    pub(crate) fn new<P>(machine: &Machine<P>) -> Self {
        Self {
            pressure: Told::new(machine.pressure()),
            paused: Told::new(None),
            rate: Told::new(machine.rate()),
            health: Told::new(Health::Green),
            lost: Told::new(0),
            next: None,
        }
    }

    /// Whether anybody listens. Reads one atomic, and runs nothing foreign.
    pub(crate) fn is_on() -> bool {
        LevelFilter::current() >= LevelFilter::WARN
    }

    /// Compares, and returns what is to be told.
    pub(crate) fn look<P>(&mut self, now: Tick, machine: &Machine<P>, lost: u64) -> Vec<News> {
        self.next = None;
        if !Self::is_on() {
            return Vec::new();
        }
        let health = machine.health(now);
        // Of a ramp only its end is told.
        let rate = (!machine.is_ramping()).then(|| machine.rate());
        let found = [
            self.pressure
                .see(now, &machine.pressure())
                .map(What::Pressure),
            self.paused
                .see(now, &machine.paused().cloned())
                .map(What::Paused),
            rate.and_then(|rate| self.rate.see(now, &rate))
                .map(What::Rate),
            self.health.see(now, &health).map(What::Health),
            self.lost.see(now, &lost).map(What::Lost),
        ];
        let red = machine.red_after().filter(|_| health == Health::Green);
        let due = [
            self.pressure.due(),
            self.paused.due(),
            self.rate.due(),
            self.health.due(),
            self.lost.due(),
            red.map(|at| at + Duration::from_nanos(1)),
        ];
        self.next = due.into_iter().flatten().min();
        let news = found.into_iter().flatten().map(|what| News {
            queue: machine.settings().name.clone(),
            what,
        });
        news.collect()
    }

    /// When to look again although nothing happens.
    pub(crate) fn next(&self) -> Option<Tick> {
        self.next
    }
}

/// One thing that is told.
#[derive(Debug)]
struct Told<V> {
    told: V,
    last: V,
    at: Option<Tick>,
    changes: u64,
}

impl<V: Clone + PartialEq> Told<V> {
    fn new(value: V) -> Self {
        Self {
            told: value.clone(),
            last: value,
            at: None,
            changes: 0,
        }
    }

    fn see(&mut self, now: Tick, value: &V) -> Option<Change<V>> {
        if self.last != *value {
            self.last.clone_from(value);
            self.changes += 1;
        }
        let soon = self.at.is_some_and(|at| now - at < EVERY);
        if soon || self.last == self.told {
            return None;
        }
        self.at = Some(now);
        Some(Change {
            from: std::mem::replace(&mut self.told, self.last.clone()),
            to: self.last.clone(),
            changes: std::mem::take(&mut self.changes),
        })
    }

    fn due(&self) -> Option<Tick> {
        (self.last != self.told).then(|| self.at.map_or(Tick::ZERO, |at| at + EVERY))
    }
}

#[derive(Debug)]
struct Change<V> {
    from: V,
    to: V,
    changes: u64,
}

/// Something to be told with no lock held.
#[derive(Debug)]
pub(crate) struct News {
    queue: Option<Arc<str>>,
    what: What,
}

#[derive(Debug)]
enum What {
    Pressure(Change<Pressure>),
    Paused(Change<Option<Arc<str>>>),
    Rate(Change<Option<Rate>>),
    Health(Change<Health>),
    Lost(Change<u64>),
}

impl News {
    /// Tells it. Runs foreign code.
    pub(crate) fn tell(self) {
        let queue = self.queue.as_deref();
        match self.what {
            What::Pressure(Change { from, to, changes }) if to == Pressure::Overloaded => {
                warn!(target: TARGET, queue, %from, %to, changes, "pressure changed");
            }
            What::Pressure(Change { from, to, changes }) => {
                info!(target: TARGET, queue, %from, %to, changes, "pressure changed");
            }
            What::Paused(Change {
                to: Some(reason), ..
            }) => {
                info!(target: TARGET, queue, reason = &*reason, "paused");
            }
            What::Paused(_) => info!(target: TARGET, queue, "resumed"),
            What::Rate(Change { from, to, changes }) => {
                let [from, to] = [from, to].map(|rate| rate.map(|rate| rate.to_string()));
                info!(target: TARGET, queue, from, to, changes, "rate changed");
            }
            What::Health(Change {
                to: Health::Red, ..
            }) => {
                warn!(target: TARGET, queue, "health is red: jobs wait and none starts");
            }
            What::Health(_) => info!(target: TARGET, queue, "health is green again"),
            What::Lost(Change { from, to, .. }) => {
                warn!(target: TARGET, queue, letters = to - from, lost = to, "dead letters lost");
            }
        }
    }
}

const TARGET: &str = "sluicegate";
const EVERY: Duration = Duration::from_secs(1);
