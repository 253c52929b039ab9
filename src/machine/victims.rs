//! Which queued jobs pay for a newcomer.
//!
//! Where newcomers may evict, the end of each flow at which jobs pay is kept by age, so that a victim is found without
//! asking every tenant.

use std::collections::BTreeSet;

use crate::machine::lanes::Lanes;
use crate::machine::outcome::JobKey;
use crate::machine::places::Places;
use crate::machine::tenants::{TenantId, Tenants};
use crate::tick::Tick;
use crate::words::{Priority, WhenFull};

/// The ends of the flows that have jobs, by lane and age.
#[derive(Debug, Default)]
pub(super) struct Ends {
    rule: WhenFull,
    all: BTreeSet<(usize, Tick, TenantId)>,
}

impl Ends {
    #[inline]
    fn is_on(&self) -> bool {
        self.rule != WhenFull::Refuse
    }

    fn flow(&self, lane: usize) -> Option<(Tick, usize, TenantId)> {
        let last = (lane, Tick::MAX, TenantId(u32::MAX));
        let mut of_lane = self.all.range((lane, Tick::ZERO, TenantId::NONE)..=last);
        let end = match self.rule {
            WhenFull::EvictNewest => of_lane.next_back(),
            _ => of_lane.next(),
        };
        end.map(|(lane, since, id)| (*since, *lane, *id))
    }
}

impl Lanes {
    /// Changes which end of a flow pays.
    pub(crate) fn set_rule<P>(&mut self, places: &Places<P>, tenants: &Tenants, rule: WhenFull) {
        if self.ends.rule == rule {
            return;
        }
        self.ends.rule = rule;
        self.ends.all.clear();
        for id in tenants.ids() {
            for lane in 0..Priority::ALL.len() {
                self.moved(places, tenants, lane, id, None);
            }
        }
    }

    /// Age of the job of a flow that would pay; `None` if nobody asks, or there is none.
    #[inline]
    pub(super) fn end<P>(
        &self,
        places: &Places<P>,
        tenants: &Tenants,
        lane: usize,
        id: TenantId,
    ) -> Option<Tick> {
        if !self.ends.is_on() {
            return None;
        }
        let key = self.payer(places, tenants, lane, id)?;
        places.get(key).map(|slot| slot.since)
    }

    /// The end of a flow may have moved; `before` = where it was.
    #[inline]
    pub(super) fn moved<P>(
        &mut self,
        places: &Places<P>,
        tenants: &Tenants,
        lane: usize,
        id: TenantId,
        before: Option<Tick>,
    ) {
        let now = self.end(places, tenants, lane, id);
        if now == before {
            return;
        }
        if let Some(before) = before {
            self.ends.all.remove(&(lane, before, id));
        }
        if let Some(now) = now {
            self.ends.all.insert((lane, now, id));
        }
    }

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
    pub(crate) fn victim<P>(&self, places: &Places<P>, tenants: &Tenants) -> Option<JobKey> {
        let mut lanes = (0..Priority::ALL.len()).filter_map(|lane| self.ends.flow(lane));
        let end = match self.ends.rule {
            WhenFull::Refuse => None,
            WhenFull::EvictOldest => lanes.min(),
            WhenFull::EvictNewest => lanes.max(),
            // From the least urgent lane up, so none is as urgent as the newcomer while others can pay.
            WhenFull::EvictLowest | WhenFull::EvictLower => lanes.next(),
        };
        let (since, lane, id) = end?;
        debug_assert_eq!(Some(since), self.end(places, tenants, lane, id));
        self.payer(places, tenants, lane, id)
    }

    /// The job of a flow that would pay.
    fn payer<P>(
        &self,
        places: &Places<P>,
        tenants: &Tenants,
        lane: usize,
        id: TenantId,
    ) -> Option<JobKey> {
        let jobs = &tenants.get(id).flows[lane].jobs;
        match self.ends.rule {
            WhenFull::EvictNewest => places.tail(jobs),
            _ => places.head(jobs),
        }
    }

    /// Whether the ends are those of all flows, each asked by itself.
    #[cfg(test)]
    pub(super) fn ends_are_exact<P>(&self, places: &Places<P>, tenants: &Tenants) -> bool {
        let flows = tenants
            .ids()
            .flat_map(|id| (0..Priority::ALL.len()).map(move |lane| (lane, id)));
        let exact: BTreeSet<_> = flows
            .filter_map(|(lane, id)| Some((lane, self.end(places, tenants, lane, id)?, id)))
            .collect();
        exact == self.ends.all
    }
}
