//! What happens by time alone: deadlines, lapses, expiry, retries due, ends of intervals and of a drain.

use std::time::Duration;

use crate::machine::line::Stand;
use crate::machine::outcome::{Effects, JobKey};
use crate::machine::queue::Machine;
use crate::refusal::Reason;
use crate::tick::Tick;
use crate::words::Exit;

impl<P> Machine<P> {
    /// Lets pass what is due by `now`.
    pub(crate) fn advance(&mut self, now: Tick, fx: &mut Effects<P>) {
        self.arrive(now, fx);
    }

    /// When time alone changes something next, or, if `consumers` wait, the next departure is due. May lie in the past.
    #[cfg_attr(
        not(any(test, feature = "sim")),
        allow(dead_code, reason = "asked by tests and the simulator")
    )]
    pub(crate) fn next_event(&self, consumers: bool) -> Option<Tick> {
        let upkeep = if self.soonest < Tick::MAX {
            self.next_upkeep()
        } else {
            None
        };
        self.debug_soonest();
        self.event(upkeep, consumers)
    }

    /// As [`next_event`](Self::next_event), and notes what it found: what was expected sooner and has not come about is
    /// asked for no more.
    pub(crate) fn foresee(&mut self, consumers: bool) -> Option<Tick> {
        self.debug_soonest();
        if self.soonest < Tick::MAX {
            self.soonest = self.next_upkeep().unwrap_or(Tick::MAX);
        }
        let upkeep = Some(self.soonest).filter(|at| *at < Tick::MAX);
        self.event(upkeep, consumers)
    }

    fn event(&self, upkeep: Option<Tick>, consumers: bool) -> Option<Tick> {
        if !consumers || self.is_idle() || !self.has_room_in_flight() {
            return upkeep;
        }
        let due = self
            .schedule
            .as_ref()
            .map_or(self.now, |schedule| schedule.due());
        Some(upkeep.map_or(due, |upkeep| upkeep.min(due)))
    }

    /// Time alone changes nothing before this instant; [`Tick::MAX`] = never.
    #[inline]
    pub(crate) const fn soonest(&self) -> Tick {
        self.soonest
    }

    /// First step of every call: the clock never goes back, and what was due by now has happened.
    #[inline]
    pub(super) fn arrive(&mut self, now: Tick, fx: &mut Effects<P>) {
        self.now = self.now.max(now);
        self.debug_soonest();
        if self.soonest <= self.now {
            self.pass(fx);
        }
    }

    /// Something happens by time alone at `at`, or not before it (keeps I5).
    #[inline]
    pub(super) fn expect(&mut self, at: Tick) {
        self.soonest = self.soonest.min(at);
    }

    /// What happens by time alone has changed as a whole: the next call looks at all of it.
    pub(super) fn reckon(&mut self) {
        self.soonest = Tick::ZERO;
    }

    #[cold]
    fn pass(&mut self, fx: &mut Effects<P>) {
        if self.next_upkeep().is_some_and(|at| at <= self.now) {
            self.catch_up(fx);
        }
        self.soonest = self.next_upkeep().unwrap_or(Tick::MAX);
    }

    fn debug_soonest(&self) {
        debug_assert!(
            self.next_upkeep().is_none_or(|at| at >= self.soonest),
            "I5: {:?} before {:?}",
            self.next_upkeep(),
            self.soonest
        );
    }

    fn next_upkeep(&self) -> Option<Tick> {
        let mut next = Tick::MAX;
        let mut sooner = |at: Option<Tick>| next = at.map_or(next, |at| at.min(next));
        if let Some((at, _)) = self.expiries.first() {
            // Taken exactly at its expiry is in time.
            sooner(Some(at + Duration::from_nanos(1)));
        }
        if let Some((at, _)) = self.delayed.first() {
            sooner(Some(*at));
        }
        if self.line.has_anybody() {
            sooner(self.line.next_event());
        }
        if let Some(budget) = &self.budget {
            sooner(budget.next());
        }
        if let Some(delay) = &self.standing {
            sooner(delay.end());
        }
        if !self.ended {
            sooner(self.drain);
        }
        sooner(self.lanes.next_due());
        sooner(self.pacer.next());
        (next < Tick::MAX).then_some(next)
    }

    fn catch_up(&mut self, fx: &mut Effects<P>) {
        let now = self.now;
        while let Some(key) = self.line.overdue(now) {
            let deadline = self.line.get(key).and_then(|waiter| waiter.deadline);
            self.dismiss(
                key,
                deadline.map_or(Reason::TimedOut, |(_, reason)| reason),
                fx,
            );
        }
        while let Some(key) = self.line.lapsing(now) {
            if let Some(waiter) = self.line.get(key) {
                let (cost, owner) = (waiter.cost, waiter.owner);
                self.release(cost, owner);
            }
            self.line.set(key, Stand::Lapsed);
        }
        while let Some((at, key)) = self.expiries.first()
            && at < now
        {
            self.eject(key, Exit::Expired, &mut fx.gone);
        }
        self.ripen();
        if self.lanes.next_due().is_some_and(|due| due <= now) {
            let was_empty = self.lanes.ready() == 0;
            self.lanes.wake(&mut self.tenants, now);
            if was_empty && self.lanes.ready() > 0 {
                self.begin_work();
            }
        }
        if self.pacer.next().is_some_and(|at| at <= now) {
            self.move_rate();
        }
        if self.standing.is_some_and(|delay| delay.is_over(now)) {
            let oldest = self.oldest_wait(now);
            if let Some(delay) = &mut self.standing {
                delay.finish(now, oldest);
            }
        }
        if !self.ended && self.drain.is_some_and(|deadline| deadline <= now) {
            self.finish_drain(fx);
        }
        self.judge(fx);
    }

    /// Lets retries that are due into the order, as far as the budget goes.
    pub(super) fn ripen(&mut self) {
        while let Some(&(at, key)) = self.delayed.first()
            && at <= self.now
        {
            self.delayed.pop_first();
            let again = self.places.get(key).is_some_and(|slot| slot.attempts > 0);
            match &mut self.budget {
                Some(budget) if again => {
                    budget.waiting.push_back(key);
                    self.soonest = Tick::ZERO;
                }
                _ => self.line_up(key),
            }
        }
        while let Some(budget) = &mut self.budget
            && let Some(&key) = budget.waiting.front()
        {
            // One that expired or was cancelled meanwhile spends nothing.
            if self.places.get(key).is_some() && !budget.spend(self.now) {
                break;
            }
            budget.waiting.pop_front();
            self.line_up(key);
        }
    }

    /// The budget is gone: whoever waited for it goes.
    pub(super) fn free_retries(&mut self) {
        for key in self
            .budget
            .take()
            .into_iter()
            .flat_map(|budget| budget.waiting)
        {
            self.line_up(key);
        }
    }

    fn line_up(&mut self, key: JobKey) {
        let was_empty = self.lanes.ready() == 0;
        let now = self.now;
        self.lanes
            .ripen(&mut self.places, &mut self.tenants, now, key);
        self.expect_resting();
        if was_empty && self.lanes.ready() > 0 {
            self.begin_work();
        }
    }
}
