//! Limiters that stand alone, at a door.

use std::any::Any;
use std::hash::Hash;
use std::sync::LazyLock;

use super::direct::RateLimiter;
use super::keyed::KeyedLimiter;
use super::ruling::Ruling;
use super::solo::Solo;
use super::state::Keep;
use super::status::LevelStatus;
use super::store::{Admission, Charge, Deciding};
use crate::key::Key;
use crate::sync::Arc;

/// Everybody is charged to the one level "limit".
impl Admission for RateLimiter {
    type Context = ();
    type Deciding = Deciding;

    fn charge(&self, (): &(), cost: u64) -> Charge {
        Charge::new(cost, [(LIMIT.clone(), self.limit(), Key::from(()))])
    }

    fn admit(&self, charge: Charge) -> Deciding {
        let limiter = self.clone();
        Deciding::new(move || limiter.rule(charge))
    }

    fn admit_now(&self, charge: Charge) -> Result<Ruling, Charge> {
        Ok(self.rule(charge))
    }

    fn spend_now(&self, (): &(), cost: u64) -> bool {
        self.check(cost).is_granted()
    }

    fn give_back(&self, charge: Charge) {
        if let Some(at) = charge.at() {
            self.refund(at, charge.cost());
        }
    }

    fn status(&self) -> Vec<LevelStatus> {
        vec![LevelStatus::new(Arc::clone(&LIMIT), self.limit(), None)]
    }
}

impl RateLimiter {
    fn rule(&self, charge: Charge) -> Ruling {
        let decision = match charge.keeps_half() {
            true => self.check_keeping_half(charge.cost()),
            false => self.check(charge.cost()),
        };
        Ruling::new(charge, [(LIMIT.clone(), decision)])
    }
}

/// The key is charged at the one level "key". A [`Key`] is what its level shows; of a key of another type it shows the
/// hash by which this limiter knows it, and the charge keeps the key itself.
impl<K: Hash + Eq + Clone + Send + Sync + 'static> Admission for KeyedLimiter<K> {
    type Context = K;
    type Deciding = Deciding;

    fn charge(&self, own: &K, cost: u64) -> Charge {
        // A key of the crate's own kind is its own proof of itself.
        if let Some(key) = (own as &dyn Any).downcast_ref::<Key>() {
            let limit = self.limit_of(own);
            return Charge::new(cost, [(KEY.clone(), limit, key.clone())]);
        }
        let shown = Key::from(self.shared.table.hash(own));
        let mut charge = Charge::new(cost, [(KEY.clone(), self.limit_of(own), shown)]);
        charge.payload = Some(Arc::new(own.clone()));
        charge
    }

    fn admit(&self, charge: Charge) -> Deciding {
        let limiter = self.clone();
        Deciding::new(move || limiter.rule(charge))
    }

    fn admit_now(&self, charge: Charge) -> Result<Ruling, Charge> {
        Ok(self.rule(charge))
    }

    fn spend_now(&self, key: &K, cost: u64) -> bool {
        self.check(key, cost).is_granted()
    }

    fn charge_now(&self, own: &K, cost: u64) -> Option<Solo> {
        let key = (own as &dyn Any).downcast_ref::<Key>()?.clone();
        let (limit, decision) = self.decide(own, cost, Keep::Nothing);
        Some(Solo {
            level: &KEY,
            limit,
            key,
            cost,
            decision,
        })
    }

    fn give_back(&self, charge: Charge) {
        if let (Some(at), Some(key)) = (charge.at(), key_of::<K>(&charge)) {
            self.refund(key, at, charge.cost());
        }
    }

    fn status(&self) -> Vec<LevelStatus> {
        let keys = self.shared.table.counts();
        let limit = self.shared.table.shared.limit();
        vec![LevelStatus::new(Arc::clone(&KEY), limit, Some(keys))]
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> KeyedLimiter<K> {
    fn rule(&self, charge: Charge) -> Ruling {
        let decision = key_of::<K>(&charge).map(|key| {
            let keep = match charge.keeps_half() {
                true => Keep::Half,
                false => Keep::Nothing,
            };
            (KEY.clone(), self.decide(key, charge.cost(), keep).1)
        });
        Ruling::new(charge, decision)
    }
}

/// The key that a charge was made for; `None` if another limiter made it.
fn key_of<K: 'static>(charge: &Charge) -> Option<&K> {
    match &charge.payload {
        Some(payload) => payload.downcast_ref(),
        None => {
            let (_, _, key) = charge.levels().find(|(name, ..)| *name == &**KEY)?;
            (key as &dyn Any).downcast_ref()
        }
    }
}

/// Made once, so that a decision copies no name.
static LIMIT: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("limit"));
static KEY: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("key"));
