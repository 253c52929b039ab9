//! The line at the door: offers that wait for a place, in the order of their first polls.
//!
//! ```text
//!   Standing --grant--> Granted --collect--> a place
//!      ^                   |
//!      |                   | not collected in time
//!      +------poll------ Lapsed
//!   any of them --deadline, close, token--> Refused --collect--> the refusal
//! ```
//! - I1  `standing` holds exactly the keys whose state is `Standing`; `cost` is the sum of theirs.
//! - I2  a waiter keeps its rank: a lapsed one that stands again is before all who came later.

use std::collections::{BTreeMap, BTreeSet};

use crate::machine::outcome::{Expiry, Owner, WaiterKey};
use crate::refusal::{Reason, Refusal};
use crate::tick::Tick;

/// State of a waiter.
#[derive(Debug)]
pub(crate) enum Stand {
    Standing,
    /// Holds a place until this instant.
    Granted(Tick),
    Lapsed,
    Refused(Refusal),
}

/// An offer in line.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) cost: u64,
    pub(crate) owner: Owner,
    pub(crate) offered_at: Tick,
    pub(crate) expiry: Expiry,
    /// When it leaves, and why.
    pub(crate) deadline: Option<(Tick, Reason)>,
    pub(crate) stand: Stand,
}

/// All of them, and the two sets of instants at which something happens to one.
#[derive(Debug, Default)]
pub(crate) struct Line {
    waiters: BTreeMap<WaiterKey, Waiter>,
    standing: BTreeSet<WaiterKey>,
    cost: u128,
    deadlines: BTreeSet<(Tick, WaiterKey)>,
    lapses: BTreeSet<(Tick, WaiterKey)>,
    came: u64,
}

impl Line {
    /// Offers standing in line.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.standing.len() as u64
    }

    /// Somebody is here, if only one who was refused and has not heard of it.
    #[inline]
    pub(crate) fn has_anybody(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Cost of the offers standing in line.
    pub(crate) fn cost(&self) -> u128 {
        self.cost
    }

    #[inline]
    pub(crate) fn head(&self) -> Option<(WaiterKey, &Waiter)> {
        let key = *self.standing.first()?;
        self.waiters.get(&key).map(|waiter| (key, waiter))
    }

    pub(crate) fn push(&mut self, waiter: Waiter) -> WaiterKey {
        let key = WaiterKey(self.came);
        self.came += 1;
        self.cost += u128::from(waiter.cost);
        self.standing.insert(key);
        if let Some((deadline, _)) = waiter.deadline {
            self.deadlines.insert((deadline, key));
        }
        self.waiters.insert(key, waiter);
        key
    }

    pub(crate) fn get(&self, key: WaiterKey) -> Option<&Waiter> {
        self.waiters.get(&key)
    }

    /// Gives a waiter a new state and returns its old one.
    pub(crate) fn set(&mut self, key: WaiterKey, stand: Stand) -> Option<Stand> {
        let waiter = self.waiters.get_mut(&key)?;
        match stand {
            Stand::Standing => {
                self.standing.insert(key);
                self.cost += u128::from(waiter.cost);
            }
            Stand::Granted(until) => {
                self.lapses.insert((until, key));
            }
            Stand::Refused(_) => {
                if let Some((deadline, _)) = waiter.deadline {
                    self.deadlines.remove(&(deadline, key));
                }
            }
            Stand::Lapsed => {}
        }
        let old = std::mem::replace(&mut waiter.stand, stand);
        let cost = waiter.cost;
        self.forget(key, &old, cost);
        Some(old)
    }

    /// Takes a waiter out for good.
    pub(crate) fn remove(&mut self, key: WaiterKey) -> Option<Waiter> {
        let waiter = self.waiters.remove(&key)?;
        if let Some((deadline, _)) = waiter.deadline {
            self.deadlines.remove(&(deadline, key));
        }
        self.forget(key, &waiter.stand, waiter.cost);
        Some(waiter)
    }

    /// A waiter whose deadline has come.
    pub(crate) fn overdue(&self, now: Tick) -> Option<WaiterKey> {
        self.deadlines
            .first()
            .filter(|(deadline, _)| *deadline <= now)
            .map(|(_, key)| *key)
    }

    /// A waiter whose granted place lapses.
    pub(crate) fn lapsing(&self, now: Tick) -> Option<WaiterKey> {
        self.lapses
            .first()
            .filter(|(until, _)| *until <= now)
            .map(|(_, key)| *key)
    }

    /// When the next deadline or lapse comes.
    pub(crate) fn next_event(&self) -> Option<Tick> {
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        let lapse = self.lapses.first().map(|(at, _)| *at);
        [deadline, lapse].into_iter().flatten().min()
    }

    /// Keys of all who are not refused yet, first come first.
    pub(crate) fn hopeful(&self) -> Vec<WaiterKey> {
        let hopeful = self
            .waiters
            .iter()
            .filter(|(_, waiter)| !waiter.is_refused());
        hopeful.map(|(key, _)| *key).collect()
    }

    /// Takes the key out of whatever its old state kept it in (keeps I1).
    fn forget(&mut self, key: WaiterKey, old: &Stand, cost: u64) {
        match old {
            Stand::Standing => {
                self.standing.remove(&key);
                self.cost -= u128::from(cost);
            }
            Stand::Granted(until) => {
                self.lapses.remove(&(*until, key));
            }
            Stand::Lapsed | Stand::Refused(_) => {}
        }
    }
}

impl Waiter {
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.stand, Stand::Refused(_))
    }
}
