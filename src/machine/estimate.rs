//! How long it will take: waits known at the door, and the time to come back.

use std::time::Duration;

use crate::machine::door::Form;
use crate::machine::outcome::Ask;
use crate::machine::queue::Machine;
use crate::machine::shares::WHOLE;
use crate::machine::tenants::TenantId;
use crate::refusal::{Reason, Refusal};
use crate::tick::{Fine, Tick};
use crate::words::Priority;

impl<P> Machine<P> {
    /// Cost that leaves before a newcomer: what is as urgent or more, or, for a tenant that has little of it, its fair
    /// share of that. `own` = what it holds already itself.
    pub(super) fn ahead(
        &self,
        priority: Priority,
        tenant: Option<TenantId>,
        weight: u64,
        own: u64,
    ) -> u128 {
        let own = u128::from(own);
        let all = self.held[priority.index()..].iter().sum::<u128>() - own;
        if tenant == Some(TenantId::NONE) {
            return self.with_shares(priority, all);
        }
        let depth = tenant.map_or(0, |id| self.tenants.get(id).depth) - own;
        // While it sends what it has and one unit more, each other flow sends as much by weight.
        let share =
            (depth + 1).saturating_mul(self.lanes.weight(priority)) / u128::from(weight.max(1));
        let urgent: u128 = self.held[priority.index() + 1..].iter().sum();
        self.with_shares(priority, all.min(urgent + share))
    }

    /// What leaves before a job with so much ahead of it, with what less urgent lanes take meanwhile by their shares.
    fn with_shares(&self, priority: Priority, ahead: u128) -> u128 {
        let (lane, shares) = (priority.index(), &self.lanes.shares);
        let below = shares.below(lane);
        if below == 0 {
            return ahead;
        }
        let lanes = (0..lane).filter(|lower| shares.has(*lower));
        let held: u128 = lanes.map(|lower| self.held[lower]).sum();
        let taken = match WHOLE.checked_sub(below) {
            None | Some(0) => held,
            Some(left) => ((ahead + 1) * below).div_ceil(left),
        };
        ahead + held.min(taken)
    }

    /// Time until a job starts that has `ahead` units before it. While paused: as if resumed now.
    pub(super) fn wait(&self, now: Tick, tenant: Option<TenantId>, ahead: u128) -> Duration {
        let units = u64::try_from(ahead).unwrap_or(u64::MAX);
        let schedule = self.schedule.as_ref();
        let queue = schedule.map_or(Duration::ZERO, |schedule| {
            schedule.wait(now, units, self.is_idle())
        });
        let own = tenant.map_or(Duration::ZERO, |id| {
            self.tenants.wait(id, now, self.tenants.get(id).depth)
        });
        queue.max(own)
    }

    /// How much too late a job would start; `None` if it would be in time, or need not be.
    pub(super) fn excess(
        &self,
        now: Tick,
        ask: &Ask,
        tenant: Option<TenantId>,
        ahead: u128,
    ) -> Option<Duration> {
        let expiry = self.expiry(now, ask).first;
        // An instant in the past is too late whatever the wait.
        let past = Duration::from_nanos(u64::from(expiry < now));
        let by_expiry = (expiry < Tick::MAX).then(|| expiry - now);
        let limit = [by_expiry, self.settings.max_wait]
            .into_iter()
            .flatten()
            .min()?;
        let grain = if self.schedule.is_some() {
            self.settings.grain
        } else {
            past
        };
        let start = self.wait(now, tenant, ahead).saturating_add(grain);
        (start > limit).then(|| start - limit)
    }

    /// Time after which a lone caller gets in, before it is spread; `None` where coming back is of no use.
    pub(super) fn comeback_in(
        &self,
        now: Tick,
        ask: &Ask,
        form: Form,
        reason: Reason,
        excess: Duration,
    ) -> Option<Duration> {
        if matches!(reason, Reason::Paused | Reason::Closed | Reason::TooCostly) {
            return None;
        }
        let units = u64::try_from(self.must_leave(ask, form, reason)).unwrap_or(u64::MAX);
        let base = match &self.schedule {
            // The first of them leaves at the next departure, the others at the rate behind it.
            Some(_) if units == 0 => Duration::ZERO,
            Some(schedule) => schedule.wait(now, units - 1, self.is_idle()),
            None => Duration::ZERO,
        };
        Some(base.max(excess).saturating_add(self.settings.grain))
    }

    /// Cost that must leave until the same offer would be admitted, or let into the line.
    fn must_leave(&self, ask: &Ask, form: Form, reason: Reason) -> u128 {
        let settings = &self.settings;
        let (low, high) = (u128::from(settings.low), u128::from(settings.high));
        let most_left = u128::from(settings.max_depth.saturating_sub(ask.cost));
        let line = self.line.cost();
        let tenant = self.tenants.find(ask.tenant.as_ref().map(|(key, _)| key));
        let own_bound = u128::from(self.tenants.max_depth(ask.tenant.is_some()));
        if self.tenant_load(tenant) + u128::from(ask.cost) > own_bound {
            // Which of its jobs leave when is up to the others too; all of them have left when all have.
            return self.depth + line;
        }
        if form == Form::Try || settings.max_waiters == 0 {
            return (self.depth + line).saturating_sub(low.min(most_left));
        }
        match reason {
            Reason::WaitersFull => {
                let half = settings.max_waiters / 2;
                // The others in line cost at least one each, so those who must go first cost at most this.
                let stay = self.line.len().min(half);
                let go = line.saturating_sub(u128::from(stay));
                let level = if line == u128::from(self.line.len()) {
                    high
                } else {
                    low
                };
                (self.depth + go).saturating_sub(level)
            }
            Reason::Overloaded => self.depth.saturating_sub(low),
            _ => (self.depth + line).saturating_sub(high.min(most_left)),
        }
    }

    /// Refusals in a row are told successive times, one interval apart, so that the refused return as a trickle.
    pub(super) fn spread(&mut self, ask: &Ask, reason: Reason, base: Option<Duration>) -> Refusal {
        let told = base.map(|base| {
            let now = Fine::at(self.now);
            let earliest = now.plus(Fine::span(base));
            let step = self
                .rate()
                .map_or(Fine::span(UNPACED_STEP), |rate| rate.interval());
            // Callers who never come back must not push the others' return out without end: after a queueful of
            // refusals the round begins anew.
            let latest = earliest.plus(step.times(self.settings.max_depth));
            let slot = if (earliest..=latest).contains(&self.comeback) {
                self.comeback
            } else {
                earliest
            };
            self.comeback = slot.plus(step);
            slot.minus(now).duration()
        });
        self.refusal(ask, reason, told)
    }

    pub(crate) fn refusal(&self, ask: &Ask, reason: Reason, after: Option<Duration>) -> Refusal {
        Refusal {
            reason,
            retry_after: after,
            depth: self.depth(),
            max_depth: self.settings.max_depth,
            cost: ask.cost,
            pressure: self.ladder.state(),
            queue: self.settings.name.clone(),
        }
    }
}

/// Without a rate the refused return a millisecond apart.
const UNPACED_STEP: Duration = Duration::from_millis(1);
