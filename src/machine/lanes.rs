//! Which job goes next: one lane per priority, each first in first out, with ageing by time offsets.
//!
//! A job of a lane competes as if it had come `offset` later than it did, so a less urgent job that has waited longer
//! than the difference of two offsets goes first: no lane starves. This is the one seam of choice: whatever decides
//! later (tenants, newest first) decides here.

use std::time::Duration;

use crate::machine::outcome::JobKey;
use crate::machine::places::{Entry, List, Places, Standing};
use crate::words::{Priority, WhenFull};

/// The ready jobs, in order.
#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: [List; 4],
    offsets: [Duration; 4],
    /// Jobs that may leave, those set aside included.
    ready: usize,
}

impl Lanes {
    /// `step` = time in which a full queue drains; see [`offsets`].
    pub(crate) fn new(step: Duration) -> Self {
        Self {
            lanes: [List::new(); 4],
            offsets: offsets(step),
            ready: 0,
        }
    }

    pub(crate) fn set_step(&mut self, step: Duration) {
        self.offsets = offsets(step);
    }

    pub(crate) fn ready(&self) -> usize {
        self.ready
    }

    /// Adds a job at the end of its lane.
    pub(crate) fn push<P>(&mut self, places: &mut Places<P>, entry: Entry<P>) -> JobKey {
        let lane = entry.priority.index();
        let key = places.insert(entry, Standing::Ready);
        places.push_back(&mut self.lanes[lane], key);
        self.ready += 1;
        key
    }

    /// Puts a job whose retry is due at the end of its lane.
    pub(crate) fn ripen<P>(&mut self, places: &mut Places<P>, key: JobKey) {
        if let Some(slot) = places.find_mut(key) {
            debug_assert_eq!(slot.standing, Standing::Delayed);
            slot.standing = Standing::Ready;
            let lane = slot.priority.index();
            places.push_back(&mut self.lanes[lane], key);
            self.ready += 1;
        }
    }

    /// Takes a job out of the order and the slab.
    pub(crate) fn remove<P>(&mut self, places: &mut Places<P>, key: JobKey) -> Option<Entry<P>> {
        let slot = places.get(key)?;
        let (standing, lane) = (slot.standing, slot.priority.index());
        if standing == Standing::Ready {
            places.unlink(&mut self.lanes[lane], key);
        }
        if standing != Standing::Delayed {
            self.ready -= 1;
        }
        places.remove(key)
    }

    /// Takes a job out of the order, not out of the slab.
    pub(crate) fn set_aside<P>(&mut self, places: &mut Places<P>, key: JobKey) {
        if let Some(slot) = places.find_mut(key)
            && slot.standing == Standing::Ready
        {
            slot.standing = Standing::Aside;
            let lane = slot.priority.index();
            places.unlink(&mut self.lanes[lane], key);
        }
    }

    /// The job that goes next.
    pub(crate) fn next<P>(&self, places: &Places<P>) -> Option<JobKey> {
        let mut best = None;
        // Most urgent first, so that it wins a tie.
        for priority in Priority::ALL.into_iter().rev() {
            let Some(key) = places.head(&self.lanes[priority.index()]) else {
                continue;
            };
            let since = places
                .get(key)
                .map(|slot| slot.since + self.offsets[priority.index()]);
            if best.is_none_or(|(earliest, _)| since < earliest) {
                best = Some((since, key));
            }
        }
        best.map(|(_, key)| key)
    }

    /// Every job in the order of its lane, lane by lane.
    pub(crate) fn keys<P>(&self, places: &Places<P>) -> Vec<JobKey> {
        self.lanes
            .iter()
            .flat_map(|lane| places.walk(lane))
            .collect()
    }

    /// The oldest ready job in the order of the lanes.
    pub(crate) fn oldest<P>(&self, places: &Places<P>) -> Option<JobKey> {
        let heads = self.lanes.iter().filter_map(|lane| places.head(lane));
        heads.min_by_key(|key| places.get(*key).map(|slot| slot.since))
    }

    /// Cost that a newcomer may evict.
    pub(crate) fn evictable(&self, rule: WhenFull, newcomer: Priority) -> u128 {
        let lanes = match rule {
            WhenFull::Refuse => &[],
            WhenFull::EvictOldest | WhenFull::EvictNewest => &self.lanes[..],
            WhenFull::EvictLowest => &self.lanes[..=newcomer.index()],
        };
        lanes.iter().map(|lane| lane.cost).sum()
    }

    /// The job that pays for a newcomer.
    pub(crate) fn victim<P>(&self, places: &Places<P>, rule: WhenFull) -> Option<JobKey> {
        match rule {
            WhenFull::Refuse => None,
            WhenFull::EvictOldest => self.oldest(places),
            WhenFull::EvictNewest => {
                let tails = self.lanes.iter().filter_map(|lane| places.tail(lane));
                tails.max_by_key(|key| places.get(*key).map(|slot| slot.since))
            }
            WhenFull::EvictLowest => self.lanes.iter().find_map(|lane| places.head(lane)),
        }
    }
}

/// Offsets in units of the time in which a full queue drains, least urgent first: within a full queue the more urgent
/// job always goes first, and under a flood of critical jobs the lowest lane waits four times that and its own turn.
fn offsets(step: Duration) -> [Duration; 4] {
    [4, 2, 1, 0].map(|steps| step.saturating_mul(steps))
}
