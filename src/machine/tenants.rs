//! Whose job it is: known tenants, their weight, depth, pace and ledger, in bounded memory.
//!
//! A tenant is known from its first offer. Past the cap, idle ones are forgotten, a few at a time, and their counts are
//! among those of the others from then on; if none is idle, a newcomer is dealt a hand of shared flows and joins the one with the least work
//! (shuffle sharding, after API priority and fairness in Kubernetes): two tenants share their whole hand rarely.
//!
//! - I1  a tenant with a live job, place or waiter is never forgotten, so its number stays good.
//! - I2  number 0 is for jobs without a tenant.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::key::Key;
use crate::ledger::Ledger;
use crate::machine::flow::Flow;
use crate::machine::settings::Tenancy;
use crate::rate::Rate;
use crate::tick::{Fine, Tick};

/// Number of a tenant, or of a flow that tenants share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TenantId(pub(crate) u32);

impl TenantId {
    /// Jobs that name no tenant.
    pub(crate) const NONE: Self = Self(0);
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Tenant {
    key: Option<Key>,
    pub(crate) weight: u64,
    pub(crate) ledger: Ledger,
    /// Cost of its queued jobs and places out.
    pub(crate) depth: u128,
    /// Cost it has standing in line.
    pub(crate) line: u128,
    /// When its next departure is due, where tenants have a rate.
    pub(crate) due: Fine,
    /// Its jobs, lane by lane.
    pub(crate) flows: [Flow; 4],
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Tenants {
    numbers: HashMap<Key, TenantId>,
    all: Vec<Tenant>,
    free: Vec<TenantId>,
    /// The flows that nameless tenants share; made when the first of them comes.
    shared: Vec<TenantId>,
    /// Those that had nothing live when last looked at, oldest first; some have come back since.
    idle: VecDeque<TenantId>,
    deal: RandomState,
    settings: Tenancy,
    interval: Option<Fine>,
}

impl Tenants {
    pub(crate) fn new(settings: Tenancy) -> Self {
        Self {
            numbers: HashMap::new(),
            all: vec![Tenant::new(None, 1)],
            shared: Vec::new(),
            free: Vec::new(),
            idle: VecDeque::new(),
            deal: RandomState::new(),
            interval: settings.rate.map(Rate::interval),
            settings,
        }
    }

    /// Changes bound, rate and cap; the number of shared flows stays what it was.
    pub(crate) fn set(&mut self, settings: Tenancy) {
        let Tenancy {
            shared_flows, hand, ..
        } = self.settings;
        self.interval = settings.rate.map(Rate::interval);
        self.settings = Tenancy {
            shared_flows,
            hand,
            ..settings
        };
    }

    #[inline]
    pub(crate) fn get(&self, id: TenantId) -> &Tenant {
        &self.all[id.0 as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: TenantId) -> &mut Tenant {
        &mut self.all[id.0 as usize]
    }

    /// Number of a tenant, if it is known.
    pub(crate) fn find(&self, key: Option<&Key>) -> Option<TenantId> {
        key.map_or(Some(TenantId::NONE), |key| self.numbers.get(key).copied())
    }

    /// Number of a tenant, which becomes known if there is room.
    pub(crate) fn enter(&mut self, key: Option<&Key>, weight: u64) -> TenantId {
        let Some(key) = key else {
            return TenantId::NONE;
        };
        let weight = weight.clamp(1, MAX_WEIGHT);
        if let Some(id) = self.numbers.get(key) {
            let id = *id;
            self.get_mut(id).weight = weight;
            return id;
        }
        if self.numbers.len() as u64 >= self.settings.max_tenants {
            self.forget_some();
        }
        if self.numbers.len() as u64 >= self.settings.max_tenants {
            return self.dealt(key);
        }
        let id = self.settle_in(Tenant::new(Some(key.clone()), weight));
        self.numbers.insert(key.clone(), id);
        id
    }

    /// Notes that a job, place or waiter of a tenant has ended.
    pub(crate) fn ended(&mut self, id: TenantId) {
        let tenant = self.get(id);
        if tenant.key.is_some() && !tenant.is_live() && self.idle.len() < 2 * self.all.len() {
            self.idle.push_back(id);
        }
    }

    /// Bound of a tenant's depth, line included; jobs without a tenant have none.
    pub(crate) fn max_depth(&self, named: bool) -> u64 {
        self.settings
            .max_depth
            .filter(|_| named)
            .unwrap_or(u64::MAX)
    }

    /// Charges a departure to a tenant's own rate. Returns when its next is due, if that is later.
    #[inline]
    pub(crate) fn charge(&mut self, id: TenantId, now: Tick, cost: u64) -> Option<Tick> {
        let interval = self.interval.filter(|_| id != TenantId::NONE)?;
        let tenant = self.get_mut(id);
        tenant.due = tenant.due.max(Fine::at(now)).plus(interval.times(cost));
        Some(tenant.due.ceil())
    }

    /// Corrects what a departure was charged; one that rests already is due when it was.
    pub(crate) fn correct(&mut self, id: TenantId, was: u64, is: u64) {
        let Some(interval) = self.interval.filter(|_| id != TenantId::NONE) else {
            return;
        };
        let tenant = self.get_mut(id);
        tenant.due = match is.checked_sub(was) {
            Some(more) => tenant.due.plus(interval.times(more)),
            None => tenant.due.minus(interval.times(was - is)),
        };
    }

    /// Whether tenants have a rate of their own.
    #[inline]
    pub(crate) const fn are_paced(&self) -> bool {
        self.interval.is_some()
    }

    /// When a tenant's next departure is due.
    #[inline]
    pub(crate) fn due(&self, id: TenantId) -> Tick {
        if self.interval.is_some() {
            self.get(id).due.ceil()
        } else {
            Tick::ZERO
        }
    }

    /// Time that a tenant takes for so many departures of its own, without those of the others.
    pub(crate) fn wait(&self, id: TenantId, now: Tick, ahead: u128) -> Duration {
        let Some(interval) = self.interval.filter(|_| id != TenantId::NONE) else {
            return Duration::ZERO;
        };
        let ahead = interval.times(u64::try_from(ahead).unwrap_or(u64::MAX));
        let now = Fine::at(now);
        self.get(id).due.max(now).plus(ahead).minus(now).duration()
    }

    /// Counts of every known tenant, in no order.
    pub(crate) fn ledgers(&self) -> impl Iterator<Item = (&Key, &Ledger)> {
        self.all
            .iter()
            .filter_map(|tenant| tenant.key.as_ref().map(|key| (key, &tenant.ledger)))
    }

    /// Every number that is or was in use.
    pub(crate) fn ids(&self) -> impl Iterator<Item = TenantId> + use<> {
        (0..self.all.len() as u32).map(TenantId)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Tenant> {
        self.all.iter()
    }

    /// Looks at a few idle tenants and forgets those that still are.
    fn forget_some(&mut self) {
        for _ in 0..FORGET {
            let Some(id) = self.idle.pop_front() else {
                return;
            };
            let tenant = self.get_mut(id);
            if tenant.is_live() {
                continue;
            }
            let Some(key) = tenant.key.take() else {
                continue;
            };
            self.numbers.remove(&key);
            self.free.push(id);
        }
    }

    /// The shared flow of a hand with the least work.
    fn dealt(&mut self, key: &Key) -> TenantId {
        let Tenancy {
            shared_flows,
            hand: size,
            ..
        } = self.settings;
        while self.shared.len() < shared_flows as usize {
            let id = self.settle_in(Tenant::new(None, 1));
            self.shared.push(id);
        }
        let hand = hand(self.deal.hash_one(key), shared_flows, size).into_iter();
        let flows = hand.map(|card| self.shared[card as usize]);
        flows
            .min_by_key(|id| self.get(*id).depth)
            .unwrap_or(TenantId::NONE)
    }

    fn settle_in(&mut self, tenant: Tenant) -> TenantId {
        if let Some(id) = self.free.pop() {
            self.all[id.0 as usize] = tenant;
            return id;
        }
        let next = u32::try_from(self.all.len()).ok();
        self.all.push(tenant);
        TenantId(next.expect("the cap on tenants is far below 2^32"))
    }
}

impl Tenant {
    fn new(key: Option<Key>, weight: u64) -> Self {
        Self {
            key,
            weight,
            ledger: Ledger::default(),
            depth: 0,
            line: 0,
            due: Fine::ZERO,
            flows: [Flow::new(); 4],
        }
    }

    /// Its name, unless it is a flow that several share.
    pub(crate) const fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    fn is_live(&self) -> bool {
        let Ledger {
            waiting,
            reserved,
            queued,
            in_flight,
            ..
        } = self.ledger;
        waiting + reserved + queued + in_flight > 0
    }
}

/// Deals `size` different flows of `flows` from one hash: each draw takes its share of the entropy and skips over
/// those already drawn.
pub(super) fn hand(hash: u64, flows: u32, size: u32) -> Vec<u32> {
    let mut entropy = hash;
    let mut drawn: Vec<u32> = Vec::with_capacity(size as usize);
    for already in 0..size.min(flows) {
        let left = u64::from(flows - already);
        let mut card = (entropy % left) as u32;
        entropy = spread((entropy / left) ^ hash.rotate_left(already + 1));
        // The `card`-th of those not drawn yet, in rising order.
        let mut sorted = drawn.clone();
        sorted.sort_unstable();
        for taken in sorted {
            card += u32::from(taken <= card);
        }
        drawn.push(card);
    }
    drawn
}

/// One step of splitmix64 (Steele, Lea and Flood, 2014): a hash of 64 bits has no entropy left after a few draws.
const fn spread(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Idle tenants looked at per newcomer at the cap.
const FORGET: usize = 8;
/// A larger weight than this differs from no bound by nothing that could be measured.
const MAX_WEIGHT: u64 = 1 << 32;
