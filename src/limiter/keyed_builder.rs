//! Settings of a keyed limiter.

use std::fmt;
use std::hash::Hash;

use super::keyed::{KeyedLimiter, Shared, starts_full};
use super::table::{Table, WhenKeysFull};
use crate::clock::{AnyClock, Clock, TokioClock};
use crate::error::BuildError;
use crate::policy::Limit;
use crate::sync::Arc;

/// Limit of one key, if it has its own.
pub(super) type LimitFor<K> = Box<dyn Fn(&K) -> Option<Limit> + Send + Sync>;

/// Builder of a [`KeyedLimiter`].
#[must_use]
pub struct KeyedLimiterBuilder<K> {
    limit: Limit,
    max_keys: u64,
    when_full: WhenKeysFull,
    limit_for: Option<LimitFor<K>>,
    clock: AnyClock,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> KeyedLimiterBuilder<K> {
    pub(super) fn new(limit: Limit) -> Self {
        Self {
            limit,
            max_keys: MAX_KEYS,
            when_full: WhenKeysFull::default(),
            limit_for: None,
            clock: AnyClock::of(TokioClock),
        }
    }

    /// Sets how many keys are remembered at most; default 100,000.
    ///
    /// Raising it costs memory only as keys come: about 33 bytes each for `u64` keys under a bucket. Lowering it lets
    /// newcomers share, or be refused, sooner.
    pub const fn max_keys(mut self, keys: u64) -> Self {
        self.max_keys = keys;
        self
    }

    /// Sets what happens to new keys at the cap; default [`WhenKeysFull::Share`].
    pub const fn when_keys_full(mut self, choice: WhenKeysFull) -> Self {
        self.when_full = choice;
        self
    }

    /// Sets a function that gives a key a limit of its own; `None` means the common one.
    ///
    /// It is called for every question, without a lock, and with an owned key: keys asked for in borrowed form are
    /// cloned for it. Its limits start full, whatever `initial` they have. If it panics, nothing has been charged.
    ///
    /// A key has one count, so it should have one limit at a time. When that changes, with a user's plan for instance,
    /// what is stored is clamped by the first refusal under the new one: a key asked for in turn under a large and a
    /// small limit would so forget what it used of the large one.
    pub fn limit_for(
        mut self,
        limit_for: impl Fn(&K) -> Option<Limit> + Send + Sync + 'static,
    ) -> Self {
        self.limit_for = Some(Box::new(limit_for));
        self
    }

    /// Sets the clock; default [`TokioClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = AnyClock::of(clock);
        self
    }

    /// Builds the limiter.
    ///
    /// # Errors
    /// If the limit does not start full, or the number of keys is 0 or above 2^30.
    pub fn build(self) -> Result<KeyedLimiter<K>, BuildError> {
        starts_full(&self.limit)?;
        check_max_keys(self.max_keys)?;
        let now = self.clock.now();
        let table = Table::new(self.limit, self.max_keys, self.when_full, now);
        Ok(KeyedLimiter {
            shared: Arc::new(Shared {
                table,
                limit_for: self.limit_for,
                clock: self.clock,
            }),
        })
    }
}

pub(super) fn check_max_keys(keys: u64) -> Result<(), BuildError> {
    if (1..=MOST_KEYS).contains(&keys) {
        return Ok(());
    }
    let rule = format!("at least 1 and at most {MOST_KEYS} keys");
    Err(BuildError::setting("max_keys", keys, rule))
}

impl<K> fmt::Debug for KeyedLimiterBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedLimiterBuilder")
            .field("limit", &self.limit)
            .field("max_keys", &self.max_keys)
            .field("when_keys_full", &self.when_full)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

/// About 3 MB of numbers under buckets.
pub(super) const MAX_KEYS: u64 = 100_000;
/// Beyond this even the empty parts of the table would be worth asking about.
const MOST_KEYS: u64 = 1 << 30;
