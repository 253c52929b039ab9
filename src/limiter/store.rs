//! What stands between a hierarchy and whoever uses it: a charge, and the places that can decide about it.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::ruling::Ruling;
use super::solo::Solo;
use super::status::{KeyCounts, LevelStatus};
use crate::error::BuildError;
use crate::key::Key;
use crate::policy::Limit;
use crate::sync::Arc;
use crate::tick::Tick;

/// Place where the state of a hierarchy's levels lives, and where they are decided together.
///
/// [`Local`](crate::Local) is this process. A remote store decides with its own clock and in one step: all levels are
/// charged or none.
pub trait Store: Clone + Send + Sync + 'static {
    /// A decision under way. Dropped before it is done, it gives back what it may have charged.
    type Deciding: Future<Output = Ruling> + Send + 'static;

    /// Charges all levels, or none if one of them refuses.
    fn decide(&self, charge: Charge) -> Self::Deciding;

    /// Does the same at once, where that needs no waiting.
    ///
    /// # Errors
    /// The charge, untouched, if it has to be waited for; so does a store that does not say otherwise.
    fn decide_now(&self, charge: Charge) -> Result<Ruling, Charge> {
        Err(charge)
    }

    /// Gives a granted charge back. Never waits: a remote store sends it from a task.
    fn refund(&self, charge: Charge);

    /// Says whether it can keep these levels, each with its name and limit; asked before a hierarchy is built on it or
    /// changed. By default it can.
    ///
    /// # Errors
    /// That names what it cannot keep.
    fn accepts(&self, levels: &[(Arc<str>, Limit)]) -> Result<(), BuildError> {
        let _ = levels;
        Ok(())
    }

    /// Counts of the keys of a level, by its position; `None` where they are not known, as from a remote store.
    fn key_counts(&self, level: usize) -> Option<KeyCounts> {
        let _ = level;
        None
    }
}

/// Whatever can be asked at a door: a hierarchy over any store, or a limiter that stands alone.
pub trait Admission: Clone + Send + Sync + 'static {
    /// What is known of whoever asks.
    type Context;

    /// A decision under way. Dropped before it is done, it gives back what it may have charged.
    type Deciding: Future<Output = Ruling> + Send + 'static;

    /// Works out whom a cost would be charged to. Charges nothing.
    fn charge(&self, context: &Self::Context, cost: u64) -> Charge;

    /// Charges it, or refuses.
    fn admit(&self, charge: Charge) -> Self::Deciding;

    /// Does the same at once, where that needs no waiting: a door then has no future to keep.
    ///
    /// # Errors
    /// The charge, untouched, if it has to be waited for.
    fn admit_now(&self, charge: Charge) -> Result<Ruling, Charge> {
        Err(charge)
    }

    /// Charges a cost at once and for good, keeping no record of it; only a limiter of a single level can.
    ///
    /// `false` if it does not fit now, or this is no such limiter: then nothing was charged.
    fn spend_now(&self, context: &Self::Context, cost: u64) -> bool {
        let _ = (context, cost);
        false
    }

    /// Charges a cost at once, and keeps what a record of it could be made of; only a limiter of a single level can.
    ///
    /// It is [`charge`](Self::charge) and [`admit_now`](Self::admit_now) in one. `None` if it cannot: then nothing was
    /// charged.
    fn charge_now(&self, context: &Self::Context, cost: u64) -> Option<Solo> {
        let _ = (context, cost);
        None
    }

    /// Gives a granted charge back. Never waits.
    fn give_back(&self, charge: Charge);

    /// Its levels as they stand, outermost first, for whoever watches it; none if it does not say.
    fn status(&self) -> Vec<LevelStatus> {
        Vec::new()
    }
}

/// An admission that decides at once, because all its state is in this process.
pub trait Immediate: Admission {
    /// Charges it, or refuses.
    fn rule(&self, charge: Charge) -> Ruling;
}

impl<A: Admission<Deciding = Deciding>> Immediate for A {
    fn rule(&self, charge: Charge) -> Ruling {
        match self.admit_now(charge) {
            Ok(ruling) => ruling,
            Err(charge) => self.admit(charge).now(),
        }
    }
}

/// A cost, and every level that it is charged to.
///
/// The charge of a granted [`Ruling`] carries the instant of the clock that decided it, and can be given back. One that
/// was not granted carries none: giving that back changes nothing.
#[derive(Clone)]
pub struct Charge {
    cost: u64,
    at: Option<Tick>,
    half: bool,
    levels: Arc<[Level]>,
    /// What a limiter or a store needs to find the charge again.
    pub(super) payload: Option<Arc<dyn Any + Send + Sync>>,
    /// Levels, by position, at which the cap on keys was reached and the newcomers' share was charged.
    pub(super) beyond: u64,
    /// Number by which whoever watches finds again what the request was about.
    #[cfg(feature = "metrics")]
    mark: u32,
}

/// One level of a charge.
#[derive(Clone, Debug)]
pub(super) struct Level {
    pub(super) name: Arc<str>,
    pub(super) limit: Limit,
    pub(super) key: Key,
    /// Position among the levels of the hierarchy.
    pub(super) index: usize,
}

impl Charge {
    /// Makes a charge by hand, for stores and tests; a hierarchy makes its own.
    pub fn new<N: Into<Arc<str>>>(
        cost: u64,
        levels: impl IntoIterator<Item = (N, Limit, Key)>,
    ) -> Self {
        let level = |(index, (name, limit, key)): (usize, (N, Limit, Key))| Level {
            name: name.into(),
            limit,
            key,
            index,
        };
        Self::of(cost, levels.into_iter().enumerate().map(level).collect())
    }

    pub(super) fn of(cost: u64, levels: Arc<[Level]>) -> Self {
        Self {
            cost,
            at: None,
            half: false,
            levels,
            payload: None,
            beyond: 0,
            #[cfg(feature = "metrics")]
            mark: 0,
        }
    }

    /// Units that are charged to each level.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Instant of the deciding clock at which it was granted; `None` if it was not, or not yet.
    #[must_use]
    pub fn at(&self) -> Option<Tick> {
        self.at
    }

    /// Each level's name, limit and key, outermost first. Levels that do not apply are not among them.
    pub fn levels(&self) -> impl ExactSizeIterator<Item = (&str, &Limit, &Key)> {
        self.levels
            .iter()
            .map(|level| (&*level.name, &level.limit, &level.key))
    }

    /// Whether bucket levels keep `min(floor(burst / 2), burst - cost)` units after this charge.
    ///
    /// A door whose queue is under pressure asks for it: bursts are cut, the rate is not. Windows, log and counter are
    /// not affected.
    #[must_use]
    pub fn keeps_half(&self) -> bool {
        self.half
    }

    /// Lets bucket levels keep half of their burst, see [`keeps_half`](Self::keeps_half).
    #[must_use]
    pub fn keep_half(mut self) -> Self {
        self.half = true;
        self
    }

    /// Each level's name, limit and key, outermost first.
    #[cfg(feature = "redis")]
    pub(crate) fn named(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Limit, &Key)> {
        self.levels
            .iter()
            .map(|level| (&level.name, &level.limit, &level.key))
    }

    /// What a store keeps with a charge, to find it again when it is given back.
    #[cfg(feature = "redis")]
    pub(crate) fn receipt<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.payload.as_ref()?.downcast_ref()
    }

    #[cfg(feature = "redis")]
    pub(crate) fn with_receipt<T: Send + Sync + 'static>(mut self, receipt: T) -> Self {
        self.payload = Some(Arc::new(receipt));
        self
    }

    /// The same levels and keys, for another cost that was not charged yet.
    #[cfg(feature = "tower")]
    pub(crate) fn again(&self, cost: u64) -> Self {
        Self {
            cost,
            at: None,
            half: false,
            levels: Arc::clone(&self.levels),
            payload: self.payload.clone(),
            beyond: 0,
            #[cfg(feature = "metrics")]
            mark: self.mark,
        }
    }

    /// Number that a watcher gave it; 0 if none did.
    #[cfg(feature = "metrics")]
    pub(crate) const fn mark(&self) -> u32 {
        self.mark
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn marked(mut self, mark: u32) -> Self {
        self.mark = mark;
        self
    }

    pub(super) fn stamped(mut self, at: Option<Tick>) -> Self {
        self.at = at;
        self
    }

    pub(super) fn parts(&self) -> &Arc<[Level]> {
        &self.levels
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charge")
            .field("cost", &self.cost)
            .field("at", &self.at)
            .field("keeps_half", &self.half)
            .field("levels", &self.levels)
            .finish_non_exhaustive()
    }
}

/// Decision of a limiter in this process: made when it is first polled, and done then.
#[must_use = "nothing is decided until it is polled"]
pub struct Deciding(Option<Box<dyn FnOnce() -> Ruling + Send>>);

impl Deciding {
    pub(super) fn new(decide: impl FnOnce() -> Ruling + Send + 'static) -> Self {
        Self(Some(Box::new(decide)))
    }

    /// Decides without a task.
    pub(crate) fn now(mut self) -> Ruling {
        let decide = self.0.take().expect("it has not been polled yet");
        decide()
    }
}

impl Future for Deciding {
    type Output = Ruling;

    /// # Panics
    /// If it is polled again after it was done.
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Ruling> {
        let decide = self
            .0
            .take()
            .expect("a decision is polled until it is done");
        Poll::Ready(decide())
    }
}

impl fmt::Debug for Deciding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deciding")
            .field("done", &self.0.is_none())
            .finish()
    }
}
