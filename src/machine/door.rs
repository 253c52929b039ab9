//! The one gate that every offer passes: a pure question, asked with or without acting on the answer.

use std::time::Duration;

use crate::machine::outcome::Ask;
use crate::machine::queue::Machine;
use crate::machine::tenants::TenantId;
use crate::refusal::Reason;
use crate::tick::Tick;
use crate::words::{Pressure, Priority, WhenFull};

/// How an offer is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Now or not at all.
    Try,
    /// In line, if need be.
    Wait,
}

/// What the door says to an offer.
#[derive(Debug)]
pub(super) enum Door {
    /// A free place.
    Free,
    /// The places of queued jobs that cost at least this much.
    Evict(u64),
    /// A place in line.
    Line,
    /// A refusal, and how much too late the job would start.
    No(Reason, Duration),
}

impl<P> Machine<P> {
    /// Where an offer would go. While the queue is paused, that is why there is no room.
    pub(super) fn door(&self, now: Tick, ask: &Ask, form: Form) -> Door {
        match self.judge_offer(now, ask, form) {
            Door::No(reason, _)
                if self.paused.is_some()
                    && !matches!(reason, Reason::Closed | Reason::TooCostly) =>
            {
                Door::No(Reason::Paused, Duration::ZERO)
            }
            door => door,
        }
    }

    fn judge_offer(&self, now: Tick, ask: &Ask, form: Form) -> Door {
        let depth = self.depth();
        if self.closed {
            return Door::No(Reason::Closed, Duration::ZERO);
        }
        if ask.cost > self.settings.max_depth {
            return Door::No(Reason::TooCostly, Duration::ZERO);
        }
        let mut tenant = Some(TenantId::NONE);
        let mut weight = 1;
        if let Some((key, its)) = &ask.tenant {
            weight = *its;
            tenant = self.tenants.find(Some(key));
            let own_bound = self.tenants.max_depth(true);
            if ask.cost > own_bound {
                return Door::No(Reason::TooCostly, Duration::ZERO);
            }
            let load = self.tenant_load(tenant);
            if load.saturating_add(u128::from(ask.cost)) > u128::from(own_bound) {
                return Door::No(Reason::Full, Duration::ZERO);
            }
        }
        let door = match form {
            Form::Try => self.try_door(ask, depth),
            Form::Wait => self.wait_door(ask, depth),
        };
        if self.settings.max_wait.is_none() && !self.can_expire(ask) {
            // It is never too late.
            return door;
        }
        let ahead = self.ahead(ask.priority, tenant, weight, 0);
        let ahead = match door {
            Door::No(..) => return door,
            Door::Free => ahead,
            Door::Evict(need) => ahead.saturating_sub(u128::from(need)),
            Door::Line => ahead + self.line.cost(),
        };
        match self.excess(now, ask, tenant, ahead) {
            Some(excess) => Door::No(Reason::TooLate, excess),
            None => door,
        }
    }

    /// What a tenant has in the queue and in line.
    pub(super) fn tenant_load(&self, tenant: Option<TenantId>) -> u128 {
        tenant.map_or(0, |id| {
            let tenant = self.tenants.get(id);
            tenant.depth + tenant.line
        })
    }

    fn try_door(&self, ask: &Ask, depth: u64) -> Door {
        let fits = self.ladder.fits(ask.cost, depth);
        let evicting = self.settings.when_full != WhenFull::Refuse;
        let empty = self.line.len() == 0;
        let open = self.ladder.state() == Pressure::Healthy
            || ask.priority == Priority::Critical
            || (evicting && empty);
        if fits && open && !self.head_blocks(depth) {
            return Door::Free;
        }
        if evicting {
            // With a line, what is free is for the line: a newcomer takes only what it evicts.
            let free = if empty {
                self.settings.max_depth.saturating_sub(depth)
            } else {
                0
            };
            let need = ask.cost.saturating_sub(free);
            if self.lanes.evictable(self.settings.when_full, ask.priority) >= u128::from(need) {
                return Door::Evict(need);
            }
            return Door::No(Reason::Full, Duration::ZERO);
        }
        let reason = if fits {
            Reason::Overloaded
        } else {
            Reason::Full
        };
        Door::No(reason, Duration::ZERO)
    }

    fn wait_door(&self, ask: &Ask, depth: u64) -> Door {
        let critical = ask.priority == Priority::Critical;
        if critical && self.ladder.fits(ask.cost, depth) && !self.head_blocks(depth) {
            return Door::Free;
        }
        if self.ladder.state() == Pressure::Overloaded {
            let reason = if self.is_standing_delay() && depth > self.settings.low {
                Reason::Overloaded
            } else if self.settings.max_waiters == 0 {
                Reason::Full
            } else {
                Reason::WaitersFull
            };
            return Door::No(reason, Duration::ZERO);
        }
        if self.line.len() == 0 && self.ladder.grants(ask.cost, depth, self.critical()) {
            Door::Free
        } else if self.settings.max_waiters == 0 {
            Door::No(Reason::Full, Duration::ZERO)
        } else {
            Door::Line
        }
    }

    /// Whether the head of the line waits for room: then nobody else takes any, or a big head would starve.
    fn head_blocks(&self, depth: u64) -> bool {
        self.line
            .head()
            .is_some_and(|(_, head)| !self.ladder.fits(head.cost, depth))
    }
}
