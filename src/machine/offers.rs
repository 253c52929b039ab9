//! At the door: who gets a place, who waits, who is refused.

use std::time::Duration;

use crate::machine::line::{Stand, Waiter};
use crate::machine::outcome::{Ask, Collected, Effects, Expiry, Offered, Place, WaiterKey};
use crate::machine::queue::Machine;
use crate::refusal::{Reason, Refusal};
use crate::tick::Tick;
use crate::words::{Exit, Pressure, Priority, WhenFull};

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
    No(Reason, Duration),
}

impl<P> Machine<P> {
    /// A place at once for who cannot wait, or a refusal. May evict.
    pub(crate) fn try_offer(
        &mut self,
        now: Tick,
        ask: &Ask,
        fx: &mut Effects<P>,
    ) -> Result<Place, Refusal> {
        self.arrive(now, fx);
        self.count(ask.priority).offered += 1;
        match self.door(ask, Form::Try) {
            Door::No(reason, excess) => Err(self.turn_away(ask, Form::Try, reason, excess)),
            Door::Evict(need) => {
                self.evict(need, fx);
                let place = self.admit(ask);
                self.judge(fx);
                Ok(place)
            }
            Door::Free | Door::Line => {
                let place = self.admit(ask);
                self.judge(fx);
                Ok(place)
            }
        }
    }

    /// A place for who can wait. `stay` bounds the stay in line only.
    pub(crate) fn offer(
        &mut self,
        now: Tick,
        ask: &Ask,
        stay: Option<Duration>,
        fx: &mut Effects<P>,
    ) -> Offered {
        self.arrive(now, fx);
        self.count(ask.priority).offered += 1;
        match self.door(ask, Form::Wait) {
            Door::No(reason, excess) => {
                Offered::Refused(self.turn_away(ask, Form::Wait, reason, excess))
            }
            Door::Line => {
                let waiter = self.waiter(ask, stay);
                let key = self.line.push(waiter);
                self.count(ask.priority).waiting += 1;
                self.judge(fx);
                Offered::Waiting(key)
            }
            Door::Free | Door::Evict(_) => {
                let place = self.admit(ask);
                self.judge(fx);
                Offered::Admitted(place)
            }
        }
    }

    /// The refusal that an offer would meet now; nothing changes and nothing is counted.
    pub(crate) fn would_refuse(&self, now: Tick, ask: &Ask, try_form: bool) -> Option<Refusal> {
        let form = if try_form { Form::Try } else { Form::Wait };
        let now = now.max(self.now);
        match self.door_at(now, ask, form) {
            Door::No(reason, excess) => {
                let base = self.comeback_in(now, ask, form, reason, excess);
                Some(self.refusal(ask, reason, base))
            }
            Door::Free | Door::Evict(_) | Door::Line => None,
        }
    }

    /// Counts an offer that is refused before it reaches the door.
    pub(crate) fn refuse(&mut self, now: Tick, ask: &Ask, reason: Reason) -> Refusal {
        self.now = self.now.max(now);
        self.count(ask.priority).offered += 1;
        self.turn_away(ask, Form::Wait, reason, Duration::ZERO)
    }

    /// How a waiter stands. Its key ends unless it is still waiting; one that had lapsed stands in line again.
    pub(crate) fn collect(&mut self, now: Tick, key: WaiterKey, fx: &mut Effects<P>) -> Collected {
        self.arrive(now, fx);
        if self
            .line
            .get(key)
            .is_some_and(|waiter| matches!(waiter.stand, Stand::Lapsed))
        {
            self.line.set(key, Stand::Standing);
            self.judge(fx);
        }
        let Some(waiter) = self.line.get(key) else {
            debug_assert!(false, "collected twice");
            return Collected::Waiting;
        };
        if matches!(waiter.stand, Stand::Standing | Stand::Lapsed) {
            return Collected::Waiting;
        }
        let waiter = self.line.remove(key).expect("it was just found");
        let Waiter {
            cost,
            priority,
            offered_at,
            expiry,
            stand,
            ..
        } = waiter;
        match stand {
            Stand::Refused(refusal) => Collected::Refused(refusal),
            Stand::Granted(_) | Stand::Standing | Stand::Lapsed => {
                let count = self.count(priority);
                count.waiting -= 1;
                count.admitted += 1;
                count.reserved += 1;
                Collected::Ready(Place {
                    cost,
                    priority,
                    offered_at,
                    expiry,
                })
            }
        }
    }

    /// A waiter is gone; a place it was granted goes to the next.
    pub(crate) fn leave(&mut self, now: Tick, key: WaiterKey, fx: &mut Effects<P>) {
        self.arrive(now, fx);
        let Some(waiter) = self.line.remove(key) else {
            return;
        };
        if waiter.is_refused() {
            return;
        }
        if matches!(waiter.stand, Stand::Granted(_)) {
            self.release(waiter.cost, waiter.priority);
        }
        let count = self.count(waiter.priority);
        count.waiting -= 1;
        count.cancelled_waiting += 1;
        self.judge(fx);
    }

    /// A waiter's token fired: it is refused.
    pub(crate) fn cancel_waiter(&mut self, now: Tick, key: WaiterKey, fx: &mut Effects<P>) {
        self.arrive(now, fx);
        self.dismiss(key, Reason::Cancelled, fx);
        self.judge(fx);
    }

    /// Refuses a waiter, to be collected. The caller judges.
    pub(super) fn dismiss(&mut self, key: WaiterKey, reason: Reason, fx: &mut Effects<P>) {
        let Some(waiter) = self.line.get(key).filter(|waiter| !waiter.is_refused()) else {
            return;
        };
        let Waiter { cost, priority, .. } = *waiter;
        if matches!(waiter.stand, Stand::Granted(_)) {
            self.release(cost, priority);
        }
        let count = self.count(priority);
        count.waiting -= 1;
        count.refused += 1;
        let ask = Ask {
            cost,
            priority,
            ..Ask::default()
        };
        let base = self.comeback_in(self.now, &ask, Form::Wait, reason, Duration::ZERO);
        let refusal = self.spread(&ask, reason, base);
        self.line.set(key, Stand::Refused(refusal));
        fx.wake.push(key);
    }

    fn door(&self, ask: &Ask, form: Form) -> Door {
        self.door_at(self.now, ask, form)
    }

    /// The one gate that every offer passes. While the queue is paused, that is why there is no room.
    fn door_at(&self, now: Tick, ask: &Ask, form: Form) -> Door {
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
        let door = match form {
            Form::Try => self.try_door(ask, depth),
            Form::Wait => self.wait_door(ask, depth),
        };
        let ahead = match door {
            Door::No(..) => return door,
            Door::Free => self.ahead(ask.priority),
            Door::Evict(need) => self.ahead(ask.priority).saturating_sub(u128::from(need)),
            Door::Line => self.ahead(ask.priority) + self.line.cost(),
        };
        match self.excess(now, ask, ahead) {
            Some(excess) => Door::No(Reason::TooLate, excess),
            None => door,
        }
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

    fn admit(&mut self, ask: &Ask) -> Place {
        let Ask { cost, priority, .. } = *ask;
        self.hold(cost, priority);
        let count = self.count(priority);
        count.admitted += 1;
        count.reserved += 1;
        Place {
            cost,
            priority,
            offered_at: self.now,
            expiry: self.expiry(self.now, ask),
        }
    }

    fn waiter(&self, ask: &Ask, stay: Option<Duration>) -> Waiter {
        let expiry = self.expiry(self.now, ask);
        let stay = [stay, self.settings.max_wait].into_iter().flatten().min();
        let times_out = stay.map(|stay| (self.now + stay, Reason::TimedOut));
        // Taken exactly at its expiry is in time, so hope ends one nanosecond later.
        let expires = (expiry.first < Tick::MAX)
            .then(|| (expiry.first + Duration::from_nanos(1), Reason::TooLate));
        Waiter {
            cost: ask.cost,
            priority: ask.priority,
            offered_at: self.now,
            expiry,
            deadline: times_out
                .into_iter()
                .chain(expires)
                .min_by_key(|(at, _)| *at),
            stand: Stand::Standing,
        }
    }

    /// Latest starts of a job offered at `now`, so that it ends in time if it takes as long as estimated.
    pub(super) fn expiry(&self, now: Tick, ask: &Ask) -> Expiry {
        let run = ask.run_estimate.unwrap_or_default();
        let any = ask.expires_at.map_or(Tick::MAX, |at| at.before(run));
        let own = ask.expires_in.map(|within| (now + within).before(run));
        let queue = self.settings.expire_after.map(|within| now + within);
        let first = [own, queue].into_iter().flatten().fold(any, Tick::min);
        Expiry { first, any }
    }

    fn evict(&mut self, need: u64, fx: &mut Effects<P>) {
        let goal = self.depth.saturating_sub(u128::from(need));
        while self.depth > goal {
            let victim = self.lanes.victim(&self.places, self.settings.when_full);
            let victim = victim.expect("the cost of evictable jobs was checked");
            self.eject(victim, Exit::Evicted, &mut fx.gone);
        }
    }

    fn turn_away(&mut self, ask: &Ask, form: Form, reason: Reason, excess: Duration) -> Refusal {
        self.count(ask.priority).refused += 1;
        let base = self.comeback_in(self.now, ask, form, reason, excess);
        self.spread(ask, reason, base)
    }
}
