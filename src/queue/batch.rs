//! Several jobs at a time: as many departures, or one.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::task::coop::poll_proceed;

use super::after::After;
use super::core::Core;
use super::job::Job;
use super::linger::linger;
use super::receiver::{Receiver, leave};
use super::state::State;
use crate::machine::NotTaken;
use crate::sync::Arc;
use crate::tick::Tick;

impl<T> Receiver<T> {
    /// Waits for the next departure, and takes every job that is due, at most `most`. Empty once the queue is closed and
    /// nothing is queued, delayed or reserved.
    ///
    /// Each job is a departure of its own, charged as such: of a paced queue this is what is owed, of one without a rate
    /// it is what is queued. 0 counts as 1.
    ///
    /// # Cancel safety
    /// Dropping it loses no job: one that it was woken for goes to the next consumer.
    pub async fn recv_many(&self, most: usize) -> Vec<Job<T>> {
        RecvSome::new(self, most, Charge::Each).await
    }

    /// Waits for the next departure, and takes up to `most` queued jobs as this **one**: for what costs the downstream
    /// as much as a single job, as an insert of many rows does. Empty once the queue is closed and nothing is queued,
    /// delayed or reserved.
    ///
    /// The first job is charged to the rate, the others go along, as many as the
    /// [in-flight bound](super::Builder::max_in_flight) leaves room for. Every job is settled by itself. 0 counts as 1.
    ///
    /// # Cancel safety
    /// Dropping it loses no job: one that it was woken for goes to the next consumer.
    pub async fn recv_batch(&self, most: usize) -> Vec<Job<T>> {
        self.recv_batch_within(most, Duration::ZERO).await
    }

    /// As [`recv_batch`](Self::recv_batch), but where fewer than `most` jobs are queued at the departure, it waits up to
    /// `linger` for more.
    ///
    /// The jobs stay queued meanwhile: other consumers may take them. It takes what there is as soon as the batch is
    /// full, the queue is closed, or a job would expire, however long the linger. Longer makes fuller batches, and a lone
    /// job waits that much longer.
    ///
    /// # Cancel safety
    /// Dropping it loses no job: nothing is taken before the batch is handed out.
    pub async fn recv_batch_within(&self, most: usize, linger: Duration) -> Vec<Job<T>> {
        RecvSome::new(self, most, Charge::Once { linger }).await
    }
}

/// Future of several jobs.
struct RecvSome<'a, T> {
    core: &'a Arc<Core<T>>,
    most: usize,
    charge: Charge,
    /// Place among the waiting consumers.
    id: Option<u64>,
    /// Place among those that linger.
    lingerer: Option<u64>,
    /// Since when a departure is due for it.
    since: Option<Tick>,
    sleep: Option<(Tick, BoxFuture<'static, ()>)>,
}

/// How several jobs are charged to the rate.
#[derive(Clone, Copy)]
enum Charge {
    Each,
    Once { linger: Duration },
}

/// What a look at the queue led to, under the lock.
enum Look<T> {
    Taken(Vec<Job<T>>),
    Closed,
    Waits,
    Lingers(Tick),
}

impl<'a, T> RecvSome<'a, T> {
    fn new(receiver: &'a Receiver<T>, most: usize, charge: Charge) -> Self {
        Self {
            core: receiver.core(),
            most: most.max(1),
            charge,
            id: None,
            lingerer: None,
            since: None,
            sleep: None,
        }
    }

    /// Takes what there is, or waits for it if there is a waker.
    fn look(
        &mut self,
        state: &mut State<T>,
        now: Tick,
        after: &mut After<T>,
        waker: &mut Option<Waker>,
    ) -> Look<T> {
        let id = self.lingerer.take();
        after.drop_later(id.and_then(|id| state.desk.consumers().lingerers().leave(id)));
        let until = match self.until(state, now, after) {
            Ok(until) => until,
            Err(NotTaken::Closed) => return Look::Closed,
            Err(_) => {
                self.since = None;
                if let Some(waker) = waker.take() {
                    after.drop_later(state.desk.consumers().enroll(&mut self.id, waker));
                }
                return Look::Waits;
            }
        };
        if now < until {
            let most = self.most as u64;
            if let Some(waker) = waker.take() {
                let lingerers = state.desk.consumers().lingerers();
                after.drop_later(lingerers.enroll(&mut self.lingerer, most, until, waker));
            }
            return Look::Lingers(until);
        }
        let most = (self.most as u64).min(state.machine.ready());
        let mut taken = Vec::with_capacity(usize::try_from(most).unwrap_or(self.most));
        while taken.len() < self.most {
            let next = match self.charge {
                Charge::Once { .. } if !taken.is_empty() => {
                    state.skip_cancelled(now, after);
                    state.machine.take_along(&mut after.fx)
                }
                _ => state.take(now, self.id.take(), after).ok(),
            };
            let Some(next) = next else { break };
            taken.push(Job::raw(self.core, next));
        }
        Look::Taken(taken)
    }

    /// Until when to linger for more jobs, if one may leave now.
    fn until(
        &mut self,
        state: &mut State<T>,
        now: Tick,
        after: &mut After<T>,
    ) -> Result<Tick, NotTaken> {
        state.machine.advance(now, &mut after.fx);
        state.skip_cancelled(now, after);
        state.machine.readiness(now)?;
        let Charge::Once { linger: time } = self.charge else {
            return Ok(now);
        };
        let since = *self.since.get_or_insert(now);
        Ok(linger(&state.machine, self.most as u64, since + time))
    }

    /// Whether the linger is over; if not, the task is woken then.
    fn poll_sleep(&mut self, until: Tick, cx: &mut Context<'_>) -> bool {
        let core = self.core;
        let sleep = self.sleep.take().filter(|(at, _)| *at == until);
        let (at, mut sleep) =
            sleep.unwrap_or_else(|| (until, core.timer.sleep_until(&core.clock, until)));
        let over = sleep.as_mut().poll(cx).is_ready();
        if !over {
            self.sleep = Some((at, sleep));
        }
        over
    }
}

impl<T> Future for RecvSome<'_, T> {
    type Output = Vec<Job<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let budget = ready!(poll_proceed(cx));
        let core = self.core;
        // First without a waker, as cloning one is foreign code that most polls can do without.
        let mut waker = None;
        let mut look = core.step(|state, now, after| self.look(state, now, after, &mut waker));
        loop {
            match look {
                Look::Taken(taken) => {
                    budget.made_progress();
                    // What is left of a waker is dropped with no lock held.
                    drop(waker);
                    let mut taken = taken;
                    taken.iter_mut().for_each(Job::unwatch);
                    return Poll::Ready(taken);
                }
                Look::Closed => {
                    budget.made_progress();
                    return Poll::Ready(Vec::new());
                }
                _ => {}
            }
            waker = Some(cx.waker().clone());
            look = core.step(|state, now, after| self.look(state, now, after, &mut waker));
            match look {
                Look::Waits => return Poll::Pending,
                Look::Lingers(until) if !self.poll_sleep(until, cx) => return Poll::Pending,
                _ => {}
            }
        }
    }
}

impl<T> Drop for RecvSome<'_, T> {
    fn drop(&mut self) {
        if let Some(id) = self.lingerer {
            self.core.step(|state, _, after| {
                after.drop_later(state.desk.consumers().lingerers().leave(id));
            });
        }
        leave(self.core, self.id);
    }
}
