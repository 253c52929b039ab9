//! A fleet on paper: nodes that buy leases of a shared limit in advance, beside the exact limit.
//!
//! A lease is debited from the one limit when it is bought and spent locally until it ends, so the long-run rate never
//! exceeds the limit's. Within one window a fleet can admit what it bought before: at most one lease for each node,
//! and at most what the rate gives in the life of a lease. What a node holds and does not use is refused elsewhere.

use std::time::Duration;

use super::dice::Dice;
use super::trace::Arrival;
use crate::policy::{Limit, LimitState, Policy, TokenBucket};
use crate::rate::Rate;
use crate::tick::{Tick, nanos};

/// How a limit is shared by a fleet.
///
/// # Examples
/// ```
/// use sluicegate::Rate;
/// use sluicegate::sim::{Fleet, Pattern};
///
/// let limit = Rate::per_second(1000).burst(200);
/// let arrivals = Pattern::Poisson { rate: Rate::per_second(1500) }.arrivals(1).take(30_000);
/// let shares = Fleet::new(limit, 4, 10).run_all(arrivals);
/// assert!(shares.most_over <= shares.bound_over);
/// assert!(shares.admitted * 100 > shares.exact * 99);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Fleet {
    limit: TokenBucket,
    nodes: u64,
    lease: u64,
    life: Duration,
    seed: u64,
}

/// What a fleet admitted, beside the exact limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shares {
    /// Cost offered.
    pub offered: u64,
    /// Cost that the exact limit admits.
    pub exact: u64,
    /// Cost that the fleet admits.
    pub admitted: u64,
    /// Most that the fleet admitted in any span of time beyond burst + rate x time.
    pub most_over: u64,
    /// Bound of that: what the nodes can have bought before.
    pub bound_over: u64,
    /// Units bought and never spent.
    pub stranded: u64,
    /// Leases bought: round trips to the shared limit, but for those that were refused.
    pub leases: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    units: u64,
    ends: Tick,
}

impl Fleet {
    /// `nodes` nodes that buy up to `lease` units at a time, and spend them within a second.
    pub const fn new(limit: TokenBucket, nodes: u64, lease: u64) -> Self {
        Self {
            limit,
            nodes: if nodes == 0 { 1 } else { nodes },
            lease: if lease == 0 { 1 } else { lease },
            life: Duration::from_secs(1),
            seed: 0,
        }
    }

    /// How long a lease may be spent.
    pub const fn life(mut self, life: Duration) -> Self {
        self.life = life;
        self
    }

    /// Seed of which node an arrival comes to.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The lease that keeps the error small: what a node spends in 100 ms, at most a quarter of its part of the burst.
    #[must_use]
    pub fn advised_lease(limit: TokenBucket, nodes: u64) -> u64 {
        let local = limit.rate().units_in(Duration::from_millis(100)) / nodes.max(1);
        local.clamp(1, (limit.quota() / (4 * nodes.max(1))).max(1))
    }

    /// Sends each arrival to a node picked by chance.
    ///
    /// # Errors
    /// The first error among the arrivals.
    pub fn run<E>(
        &self,
        arrivals: impl IntoIterator<Item = Result<Arrival, E>>,
    ) -> Result<Shares, E> {
        let limit = Limit::from(self.limit);
        let (mut store, mut exact) = (limit.start(Tick::ZERO), limit.start(Tick::ZERO));
        let mut nodes = vec![Node::default(); usize::try_from(self.nodes).unwrap_or(1)];
        let mut dice = Dice::new(self.seed);
        let mut over = Excess::new(self.limit.rate(), self.limit.quota());
        let life = self.limit.rate().units_in(self.life).max(1);
        let mut shares = Shares {
            offered: 0,
            exact: 0,
            admitted: 0,
            most_over: 0,
            bound_over: 0,
            stranded: 0,
            leases: 0,
        };
        let mut most_costly = 1;
        for arrival in arrivals {
            let arrival = arrival?;
            let (now, cost) = (
                Tick::ZERO + arrival.offset,
                arrival.cost.unwrap_or(1).max(1),
            );
            shares.offered += cost;
            most_costly = most_costly.max(cost);
            if limit.check(&mut exact, now, cost).is_granted() {
                shares.exact += cost;
            }
            let index = dice.below(self.nodes) as usize;
            let Some(node) = nodes.get_mut(index) else {
                continue;
            };
            if now >= node.ends {
                shares.stranded += std::mem::take(&mut node.units);
            }
            if node.units < cost {
                self.buy(&limit, &mut store, node, now, cost, &mut shares);
            }
            if node.units >= cost {
                node.units -= cost;
                shares.admitted += cost;
                shares.most_over = shares.most_over.max(over.admit(now, cost));
            }
        }
        // A node buys before it has spent the last units, if they are too few for the job at hand.
        let rest = self.nodes.saturating_mul(most_costly - 1);
        let held = self.nodes.saturating_mul(self.lease.max(most_costly));
        shares.bound_over = held.min(life).saturating_add(rest);
        shares.stranded += nodes.iter().map(|node| node.units).sum::<u64>();
        Ok(shares)
    }

    /// Runs arrivals among which there are no errors.
    #[must_use]
    pub fn run_all(&self, arrivals: impl IntoIterator<Item = Arrival>) -> Shares {
        let Ok(shares) = self.run(arrivals.into_iter().map(Ok::<_, std::convert::Infallible>));
        shares
    }

    /// Buys a whole lease, or what there is of it if that is enough.
    fn buy(
        &self,
        limit: &Limit,
        store: &mut LimitState,
        node: &mut Node,
        now: Tick,
        cost: u64,
        shares: &mut Shares,
    ) {
        let missing = cost - node.units;
        let left = limit.peek(store, now, 0).remaining;
        let units = left.min(self.lease.max(missing));
        if units >= missing && limit.check(store, now, units).is_granted() {
            shares.leases += 1;
            node.units += units;
            node.ends = now + self.life;
        }
    }
}

/// Most that was admitted in any span of time beyond burst + rate x time: how far a bucket that only counts would be
/// overdrawn.
#[derive(Debug)]
struct Excess {
    interval: f64,
    burst: f64,
    level: f64,
    last: Tick,
}

impl Excess {
    fn new(rate: Rate, burst: u64) -> Self {
        Self {
            interval: nanos(rate.period()) as f64 / rate.count() as f64,
            burst: burst as f64,
            level: 0.0,
            last: Tick::ZERO,
        }
    }

    fn admit(&mut self, now: Tick, cost: u64) -> u64 {
        let leaked = nanos(now - self.last) as f64 / self.interval;
        self.level = (self.level - leaked).max(0.0) + cost as f64;
        self.last = now;
        // What a rounding leaves is no unit.
        (self.level - self.burst - 1e-6).max(0.0).ceil() as u64
    }
}
