//! At the door: who gets a place, who waits, who is refused.

use std::time::Duration;

use crate::machine::door::{Door, Form};
use crate::machine::line::{Stand, Waiter};
use crate::machine::outcome::{Ask, Collected, Effects, Expiry, Offered, Owner, Place, WaiterKey};
use crate::machine::queue::Machine;
use crate::machine::tenants::TenantId;
use crate::refusal::{Reason, Refusal};
use crate::tick::Tick;
use crate::words::Exit;

impl<P> Machine<P> {
    /// A place at once for who cannot wait, or a refusal. May evict.
    pub(crate) fn try_offer(
        &mut self,
        now: Tick,
        ask: &Ask,
        fx: &mut Effects<P>,
    ) -> Result<Place, Refusal> {
        self.arrive(now, fx);
        let owner = self.owner(ask);
        self.count(owner, |count| count.offered += 1);
        match self.door(self.now, ask, Form::Try) {
            Door::No(reason, excess) => Err(self.turn_away(ask, owner, Form::Try, reason, excess)),
            Door::Evict(need) => {
                self.evict(need, fx);
                let place = self.admit(ask, owner);
                self.judge(fx);
                Ok(place)
            }
            Door::Free | Door::Line => {
                let place = self.admit(ask, owner);
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
        let owner = self.owner(ask);
        self.count(owner, |count| count.offered += 1);
        match self.door(self.now, ask, Form::Wait) {
            Door::No(reason, excess) => {
                Offered::Refused(self.turn_away(ask, owner, Form::Wait, reason, excess))
            }
            Door::Line => {
                let waiter = self.waiter(ask, owner, stay);
                self.tenants.get_mut(owner.tenant).line += u128::from(ask.cost);
                let key = self.stand_in_line(waiter);
                self.count(owner, |count| count.waiting += 1);
                self.judge(fx);
                Offered::Waiting(key)
            }
            Door::Free | Door::Evict(_) => {
                let place = self.admit(ask, owner);
                self.judge(fx);
                Offered::Admitted(place)
            }
        }
    }

    /// The refusal that an offer would meet now; nothing changes and nothing is counted.
    pub(crate) fn would_refuse(&self, now: Tick, ask: &Ask, try_form: bool) -> Option<Refusal> {
        let form = if try_form { Form::Try } else { Form::Wait };
        let now = now.max(self.now);
        match self.door(now, ask, form) {
            Door::No(reason, excess) => {
                let base = self.comeback_in(now, ask, form, reason, excess);
                Some(self.refusal(ask, reason, base))
            }
            Door::Free | Door::Evict(_) | Door::Line => None,
        }
    }

    /// Refuses and counts an offer that would be refused now; `None`, uncounted, if it would not be.
    pub(crate) fn refuse_hopeless(
        &mut self,
        now: Tick,
        ask: &Ask,
        try_form: bool,
        fx: &mut Effects<P>,
    ) -> Option<Refusal> {
        self.arrive(now, fx);
        let form = if try_form { Form::Try } else { Form::Wait };
        match self.door(self.now, ask, form) {
            Door::No(reason, excess) => {
                let owner = self.owner(ask);
                self.count(owner, |count| count.offered += 1);
                Some(self.turn_away(ask, owner, form, reason, excess))
            }
            Door::Free | Door::Evict(_) | Door::Line => None,
        }
    }

    /// Counts an offer that is refused before it reaches the door.
    pub(crate) fn refuse(&mut self, now: Tick, ask: &Ask, reason: Reason) -> Refusal {
        self.now = self.now.max(now);
        let owner = self.owner(ask);
        self.count(owner, |count| count.offered += 1);
        self.turn_away(ask, owner, Form::Wait, reason, Duration::ZERO)
    }

    /// How a waiter stands. Its key ends unless it is still waiting; one that had lapsed stands in line again.
    pub(crate) fn collect(&mut self, now: Tick, key: WaiterKey, fx: &mut Effects<P>) -> Collected {
        self.arrive(now, fx);
        self.stand_again(key, fx);
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
            owner,
            offered_at,
            expiry,
            stand,
            ..
        } = waiter;
        match stand {
            Stand::Refused(refusal) => Collected::Refused(refusal),
            Stand::Granted(_) | Stand::Standing | Stand::Lapsed => {
                self.count(owner, |count| {
                    count.waiting -= 1;
                    count.admitted += 1;
                    count.reserved += 1;
                });
                Collected::Ready(Place {
                    cost,
                    owner,
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
        let Waiter {
            cost,
            owner,
            ref stand,
            ..
        } = waiter;
        self.vacate(
            cost,
            owner,
            matches!(stand, Stand::Standing),
            matches!(stand, Stand::Granted(_)),
        );
        self.count(owner, |count| {
            count.waiting -= 1;
            count.cancelled_waiting += 1;
        });
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
        let Waiter {
            cost,
            owner,
            ref stand,
            ..
        } = *waiter;
        let (stood, held) = (
            matches!(stand, Stand::Standing),
            matches!(stand, Stand::Granted(_)),
        );
        self.vacate(cost, owner, stood, held);
        self.count(owner, |count| {
            count.waiting -= 1;
            count.refused += 1;
        });
        self.tally.refuse(reason);
        let ask = Ask {
            cost,
            priority: owner.priority,
            ..Ask::default()
        };
        let base = self.comeback_in(self.now, &ask, Form::Wait, reason, Duration::ZERO);
        let refusal = self.spread(&ask, reason, base);
        self.line.set(key, Stand::Refused(refusal));
        fx.wake.push(key);
    }

    /// Gives up what a waiter holds: its rank in line, or the place it was granted.
    fn vacate(&mut self, cost: u64, owner: Owner, stood: bool, held: bool) {
        if stood {
            self.tenants.get_mut(owner.tenant).line -= u128::from(cost);
        }
        if held {
            self.release(cost, owner);
        }
    }

    #[inline]
    pub(super) fn owner(&mut self, ask: &Ask) -> Owner {
        let tenant = match &ask.tenant {
            Some((key, weight)) => self.tenants.enter(Some(key), *weight),
            None => TenantId::NONE,
        };
        Owner {
            priority: ask.priority,
            tenant,
        }
    }

    #[inline]
    fn admit(&mut self, ask: &Ask, owner: Owner) -> Place {
        let cost = ask.cost;
        self.hold(cost, owner);
        self.count(owner, |count| {
            count.admitted += 1;
            count.reserved += 1;
        });
        Place {
            cost,
            owner,
            offered_at: self.now,
            expiry: self.expiry(self.now, ask),
        }
    }

    pub(super) fn stand_in_line(&mut self, waiter: Waiter) -> WaiterKey {
        if let Some((deadline, _)) = waiter.deadline {
            self.expect(deadline);
        }
        self.line.push(waiter)
    }

    pub(super) fn waiter(&self, ask: &Ask, owner: Owner, stay: Option<Duration>) -> Waiter {
        let expiry = self.expiry(self.now, ask);
        let stay = [stay, self.settings.max_wait].into_iter().flatten().min();
        let times_out = stay.map(|stay| (self.now + stay, Reason::TimedOut));
        // Taken exactly at its expiry is in time, so hope ends one nanosecond later.
        let expires = (expiry.first < Tick::MAX)
            .then(|| (expiry.first + Duration::from_nanos(1), Reason::TooLate));
        Waiter {
            cost: ask.cost,
            owner,
            offered_at: self.now,
            expiry,
            deadline: times_out
                .into_iter()
                .chain(expires)
                .min_by_key(|(at, _)| *at),
            stand: Stand::Standing,
        }
    }

    /// Whether anything bounds the start of a job.
    #[inline]
    pub(super) fn can_expire(&self, ask: &Ask) -> bool {
        self.settings.expire_after.is_some() || ask.expires_at.is_some() || ask.expires_in.is_some()
    }

    /// Latest starts of a job offered at `now`, so that it ends in time if it takes as long as estimated.
    #[inline]
    pub(crate) fn expiry(&self, now: Tick, ask: &Ask) -> Expiry {
        if !self.can_expire(ask) {
            let (first, any) = (Tick::MAX, Tick::MAX);
            return Expiry { first, any };
        }
        let run = ask.run_estimate.unwrap_or_default();
        let any = ask.expires_at.map_or(Tick::MAX, |at| at.before(run));
        let within = [ask.expires_in, self.settings.expire_after];
        let first = within.into_iter().flatten().min();
        let first = first.map_or(any, |within| (now + within).before(run).min(any));
        Expiry { first, any }
    }

    fn evict(&mut self, need: u64, fx: &mut Effects<P>) {
        let goal = self.depth.saturating_sub(u128::from(need));
        while self.depth > goal {
            let victim = self.lanes.victim(&self.places, &self.tenants);
            let victim = victim.expect("the cost of evictable jobs was checked");
            self.eject(victim, Exit::Evicted, &mut fx.gone);
        }
    }

    pub(super) fn turn_away(
        &mut self,
        ask: &Ask,
        owner: Owner,
        form: Form,
        reason: Reason,
        excess: Duration,
    ) -> Refusal {
        self.count(owner, |count| count.refused += 1);
        self.tally.refuse(reason);
        let base = self.comeback_in(self.now, ask, form, reason, excess);
        self.spread(ask, reason, base)
    }
}
