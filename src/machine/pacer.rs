//! The rate as it is now: on a ramp, after a slow start, or following the downstream.
//!
//! The rate that was set is the target; what the schedule runs at is the target, or on its way there. The last word
//! wins: a new rate ends a ramp and an adaptation.

use std::time::Duration;

use crate::error::BuildError;
use crate::machine::outcome::Effects;
use crate::machine::queue::Machine;
use crate::machine::settings::Settings;
use crate::policy::aimd::{Aimd, Follower};
use crate::policy::ramp::Ramp;
use crate::policy::schedule::Schedule;
use crate::rate::Rate;
use crate::tick::Tick;

/// What moves the rate.
#[derive(Debug, Default)]
pub(crate) struct Pacer {
    /// What the schedule runs at; `None` = not paced.
    now: Option<Rate>,
    ramp: Option<Ramp>,
    /// When the ramp takes its next step.
    step_at: Option<Tick>,
    follower: Option<Follower>,
    changes: u64,
}

impl Pacer {
    pub(super) fn new(rate: Option<Rate>) -> Self {
        Self {
            now: rate,
            ..Self::default()
        }
    }

    /// When the rate may move next.
    pub(super) fn next(&self) -> Option<Tick> {
        let judgement = self.follower.as_ref().and_then(Follower::next);
        [self.step_at, judgement].into_iter().flatten().min()
    }
}

impl<P> Machine<P> {
    /// Rate that departures have now.
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.pacer.now
    }

    /// Whether the rate is on its way to another one.
    #[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "asked by events"))]
    pub(crate) fn is_ramping(&self) -> bool {
        self.pacer.ramp.is_some()
    }

    /// Times that the rate has moved: set, on a ramp, or adapted.
    pub(crate) fn rate_changes(&self) -> u64 {
        self.pacer.changes
    }

    /// As `apply`, but the new rate is reached in even steps over a time.
    pub(crate) fn ramp(
        &mut self,
        now: Tick,
        settings: Settings,
        over: Duration,
        fx: &mut Effects<P>,
    ) {
        let from = self.rate();
        self.apply(now, settings, fx);
        if let (Some(from), Some(to)) = (from, self.settings.rate) {
            self.climb(from, to, over);
        }
    }

    /// Lets the rate follow the downstream from now on, or, with `None`, return to what was set.
    ///
    /// # Errors
    /// If the queue is not paced, or a field breaks its rule.
    pub(crate) fn adapt(
        &mut self,
        now: Tick,
        config: Option<Aimd>,
        fx: &mut Effects<P>,
    ) -> Result<(), BuildError> {
        self.arrive(now, fx);
        if let Some(config) = &config {
            config.check()?;
            if self.settings.rate.is_none() {
                let rule = "needs a queue that is paced";
                return Err(BuildError::setting("adapt", config.ceiling, rule));
            }
        }
        self.pacer.ramp = None;
        self.pacer.follower = config.map(|config| Follower::new(config, self.now));
        self.retune();
        self.judge(fx);
        Ok(())
    }

    /// Whether outcomes move the rate.
    pub(super) fn is_adaptive(&self) -> bool {
        self.pacer.follower.is_some()
    }

    /// The downstream says that it is strained.
    pub(crate) fn strained(&mut self) {
        if let Some(follower) = &mut self.pacer.follower {
            follower.strained(self.now);
            self.reckon();
        }
    }

    /// Settings have changed; `before` = the rate that was set before.
    pub(super) fn repace(&mut self, before: Option<Rate>) {
        let target = self.settings.rate;
        if target != before {
            let from = self.pacer.now;
            self.pacer.ramp = None;
            self.pacer.follower = None;
            if let (Some(from), Some(to), Some(over)) = (from, target, self.settings.slow_start)
                && to.per_second_f64() > from.per_second_f64()
            {
                self.climb(from, to, over);
                return;
            }
        }
        self.retune();
    }

    /// Work begins again after a pause or an outage: gently, if so asked.
    pub(super) fn slow_start(&mut self) {
        if let (Some(to), Some(over)) = (self.target(), self.settings.slow_start) {
            let tenth = Rate::from_per_second_f64(to.per_second_f64() / 10.0);
            self.climb(tenth, to, over);
        }
    }

    /// A departure at this cost, and what it says of an outage before it.
    pub(super) fn pace_departure(&mut self, cost: u64, overdue: bool) {
        if let Some(follower) = &mut self.pacer.follower {
            follower.departed(self.now, cost);
            self.reckon();
        }
        if overdue {
            self.slow_start();
        }
    }

    /// A job in flight ended, well or badly.
    pub(super) fn pace_outcome(&mut self, departed_at: Tick, failed: bool) {
        let ran = self.now - departed_at;
        if let Some(follower) = &mut self.pacer.follower {
            follower.settled(self.now, ran, failed);
            self.reckon();
        }
    }

    /// Moves the rate if its time has come.
    pub(super) fn move_rate(&mut self) {
        if let Some(follower) = &mut self.pacer.follower {
            follower.judge(self.now);
        }
        self.retune();
    }

    fn climb(&mut self, from: Rate, to: Rate, over: Duration) {
        self.pacer.ramp = Some(Ramp::new(from, to, self.now, over));
        self.retune();
    }

    fn target(&self) -> Option<Rate> {
        let followed = self.pacer.follower.as_ref().map(Follower::rate);
        followed.or(self.settings.rate)
    }

    /// Has the schedule run at the present rate.
    fn retune(&mut self) {
        let now = self.now;
        self.reckon();
        self.pacer.step_at = self.pacer.ramp.and_then(|ramp| ramp.next(now));
        if self.pacer.step_at.is_none() {
            self.pacer.ramp = None;
        }
        let climbing = self.pacer.ramp.map(|ramp| ramp.rate(now));
        let rate = climbing.or_else(|| self.target());
        self.pacer.changes += u64::from(rate != self.pacer.now);
        self.pacer.now = rate;
        let pace = rate.map(|rate| self.settings.pace(rate));
        self.schedule = match (self.schedule.take(), pace) {
            (Some(mut schedule), Some(pace)) => {
                schedule.retune(now, pace);
                Some(schedule)
            }
            (None, pace) => pace.map(|pace| Schedule::new(pace, now)),
            (Some(_), None) => None,
        };
    }
}
