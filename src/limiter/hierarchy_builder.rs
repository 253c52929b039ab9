//! Levels and settings of a hierarchy.

use std::fmt;

use super::hierarchy::Hierarchy;
use super::keyed::starts_full;
use super::keyed_builder::{LimitFor, MAX_KEYS, check_max_keys};
use super::local::Local;
use super::store::Store;
use super::table::WhenKeysFull;
use crate::clock::{AnyClock, Clock, TokioClock};
use crate::error::BuildError;
use crate::key::{IntoKey, Key};
use crate::policy::Limit;
use crate::sync::{Arc, Mutex};

/// Builder of a [`Hierarchy`].
#[must_use]
pub struct HierarchyBuilder<C> {
    levels: Vec<(LevelPlan<C>, Limit)>,
    unknown: Option<String>,
    max_keys: u64,
    when_full: WhenKeysFull,
    clock: AnyClock,
}

/// Whom each level counts, and by which limit.
pub(super) struct Plan<C> {
    pub(super) levels: Vec<LevelPlan<C>>,
    pub(super) limits: Mutex<Arc<[Limit]>>,
}

pub(super) struct LevelPlan<C> {
    pub(super) name: Arc<str>,
    pub(super) key: KeyOf<C>,
    pub(super) limit_for: Option<LimitFor<C>>,
}

/// Whom a level counts in a request.
type KeyOf<C> = Box<dyn Fn(&C) -> Option<Key> + Send + Sync>;

impl<C> HierarchyBuilder<C> {
    pub(super) fn new() -> Self {
        Self {
            levels: Vec::new(),
            unknown: None,
            max_keys: MAX_KEYS,
            when_full: WhenKeysFull::default(),
            clock: AnyClock::of(TokioClock),
        }
    }

    /// Adds a level inside those before it.
    ///
    /// `key` says whom it counts: any [`Key`], a tuple, `()` for everybody, or an `Option`, whose `None` leaves the level
    /// out for this request.
    pub fn level<K: IntoKey>(
        mut self,
        name: impl Into<Arc<str>>,
        limit: impl Into<Limit>,
        key: impl Fn(&C) -> K + Send + Sync + 'static,
    ) -> Self {
        let level = LevelPlan {
            name: name.into(),
            key: Box::new(move |context| key(context).into_key()),
            limit_for: None,
        };
        self.levels.push((level, limit.into()));
        self
    }

    /// Sets a function that gives requests at a level a limit of their own, by plan for instance; `None` means the
    /// level's. Such limits start full, whatever `initial` they have.
    ///
    /// A key has one count, so its requests should have one limit at a time, here or on a remote store. When that
    /// changes, what is stored is clamped by the first refusal under the new one: a key asked for in turn under a large
    /// and a small limit would so forget what it used of the large one. Where plans share a level, the plan belongs into
    /// the key.
    pub fn limit_for(
        mut self,
        level: &str,
        limit_for: impl Fn(&C) -> Option<Limit> + Send + Sync + 'static,
    ) -> Self {
        let mut levels = self.levels.iter_mut();
        match levels.find(|(plan, _)| &*plan.name == level) {
            Some((plan, _)) => plan.limit_for = Some(Box::new(limit_for)),
            None => self.unknown = Some(level.to_owned()),
        }
        self
    }

    /// Sets the clock of a hierarchy in this process; default [`TokioClock`]. A remote store has its own.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = AnyClock::of(clock);
        self
    }

    /// Sets how many keys each level remembers at most in this process; default 100,000.
    pub const fn max_keys(mut self, keys: u64) -> Self {
        self.max_keys = keys;
        self
    }

    /// Sets what happens to new keys at the cap; default [`WhenKeysFull::Share`].
    pub const fn when_keys_full(mut self, choice: WhenKeysFull) -> Self {
        self.when_full = choice;
        self
    }

    /// Builds a hierarchy whose state lives in this process.
    ///
    /// # Errors
    /// If two levels have the same name or one has none, a level's limit does not start full, [`limit_for`](Self::limit_for)
    /// named no level, or the number of keys is 0 or above 2^30.
    pub fn build(mut self) -> Result<Hierarchy<C>, BuildError> {
        self.check()?;
        check_max_keys(self.max_keys)?;
        let clock = std::mem::replace(&mut self.clock, AnyClock::of(TokioClock));
        let keys = (self.max_keys, self.when_full);
        let levels = self.levels.iter();
        let levels = levels.map(|(level, limit)| (Arc::clone(&level.name), *limit));
        let store = Local::new(levels, keys, clock);
        Ok(Hierarchy::new(self.plan(), store))
    }

    /// Builds a hierarchy whose state lives in `store`.
    ///
    /// # Errors
    /// If two levels have the same name or one has none, a level's limit does not start full,
    /// [`limit_for`](Self::limit_for) named no level, or the store cannot keep a level.
    pub fn build_on<S: Store>(self, store: S) -> Result<Hierarchy<C, S>, BuildError> {
        self.check()?;
        let levels = self.levels.iter();
        let levels = levels.map(|(level, limit)| (Arc::clone(&level.name), *limit));
        store.accepts(&levels.collect::<Vec<_>>())?;
        Ok(Hierarchy::new(self.plan(), store))
    }

    fn check(&self) -> Result<(), BuildError> {
        if let Some(level) = &self.unknown {
            let rule = "limit_for names a level that was added before";
            return Err(BuildError::setting("limit_for", format!("{level:?}"), rule));
        }
        for (index, (level, limit)) in self.levels.iter().enumerate() {
            starts_full(limit)?;
            let before = self.levels[..index].iter();
            let twice = before.filter(|(other, _)| other.name == level.name).count();
            if twice > 0 || level.name.is_empty() {
                let rule = "every level has a name of its own";
                return Err(BuildError::setting(
                    "level",
                    format!("{:?}", level.name),
                    rule,
                ));
            }
        }
        Ok(())
    }

    fn plan(self) -> Plan<C> {
        let (levels, limits): (Vec<_>, Vec<_>) = self.levels.into_iter().unzip();
        Plan {
            levels,
            limits: Mutex::new(limits.into()),
        }
    }
}

impl<C> Plan<C> {
    pub(super) fn position(&self, level: &str) -> Result<usize, BuildError> {
        let position = self.levels.iter().position(|plan| &*plan.name == level);
        position.ok_or_else(|| {
            let rule = "there is no level of this name";
            BuildError::setting("level", format!("{level:?}"), rule)
        })
    }
}

impl<C> fmt::Debug for HierarchyBuilder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels = self.levels.iter();
        let levels = levels.map(|(level, limit)| (&level.name, limit));
        f.debug_struct("HierarchyBuilder")
            .field("levels", &levels.collect::<Vec<_>>())
            .field("max_keys", &self.max_keys)
            .field("when_keys_full", &self.when_full)
            .field("clock", &self.clock)
            .finish()
    }
}
