//! The short way: what most offers and departures of a queue without a rate come to.
//!
//! A job that can neither expire nor be evicted, offered where there is room and nobody stands in line, goes straight
//! to its place; and the job whose turn it is goes straight out where its lane has no other flow to weigh. Nothing of
//! what the long way asks can say no then, so it is not asked.
//!
//! - I1  each call does exactly what the long way does ([`offer`](Machine::offer) and [`send`](Machine::send), or
//!   [`take`](Machine::take)), or nothing at all.
//! - I2  `plain` says of the present settings that nothing but room, the line and the order has a say.

use std::time::Duration;

use crate::machine::outcome::{Effects, InFlight, Owner, Queued, Taken};
use crate::machine::places::Entry;
use crate::machine::queue::Machine;
use crate::machine::settings::Settings;
use crate::machine::tenants::TenantId;
use crate::tick::Tick;
use crate::words::{Pressure, Priority, WhenFull};

/// Whether these settings let jobs go the short way.
pub(super) fn is_plain(settings: &Settings) -> bool {
    let Settings {
        rate,
        max_wait,
        expire_after,
        max_in_flight,
        when_full,
        standing_delay,
        newest_first,
        slow_start,
        ref retries,
        lane_shares,
        tenancy,
        ..
    } = *settings;
    let bound = max_wait.is_some() || expire_after.is_some() || max_in_flight < u64::MAX;
    let paced = rate.is_some() || tenancy.rate.is_some() || slow_start.is_some();
    let ordered = newest_first || when_full != WhenFull::Refuse || lane_shares != [0; 4];
    !(bound || paced || ordered || standing_delay.is_some() || retries.is_some())
}

impl<P> Machine<P> {
    /// Places a job of cost 1 that asks for nothing, if it can go the short way; `None` = nothing was done.
    #[inline]
    pub(crate) fn put_plainly(
        &mut self,
        now: Tick,
        payload: impl FnOnce() -> P,
        fx: &mut Effects<P>,
    ) -> Option<Queued> {
        const COST: u64 = 1;
        let now = self.now.max(now);
        let free = self.plain
            && now < self.soonest
            && !self.closed
            && self.line.len() == 0
            && self.ladder.state() != Pressure::Overloaded
            && self.ladder.grants(COST, self.depth(), self.critical());
        if !free {
            return None;
        }
        self.now = now;
        let owner = Owner {
            priority: Priority::Normal,
            tenant: TenantId::NONE,
        };
        self.hold(COST, owner);
        let count = &mut self.ledgers[owner.priority.index()];
        count.offered += 1;
        count.admitted += 1;
        count.queued += 1;
        let depth = self.depth();
        self.tally.arrive(depth);
        self.judge(fx);
        let was_empty = self.lanes.ready() == 0;
        let entry = Entry {
            payload: payload(),
            cost: COST,
            since: now,
            expires_at: Tick::MAX,
            attempts: 0,
            owner,
            lasting: true,
        };
        let key = self
            .lanes
            .push_plainly(&mut self.places, &mut self.tenants, entry);
        if was_empty {
            self.begin_work();
        }
        Some(Queued {
            key: Some(key),
            depth,
            expected_wait: Duration::ZERO,
        })
    }

    /// Takes the job that goes next, if it can go the short way; `None` = nothing was done.
    #[inline(always)] // The job is handed over in registers, or where the caller wants it.
    pub(super) fn take_plainly(&mut self, now: Tick, fx: &mut Effects<P>) -> Option<Taken<P>> {
        let now = self.now.max(now);
        if !self.plain || now >= self.soonest || self.paused.is_some() || !self.later.is_empty() {
            return None;
        }
        let entry = self
            .lanes
            .pull_plainly(&mut self.places, &mut self.tenants)?;
        let Entry {
            payload,
            cost,
            since,
            expires_at,
            attempts,
            owner,
            lasting: _,
        } = entry;
        self.now = now;
        self.release(cost, owner);
        let count = &mut self.ledgers[owner.priority.index()];
        count.queued -= 1;
        count.in_flight += 1;
        let waited = now - since;
        self.tally.depart(waited);
        self.last_departure = Some(now);
        self.judge(fx);
        let run = InFlight {
            cost,
            charged: cost,
            owner,
            attempt: attempts.saturating_add(1),
            departed_at: now,
            waited,
            expires_at,
        };
        Some(Taken { payload, run })
    }
}
