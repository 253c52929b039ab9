//! Change of settings, pause and resumption, close and drain.

use std::sync::Arc;
use std::time::Duration;

use crate::machine::budget::Budget;
use crate::machine::lanes::Lanes;
use crate::machine::outcome::{Effects, Gone};
use crate::machine::places::Standing;
use crate::machine::plainly::is_plain;
use crate::machine::queue::Machine;
use crate::machine::settings::Settings;
use crate::policy::ladder::Bounds;
use crate::policy::standing_delay::StandingDelay;
use crate::refusal::Reason;
use crate::tick::Tick;
use crate::words::{Exit, WhenFull};

impl<P> Machine<P> {
    /// Changes all settings at once. What is queued stays; waiters that can never fit any more are refused.
    pub(crate) fn apply(&mut self, now: Tick, settings: Settings, fx: &mut Effects<P>) {
        self.arrive(now, fx);
        self.reckon();
        self.ladder.set_bounds(bounds(&settings));
        self.lanes.set_step(ageing(&settings));
        self.lanes.shares.set(settings.lane_shares);
        self.lanes
            .set_rule(&self.places, &self.tenants, settings.when_full);
        self.tenants.set(settings.tenancy);
        let same = match (self.standing, settings.standing_delay) {
            (Some(delay), Some((target, interval))) => delay.is_set_to(target, interval),
            (None, None) => true,
            _ => false,
        };
        if !same {
            self.standing = standing(&settings);
        }
        match (&mut self.budget, settings.retries) {
            (Some(budget), Some(allowance)) => budget.set(allowance),
            (None, Some(allowance)) => self.budget = Some(Budget::new(allowance)),
            (_, None) => self.free_retries(),
        }
        self.plain = is_plain(&settings);
        let before = std::mem::replace(&mut self.settings, settings).rate;
        self.repace(before);
        for key in self.line.hopeful() {
            if self
                .line
                .get(key)
                .is_some_and(|waiter| waiter.cost > self.settings.max_depth)
            {
                self.dismiss(key, Reason::TooCostly, fx);
            }
        }
        self.judge(fx);
    }

    /// Holds departures; what lateness owes is forgiven. A second pause changes only the reason.
    pub(crate) fn pause(&mut self, now: Tick, why: Arc<str>, fx: &mut Effects<P>) {
        self.arrive(now, fx);
        self.paused = Some(why);
    }

    /// Lets departures go on, spaced as if the pause had been idle time.
    pub(crate) fn resume(&mut self, now: Tick, fx: &mut Effects<P>) {
        self.arrive(now, fx);
        if self.paused.take().is_some() {
            self.begin_work();
            self.slow_start();
        }
    }

    /// Takes no more offers; what is queued still leaves. `true` if this call did it.
    pub(crate) fn close(&mut self, now: Tick, fx: &mut Effects<P>) -> bool {
        self.arrive(now, fx);
        if std::mem::replace(&mut self.closed, true) {
            return false;
        }
        for key in self.line.hopeful() {
            self.dismiss(key, Reason::Closed, fx);
        }
        self.judge(fx);
        true
    }

    /// No receiver is left: closes and gives everything back.
    pub(crate) fn end(&mut self, now: Tick, fx: &mut Effects<P>) {
        self.close(now, fx);
        if !std::mem::replace(&mut self.ended, true) {
            let mut gone = std::mem::take(&mut fx.gone);
            self.empty(&mut gone);
            fx.gone = gone;
        }
        self.judge(fx);
    }

    /// Closes, and gives back what is still queued or delayed at `deadline`. The sooner of two deadlines holds.
    pub(crate) fn drain(&mut self, now: Tick, deadline: Tick, fx: &mut Effects<P>) {
        self.close(now, fx);
        self.drain = Some(self.drain.map_or(deadline, |earlier| earlier.min(deadline)));
        self.expect(deadline);
        self.arrive(now, fx);
    }

    /// Closed, and everything that was admitted has ended or been given back.
    pub(crate) fn is_drained(&self) -> bool {
        let ledger = self.ledger();
        self.closed && (self.ended || ledger.reserved + ledger.queued + ledger.in_flight == 0)
    }

    /// Closed, and nothing is queued, delayed or reserved; what is in flight does not count.
    pub(crate) fn is_exhausted(&self) -> bool {
        let reserved: u64 = self.ledgers.iter().map(|lane| lane.reserved).sum();
        self.closed && self.places.len() == 0 && (self.ended || reserved == 0)
    }

    pub(super) fn finish_drain(&mut self, fx: &mut Effects<P>) {
        self.ended = true;
        let mut returned = std::mem::take(&mut fx.returned);
        self.empty(&mut returned);
        fx.returned = returned;
    }

    /// Gives back every queued and delayed job, oldest first.
    fn empty(&mut self, out: &mut Vec<Gone<P>>) {
        let mut all = Lanes::keys(&self.places, &self.tenants);
        let late = self
            .places
            .iter()
            .filter(|(_, slot)| slot.standing != Standing::Ready);
        all.extend(late.map(|(key, _)| key));
        // Stable, so that jobs of one instant keep the order of their lane.
        all.sort_by_key(|key| self.places.get(*key).map(|slot| slot.since));
        for key in all {
            self.eject(key, Exit::Returned, out);
        }
    }
}

pub(super) fn bounds(settings: &Settings) -> Bounds {
    let Settings {
        max_depth,
        low,
        high,
        max_waiters,
        when_full,
        ..
    } = *settings;
    Bounds {
        max_depth,
        low,
        high,
        max_waiters,
        evicting: when_full != WhenFull::Refuse,
    }
}

pub(super) fn standing(settings: &Settings) -> Option<StandingDelay> {
    settings
        .standing_delay
        .map(|(target, interval)| StandingDelay::new(target, interval))
}

/// Time in which a full queue drains, at least a second: the unit of ageing between lanes.
pub(super) fn ageing(settings: &Settings) -> Duration {
    let full = settings
        .rate
        .map(|rate| rate.interval().times(settings.max_depth).duration());
    full.unwrap_or_default().max(LEAST_AGEING)
}

const LEAST_AGEING: Duration = Duration::from_secs(1);
