//! Those who wait for one limit, in the order in which they came. Used under the limit's lock; calls no foreign code.
//!
//! ```text
//! enter -> waiting -> granted -> collected by its owner
//!             |          +-----> given back, if its owner was dropped first
//!             +-> refused (the limit was changed, the deadline passed)
//! ```
//!
//! - I1  In a bucket the state is charged for everybody in line: its `tat` is that of those served plus the line's cost.
//!   So a check sees the line without looking at it. Windows, log and counter are charged when the turn comes.
//! - I2  Turns come in order: a waiter is granted only when nobody waits before it, however cheap it is.
//! - I3  Whoever calls serves every head that is due, so one that is not polled holds nobody up.
//! - I4  A waiter's `planned` instant is when its own timer wakes it; it is never earlier than the truth in a bucket
//!   and never later in a window. It is too late only behind a place that was given back: the head is then woken to
//!   set its timer anew, and wakes the next when it is granted.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Duration;

use super::turn::{ahead_of, due_in_bucket, newcomer_due, wait_behind};
use crate::decision::{Decision, Verdict};
use crate::error::AcquireError;
use crate::policy::{Limit, Policy};
use crate::tick::{Fine, Tick};

pub(crate) use super::turn::Before;

/// A line, without the limit and the state that it stands before: these are handed in.
#[derive(Debug, Default)]
pub(crate) struct Line {
    waiting: BTreeMap<u64, Waiter>,
    settled: BTreeMap<u64, Settled>,
    /// Cost of all who wait.
    cost: u128,
    /// Cost of all who ever came, and of all who left; their difference at a waiter is at most what is before it.
    entered: u128,
    left: u128,
    next_id: u64,
}

#[derive(Debug)]
struct Waiter {
    cost: u64,
    deadline: Tick,
    planned: Tick,
    mark: u128,
    waker: Option<Waker>,
    /// Nobody will collect the grant: it is used already.
    taken: bool,
}

#[derive(Clone, Copy, Debug)]
enum Settled {
    Granted { at: Tick, cost: u64 },
    Refused(AcquireError),
}

/// How a newcomer fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// Nobody waited and the cost fitted.
    Granted(Tick),
    /// Got a place in line.
    Waits(u64),
}

/// How a waiter stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Done(Result<(), AcquireError>),
    /// Ask again at this instant.
    Until(Tick),
}

impl Line {
    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether nobody waits and nobody has something to collect.
    pub(crate) fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.settled.is_empty()
    }

    /// Decides for one who does not wait: behind a line nothing is free.
    pub(crate) fn check(&mut self, before: &mut Before<'_>, cost: u64, half: bool) -> Decision {
        self.serve(before);
        let decision = self.peek(before, cost, half);
        if decision.is_granted() {
            before.limit.charge(before.state, decision.at, cost);
        }
        decision
    }

    /// Says what [`check`](Self::check) would.
    pub(crate) fn peek(&self, before: &Before<'_>, cost: u64, half: bool) -> Decision {
        let Before { limit, now, .. } = *before;
        let mut decision = match half {
            true => limit.peek_keeping_half(before.state, now, cost),
            false => limit.peek(before.state, now, cost),
        };
        // A bucket was charged for the line (I1), so its own answer is exact.
        if !self.is_empty() && limit.bucket().is_none() {
            let ahead = |cost: u64| self.wait_behind(before, self.cost + u128::from(cost));
            if cost > 0 && !matches!(decision.verdict, Verdict::Never { .. }) {
                let retry_after = ahead(cost);
                decision.verdict = Verdict::Refused { retry_after };
            }
            decision.remaining = 0;
            decision.next_unit_in = ahead(1);
        }
        decision
    }

    /// Takes the grant at once, or a place at the end.
    ///
    /// # Errors
    /// If the cost can never be granted, or not by `deadline` as far as is known.
    pub(crate) fn enter(
        &mut self,
        before: &mut Before<'_>,
        cost: u64,
        deadline: Tick,
    ) -> Result<Entered, AcquireError> {
        let max_cost = before.limit.quota();
        if cost > max_cost {
            return Err(AcquireError::Never { max_cost });
        }
        self.serve(before);
        if cost == 0 {
            return Ok(Entered::Granted(before.now));
        }
        if self.is_empty() {
            let decision = before.limit.check(before.state, before.now, cost);
            if decision.is_granted() {
                return Ok(Entered::Granted(decision.at));
            }
        }
        let ahead = self.cost + u128::from(cost);
        let planned = match before.limit.bucket() {
            Some(_) => newcomer_due(before, cost),
            None => before.now + self.wait_behind(before, ahead),
        };
        if planned > deadline || planned == Tick::MAX {
            let retry_after = planned - before.now;
            return Err(AcquireError::TooLate { retry_after });
        }
        if before.limit.bucket().is_some() {
            before.limit.charge(before.state, before.now, cost);
        }
        self.cost += u128::from(cost);
        self.entered += u128::from(cost);
        let id = self.next_id;
        self.next_id += 1;
        let waiter = Waiter {
            cost,
            deadline,
            planned,
            mark: self.entered,
            waker: None,
            taken: false,
        };
        self.waiting.insert(id, waiter);
        Ok(Entered::Waits(id))
    }

    /// Serves who is due, then says how this waiter stands; the waker it had is handed back, to be dropped unlocked.
    pub(crate) fn poll(
        &mut self,
        before: &mut Before<'_>,
        id: u64,
        waker: Option<Waker>,
    ) -> (Standing, Option<Waker>) {
        self.serve(before);
        match self.settled.remove(&id) {
            Some(Settled::Granted { .. }) => return (Standing::Done(Ok(())), waker),
            Some(Settled::Refused(error)) => return (Standing::Done(Err(error)), waker),
            None => {}
        }
        // Collected before, through another handle of the same place.
        let Some(waiter) = self.waiting.get(&id) else {
            return (Standing::Done(Ok(())), waker);
        };
        let planned = self.planned(before, id, waiter);
        if before.now >= waiter.deadline {
            let retry_after = planned - before.now;
            let dropped = self.cancel(before, id);
            let error = AcquireError::TooLate { retry_after };
            return (Standing::Done(Err(error)), dropped);
        }
        let waiter = self.waiting.get_mut(&id).expect("it was found above");
        waiter.planned = planned;
        let old = match waker {
            Some(waker) => waiter.waker.replace(waker),
            None => None,
        };
        (Standing::Until(planned.min(waiter.deadline)), old)
    }

    /// Gives a place or an uncollected grant back, and lets those behind move up.
    pub(crate) fn cancel(&mut self, before: &mut Before<'_>, id: u64) -> Option<Waker> {
        let waiter = self.waiting.remove(&id);
        if let Some(waiter) = &waiter {
            self.forget(before, waiter.cost);
        } else if let Some(Settled::Granted { at, cost }) = self.settled.remove(&id) {
            before.limit.refund_at(before.state, at, cost, before.now);
        }
        self.serve(before);
        waiter.and_then(|waiter| waiter.waker)
    }

    /// Keeps the charge without anyone to collect it: whoever holds the place acts on its own.
    pub(crate) fn take(&mut self, id: u64) {
        self.settled.remove(&id);
        if let Some(waiter) = self.waiting.get_mut(&id) {
            waiter.taken = true;
        }
    }

    /// Instant at which this place is due, as far as is known; now if it is no longer waiting.
    pub(crate) fn due(&self, before: &Before<'_>, id: u64) -> Tick {
        match self.waiting.get(&id) {
            Some(waiter) => self.planned(before, id, waiter).max(before.now),
            None => before.now,
        }
    }

    /// Serves every head whose turn has come (I3), and wakes the new head if it sleeps for too long (I4).
    pub(crate) fn serve(&mut self, before: &mut Before<'_>) {
        while let Some(mut head) = self.waiting.first_entry() {
            let cost = head.get().cost;
            let due = match before.limit.bucket() {
                Some(_) => due_in_bucket(before, self.cost, u128::from(cost)),
                None => {
                    let decision = before.limit.peek(before.state, before.now, cost);
                    before.now + decision.retry_after().unwrap_or_default()
                }
            };
            if due > before.now {
                let head = head.get_mut();
                if due < head.planned {
                    before.wakes.extend(head.waker.take());
                }
                head.planned = due;
                return;
            }
            let (id, waiter) = head.remove_entry();
            // In a window the head noted down when its turn comes; by now that may lie behind its deadline.
            let came = match before.limit.bucket() {
                Some(_) => due,
                None => waiter.planned.min(before.now),
            };
            if came > waiter.deadline {
                self.forget(before, cost);
                let retry_after = Duration::ZERO;
                self.settle(
                    before,
                    id,
                    waiter,
                    Settled::Refused(AcquireError::TooLate { retry_after }),
                );
                continue;
            }
            self.cost -= u128::from(cost);
            self.left += u128::from(cost);
            let at = before.now;
            if before.limit.bucket().is_none() {
                before.limit.charge(before.state, at, cost);
            }
            self.settle(before, id, waiter, Settled::Granted { at, cost });
        }
    }

    /// Changes the limit under everybody in line, and wakes them all: each sets its timer anew.
    pub(crate) fn replan(&mut self, before: &mut Before<'_>, new: &Limit, keep_units: bool) {
        self.serve(before);
        if let (Some(core), Some(bucket)) = (before.limit.bucket(), before.state.bucket_mut()) {
            bucket.tat = bucket.tat.minus(ahead_of(core.interval(), self.cost));
        }
        if keep_units {
            *before.state = new.adopt(before.state, before.limit, before.now);
        } else if !new.fits(before.state) {
            *before.state = new.start(before.now);
        } else if let (Some(core), Some(bucket)) = (new.bucket(), before.state.bucket_mut()) {
            let full = Fine::at(before.now).plus(core.tolerance());
            bucket.tat = bucket.tat.min(full);
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.cost = 0;
        let mut behind = Before {
            limit: new,
            state: &mut *before.state,
            now: before.now,
            wakes: &mut *before.wakes,
        };
        for (id, mut waiter) in waiting {
            let (cost, max_cost) = (waiter.cost, new.quota());
            let ahead = self.cost + u128::from(cost);
            let planned = match new.bucket() {
                Some(_) => newcomer_due(&behind, cost),
                None => behind.now + self.wait_behind(&behind, ahead),
            };
            let refused = if cost > max_cost {
                Some(AcquireError::Never { max_cost })
            } else if planned > waiter.deadline {
                let retry_after = planned - behind.now;
                Some(AcquireError::TooLate { retry_after })
            } else {
                None
            };
            if let Some(error) = refused {
                self.left += u128::from(cost);
                self.settle(&mut behind, id, waiter, Settled::Refused(error));
                continue;
            }
            if new.bucket().is_some() {
                new.charge(behind.state, behind.now, cost);
            }
            self.cost = ahead;
            waiter.planned = planned;
            behind.wakes.extend(waiter.waker.take());
            self.waiting.insert(id, waiter);
        }
        self.serve(&mut behind);
    }

    fn settle(&mut self, before: &mut Before<'_>, id: u64, waiter: Waiter, settled: Settled) {
        if !waiter.taken {
            self.settled.insert(id, settled);
        }
        before.wakes.extend(waiter.waker);
    }

    /// A waiter has left without its grant: in a bucket its charge goes with it.
    fn forget(&mut self, before: &mut Before<'_>, cost: u64) {
        self.cost -= u128::from(cost);
        self.left += u128::from(cost);
        if let (Some(core), Some(bucket)) = (before.limit.bucket(), before.state.bucket_mut()) {
            bucket.tat = bucket.tat.minus(core.interval().times(cost));
        }
    }

    /// When this waiter's timer has to ring.
    fn planned(&self, before: &Before<'_>, id: u64, waiter: &Waiter) -> Tick {
        let is_head = self
            .waiting
            .first_key_value()
            .is_some_and(|(head, _)| *head == id);
        match (before.limit.bucket(), is_head) {
            (Some(_), true) => due_in_bucket(before, self.cost, u128::from(waiter.cost)),
            // Exact when it was planned, and only ever late since (I4).
            (Some(_), false) => waiter.planned,
            (None, true) => before.now + self.wait_behind(before, u128::from(waiter.cost)),
            (None, false) => {
                let ahead = (waiter.mark - self.left).max(u128::from(waiter.cost));
                before.now + self.wait_behind(before, ahead)
            }
        }
    }

    /// Shortest wait in a window until a cost fits that has so much before it, itself included.
    fn wait_behind(&self, before: &Before<'_>, ahead: u128) -> Duration {
        let head = self.waiting.first_key_value().map(|(_, head)| head.cost);
        wait_behind(before, head, ahead)
    }
}
