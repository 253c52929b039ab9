//! Rolls of what is measured, queues and limiters each in their own: the living by label, and the totals of those that
//! have ended.
//!
//! The label of a queue is its name, `unnamed` if it has none. Two living queues of one name are told apart: the second
//! is `name#2`, and so on with the lowest number that is free. A label whose queue has ended is given to the next of
//! that name, and its counts go on from there, so that no counter ever falls.
//!
//! - I1  living labels are distinct, but for [`OTHER`], which is shared once [`MOST`] labels were ever given.
//! - I2  a queue that has ended is in `ended` from the moment it leaves `living`; both change under one lock.

use std::collections::BTreeMap;
use std::time::Duration;

use super::herald;
use super::meter::{self, Meter};
use crate::key::Key;
use crate::ledger::Ledger;
use crate::rate::Rate;
use crate::sync::process::Mutex;
use crate::sync::{Arc, Weak};
use crate::tally::Tally;
use crate::words::{Health, Pressure};

/// What can be measured without knowing more of it.
pub(crate) trait Measured: Send + Sync {
    /// Its numbers, all of one instant.
    fn look(&self) -> Look;

    /// The same, with all that is only told to who asks for it.
    fn detail(&self) -> Detail;
}

/// Numbers of a queue at one instant.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) totals: Totals,
    pub(crate) depth: u64,
    pub(crate) max_depth: u64,
    pub(crate) pressure: Pressure,
    pub(crate) paused: bool,
    pub(crate) rate: Option<Rate>,
    pub(crate) oldest_wait: Option<Duration>,
    pub(crate) since_departure: Option<Duration>,
}

/// All of a queue at one instant.
#[derive(Clone, Debug)]
pub(crate) struct Detail {
    pub(crate) look: Look,
    pub(crate) pressure_for: Duration,
    pub(crate) health: Health,
    pub(crate) pause: Option<Arc<str>>,
    pub(crate) closed: bool,
    pub(crate) marks: (u64, u64),
    pub(crate) max_waiters: u64,
    /// `u64::MAX` = no bound.
    pub(crate) max_in_flight: u64,
    /// Rate as it is now, on a ramp or adapted.
    pub(crate) rate_now: Option<Rate>,
    pub(crate) owed: u64,
    /// Those with the most offers, most first, up to [`TENANTS`].
    pub(crate) tenants: Vec<(Key, Ledger)>,
    /// Tenants known by name.
    pub(crate) tenants_known: u64,
    /// Everybody who is not in `tenants`.
    pub(crate) others: Ledger,
}

/// Tenants that are told by name.
pub(crate) const TENANTS: usize = 20;

/// Counts that only grow, and where the rest of the balance is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) ledger: Ledger,
    pub(crate) tally: Tally,
    pub(crate) dead_letters_lost: u64,
    /// The ledger by priority, least urgent first.
    pub(crate) lanes: [Ledger; 4],
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.ledger.add(&other.ledger);
        self.tally.add(&other.tally);
        self.dead_letters_lost += other.dead_letters_lost;
        for (lane, more) in self.lanes.iter_mut().zip(&other.lanes) {
            lane.add(more);
        }
    }
}

/// A place in a roll, taken before who sits there is built, and left when it ends.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) label: Arc<str>,
    number: u64,
}

/// A label, and what there is of it.
pub(crate) struct Entry<W: ?Sized, T> {
    pub(crate) label: Arc<str>,
    /// Totals of those that have ended.
    pub(crate) ended: T,
    /// More than one only under [`OTHER`].
    pub(crate) living: Vec<Weak<W>>,
}

/// Totals that add up.
pub(crate) trait Sum: Clone + Default {
    fn add(&mut self, other: &Self);
}

impl Sum for Totals {
    fn add(&mut self, other: &Self) {
        Self::add(self, other);
    }
}

/// All queues.
pub(crate) static QUEUES: Register<dyn Measured, Totals> = Register::new();
/// All watched limiters.
pub(crate) static METERS: Register<Meter, meter::Totals> = Register::new();

/// Whether nothing lives in any roll.
pub(crate) fn is_empty() -> bool {
    QUEUES.is_empty() && METERS.is_empty()
}

impl Seat {
    /// Finds a label for a queue.
    pub(crate) fn take(name: Option<&str>) -> Self {
        QUEUES.seat(name)
    }

    /// Shows which queue sits here; dropped before, it ends without having been seen.
    pub(crate) fn fill(&self, who: Weak<dyn Measured>) {
        QUEUES.fill(self, who);
    }

    /// Leaves the final totals of a queue behind.
    pub(crate) fn leave(&self, totals: &Totals) {
        QUEUES.leave(self, totals);
    }
}

/// A roll behind its lock.
pub(crate) struct Register<W: ?Sized, T> {
    roll: Mutex<Roll<W, T>>,
}

impl<W: ?Sized, T: Sum> Register<W, T> {
    const fn new() -> Self {
        Self {
            roll: Mutex::new(Roll::new()),
        }
    }

    /// Finds a label.
    pub(crate) fn seat(&self, name: Option<&str>) -> Seat {
        let name = clean(name.unwrap_or(UNNAMED));
        let seat = self.roll.lock().seat(&name);
        if !cfg!(sluicegate_loom) {
            herald::rouse();
        }
        seat
    }

    /// Shows who sits there.
    pub(crate) fn fill(&self, seat: &Seat, who: Weak<W>) {
        // What belongs to a model must not be seen from outside of it.
        if cfg!(sluicegate_loom) {
            return;
        }
        let mut roll = self.roll.lock();
        let living = roll.living.get_mut(&seat.label);
        if let Some(seated) = living.and_then(|seats| seats.get_mut(&seat.number)) {
            *seated = Some(who);
        }
    }

    /// Leaves the final totals behind.
    pub(crate) fn leave(&self, seat: &Seat, totals: &T) {
        let mut roll = self.roll.lock();
        // Its weak reference is dropped outside the lock.
        let left = roll.leave(seat, totals);
        drop(roll);
        drop(left);
    }

    /// Everything in the roll, by label.
    pub(crate) fn entries(&self) -> Vec<Entry<W, T>> {
        let roll = self.roll.lock();
        roll.ended
            .iter()
            .map(|(label, ended)| Entry {
                label: Arc::clone(label),
                ended: ended.clone(),
                living: roll.living.get(label).map_or_else(Vec::new, |seats| {
                    seats.values().flatten().map(Weak::clone).collect()
                }),
            })
            .collect()
    }

    fn is_empty(&self) -> bool {
        self.roll.lock().living.is_empty()
    }
}

type Seats<W> = BTreeMap<u64, Option<Weak<W>>>;

struct Roll<W: ?Sized, T> {
    /// By label and seat.
    living: BTreeMap<Arc<str>, Seats<W>>,
    /// By every label that was ever given.
    ended: BTreeMap<Arc<str>, T>,
    last_number: u64,
}

impl<W: ?Sized, T: Sum> Roll<W, T> {
    const fn new() -> Self {
        Self {
            living: BTreeMap::new(),
            ended: BTreeMap::new(),
            last_number: 0,
        }
    }

    fn seat(&mut self, name: &str) -> Seat {
        let label = self.label(name);
        self.last_number += 1;
        let number = self.last_number;
        self.ended.entry(Arc::clone(&label)).or_default();
        let seats = self.living.entry(Arc::clone(&label)).or_default();
        seats.insert(number, None);
        Seat { label, number }
    }

    fn label(&self, name: &str) -> Arc<str> {
        if !self.living.contains_key(name) {
            return Arc::from(if self.may_have(name) { name } else { OTHER });
        }
        // At most `MOST` labels live, so one of so many numbers is free.
        (2..=MOST + 1)
            .map(|number| format!("{name}#{number}"))
            .find(|label| !self.living.contains_key(label.as_str()))
            .filter(|label| self.may_have(label))
            .map_or_else(|| Arc::from(OTHER), Arc::from)
    }

    fn may_have(&self, label: &str) -> bool {
        label != OTHER && (self.ended.contains_key(label) || self.ended.len() < MOST)
    }

    fn leave(&mut self, seat: &Seat, totals: &T) -> Option<Weak<W>> {
        if let Some(ended) = self.ended.get_mut(&seat.label) {
            ended.add(totals);
        }
        let seats = self.living.get_mut(&seat.label)?;
        let left = seats.remove(&seat.number);
        if seats.is_empty() {
            self.living.remove(&seat.label);
        }
        left.flatten()
    }
}

/// A name as a label: not longer than a page shows, and nothing in it that breaks a line.
pub(crate) fn clean(name: &str) -> String {
    name.chars()
        .take(LONGEST)
        .map(|c| if c.is_control() { '_' } else { c })
        .collect()
}

const UNNAMED: &str = "unnamed";
/// Label of all queues beyond [`MOST`] labels, which are published as their sum.
pub(crate) const OTHER: &str = "other";
/// Labels that are ever given: a program that names queues after its users must not flood whoever collects them.
pub(crate) const MOST: usize = 256;
/// Characters of a label.
const LONGEST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(count: u64) -> Totals {
        let mut totals = Totals::default();
        totals.ledger.offered = count;
        totals
    }

    #[test]
    fn queues_of_one_name_are_told_apart_and_a_free_label_is_given_again() {
        let mut roll = Roll::<dyn Measured, Totals>::new();
        let seats = [(); 3].map(|()| roll.seat("orders"));
        let labels: Vec<&str> = seats.iter().map(|seat| &*seat.label).collect();
        assert_eq!(labels, ["orders", "orders#2", "orders#3"]);
        roll.leave(&seats[1], &offered(7));
        let next = roll.seat("orders");
        assert_eq!(&*next.label, "orders#2");
        roll.leave(&next, &offered(1));
        assert_eq!(roll.ended["orders#2"].ledger.offered, 8, "counts go on");
    }

    #[test]
    fn a_name_that_looks_like_a_numbered_one_is_no_other_queue() {
        let mut roll = Roll::<dyn Measured, Totals>::new();
        assert_eq!(&*roll.seat("orders#2").label, "orders#2");
        assert_eq!(&*roll.seat("orders").label, "orders");
        assert_eq!(&*roll.seat("orders").label, "orders#3");
    }

    #[test]
    fn a_hundred_thousand_names_are_few_labels() {
        let mut roll = Roll::<dyn Measured, Totals>::new();
        let mut others = 0;
        for user in 0..100_000 {
            let seat = roll.seat(&format!("user {user}"));
            if &*seat.label == OTHER {
                others += 1;
            }
            roll.leave(&seat, &offered(1));
        }
        assert_eq!(roll.ended.len(), MOST + 1);
        assert_eq!(others, 100_000 - MOST as u64);
        assert_eq!(roll.ended[OTHER].ledger.offered, others);
        assert!(roll.living.is_empty());
    }

    #[test]
    fn labels_are_short_and_of_one_line() {
        let label = clean(&format!("a\n\u{1b}[31m{}", "x".repeat(64_000)));
        assert_eq!(label.chars().count(), LONGEST);
        assert!(label.starts_with("a__[31mx"));
    }
}
