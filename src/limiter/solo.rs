//! A charge to one level, before anybody asks for a record of it.

use super::ruling::Ruling;
use super::store::Charge;
use crate::decision::Decision;
use crate::key::Key;
use crate::policy::Limit;
use crate::sync::Arc;

/// What a limiter of a single level decided, and all that a [`Ruling`] is made of; nothing of it is on the heap.
#[must_use = "a refused caller has to be turned away"]
#[derive(Clone, Debug)]
pub struct Solo {
    pub(super) level: &'static Arc<str>,
    pub(super) limit: Limit,
    pub(super) key: Key,
    pub(super) cost: u64,
    pub(super) decision: Decision,
}

impl Solo {
    /// The decision.
    pub const fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The limit by which it was made.
    #[must_use]
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Name of the level.
    #[must_use]
    pub fn level(&self) -> &str {
        self.level
    }

    /// Units that were asked for.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// The record of it; of a granted one it can be given back.
    pub fn to_ruling(&self) -> Ruling {
        let level = (Arc::clone(self.level), self.limit, self.key.clone());
        let charge = Charge::new(self.cost, [level]);
        Ruling::new(charge, [(Arc::clone(self.level), self.decision.clone())])
    }
}
