//! Limiters that stand alone, at a door.

use std::hash::Hash;

use super::direct::RateLimiter;
use super::keyed::KeyedLimiter;
use super::ruling::Ruling;
use super::state::Keep;
use super::store::{Admission, Charge, Deciding};
use crate::key::Key;
use crate::sync::Arc;

/// Everybody is charged to the one level "limit".
impl Admission for RateLimiter {
    type Context = ();
    type Deciding = Deciding;

    fn charge(&self, (): &(), cost: u64) -> Charge {
        Charge::new(cost, [(LIMIT, self.limit(), Key::from(()))])
    }

    fn admit(&self, charge: Charge) -> Deciding {
        let limiter = self.clone();
        Deciding::new(move || {
            let decision = match charge.keeps_half() {
                true => limiter.check_keeping_half(charge.cost()),
                false => limiter.check(charge.cost()),
            };
            Ruling::new(charge, [(LIMIT, decision)])
        })
    }

    fn give_back(&self, charge: Charge) {
        if let Some(at) = charge.at() {
            self.refund(at, charge.cost());
        }
    }
}

/// The key is charged at the one level "key". The charge keeps the key itself; what its level shows in its place is the
/// hash by which this limiter knows it.
impl<K: Hash + Eq + Clone + Send + Sync + 'static> Admission for KeyedLimiter<K> {
    type Context = K;
    type Deciding = Deciding;

    fn charge(&self, key: &K, cost: u64) -> Charge {
        let shown = Key::from(self.shared.table.hash(key));
        let mut charge = Charge::new(cost, [(KEY, self.limit_of(key), shown)]);
        charge.payload = Some(Arc::new(key.clone()));
        charge
    }

    fn admit(&self, charge: Charge) -> Deciding {
        let limiter = self.clone();
        Deciding::new(move || {
            let decisions = key_of::<K>(&charge).map(|key| {
                let keep = match charge.keeps_half() {
                    true => Keep::Half,
                    false => Keep::Nothing,
                };
                (KEY, limiter.check_keeping(key, charge.cost(), keep))
            });
            let decisions: Vec<_> = decisions.into_iter().collect();
            Ruling::new(charge, decisions)
        })
    }

    fn give_back(&self, charge: Charge) {
        if let (Some(at), Some(key)) = (charge.at(), key_of::<K>(&charge)) {
            self.refund(key, at, charge.cost());
        }
    }
}

/// The key that a charge was made for; `None` if another limiter made it.
fn key_of<K: 'static>(charge: &Charge) -> Option<&K> {
    charge.payload.as_ref()?.downcast_ref()
}

const LIMIT: &str = "limit";
const KEY: &str = "key";
