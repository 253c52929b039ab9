//! Jobs in flight that end, come back, or cost other than was thought.

use std::time::Duration;

use crate::machine::outcome::{Effects, InFlight, JobKey, Settled};
use crate::machine::places::{Entry, Standing};
use crate::machine::queue::Machine;
use crate::tally::Processed;
use crate::tick::Tick;
use crate::words::Exit;

impl<P> Machine<P> {
    /// As `settle`, where it changes nothing but counts: nobody waits for the place in flight, and no end is near.
    /// `false` = not so, and nothing was done. Leaves what is due by now to whoever comes next.
    pub(crate) fn settle_quietly(&mut self, now: Tick, run: &InFlight) -> bool {
        if !self.lets_acks_wait() {
            return false;
        }
        self.now = self.now.max(now);
        self.processed(run, Processed::Ok);
        self.count(run.owner, |count| {
            count.in_flight -= 1;
            count.acked += 1;
        });
        true
    }

    /// A job in flight ends.
    pub(crate) fn settle(&mut self, now: Tick, run: InFlight, how: Settled, fx: &mut Effects<P>) {
        self.arrive(now, fx);
        if how != Settled::Abandoned {
            self.pace_outcome(run.departed_at, how == Settled::Failed);
        }
        let result = match how {
            Settled::Acked => Processed::Ok,
            Settled::Failed | Settled::Abandoned => Processed::Error,
        };
        self.processed(&run, result);
        self.count(run.owner, |count| {
            count.in_flight -= 1;
            match how {
                Settled::Acked => count.acked += 1,
                Settled::Failed => count.failed += 1,
                Settled::Abandoned => count.abandoned += 1,
            }
        });
    }

    /// Puts a job back after `delay`, or ends it: attempts used up, or no queue to go back to.
    pub(crate) fn retry(
        &mut self,
        now: Tick,
        run: InFlight,
        payload: P,
        delay: Duration,
        fx: &mut Effects<P>,
    ) -> Result<JobKey, (Exit, P)> {
        self.arrive(now, fx);
        self.pace_outcome(run.departed_at, true);
        if run.attempt >= self.settings.max_attempts {
            self.processed(&run, Processed::Error);
            self.count(run.owner, |count| {
                count.in_flight -= 1;
                count.failed += 1;
            });
            return Err((Exit::Failed, payload));
        }
        let attempts = run.attempt;
        self.requeue(run, payload, attempts, delay, fx)
    }

    /// As `retry`, but no attempt counts: the downstream asked for patience.
    pub(crate) fn defer(
        &mut self,
        now: Tick,
        run: InFlight,
        payload: P,
        delay: Duration,
        fx: &mut Effects<P>,
    ) -> Result<JobKey, (Exit, P)> {
        self.arrive(now, fx);
        self.pace_outcome(run.departed_at, true);
        let attempts = run.attempt - 1;
        self.requeue(run, payload, attempts, delay, fx)
    }

    /// Corrects what a job in flight was charged.
    pub(crate) fn settle_cost(&mut self, now: Tick, run: &mut InFlight, actual: u64) {
        self.now = self.now.max(now);
        let charged = std::mem::replace(&mut run.charged, actual);
        let owner = run.owner;
        self.lanes
            .correct(&mut self.tenants, owner, charged, actual);
        if let Some(schedule) = &mut self.schedule {
            let latest = self.last_departure == Some(run.departed_at);
            schedule.correct(self.now, charged, actual, latest);
        }
    }

    fn requeue(
        &mut self,
        run: InFlight,
        payload: P,
        attempts: u32,
        delay: Duration,
        fx: &mut Effects<P>,
    ) -> Result<JobKey, (Exit, P)> {
        self.processed(&run, Processed::Retry);
        let InFlight {
            cost,
            owner,
            expires_at,
            ..
        } = run;
        if self.closed {
            self.count(owner, |count| {
                count.in_flight -= 1;
                count.returned += 1;
            });
            return Err((Exit::Returned, payload));
        }
        self.count(owner, |count| {
            count.in_flight -= 1;
            count.queued += 1;
            count.requeued += 1;
        });
        self.hold(cost, owner);
        let since = self.now + delay;
        let entry = Entry {
            payload,
            cost,
            since,
            expires_at,
            attempts,
            owner,
            lasting: true,
        };
        // With a budget even a retry that is due at once may have to wait.
        let key = if delay.is_zero() && (self.budget.is_none() || attempts == 0) {
            self.enqueue(entry)
        } else {
            self.put_off(entry)
        };
        self.ripen();
        self.judge(fx);
        Ok(key)
    }

    fn put_off(&mut self, entry: Entry<P>) -> JobKey {
        let (due, expires_at) = (entry.since, entry.expires_at);
        let key = self.places.insert(entry, Standing::Delayed);
        self.delayed.insert((due, key));
        self.expect(due);
        self.expire(key, expires_at);
        key
    }

    fn processed(&mut self, run: &InFlight, how: Processed) {
        self.tally.process(how, self.now - run.departed_at);
    }
}
