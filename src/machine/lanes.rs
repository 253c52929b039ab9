//! Which job goes next: the one seam of choice.
//!
//! **Between lanes** (one per priority): a job of a lane competes as if it had come `offset` later than it did, so a
//! less urgent job that has waited longer than the difference of two offsets goes first: no lane starves. A lane with a
//! [share](crate::machine::shares) goes first whenever it has earned its next job.
//!
//! **Inside a lane**: each tenant's jobs are a flow, first in first out, and flows share by weight over cost:
//! start-time fair queueing (Goyal, Vin and Cheng, 1996). A flow's next job has a start tag; the smallest goes first,
//! and moves the flow's tag on by cost / weight. A flow that was idle starts at the present virtual time, so idleness
//! earns nothing. Two flows with jobs waiting differ by at most one job's cost / weight of each.
//!
//! - I1  `active` holds exactly the flows that have ready jobs and whose tenant is due, each under its tag.
//! - I2  `ready` counts the jobs of those flows, and those set aside.
//! - I3  `busy` names the lanes that have such flows.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::machine::flow::{Flow, Lane, virtual_span};
use crate::machine::outcome::{JobKey, Owner};
use crate::machine::places::{Entry, Places, Standing};
use crate::machine::shares::Shares;
use crate::machine::tenants::{Tenant, TenantId, Tenants};
use crate::machine::victims::Ends;
use crate::tick::Tick;
use crate::words::Priority;

/// The ready jobs, in order.
#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: [Lane; 4],
    offsets: [Duration; 4],
    pub(super) shares: Shares,
    /// Tenants that have jobs and used up their own rate.
    resting: BTreeSet<(Tick, TenantId)>,
    ready: usize,
    pub(super) ends: Ends,
    /// A bit for each lane that has an active flow.
    busy: u8,
}

impl Lanes {
    /// `step` = time in which a full queue drains; see [`offsets`].
    pub(crate) fn new(step: Duration, shares: [u64; 4]) -> Self {
        Self {
            lanes: std::array::from_fn(|_| Lane::default()),
            offsets: offsets(step),
            shares: Shares::new(shares),
            resting: BTreeSet::new(),
            ready: 0,
            ends: Ends::default(),
            busy: 0,
        }
    }

    pub(crate) fn set_step(&mut self, step: Duration) {
        self.offsets = offsets(step);
    }

    /// Jobs that may leave, those set aside included.
    #[inline]
    pub(crate) fn ready(&self) -> usize {
        self.ready
    }

    /// Weight of the flows that take part in a lane.
    pub(crate) fn weight(&self, priority: Priority) -> u128 {
        self.lanes[priority.index()].weight
    }

    /// When the next resting tenant is due.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<Tick> {
        self.resting.first().map(|(due, _)| *due)
    }

    /// Adds a job at the end of its flow.
    #[inline]
    pub(crate) fn push<P>(
        &mut self,
        places: &mut Places<P>,
        tenants: &mut Tenants,
        now: Tick,
        entry: Entry<P>,
    ) -> JobKey {
        let (lane, id, cost) = (entry.owner.priority.index(), entry.owner.tenant, entry.cost);
        let end = self.end(places, tenants, lane, id);
        let key = places.push(&mut tenants.get_mut(id).flows[lane].jobs, entry);
        self.moved(places, tenants, lane, id, end);
        self.lined_up(tenants, now, lane, id, cost);
        key
    }

    /// Puts a job whose retry is due at the end of its flow.
    pub(crate) fn ripen<P>(
        &mut self,
        places: &mut Places<P>,
        tenants: &mut Tenants,
        now: Tick,
        key: JobKey,
    ) {
        if let Some(slot) = places.find_mut(key) {
            debug_assert_eq!(slot.standing, Standing::Delayed);
            slot.standing = Standing::Ready;
            let (lane, id, cost) = (
                slot.owner().priority.index(),
                slot.owner().tenant,
                slot.cost,
            );
            let end = self.end(places, tenants, lane, id);
            places.push_back(&mut tenants.get_mut(id).flows[lane].jobs, key);
            self.moved(places, tenants, lane, id, end);
            self.lined_up(tenants, now, lane, id, cost);
        }
    }

    /// Lets tenants whose next departure is due take part again.
    pub(crate) fn wake(&mut self, tenants: &mut Tenants, now: Tick) {
        while let Some(&(due, id)) = self.resting.first()
            && due <= now
        {
            self.resting.pop_first();
            for lane in 0..self.lanes.len() {
                self.activate(tenants, lane, id);
            }
        }
    }

    /// Takes a job out of the order and the slab; `charge` = it departs, and its flow pays for it.
    #[inline]
    pub(crate) fn remove<P>(
        &mut self,
        places: &mut Places<P>,
        tenants: &mut Tenants,
        key: JobKey,
        charge: bool,
    ) -> Option<Entry<P>> {
        let slot = places.get(key)?;
        match slot.standing {
            Standing::Ready => {
                let (lane, id) = (slot.owner().priority.index(), slot.owner().tenant);
                let end = self.end(places, tenants, lane, id);
                let flow = &mut tenants.get_mut(id).flows[lane];
                let entry = places.pull(&mut flow.jobs, key)?;
                self.left(flow, lane, id, entry.cost, charge);
                self.moved(places, tenants, lane, id, end);
                return Some(entry);
            }
            Standing::Aside => self.ready -= 1,
            Standing::Delayed => {}
        }
        places.remove(key)
    }

    /// As [`push`](Self::push) of nobody's job, where no end of a flow is to be kept and no tenant rests.
    #[inline]
    pub(super) fn push_plainly<P>(
        &mut self,
        places: &mut Places<P>,
        tenants: &mut Tenants,
        entry: Entry<P>,
    ) -> JobKey {
        let (number, id) = (entry.owner.priority.index(), TenantId::NONE);
        self.lanes[number].cost += u128::from(entry.cost);
        let flow = &mut tenants.get_mut(id).flows[number];
        let key = places.push(&mut flow.jobs, entry);
        if flow.is_active() {
            self.ready += 1;
        } else {
            self.activate(tenants, number, id);
        }
        key
    }

    /// Takes out the job that goes next and departs, where it is of nobody's flow, no other flow and no victim is to be
    /// weighed with it, and it never expires; `None` = not so, and nothing was done.
    #[inline]
    pub(super) fn pull_plainly<P>(
        &mut self,
        places: &mut Places<P>,
        tenants: &mut Tenants,
    ) -> Option<Entry<P>> {
        let (number, id) = (self.busy.trailing_zeros() as usize, TenantId::NONE);
        let alone = self.busy.is_power_of_two() && self.lanes[number].active.is_only(id);
        if !alone {
            return None;
        }
        let flow = &mut tenants.get_mut(id).flows[number];
        let entry = places.pull_first(&mut flow.jobs, |slot| slot.expires_at == Tick::MAX)?;
        self.left(flow, number, id, entry.cost, true);
        Some(entry)
    }

    /// After a departure: a tenant that has used up its own rate rests until `due`.
    pub(crate) fn rest(&mut self, tenants: &mut Tenants, id: TenantId, due: Tick) {
        let mut waiting = false;
        for (number, flow) in tenants.get_mut(id).flows.iter_mut().enumerate() {
            if flow.is_active() {
                self.lanes[number].retire(flow, flow.tag, id);
                self.mark(number);
                self.ready -= flow.jobs.len;
                waiting = true;
            }
        }
        if waiting {
            self.resting.insert((due, id));
        }
    }

    /// Takes a job out of the order, not out of the slab.
    pub(crate) fn set_aside<P>(
        &mut self,
        places: &mut Places<P>,
        tenants: &mut Tenants,
        key: JobKey,
    ) {
        if let Some(slot) = places.find_mut(key)
            && slot.standing == Standing::Ready
        {
            slot.standing = Standing::Aside;
            let (lane, id, cost) = (
                slot.owner().priority.index(),
                slot.owner().tenant,
                slot.cost,
            );
            let end = self.end(places, tenants, lane, id);
            let flow = &mut tenants.get_mut(id).flows[lane];
            places.unlink(&mut flow.jobs, key);
            self.left(flow, lane, id, cost, true);
            self.moved(places, tenants, lane, id, end);
            self.ready += 1;
        }
    }

    /// The job that goes next; `newest` = of the flow whose turn it is, the one that came last.
    #[inline]
    pub(crate) fn next<P>(
        &self,
        places: &Places<P>,
        tenants: &Tenants,
        newest: bool,
    ) -> Option<JobKey> {
        let of = |lane: usize| {
            let (_, id) = self.lanes[lane].active.first()?;
            let jobs = &tenants.get(id).flows[lane].jobs;
            let head = places.head(jobs)?;
            let key = newest.then(|| places.tail(jobs)).flatten();
            Some((head, key.unwrap_or(head)))
        };
        if self.busy.is_power_of_two() {
            // Without another lane there is nothing to weigh.
            return of(self.busy.trailing_zeros() as usize).map(|(_, key)| key);
        }
        let reserved = !self.shares.is_off();
        let mut best = None;
        // Most urgent first, so that it wins a tie.
        for lane in (0..self.lanes.len()).rev() {
            let Some((head, key)) = of(lane) else {
                continue;
            };
            let cost = || places.get(key).map_or(0, |slot| slot.cost);
            if reserved && self.shares.affords(lane, cost()) {
                return Some(key);
            }
            // Lanes age by their oldest job, whichever of it goes.
            let since = places.get(head).map(|slot| slot.since + self.offsets[lane]);
            if best.is_none_or(|(earliest, _)| since < earliest) {
                best = Some((since, key));
            }
        }
        best.map(|(_, key)| key)
    }

    /// Every ready job in the order of its flow, flow by flow.
    pub(crate) fn keys<P>(places: &Places<P>, tenants: &Tenants) -> Vec<JobKey> {
        let flows = tenants.iter().flat_map(|tenant| &tenant.flows);
        flows.flat_map(|flow| places.walk(&flow.jobs)).collect()
    }

    /// The oldest ready job.
    pub(crate) fn oldest<P>(&self, places: &Places<P>, tenants: &Tenants) -> Option<JobKey> {
        let heads = (0..self.lanes.len()).flat_map(|lane| {
            let flows = self.flows(tenants, lane);
            flows.filter_map(|flow| places.head(&flow.jobs))
        });
        heads.min_by_key(|key| places.get(*key).map(|slot| slot.since))
    }

    /// Cost of a lane's jobs that may leave, those of tenants that are not due included.
    pub(super) fn cost(&self, lane: usize) -> u128 {
        self.lanes[lane].cost
    }

    /// Corrects what a flow paid for a job that has departed.
    pub(crate) fn correct(&mut self, tenants: &mut Tenants, owner: Owner, was: u64, is: u64) {
        let id = owner.tenant;
        tenants.correct(id, was, is);
        let Tenant { flows, weight, .. } = tenants.get_mut(id);
        let lane = owner.priority.index();
        self.lanes[lane].correct(&mut flows[lane], id, *weight, was, is);
    }

    fn flows<'a>(&self, tenants: &'a Tenants, lane: usize) -> impl Iterator<Item = &'a Flow> {
        let active = self.lanes[lane]
            .active
            .iter()
            .map(|(_, id)| id)
            .collect::<Vec<_>>();
        active
            .into_iter()
            .map(move |id| &tenants.get(id).flows[lane])
    }

    /// A job has joined the end of its flow.
    #[inline]
    fn lined_up(&mut self, tenants: &mut Tenants, now: Tick, lane: usize, id: TenantId, cost: u64) {
        self.lanes[lane].cost += u128::from(cost);
        if tenants.get(id).flows[lane].is_active() {
            self.ready += 1;
            return;
        }
        let due = tenants.due(id);
        if due > now {
            self.resting.insert((due, id));
        } else {
            self.activate(tenants, lane, id);
        }
    }

    #[inline]
    fn activate(&mut self, tenants: &mut Tenants, number: usize, id: TenantId) {
        let tenant = tenants.get_mut(id);
        let flow = &mut tenant.flows[number];
        if flow.is_active() || flow.jobs.len == 0 {
            return;
        }
        let lane = &mut self.lanes[number];
        // Idle time earns nothing: a flow that comes back starts where the others are now.
        flow.tag = flow.tag.max(lane.virtual_time);
        flow.weight = tenant.weight;
        lane.weight += u128::from(flow.weight);
        lane.active.insert((flow.tag, id));
        self.ready += flow.jobs.len;
        self.mark(number);
    }

    /// A job has left its flow; `charge` = it departed, and the flow pays for it.
    #[inline]
    fn left(&mut self, flow: &mut Flow, number: usize, id: TenantId, cost: u64, charge: bool) {
        let lane = &mut self.lanes[number];
        lane.cost -= u128::from(cost);
        if !flow.is_active() {
            return;
        }
        self.ready -= 1;
        let (over, tag) = (flow.jobs.len == 0, flow.tag);
        if charge {
            lane.virtual_time = lane.virtual_time.max(tag);
            flow.tag = tag.saturating_add(virtual_span(cost, flow.weight));
        }
        if over {
            lane.retire(flow, tag, id);
            if charge && lane.active.is_empty() {
                // Whoever comes to an idle lane starts behind the last that left it.
                lane.virtual_time = lane.virtual_time.max(flow.tag);
            }
            self.mark(number);
        } else if charge {
            lane.active.advance((tag, id), (flow.tag, id));
        }
        if charge && !self.shares.is_off() {
            let busy = std::array::from_fn(|lane| self.busy & (1 << lane) != 0);
            self.shares.depart(number, cost, busy);
        }
    }

    /// Notes whether a lane has an active flow.
    #[inline]
    fn mark(&mut self, lane: usize) {
        let busy = u8::from(!self.lanes[lane].active.is_empty());
        self.busy = (self.busy & !(1 << lane)) | (busy << lane);
    }
}

/// Offsets in units of the time in which a full queue drains, least urgent first: within a full queue the more urgent
/// job always goes first, and under a flood of critical jobs the lowest lane waits four times that and its own turn.
fn offsets(step: Duration) -> [Duration; 4] {
    [4, 2, 1, 0].map(|steps| step.saturating_mul(steps))
}
