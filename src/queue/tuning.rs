//! Settings of a queue for tenants and for trouble.

use std::fmt;
use std::time::Duration;

use super::builder::Builder;
use crate::key::Key;
use crate::rate::Rate;
use crate::words::Priority;

impl Builder {
    /// Share of a tenant among those that have jobs waiting; every other tenant has 1.
    ///
    /// Twice the weight is twice the departures, in cost. 0 counts as 1; weights above 2^32 count as 2^32. Tenants are
    /// named by [`Terms::tenant`](super::Terms::tenant). One that was idle starts where the others are: idleness earns
    /// nothing.
    pub fn tenant_weight(mut self, tenant: impl Into<Key>, weight: u64) -> Self {
        self.spec.weights.insert(tenant.into(), weight);
        self
    }

    /// Bound of each tenant's depth, what it has standing in line included. From 1 to `max_depth`; above is refused.
    ///
    /// Default: only that of the queue. Lower keeps a flood of one from filling the queue and the line for all; a tenant
    /// at its bound is refused as [`Full`](super::Reason::Full), a dearer job as [`TooCostly`](super::Reason::TooCostly).
    pub fn tenant_max_depth(mut self, cost: u64) -> Self {
        self.spec.tenancy.max_depth = Some(cost);
        self
    }

    /// Departures of each tenant: "per customer 5/s, in all 200/s". Default: only the rate of the queue.
    ///
    /// A tenant that has used up its own rate rests, and the others go on. Jobs that name no tenant are not bound by it.
    pub fn tenant_rate(mut self, rate: Rate) -> Self {
        self.spec.tenancy.rate = Some(rate);
        self
    }

    /// Tenants that are known by name at once. Default 4,096; from 1 to 2^20.
    ///
    /// Higher costs about 400 bytes a tenant. At the bound idle ones are forgotten; if there are none, newcomers are
    /// dealt 8 of 64 flows which they share, and join the one with the least work.
    pub fn max_tenants(mut self, tenants: u64) -> Self {
        self.spec.tenancy.max_tenants = tenants;
        self
    }

    /// Share of the departures, in cost, that a lane gets at least while it has jobs that may leave, however urgent the
    /// others are. From 0 to 1, and all lanes together at most 1.
    ///
    /// Default 0 for each: the less urgent wait until they have aged, which takes up to four times the time in which a
    /// full queue drains. Higher keeps a lane moving through a flood above it; the more urgent get what is left. A lane
    /// that was idle has earned nothing, and over any time it is short of its share by a few of the largest jobs at most.
    pub fn lane_share(mut self, priority: Priority, share: f64) -> Self {
        self.spec.lane_shares[priority.index()] = share;
        self
    }

    /// While the queue is overloaded, the job that came last goes first; when it is calm, the oldest does again.
    ///
    /// Default `false`. Useful where callers give up: those who still wait are served. It needs an expiry, or the oldest
    /// wait for as long as the overload lasts.
    pub fn newest_first(mut self, newest: bool) -> Self {
        self.spec.newest_first = newest;
        self
    }

    /// After a pause, an outage of the consumers or a raised rate, the rate climbs for so long to where it is set.
    ///
    /// It climbs evenly, from a tenth, or from what it was before. Default: at once. Longer is gentler on cold caches; a
    /// climb that is longer than the calm between two pauses never arrives, and never stops work either.
    pub fn slow_start(mut self, over: Duration) -> Self {
        self.spec.slow_start = Some(over);
        self
    }

    /// Keeps retries to a share of the fresh work, from 0 to 10; so many pass whatever the share.
    ///
    /// Default: no bound. Lower leaves more of the rate to fresh jobs while the downstream hurts; 0 lets only the least
    /// pass. Retries beyond the budget wait, first come first, for as long as that takes: only an
    /// [instant](super::Terms::expires_at) at which they expire ends their wait. Deferred jobs are no retries.
    pub fn retry_budget(mut self, share: f64, at_least: Rate) -> Self {
        self.spec.retry_budget = Some((share, at_least));
        self
    }
}

/// What the downstream itself says of how it fares: the wait for a pool, the lag of a replica, slow queries.
///
/// It is asked about once an interval of [`Aimd`](super::Aimd), with no lock held, by the task that drives the queue: it
/// must answer at once, from a number that somebody else keeps up to date.
pub trait DownstreamVitals: Send + Sync + 'static {
    /// Whether it is strained: the interval counts as bad then, whatever the outcomes of its jobs.
    fn is_strained(&self) -> bool;
}

impl<F: Fn() -> bool + Send + Sync + 'static> DownstreamVitals for F {
    fn is_strained(&self) -> bool {
        self()
    }
}

impl fmt::Debug for dyn DownstreamVitals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DownstreamVitals")
    }
}
