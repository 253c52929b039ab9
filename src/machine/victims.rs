//! Which queued jobs pay for a newcomer.

use crate::machine::lanes::Lanes;
use crate::machine::outcome::JobKey;
use crate::machine::places::Places;
use crate::machine::tenants::Tenants;
use crate::words::{Priority, WhenFull};

impl Lanes {
    /// Cost that a newcomer may evict.
    pub(crate) fn evictable(&self, rule: WhenFull, newcomer: Priority) -> u128 {
        let lanes = match rule {
            WhenFull::Refuse => 0,
            WhenFull::EvictOldest | WhenFull::EvictNewest => Priority::ALL.len(),
            WhenFull::EvictLowest => newcomer.index() + 1,
            WhenFull::EvictLower => newcomer.index(),
        };
        (0..lanes).map(|lane| self.cost(lane)).sum()
    }

    /// The job that pays next, of those whose cost is `evictable`.
    pub(crate) fn victim<P>(
        &self,
        places: &Places<P>,
        tenants: &Tenants,
        rule: WhenFull,
    ) -> Option<JobKey> {
        let since = |key: &JobKey| places.get(*key).map(|slot| slot.since);
        let heads = |lane: usize| {
            let flows = tenants.iter().map(move |tenant| &tenant.flows[lane]);
            flows.filter_map(|flow| places.head(&flow.jobs))
        };
        let tails = |lane: usize| {
            let flows = tenants.iter().map(move |tenant| &tenant.flows[lane]);
            flows.filter_map(|flow| places.tail(&flow.jobs))
        };
        match rule {
            WhenFull::Refuse => None,
            WhenFull::EvictOldest => (0..4).flat_map(heads).min_by_key(since),
            WhenFull::EvictNewest => (0..4).flat_map(tails).max_by_key(since),
            // From the least urgent lane up, so none is as urgent as the newcomer while others can pay.
            WhenFull::EvictLowest | WhenFull::EvictLower => {
                (0..4).find_map(|lane| heads(lane).min_by_key(since))
            }
        }
    }
}
