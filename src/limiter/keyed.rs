//! One limit per key.

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;

use super::keyed_builder::{KeyedLimiterBuilder, LimitFor};
use super::keyed_line;
use super::shard::Shard;
use super::state::Keep;
use super::table::Table;
use crate::clock::AnyClock;
use crate::decision::Decision;
use crate::error::{AcquireError, BuildError};
use crate::policy::Limit;
use crate::sync::{Arc, MutexGuard};
use crate::tick::Tick;

/// One limit for each key, in bounded memory; a handle that shares its keys with its clones.
///
/// Keys that have been idle long enough to be as good as new are forgotten in small steps: each new key visits eight
/// slots of its part of the table, whose parts hold at most 16,384 keys, and no call ever visits more. A bucket or a
/// fixed window takes 16 bytes beside its key. The hash is keyed at random, so nobody can choose keys that collide.
///
/// There is a cap on the number of keys. Beyond it, newcomers share one state between them or are refused, see
/// [`WhenKeysFull`](crate::WhenKeysFull); known keys are served as ever. Buckets are exact at every rate up to 1e9/s per key.
///
/// Keys are asked for in borrowed form: `check("ada", 1)` for a `KeyedLimiter<String>`. They are cloned when they are
/// new, and hashed and compared under a lock, so these must not call back into the limiter.
///
/// # Examples
/// ```
/// use sluicegate::{KeyedLimiter, Rate};
///
/// let limiter = KeyedLimiter::<String>::builder(Rate::per_second(10).burst(2))
///     .max_keys(10_000)
///     .build()?;
/// assert!(limiter.check("ada", 2).is_granted());
/// assert!(!limiter.check("ada", 1).is_granted());
/// assert!(limiter.check("grace", 1).is_granted());
/// assert_eq!(limiter.len(), 2);
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
pub struct KeyedLimiter<K> {
    pub(super) shared: Arc<Shared<K>>,
}

pub(super) struct Shared<K> {
    pub(super) table: Table<K>,
    pub(super) limit_for: Option<LimitFor<K>>,
    pub(super) clock: AnyClock,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> KeyedLimiter<K> {
    /// Starts a builder whose limit holds for every key that has none of its own.
    pub fn builder(limit: impl Into<Limit>) -> KeyedLimiterBuilder<K> {
        KeyedLimiterBuilder::new(limit.into())
    }

    /// Charges `cost` to the key if it fits now; a refusal changes nothing.
    #[inline(always)] // What the caller does not read of the decision is then not worked out.
    pub fn check<Q>(&self, key: &Q, cost: u64) -> Decision
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        self.check_keeping(key, cost, Keep::Nothing)
    }

    #[inline(always)]
    pub(super) fn check_keeping<Q>(&self, key: &Q, cost: u64, keep: Keep) -> Decision
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let own = self.shared.own_limit(key);
        let table = &self.shared.table;
        let hash = table.hash(key);
        let now = self.shared.clock.now();
        let mut shard = table.lock(hash);
        let now = shard.clamp(now);
        let asked = (now, cost, keep);
        if own.is_none()
            && !shard.has_lines()
            && let Some((core, tat, granted)) = shard.charge_bucket(hash, key, asked)
        {
            drop(shard);
            return core.decision(tat, now, cost, keep.of(&core, cost), granted);
        }
        self.check_otherwise(shard, hash, key, own, asked)
    }

    /// Decides about a key that has a limit of its own, no bucket, a line, or no state yet.
    #[inline(never)]
    fn check_otherwise<Q>(
        &self,
        mut shard: MutexGuard<'_, Shard<K>>,
        hash: u64,
        key: &Q,
        own: Option<Limit>,
        asked: (Tick, u64, Keep),
    ) -> Decision
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        if shard.has_lines() {
            drop(shard);
            return keyed_line::check(&self.shared, hash, key.to_owned(), own, asked);
        }
        if let Some(decision) = shard.check(hash, key, own.as_ref(), asked) {
            return decision;
        }
        drop(shard);
        let table = &self.shared.table;
        table.check_new(hash, key.to_owned(), own, asked)
    }

    /// Says what [`check`](Self::check) would, and charges nothing; with cost 0 it tells what is left.
    ///
    /// Of a key that is not known it tells what a new one has; whether there is room for it is seen when it is charged.
    pub fn peek<Q>(&self, key: &Q, cost: u64) -> Decision
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let own = self.shared.own_limit(key);
        let now = self.shared.clock.now();
        let asked = (now, cost, Keep::Nothing);
        match keyed_line::peek(&self.shared, key, asked) {
            Some(decision) => decision,
            None => self.shared.table.peek(key, own, asked),
        }
    }

    /// Gives a cost back to the key, charged at the decision's [`at`](Decision::at).
    ///
    /// After the limit's window, and for a key that is not known, that changes nothing.
    pub fn refund<Q>(&self, key: &Q, charged_at: Tick, cost: u64)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let own = self.shared.own_limit(key);
        let now = self.shared.clock.now();
        keyed_line::refund(&self.shared, key, own, (now, charged_at, cost));
    }

    /// Waits in the key's line until `cost` is granted.
    ///
    /// Beyond the cap on keys, newcomers wait in one line for what they share.
    ///
    /// # Errors
    /// [`AcquireError::Never`], at once, if the cost can never be granted; [`AcquireError::TooLate`], at once, if there is
    /// no room for the key and newcomers are refused.
    ///
    /// # Cancel safety
    /// Dropping the future gives up its place, or the grant if it came already, and lets those behind move up. The place
    /// is that of the first poll.
    pub async fn acquire<Q>(&self, key: &Q, cost: u64) -> Result<(), AcquireError>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let owned = key.to_owned();
        keyed_line::acquire(&self.shared, owned, cost).await
    }

    /// Changes the limit of all keys that have none of their own, at once.
    ///
    /// What is stored stays: a bucket's instant counts at the new rate and is clamped to the new burst when it is charged
    /// or refused next, as the end of a fixed window is to the new window; another kind of limit starts fresh.
    /// Everybody who waits is planned anew, and refused if the cost no longer fits.
    ///
    /// # Errors
    /// If the limit does not start full; nothing is changed then.
    pub fn set_limit(&self, limit: impl Into<Limit>) -> Result<(), BuildError> {
        let limit = limit.into();
        starts_full(&limit)?;
        keyed_line::set_limit(&self.shared, limit);
        Ok(())
    }

    /// The limit that holds for this key now.
    pub(super) fn limit_of(&self, key: &K) -> Limit {
        let table = &self.shared.table;
        let own = self.shared.own_limit(key);
        own.unwrap_or_else(|| table.lock(table.hash(key)).limit)
    }

    /// Keys that are remembered now.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.shared.table.len()
    }

    /// Whether no key is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Shared<K> {
    /// The key's own limit. Foreign code, so it is asked for before any lock.
    #[inline]
    pub(super) fn own_limit<Q>(&self, key: &Q) -> Option<Limit>
    where
        Q: ToOwned<Owned = K> + ?Sized,
    {
        let limit_for = self.limit_for.as_ref()?;
        limit_for(&key.to_owned()).map(Limit::starting_full)
    }
}

/// Refuses a limit that could not be forgotten without taking its tokens.
pub(super) fn starts_full(limit: &Limit) -> Result<(), BuildError> {
    if limit.starts_full() {
        return Ok(());
    }
    let rule = "a limit per key starts with its full burst: an idle key is forgotten, and would start anew";
    Err(BuildError::setting("limit", limit, rule))
}

impl<K> Clone for KeyedLimiter<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K> fmt::Debug for KeyedLimiter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedLimiter")
            .field("clock", &self.shared.clock)
            .finish_non_exhaustive()
    }
}
