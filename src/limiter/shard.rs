//! A part of the keys behind one lock: the table, what does not fit it, and the lines before keys that are waited for.
//!
//! - S1  Every key is in `table` or, while that is being moved, in `old`; never in both.
//! - S2  Each insertion visits [`VISITS`] slots: of `old` while there is one, moving what is in use, else of `table`. What
//!   is idle is forgotten. So a table grows and shrinks without a pause, and nobody pays for more than that.
//! - S3  `table` is never inserted into when it is full: a new one takes its place first, with room for all that is
//!   moved and all that may come until the move is over.
//!
//! Keys are foreign: they are compared and hashed here, but made and dropped by the caller, without the lock.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};

use hashbrown::HashTable;

use super::cell::{Cell, Slab};
use super::line::Line;
use super::state::{Keep, charge_state, check_state, clamp, clamped, peek, with_state};
use crate::decision::Decision;
use crate::policy::{Gcra, Limit, LimitState, Policy};
use crate::tick::{Fine, Tick};

#[derive(Debug)]
pub(crate) struct Shard<K> {
    /// Limit of the keys that have none of their own.
    pub(crate) limit: Limit,
    table: HashTable<Entry<K>>,
    old: HashTable<Entry<K>>,
    cursor: usize,
    slab: Slab,
    lines: HashMap<K, KeyLine>,
    /// Latest reading that counted.
    last: Tick,
    /// Slots visited so far beside those asked for.
    visited: u64,
}

#[derive(Debug)]
struct Entry<K> {
    key: K,
    cell: Cell,
}

/// The line before one key, and the key's own limit if it has one.
#[derive(Debug, Default)]
pub(crate) struct KeyLine {
    pub(crate) line: Line,
    pub(crate) own: Option<Limit>,
}

/// Keys that were forgotten, to be dropped without the lock.
pub(crate) type Forgotten<K> = Vec<K>;

impl<K: Hash + Eq> Shard<K> {
    pub(crate) fn new(limit: Limit) -> Self {
        Self {
            limit,
            table: HashTable::new(),
            old: HashTable::new(),
            cursor: 0,
            slab: Slab::default(),
            lines: HashMap::new(),
            last: Tick::ZERO,
            visited: 0,
        }
    }

    /// The reading itself, or the last one if that is later.
    #[inline]
    pub(crate) fn clamp(&mut self, now: Tick) -> Tick {
        self.last = self.last.max(now);
        self.last
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len() + self.old.len()
    }

    /// Keys that fit the tables without another allocation.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.table.capacity() + self.old.capacity()
    }

    #[cfg(test)]
    pub(crate) fn visited(&self) -> u64 {
        self.visited
    }

    #[inline]
    fn cell<Q>(&mut self, hash: u64, key: &Q) -> Option<(&mut Cell, &mut Slab)>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let cell = find(&mut self.table, &mut self.old, hash, key)?;
        Some((cell, &mut self.slab))
    }

    /// Charges a bucket of the limit of all, if the cost fits it: the bucket as it was, and whether it was charged.
    ///
    /// `None` if the key is not known, or this is no such bucket: [`check`](Self::check) decides then. Apart from it, so
    /// that the caller works out the decision without the lock, and only what is asked of it. A refusal changes nothing
    /// but what is left of a larger limit, see [`clamp_bucket`].
    #[inline(always)]
    pub(crate) fn charge_bucket<Q>(
        &mut self,
        hash: u64,
        key: &Q,
        (now, cost, keep): (Tick, u64, Keep),
    ) -> Option<(Gcra, Fine, bool)>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let core = self.limit.bucket()?;
        let cell = find(&mut self.table, &mut self.old, hash, key)?;
        let stored = cell.bucket(&self.limit)?;
        let tat = stored.min(core.furthest(now));
        match core.fit(tat, now, cost, keep.of(&core, cost)) {
            Some(_) if cost == 0 => Some((core, tat, true)),
            Some(charged) => cell.set_bucket(charged).then_some((core, tat, true)),
            None => {
                clamp_bucket(cell, &core, (stored, tat), cost);
                Some((core, tat, false))
            }
        }
    }

    /// Decides about a key that is known, by its own limit or that of all; `None` if it is not.
    pub(crate) fn check<Q>(
        &mut self,
        hash: u64,
        key: &Q,
        own: Option<&Limit>,
        (now, cost, keep): (Tick, u64, Keep),
    ) -> Option<Decision>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let limit = own.unwrap_or(&self.limit);
        let cell = find(&mut self.table, &mut self.old, hash, key)?;
        let bucket = limit.bucket().zip(cell.bucket(limit));
        let Some((core, stored)) = bucket else {
            return Some(check_state(cell, &mut self.slab, limit, (now, cost, keep)));
        };
        let tat = stored.min(core.furthest(now));
        let kept = keep.of(&core, cost);
        let charged = core.fit(tat, now, cost, kept);
        match charged {
            Some(charged) if cost == 0 || cell.set_bucket(charged) => {}
            Some(_) => charge_state(cell, &mut self.slab, limit, (now, cost)),
            None => clamp_bucket(cell, &core, (stored, tat), cost),
        }
        Some(core.decision(tat, now, cost, kept, charged.is_some()))
    }

    /// Says what [`check`](Self::check) would.
    pub(crate) fn peek<Q>(
        &mut self,
        hash: u64,
        key: &Q,
        limit: &Limit,
        (now, cost, keep): (Tick, u64, Keep),
    ) -> Option<Decision>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let (cell, slab) = self.cell(hash, key)?;
        Some(cell.look(slab, |state| match clamped(limit, state, now) {
            Some(clamped) => peek(limit, &clamped, now, cost, keep),
            None => peek(limit, state, now, cost, keep),
        }))
    }

    /// Changes the state of a key that is known; `None` if it is not.
    pub(crate) fn change<Q, R>(
        &mut self,
        hash: u64,
        key: &Q,
        limit: &Limit,
        now: Tick,
        change: impl FnOnce(&mut LimitState) -> R,
    ) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let (cell, slab) = self.cell(hash, key)?;
        Some(with_state(cell, slab, limit, now, change))
    }

    /// Charges a key that is known, after [`peek`](Self::peek) has granted it.
    pub(crate) fn charge<Q>(&mut self, hash: u64, key: &Q, limit: &Limit, at: Tick, cost: u64)
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.change(hash, key, limit, at, |state| {
            clamp(limit, state, at);
            limit.charge(state, at, cost);
        });
    }

    /// Settles what a key that is known and was refused keeps of a larger limit.
    pub(crate) fn settle<Q>(&mut self, hash: u64, key: &Q, limit: &Limit, now: Tick)
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.change(hash, key, limit, now, |state| clamp(limit, state, now));
    }

    /// Changes the state of a key that is known, of whatever kind it is.
    pub(crate) fn change_raw(
        &mut self,
        hash: u64,
        key: &K,
        limit: &Limit,
        change: impl FnOnce(&mut LimitState),
    ) {
        if let Some((cell, slab)) = self.cell(hash, key) {
            let mut state = cell.unpack(slab);
            change(&mut state);
            *cell = Cell::pack(limit, state, slab);
        }
    }

    /// Visits a few slots: forgets who was idle at `idle_at`, moves who is in use to a table of the right size.
    pub(crate) fn tidy(
        &mut self,
        idle_at: Tick,
        hasher: &RandomState,
        forgotten: &mut Forgotten<K>,
    ) {
        self.start_move();
        let moving = !self.old.is_empty();
        let (slots, mut target) = match moving {
            true => (&mut self.old, Some(&mut self.table)),
            false => (&mut self.table, None),
        };
        let buckets = slots.num_buckets();
        for _ in 0..VISITS.min(buckets) {
            let index = self.cursor % buckets;
            self.cursor = index + 1;
            self.visited += 1;
            let Ok(slot) = slots.get_bucket_entry(index) else {
                continue;
            };
            let Entry { key, cell } = slot.get();
            // Who is waited for stays: its line stands before the state.
            if cell.is_idle(&self.slab, idle_at) && !self.lines.contains_key(key) {
                let (entry, _) = slot.remove();
                entry.cell.unpack(&mut self.slab);
                forgotten.push(entry.key);
            } else if let Some(table) = &mut target {
                let (entry, _) = slot.remove();
                let hash = hasher.hash_one(&entry.key);
                table.insert_unique(hash, entry, |entry| hasher.hash_one(&entry.key));
            }
        }
        if moving && self.old.is_empty() {
            self.old = HashTable::new();
            self.cursor = 0;
        }
    }

    /// Begins a move if the table is full, or far too large (S3).
    fn start_move(&mut self) {
        let (len, capacity) = (self.table.len(), self.table.capacity());
        let too_large = len < capacity / 4 && capacity > SMALL;
        if !self.old.is_empty() || (len < capacity && !too_large) {
            return;
        }
        // Each insertion during the move visits `VISITS` slots, so there are at most that many of them.
        let until_moved = self.table.num_buckets() / VISITS + 1;
        let next = HashTable::with_capacity(len + until_moved);
        self.old = std::mem::replace(&mut self.table, next);
        self.cursor = 0;
    }

    /// Adds a key that is not known, after [`tidy`](Self::tidy) has made room.
    pub(crate) fn insert(
        &mut self,
        hash: u64,
        key: K,
        limit: &Limit,
        state: LimitState,
        hasher: &RandomState,
    ) {
        let cell = Cell::pack(limit, state, &mut self.slab);
        let entry = Entry { key, cell };
        self.table
            .insert_unique(hash, entry, |entry| hasher.hash_one(&entry.key));
    }

    /// Whether a line stands before any key here.
    #[inline]
    pub(crate) fn has_lines(&self) -> bool {
        !self.lines.is_empty()
    }

    pub(crate) fn lines(&mut self) -> &mut HashMap<K, KeyLine> {
        &mut self.lines
    }

    /// Whether the shard takes no further key, however many the limiter may hold.
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= MOST
    }
}

/// Finds a key where it is (S1).
#[inline]
fn find<'a, K, Q>(
    table: &'a mut HashTable<Entry<K>>,
    old: &'a mut HashTable<Entry<K>>,
    hash: u64,
    key: &Q,
) -> Option<&'a mut Cell>
where
    K: Borrow<Q>,
    Q: Eq + ?Sized,
{
    let same = |entry: &Entry<K>| entry.key.borrow() == key;
    let entry = match table.find_mut(hash, same) {
        Some(entry) => entry,
        None if old.is_empty() => return None,
        None => old.find_mut(hash, same)?,
    };
    Some(&mut entry.cell)
}

/// Stores the instant that a refusal went by, if the one that was stored comes from a larger limit.
///
/// Clamped anew at each refusal, it would stay as far away as at first, and whoever waits as told would wait for ever.
/// Who is told to go away has nothing to wait for.
#[inline(always)]
fn clamp_bucket(cell: &mut Cell, core: &Gcra, (stored, tat): (Fine, Fine), cost: u64) {
    if tat < stored && cost <= core.depth() {
        // It fits where a later instant was.
        cell.set_bucket(tat);
    }
}

/// Slots that an insertion visits.
pub(crate) const VISITS: usize = 8;
/// Keys of one shard at most.
pub(crate) const MOST: usize = 16 << 10;
/// Tables with no more room than this are left as they are.
const SMALL: usize = 56;
