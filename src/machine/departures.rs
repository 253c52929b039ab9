//! Places that are used or given back, jobs that leave.

use std::time::Duration;

use crate::machine::outcome::{Effects, InFlight, JobKey, NotTaken, Place, Queued, Taken};
use crate::machine::places::{Entry, Standing};
use crate::machine::queue::Machine;
use crate::tick::Tick;
use crate::words::{Exit, Health, Pressure};

impl<P> Machine<P> {
    /// Puts an item into its place; where the queue has ended or the job expired, it is among the effects.
    pub(crate) fn send(
        &mut self,
        now: Tick,
        place: Place,
        payload: P,
        fx: &mut Effects<P>,
    ) -> Queued {
        self.arrive(now, fx);
        let Place {
            cost,
            owner,
            offered_at,
            expiry,
        } = place;
        let exit = match () {
            () if self.ended => Some(Exit::Returned),
            () if expiry.first < self.now => Some(Exit::Expired),
            () => None,
        };
        let tenant = Some(owner.tenant);
        let expected_wait = if self.schedule.is_some() || self.tenants.are_paced() {
            let weight = self.tenants.get(owner.tenant).weight;
            let ahead = self.ahead(owner.priority, tenant, weight, cost);
            self.wait(self.now, tenant, ahead)
        } else {
            Duration::ZERO
        };
        let depth = self.depth();
        self.count(owner, |count| {
            count.reserved -= 1;
            count.queued += 1;
        });
        self.tally.arrive(depth);
        let lasting = expiry.first == expiry.any;
        let entry = Entry {
            payload,
            cost,
            since: offered_at,
            expires_at: expiry.first,
            attempts: 0,
            owner,
            lasting,
        };
        let key = self.enqueue(entry);
        if !lasting && expiry.any < Tick::MAX {
            self.later.insert(key, expiry.any);
        }
        if let Some(exit) = exit {
            self.eject(key, exit, &mut fx.gone);
            self.judge(fx);
            return Queued {
                key: None,
                depth: self.depth(),
                expected_wait: Duration::ZERO,
            };
        }
        Queued {
            key: Some(key),
            depth,
            expected_wait,
        }
    }

    /// A place that is not used.
    pub(crate) fn give_back(&mut self, now: Tick, place: Place, fx: &mut Effects<P>) {
        self.arrive(now, fx);
        self.release(place.cost, place.owner);
        self.count(place.owner, |count| {
            count.reserved -= 1;
            count.cancelled += 1;
        });
        self.judge(fx);
    }

    /// Payload of a queued job.
    pub(crate) fn payload_mut(&mut self, key: JobKey) -> Option<&mut P> {
        self.places.payload_mut(key)
    }

    /// A queued job's token fired. `false` on a stale key.
    pub(crate) fn cancel_job(&mut self, now: Tick, key: JobKey, fx: &mut Effects<P>) -> bool {
        self.arrive(now, fx);
        let found = self.eject(key, Exit::Cancelled, &mut fx.gone);
        self.judge(fx);
        found
    }

    /// Takes the job that goes next, if a departure is due.
    #[inline(always)] // As whoever calls it on behalf of a consumer.
    pub(crate) fn take(&mut self, now: Tick, fx: &mut Effects<P>) -> Result<Taken<P>, NotTaken> {
        if let Some(taken) = self.take_plainly(now, fx) {
            return Ok(taken);
        }
        self.take_next(now, fx)
    }

    #[inline(never)]
    pub(super) fn take_next(
        &mut self,
        now: Tick,
        fx: &mut Effects<P>,
    ) -> Result<Taken<P>, NotTaken> {
        self.arrive(now, fx);
        self.drop_stale(fx);
        self.readiness(self.now)?;
        let key = self.next_job().ok_or(NotTaken::Empty)?;
        let taken = self.depart(key, true);
        self.judge(fx);
        taken
    }

    /// Takes one more job along with the departure that was just taken, at no charge.
    pub(crate) fn take_along(&mut self, fx: &mut Effects<P>) -> Option<Taken<P>> {
        self.drop_stale(fx);
        if !self.has_room_in_flight() {
            return None;
        }
        let key = self.next_job()?;
        let taken = self.depart(key, false).ok();
        self.judge(fx);
        taken
    }

    /// Jobs that one departure could take along now.
    pub(crate) fn ready(&self) -> u64 {
        (self.lanes.ready() as u64).min(self.room_in_flight())
    }

    /// Jobs that the in-flight bound leaves room for.
    pub(crate) fn room_in_flight(&self) -> u64 {
        self.settings.max_in_flight.saturating_sub(self.in_flight())
    }

    /// Latest start of the queued job that expires first.
    pub(crate) fn first_expiry(&self) -> Option<Tick> {
        self.expiries.first().map(|(at, _)| at)
    }

    /// Takes this very job, if a departure is due.
    pub(crate) fn take_key(
        &mut self,
        now: Tick,
        key: JobKey,
        fx: &mut Effects<P>,
    ) -> Result<Taken<P>, NotTaken> {
        self.arrive(now, fx);
        match self.places.get(key) {
            Some(slot) if slot.standing != Standing::Delayed => {}
            _ => return Err(NotTaken::Empty),
        }
        self.readiness(self.now)?;
        let taken = self.depart(key, true);
        self.judge(fx);
        taken
    }

    /// Whether a job could be taken at `now`.
    #[inline]
    pub(crate) fn readiness(&self, now: Tick) -> Result<(), NotTaken> {
        if self.lanes.ready() == 0 {
            if let Some(due) = self.lanes.next_due().filter(|_| self.paused.is_none()) {
                return Err(NotTaken::NotDue(due));
            }
            return Err(if self.is_exhausted() {
                NotTaken::Closed
            } else {
                NotTaken::Empty
            });
        }
        if self.paused.is_some() || !self.has_room_in_flight() {
            return Err(NotTaken::Held);
        }
        match self.schedule.as_ref().map(|schedule| schedule.due()) {
            Some(due) if due > now.max(self.now) => Err(NotTaken::NotDue(due)),
            _ => Ok(()),
        }
    }

    /// The job that `take` would choose next.
    #[inline]
    pub(crate) fn next_job(&self) -> Option<JobKey> {
        let newest = self.settings.newest_first && self.ladder.state() == Pressure::Overloaded;
        self.lanes.next(&self.places, &self.tenants, newest)
    }

    /// Takes a job out of the order because its own future is late; it may still be taken by key.
    pub(crate) fn set_aside(&mut self, key: JobKey) {
        self.lanes
            .set_aside(&mut self.places, &mut self.tenants, key);
    }

    /// The job leaves; `charge` = as a departure of its own. The caller has checked that it may, and judges.
    fn depart(&mut self, key: JobKey, charge: bool) -> Result<Taken<P>, NotTaken> {
        let later = if self.later.is_empty() {
            Tick::MAX
        } else {
            self.later.get(&key).copied().unwrap_or(Tick::MAX)
        };
        // Whether there was an outage is of interest only where one is followed by a gentle start.
        let overdue = self.settings.slow_start.is_some() && self.health(self.now) == Health::Red;
        let entry = self.extract(key, charge).ok_or(NotTaken::Empty)?;
        let Entry {
            payload,
            cost,
            since,
            expires_at,
            attempts,
            owner,
            lasting,
        } = entry;
        let now = self.now;
        if charge && let Some(schedule) = &mut self.schedule {
            schedule.depart(now, cost);
        }
        if charge && let Some(due) = self.tenants.charge(owner.tenant, now, cost) {
            self.lanes.rest(&mut self.tenants, owner.tenant, due);
            self.expect(due);
        }
        let waited = now - since;
        if let Some(delay) = &mut self.standing {
            delay.observe(waited);
        }
        self.tally.depart(waited);
        self.last_departure = Some(now);
        self.pace_departure(cost, overdue);
        if attempts == 0
            && let Some(budget) = &mut self.budget
        {
            budget.earn();
            self.ripen();
        }
        self.count(owner, |count| {
            count.queued -= 1;
            count.in_flight += 1;
        });
        let charged = if charge { cost } else { 0 };
        let attempt = attempts.saturating_add(1);
        let run = InFlight {
            cost,
            charged,
            owner,
            attempt,
            departed_at: now,
            waited,
            expires_at: if lasting { expires_at } else { later },
        };
        Ok(Taken { payload, run })
    }

    /// Takes out what would go next and is too old to be worth a departure; `take` does so by itself.
    pub(crate) fn skip_stale(&mut self, now: Tick, fx: &mut Effects<P>) {
        self.arrive(now, fx);
        self.drop_stale(fx);
    }

    /// While delay stands, jobs that waited too long are not worth a departure.
    fn drop_stale(&mut self, fx: &mut Effects<P>) {
        let Some(delay) = self.standing.filter(|delay| delay.is_standing()) else {
            return;
        };
        if !self.settings.drop_stale || self.readiness(self.now).is_err() {
            return;
        }
        let stale_after = delay.stale_after();
        while self.is_standing_delay()
            && let Some(key) = self.next_job()
            && let Some(slot) = self.places.get(key)
            && self.now - slot.since > stale_after
        {
            self.eject(key, Exit::Expired, &mut fx.gone);
        }
        self.judge(fx);
    }

    /// Whether the in-flight bound lets one more leave.
    #[inline]
    pub(super) fn has_room_in_flight(&self) -> bool {
        let most = self.settings.max_in_flight;
        most == u64::MAX || self.in_flight() < most
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.ledgers.iter().map(|lane| lane.in_flight).sum()
    }
}
