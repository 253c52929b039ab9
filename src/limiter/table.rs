//! All keys of one limit: shards, one bound on their number, and what newcomers share beyond it.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash, RandomState};
use std::time::Duration;

use super::account::Account;
use super::shard::{Forgotten, Shard};
use super::state::{Keep, peek};
use super::status::KeyCounts;
use crate::decision::{Decision, Verdict};
use crate::policy::{Limit, Policy};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use crate::tick::Tick;

/// What happens to a new key when a keyed limiter holds as many as it may, and none of those it visits is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WhenKeysFull {
    /// New keys share one state between them, under the limit of a single key.
    #[default]
    Share,
    /// New keys are refused, with the limit's window as an estimate of when to come back.
    Refuse,
}

#[derive(Debug)]
pub(crate) struct Table<K> {
    shards: Box<[Mutex<Shard<K>>]>,
    /// Keys in all shards; raised before a key is inserted, so it never exceeds `max`.
    count: AtomicU64,
    max: u64,
    /// Keys that were forgotten, and times that there was no room for one.
    forgotten: AtomicU64,
    turned_away: AtomicU64,
    full: WhenKeysFull,
    pub(crate) hasher: RandomState,
    /// What newcomers share at the cap.
    pub(crate) shared: Account,
}

impl<K: Hash + Eq> Table<K> {
    pub(crate) fn new(limit: Limit, max: u64, full: WhenKeysFull, now: Tick) -> Self {
        let shards = max.div_ceil(PER_SHARD).max(FEWEST_SHARDS);
        Self {
            shards: (0..shards).map(|_| Mutex::new(Shard::new(limit))).collect(),
            count: AtomicU64::new(0),
            max,
            forgotten: AtomicU64::new(0),
            turned_away: AtomicU64::new(0),
            full,
            hasher: RandomState::new(),
            shared: Account::new(limit, now),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn counts(&self) -> KeyCounts {
        KeyCounts {
            held: self.len(),
            max: self.max,
            forgotten: self.forgotten.load(Ordering::Relaxed),
            turned_away: self.turned_away.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn when_full(&self) -> WhenKeysFull {
        self.full
    }

    #[inline]
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.hasher.hash_one(key)
    }

    /// The shard of a hash, locked.
    #[inline]
    pub(crate) fn lock(&self, hash: u64) -> MutexGuard<'_, Shard<K>> {
        // The table itself uses the lowest and the highest bits.
        let middle = u128::from(hash >> 16 & u64::from(u32::MAX));
        let index = (middle * self.shards.len() as u128) >> 32;
        self.shards[index as usize].lock()
    }

    pub(crate) fn each_shard(&self, mut visit: impl FnMut(&mut Shard<K>)) {
        for shard in &self.shards {
            visit(&mut shard.lock());
        }
    }

    /// Makes room for one more key, forgetting idle ones; false if there is none, and then nothing is reserved.
    pub(crate) fn reserve(
        &self,
        shard: &mut Shard<K>,
        now: Tick,
        forgotten: &mut Forgotten<K>,
    ) -> bool {
        let before = forgotten.len();
        // A key that has only just become idle may well come again; while there is room it is kept for a while.
        let idle_at = match self.len() < self.max {
            true => now.before(GRACE),
            false => now,
        };
        shard.tidy(idle_at, &self.hasher, forgotten);
        let gone = (forgotten.len() - before) as u64;
        // Relaxed: the counts guard nothing but themselves.
        if gone > 0 {
            self.count.fetch_sub(gone, Ordering::Relaxed);
            self.forgotten.fetch_add(gone, Ordering::Relaxed);
        }
        let one_more = |count| (count < self.max).then_some(count + 1);
        let (order, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        let room = !shard.is_full() && self.count.fetch_update(order, failed, one_more).is_ok();
        if !room {
            self.turned_away.fetch_add(1, Ordering::Relaxed);
        }
        room
    }

    /// Gives back room that was not used after all.
    pub(crate) fn release(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Decides about a key that is not known, and remembers it if it was charged.
    #[cold]
    #[inline(never)]
    pub(crate) fn check_new(
        &self,
        hash: u64,
        key: K,
        own: Option<Limit>,
        (now, cost, keep): (Tick, u64, Keep),
    ) -> Decision {
        // Dropped after the lock is released, as is the key: both are foreign.
        let mut forgotten = Vec::new();
        let mut shard = self.lock(hash);
        let now = shard.clamp(now);
        let limit = own.unwrap_or(shard.limit);
        let asked = (now, cost, keep);
        if let Some(decision) = shard.check(hash, &key, own.as_ref(), asked) {
            return decision;
        }
        let mut state = limit.start(now);
        let decision = peek(&limit, &state, now, cost, keep);
        if !decision.is_granted() || cost == 0 {
            return decision;
        }
        if !self.reserve(&mut shard, now, &mut forgotten) {
            drop(shard);
            return self.beyond(&limit, asked);
        }
        limit.charge(&mut state, now, cost);
        shard.insert(hash, key, &limit, state, &self.hasher);
        decision
    }

    /// Decides about a key for which there is no room.
    pub(crate) fn beyond(&self, limit: &Limit, (now, cost, keep): (Tick, u64, Keep)) -> Decision {
        match self.full {
            WhenKeysFull::Share => self.shared.check_locked(now, cost, keep == Keep::Half),
            WhenKeysFull::Refuse => Decision {
                at: now,
                verdict: Verdict::Refused {
                    retry_after: limit.window(),
                },
                limit: limit.quota(),
                remaining: 0,
                next_unit_in: limit.window(),
                reset_after: Duration::ZERO,
            },
        }
    }

    /// Says what a key that is not known would be told.
    pub(crate) fn peek_new(&self, limit: &Limit, (now, cost, keep): (Tick, u64, Keep)) -> Decision {
        peek(limit, &limit.start(now), now, cost, keep)
    }

    /// Looks at a key without changing anything.
    pub(crate) fn peek<Q>(
        &self,
        key: &Q,
        own: Option<Limit>,
        (now, cost, keep): (Tick, u64, Keep),
    ) -> Decision
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hash(key);
        let mut shard = self.lock(hash);
        let now = shard.clamp(now);
        let limit = own.unwrap_or(shard.limit);
        let asked = (now, cost, keep);
        shard
            .peek(hash, key, &limit, asked)
            .unwrap_or_else(|| self.peek_new(&limit, asked))
    }
}

/// Keys of a shard when all are in use: three quarters of 16,384 slots, with room to purge without growing.
const PER_SHARD: u64 = 12_000;
/// How long idle keys are kept while there is room: rather than made anew for each call of one that comes often.
const GRACE: Duration = Duration::from_secs(1);
/// Shards of a small table, so that threads do not meet.
const FEWEST_SHARDS: u64 = 16;

#[cfg(all(test, not(sluicegate_loom)))]
mod tests {
    use super::*;
    use crate::limiter::shard::{MOST, VISITS};
    use crate::rate::Rate;

    fn table(max: u64) -> Table<u64> {
        let limit = Limit::from(Rate::per_second(1).burst(2));
        Table::new(limit, max, WhenKeysFull::Share, Tick::ZERO)
    }

    fn visited(table: &Table<u64>) -> u64 {
        let mut sum = 0;
        table.each_shard(|shard| sum += shard.visited());
        sum
    }

    fn at(millis: u64) -> Tick {
        Tick::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn no_call_visits_more_than_eight_other_slots_and_no_key_is_lost() {
        let table = table(40_000);
        let mut before = 0;
        for key in 0..40_000_u64 {
            let hash = table.hash(&key);
            let asked = (at(0), 1, Keep::Nothing);
            assert!(table.check_new(hash, key, None, asked).is_granted());
            let after = visited(&table);
            assert!(
                after - before <= VISITS as u64,
                "key {key} visited {}",
                after - before
            );
            before = after;
        }
        assert_eq!(table.len(), 40_000);
        for key in 0..40_000_u64 {
            let known = table.peek(&key, None, (at(0), 0, Keep::Nothing));
            assert_eq!(known.remaining, 1, "key {key} was forgotten");
        }
        assert_eq!(visited(&table), before, "looking visits nobody");
    }

    #[test]
    fn rotating_keys_keep_the_table_small_and_each_call_short() {
        let table = table(30_000);
        let (mut before, mut most, mut largest) = (0, 0, 0);
        for key in 0..300_000_u64 {
            // A key is idle after a second, in which 20,000 come.
            let now = at(key / 20);
            let hash = table.hash(&key);
            let _ = table.check_new(hash, key, None, (now, 1, Keep::Nothing));
            let after = visited(&table);
            most = most.max(after - before);
            before = after;
            if key % 1000 == 0 {
                table.each_shard(|shard| largest = largest.max(shard.len()));
            }
        }
        assert!(most <= VISITS as u64, "visited {most}");
        assert!(
            table.len() <= 30_000 && largest <= MOST,
            "{} keys, {largest} in one",
            table.len()
        );
    }

    #[test]
    fn a_table_that_was_large_gives_its_memory_back() {
        let table = table(100_000);
        let insert = |key: u64, now: Tick| {
            let hash = table.hash(&key);
            table
                .check_new(hash, key, None, (now, 1, Keep::Nothing))
                .is_granted()
        };
        let room = |table: &Table<u64>| {
            let mut sum = 0;
            table.each_shard(|shard| sum += shard.capacity());
            sum
        };
        assert!((0..100_000).all(|key| insert(key, at(0))));
        let full = room(&table);
        assert!((0..60_000).all(|key| insert(1 << 40 | key, at(5000 + key * 10))));
        assert!(table.len() < 2000, "{} keys", table.len());
        assert!(
            room(&table) < full / 8,
            "room for {} of {full}",
            room(&table)
        );
    }
}
