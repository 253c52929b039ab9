//! The levels of a hierarchy in this process, decided under all their locks at once.
//!
//! - H1  Keys are hashed, and the clock is read, before any lock is taken.
//! - H2  Locks are taken in one order, the reverse of that in which the levels were declared, so those who share more
//!   are held for less; then the newcomers' shares in the same order. So there is no deadlock.
//! - H3  All levels are judged at one instant, and then all are charged or none, before any lock is released. So nobody
//!   sees a charge that is taken back, and nobody is refused because of one.

use std::fmt;

use super::account::Hold;
use super::ruling::Ruling;
use super::shard::Shard;
use super::state::{Keep, peek};
use super::status::KeyCounts;
use super::store::{Charge, Deciding, Level, Store};
use super::table::{Table, WhenKeysFull};
use crate::clock::AnyClock;
use crate::decision::{Decision, Verdict};
use crate::key::Key;
use crate::policy::{Limit, Policy};
use crate::sync::{Arc, MutexGuard};
use crate::tick::Tick;

/// Store in the memory of this process; a handle.
///
/// Each level has its own table of keys, with a cap and gradual forgetting as in
/// [`KeyedLimiter`](crate::KeyedLimiter). Made by [`HierarchyBuilder::build`](crate::HierarchyBuilder::build).
#[derive(Clone)]
pub struct Local {
    shared: Arc<Shared>,
}

struct Shared {
    levels: Vec<(Arc<str>, Table<Key>)>,
    clock: AnyClock,
}

/// A level under its lock.
struct Held<'a> {
    position: usize,
    level: &'a Level,
    table: &'a Table<Key>,
    hash: u64,
    shard: MutexGuard<'a, Shard<Key>>,
    state: At<'a>,
    decision: Option<Decision>,
}

/// Where the state of a level's key is.
enum At<'a> {
    Known,
    /// Not yet; room for it is reserved if it is going to be charged.
    New {
        reserved: bool,
    },
    /// There is no room: what newcomers share.
    Beyond(Hold<'a>),
}

impl Local {
    pub(crate) fn new(
        levels: impl Iterator<Item = (Arc<str>, Limit)>,
        (max, full): (u64, WhenKeysFull),
        clock: AnyClock,
    ) -> Self {
        let now = clock.now();
        let table = |(name, limit)| (name, Table::new(limit, max, full, now));
        let levels = levels.map(table).collect();
        Self {
            shared: Arc::new(Shared { levels, clock }),
        }
    }

    /// Charges all levels or none.
    pub(crate) fn rule(&self, charge: Charge) -> Ruling {
        self.judge(charge, true)
    }

    /// Says what [`rule`](Self::rule) would, and charges nothing.
    pub(crate) fn peek(&self, charge: Charge) -> Ruling {
        self.judge(charge, false)
    }

    /// Keys that a level remembers now.
    pub(super) fn len(&self, level: usize) -> u64 {
        self.shared.levels[level].1.len()
    }

    fn judge(&self, charge: Charge, commit: bool) -> Ruling {
        let now = self.shared.clock.now();
        let (cost, keep) = (charge.cost(), keep(&charge));
        let parts = Arc::clone(charge.parts());
        // Keys that idled are dropped after all locks.
        let mut forgotten = Vec::new();
        let mut held = self.hold(&parts);
        let now = held.iter_mut().fold(now, |now, held| held.shard.clamp(now));
        for held in &mut held {
            held.shard.clamp(now);
            held.judge((now, cost, keep), commit, &mut forgotten);
        }
        let granted = held.iter().all(Held::is_granted);
        let told_to_wait = commit && !granted && !held.iter().any(Held::is_never);
        let mut beyond = 0;
        for held in &mut held {
            if granted && commit && cost > 0 {
                beyond |= held.charge(now, cost);
            } else if !granted {
                held.withdraw(now, keep);
                if told_to_wait {
                    held.settle(now);
                }
            }
        }
        let mut decisions: Vec<_> = Vec::with_capacity(held.len());
        // Released in the reverse of the order in which they were taken; that is the order of the levels.
        while let Some(mut held) = held.pop() {
            let decision = held.decision.take().expect("every level was judged");
            decisions.push((Arc::clone(&held.level.name), decision));
        }
        drop(forgotten);
        let mut charge = charge;
        charge.beyond = beyond;
        Ruling::new(charge, decisions)
    }

    /// Locks the shard of every level (H2). A level that this store does not know, or that comes twice, is left out.
    fn hold<'a>(&'a self, parts: &'a [Level]) -> Vec<Held<'a>> {
        let mut found: Vec<_> = parts
            .iter()
            .enumerate()
            .filter_map(|(position, level)| {
                let (index, table) = self.table(level)?;
                Some((index, position, level, table, table.hash(&level.key)))
            })
            .collect();
        // A hierarchy's own charges are in order already.
        found.sort_by_key(|(index, position, ..)| (*index, *position));
        found.dedup_by_key(|(index, ..)| *index);
        let lock = |(_, position, level, table, hash): (usize, _, _, &'a Table<Key>, u64)| Held {
            position,
            level,
            table,
            hash,
            shard: table.lock(hash),
            state: At::Known,
            decision: None,
        };
        found.into_iter().rev().map(lock).collect()
    }

    fn table(&self, level: &Level) -> Option<(usize, &Table<Key>)> {
        let is_it = |(name, _): &&(Arc<str>, Table<Key>)| *name == level.name;
        let levels = &self.shared.levels;
        if let Some((_, table)) = levels.get(level.index).filter(is_it) {
            return Some((level.index, table));
        }
        let index = levels.iter().position(|(name, _)| *name == level.name)?;
        Some((index, &levels[index].1))
    }
}

impl<'a> Held<'a> {
    fn is_granted(&self) -> bool {
        self.decision.as_ref().is_some_and(Decision::is_granted)
    }

    fn is_never(&self) -> bool {
        let verdict = self.decision.as_ref().map(|decision| decision.verdict);
        matches!(verdict, Some(Verdict::Never { .. }))
    }

    fn judge(&mut self, asked: (Tick, u64, Keep), commit: bool, forgotten: &mut Vec<Key>) {
        let (now, cost, keep) = asked;
        let Level { limit, key, .. } = self.level;
        if let Some(decision) = self.shard.peek(self.hash, key, limit, asked) {
            self.decision = Some(decision);
            return;
        }
        let decision = self.table.peek_new(limit, asked);
        let charged = commit && cost > 0 && decision.is_granted();
        let reserved = charged && self.table.reserve(&mut self.shard, now, forgotten);
        self.state = At::New { reserved };
        self.decision = Some(decision);
        if charged && !reserved {
            match self.table.when_full() {
                WhenKeysFull::Share => {
                    let hold = self.table.shared.hold(now);
                    self.decision = Some(peek(limit, hold.state(), now, cost, keep));
                    self.state = At::Beyond(hold);
                }
                WhenKeysFull::Refuse => {
                    self.decision = Some(self.table.beyond(limit, asked));
                }
            }
        }
    }

    /// Charges what was judged to fit; the level's bit if that was the newcomers' share.
    fn charge(&mut self, now: Tick, cost: u64) -> u64 {
        let Level { limit, key, .. } = self.level;
        match &mut self.state {
            At::Known => {
                self.shard.charge(self.hash, key, limit, now, cost);
                0
            }
            At::New { .. } => {
                let mut state = limit.start(now);
                limit.charge(&mut state, now, cost);
                let hasher = &self.table.hasher;
                self.shard
                    .insert(self.hash, key.clone(), limit, state, hasher);
                0
            }
            At::Beyond(hold) => {
                limit.charge(hold.state_mut(), now, cost);
                1_u64.checked_shl(self.position as u32).unwrap_or(0)
            }
        }
    }

    /// Another level refused: what was judged is not charged, and its numbers say what is left.
    fn withdraw(&mut self, now: Tick, keep: Keep) {
        let Level { limit, key, .. } = self.level;
        if let At::New { reserved: true } = self.state {
            self.table.release();
        }
        if !self.is_granted() {
            return;
        }
        let asked = (now, 0, keep);
        let left = match &self.state {
            At::Known => self.shard.peek(self.hash, key, limit, asked),
            At::New { .. } => None,
            At::Beyond(hold) => Some(peek(limit, hold.state(), now, 0, keep)),
        };
        let left = left.unwrap_or_else(|| self.table.peek_new(limit, asked));
        debug_assert_eq!(left.verdict, Verdict::Granted, "a cost of 0 is granted");
        self.decision = Some(left);
    }

    /// Settles what is kept of another limit: a wait that is told is told of it as clamped now, and has to end.
    fn settle(&mut self, now: Tick) {
        let Level { limit, key, .. } = self.level;
        if let At::Known = self.state {
            self.shard.settle(self.hash, key, limit, now);
        }
    }
}

fn keep(charge: &Charge) -> Keep {
    match charge.keeps_half() {
        true => Keep::Half,
        false => Keep::Nothing,
    }
}

impl Store for Local {
    type Deciding = Deciding;

    fn decide(&self, charge: Charge) -> Deciding {
        let local = self.clone();
        Deciding::new(move || local.rule(charge))
    }

    fn decide_now(&self, charge: Charge) -> Result<Ruling, Charge> {
        Ok(self.rule(charge))
    }

    fn key_counts(&self, level: usize) -> Option<KeyCounts> {
        let (_, table) = self.shared.levels.get(level)?;
        Some(table.counts())
    }

    fn refund(&self, charge: Charge) {
        let Some(at) = charge.at() else { return };
        let (now, cost) = (self.shared.clock.now(), charge.cost());
        for (position, level) in charge.parts().iter().enumerate() {
            let Some((_, table)) = self.table(level) else {
                continue;
            };
            let Level { limit, key, .. } = level;
            let bit = 1_u64.checked_shl(position as u32).unwrap_or(0);
            if charge.beyond & bit > 0 {
                let mut hold = table.shared.hold(now);
                limit.refund_at(hold.state_mut(), at, cost, now);
                continue;
            }
            let hash = table.hash(key);
            let mut shard = table.lock(hash);
            let now = shard.clamp(now);
            shard.change(hash, key, limit, now, |state| {
                limit.refund_at(state, at, cost, now);
            });
        }
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.shared.levels.iter().map(|(name, _)| name);
        f.debug_struct("Local")
            .field("levels", &names.collect::<Vec<_>>())
            .field("clock", &self.shared.clock)
            .finish()
    }
}
