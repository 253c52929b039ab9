//! Several limits, each with its own key, decided as one.

use std::fmt;

use super::hierarchy_builder::{HierarchyBuilder, LevelPlan, Plan};
use super::keyed::starts_full;
use super::local::Local;
use super::ruling::Ruling;
use super::status::LevelStatus;
use super::store::{Admission, Charge, Level, Store};
use crate::error::BuildError;
use crate::policy::Limit;
use crate::sync::Arc;

/// Limits at several levels, of which all grant or none is charged; a handle that shares its state with its clones.
///
/// Every level has a limit and a function that says whom it counts in a request of type `C`: a user, an address, a
/// tenant with an endpoint, or everybody (`()`). A function that returns `None` leaves its level out for this request.
/// Keys of different levels never meet: the user "everybody" is not everybody.
///
/// In this process all levels are judged at one instant and charged together, under locks that are taken in a fixed
/// order, innermost level first: declare the levels that more requests share before those that fewer do. A refusal
/// changes nothing at any level, is never caused by a charge that is taken back later, and names the level with the
/// longest wait. The state may live elsewhere, see [`Store`].
///
/// # Examples
/// The levels of a public interface; the last falls back to the address for those who have not signed in.
/// ```
/// use sluicegate::{FixedWindow, Hierarchy, Key, ManualClock, Rate, SlidingLog};
/// use std::net::IpAddr;
/// use std::time::Duration;
///
/// struct Request { address: IpAddr, user: Option<u64>, route: &'static str }
///
/// let minute = Duration::from_secs(60);
/// let hierarchy = Hierarchy::<Request>::builder()
///     .level("global", Rate::per_second(1000).burst(10_000), |_| ())
///     .level("ip", SlidingLog::new(100, minute)?, |request| request.address)
///     .level("user", Rate::per_second(50).burst(500), |request| request.user)
///     .level("endpoint", FixedWindow::new(50, minute)?, |request| {
///         (request.user.map_or(Key::from(request.address), Key::from), request.route)
///     })
///     .clock(ManualClock::new())
///     .build()?;
///
/// let anonymous = Request { address: [192, 0, 2, 1].into(), user: None, route: "GET /reports" };
/// assert!(hierarchy.check(&anonymous, 50).is_granted());
/// let refused = hierarchy.check(&anonymous, 1);
/// assert_eq!(refused.binding(), Some("endpoint"));
/// assert_eq!(refused.retry_after(), Some(minute));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Hierarchy<C, S = Local> {
    plan: Arc<Plan<C>>,
    store: S,
}

impl<C> Hierarchy<C, Local> {
    /// Starts a builder without levels.
    pub fn builder() -> HierarchyBuilder<C> {
        HierarchyBuilder::new()
    }

    /// Charges `cost` to every level, or to none if one refuses.
    ///
    /// # Panics
    /// If a key function does; nothing is charged then.
    pub fn check(&self, context: &C, cost: u64) -> Ruling {
        self.store.rule(self.charge_of(context, cost))
    }

    /// Says what [`check`](Self::check) would, and charges nothing; with cost 0 it tells what is left.
    pub fn peek(&self, context: &C, cost: u64) -> Ruling {
        self.store.peek(self.charge_of(context, cost))
    }

    /// Keys that each level remembers now, outermost first.
    #[must_use]
    pub fn keys(&self) -> Vec<(Arc<str>, u64)> {
        let keys = |(index, level): (usize, &LevelPlan<C>)| {
            (Arc::clone(&level.name), self.store.len(index))
        };
        self.plan.levels.iter().enumerate().map(keys).collect()
    }
}

impl<C, S: Store> Hierarchy<C, S> {
    pub(super) fn new(plan: Plan<C>, store: S) -> Self {
        Self {
            plan: Arc::new(plan),
            store,
        }
    }

    /// Charges `cost` to every level, wherever its state lives, or to none if one refuses.
    ///
    /// The key functions run when this is first polled.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it gives back what it may have charged.
    pub async fn decide(&self, context: &C, cost: u64) -> Ruling {
        let charge = self.charge_of(context, cost);
        self.store.decide(charge).await
    }

    /// Gives a granted charge back to every level. Never waits.
    ///
    /// Of a level whose window has passed since, and of a charge that was not granted, nothing is given back.
    pub fn refund(&self, charge: Charge) {
        self.store.refund(charge);
    }

    /// Changes the limit of a level, for all its keys that have none of their own.
    ///
    /// What is stored stays: a bucket's instant counts at the new rate and is clamped to the new burst when it is charged
    /// or refused next, as the end of a fixed window is to the new window; another kind of limit starts fresh.
    ///
    /// # Errors
    /// If there is no such level, the limit does not start full, or the store cannot keep it; nothing is changed then.
    pub fn set_limit(&self, level: &str, limit: impl Into<Limit>) -> Result<(), BuildError> {
        let limit = limit.into();
        starts_full(&limit)?;
        let index = self.plan.position(level)?;
        let mut levels = self.levels();
        levels[index].1 = limit;
        self.store.accepts(&levels)?;
        let mut limits = self.plan.limits.lock();
        let mut changed = limits.to_vec();
        changed[index] = limit;
        *limits = changed.into();
        Ok(())
    }

    /// Each level's name and limit, outermost first.
    #[must_use]
    pub fn levels(&self) -> Vec<(Arc<str>, Limit)> {
        let limits = Arc::clone(&self.plan.limits.lock());
        let names = self.plan.levels.iter().map(|level| Arc::clone(&level.name));
        names.zip(limits.iter().copied()).collect()
    }

    /// Asks every key function. Foreign code, so no lock is held.
    fn charge_of(&self, context: &C, cost: u64) -> Charge {
        let limits = Arc::clone(&self.plan.limits.lock());
        let level = |(index, level): (usize, &LevelPlan<C>)| {
            let key = (level.key)(context)?;
            let own = level.limit_for.as_ref();
            let own = own.and_then(|limit_for| limit_for(context));
            Some(Level {
                name: Arc::clone(&level.name),
                limit: own.map_or(limits[index], Limit::starting_full),
                key,
                index,
            })
        };
        let levels = self.plan.levels.iter().enumerate().filter_map(level);
        Charge::of(cost, levels.collect())
    }
}

impl<C: 'static, S: Store> Admission for Hierarchy<C, S> {
    type Context = C;
    type Deciding = S::Deciding;

    fn charge(&self, context: &C, cost: u64) -> Charge {
        self.charge_of(context, cost)
    }

    fn admit(&self, charge: Charge) -> S::Deciding {
        self.store.decide(charge)
    }

    fn admit_now(&self, charge: Charge) -> Result<Ruling, Charge> {
        self.store.decide_now(charge)
    }

    fn give_back(&self, charge: Charge) {
        self.store.refund(charge);
    }

    fn status(&self) -> Vec<LevelStatus> {
        let levels = self.levels().into_iter().enumerate();
        levels
            .map(|(index, (name, limit))| LevelStatus {
                name,
                limit,
                keys: self.store.key_counts(index),
            })
            .collect()
    }
}

impl<C, S: Clone> Clone for Hierarchy<C, S> {
    fn clone(&self) -> Self {
        Self {
            plan: Arc::clone(&self.plan),
            store: self.store.clone(),
        }
    }
}

impl<C, S: fmt::Debug> fmt::Debug for Hierarchy<C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.plan.levels.iter().map(|level| &level.name);
        f.debug_struct("Hierarchy")
            .field("levels", &names.collect::<Vec<_>>())
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
