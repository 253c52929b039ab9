//! A job in the hands of a consumer, until it is settled.

use std::error::Error;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::backoff::Backoff;
use super::core::Core;
use super::keep::Keep;
use super::parcel::Parcel;
use super::terms::{Terms, on_tokio};
use super::ticket::Ending;
use crate::machine::{InFlight, Settled, Taken};
use crate::sync::Arc;
use crate::tick::Tick;
use crate::words::Exit;

/// A job that has departed: the item, and the duty to say what became of it.
///
/// Every verb that settles takes the job by value. Dropped unsettled, also because the consumer panicked, it is
/// *abandoned*: its item is dead-lettered and its place in flight is free again. A job outlives every other handle.
///
/// # Examples
/// ```
/// use sluicegate::Rate;
/// use sluicegate::queue::{Backoff, Builder};
/// use std::time::Duration;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// let (tx, rx) = Builder::new(Rate::per_second(10)).max_attempts(2).build()?;
/// tx.try_send("insert")?;
/// let backoff = Backoff::exponential(Duration::from_millis(100), Duration::from_secs(10));
/// rx.recv().await.expect("a job is queued").retry(backoff);
/// let again = rx.recv().await.expect("it came back");
/// assert_eq!(again.attempt(), 2);
/// again.retry(backoff); // it has no attempts left
/// let letter = rx.dead_letters().recv().await.expect("it failed");
/// assert_eq!((letter.item, letter.attempts), ("insert", 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a job that is dropped unsettled is abandoned"]
pub struct Job<T> {
    core: Arc<Core<T>>,
    /// `None` once settled.
    parcel: Option<Parcel<T>>,
    run: InFlight,
    /// Whether it is counted as done already, and only its item is left to hand out.
    counted: bool,
    /// Where it goes when it is dropped unsettled, if its consumer is a handler that may yet say what became of it.
    keep: Option<Arc<Keep<T>>>,
}

impl<T> Job<T> {
    #[inline]
    pub(crate) fn new(core: &Arc<Core<T>>, taken: Taken<Parcel<T>>) -> Self {
        let mut job = Self::raw(core, taken);
        job.unwatch();
        job
    }

    /// As [`new`](Self::new), to be [unwatched](Self::unwatch) once the lock is released.
    #[inline]
    pub(crate) fn raw(core: &Arc<Core<T>>, taken: Taken<Parcel<T>>) -> Self {
        let Taken { payload, run } = taken;
        Self {
            core: Arc::clone(core),
            parcel: Some(payload),
            run,
            counted: false,
            keep: None,
        }
    }

    /// Nobody watches the token of a job in flight. Runs foreign code.
    #[inline]
    pub(crate) fn unwatch(&mut self) {
        if let Some(parcel) = &mut self.parcel {
            drop(parcel.unwatch());
        }
    }

    /// Dropped unsettled, it goes to `keep`.
    pub(crate) fn kept_by(mut self, keep: &Arc<Keep<T>>) -> Self {
        self.keep = Some(Arc::clone(keep));
        self
    }

    /// How long it waited: from its offer, or from the instant its retry was due, to its departure.
    #[must_use]
    pub const fn waited(&self) -> Duration {
        self.run.waited
    }

    /// When it departed, on the queue's clock. Spacing is judged on these instants.
    #[must_use]
    pub const fn departed_at(&self) -> Tick {
        self.run.departed_at
    }

    /// Which start this is: 1 at the first.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.run.attempt
    }

    /// What it holds of the queue's depth while it is queued.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.run.cost
    }

    /// The terms on which it goes on: those it was offered on, without [`expires_in`](Terms::expires_in), which bound
    /// its first start and is met.
    pub fn terms(&self) -> Terms {
        let run = &self.run;
        let terms = match &self.held().extras {
            Some(extras) => extras.terms.clone().onwards(),
            None => terms(&self.core, run),
        };
        terms.cost(run.cost).priority(run.owner.priority)
    }

    /// The job is done.
    pub fn ack(self) {
        drop(self.into_inner());
    }

    /// All these jobs are done: as [`ack`](Self::ack) of each, with one look at the clock and one lock for all of a
    /// queue that come in a row.
    ///
    /// # Examples
    /// ```
    /// use sluicegate::queue::{Builder, Job};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let (tx, rx) = Builder::unpaced().build()?;
    /// for row in 0..10 {
    ///     tx.try_send(row)?;
    /// }
    /// let rows = rx.recv_many(64).await;
    /// // ... written in one go ...
    /// Job::ack_all(rows);
    /// assert_eq!(tx.snapshot().ledger.acked, 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ack_all(jobs: impl IntoIterator<Item = Self>) {
        let mut jobs: Vec<Self> = jobs.into_iter().collect();
        for row in jobs.chunk_by_mut(|a, b| Arc::ptr_eq(&a.core, &b.core)) {
            let core = Arc::clone(&row[0].core);
            core.ack_many(row.iter_mut().map(|job| (&job.run, &mut job.counted)));
        }
        jobs.into_iter().for_each(Self::ack);
    }

    /// The job is done; hands out its item.
    #[must_use]
    pub fn into_inner(mut self) -> T {
        let Parcel { item, extras } = self.take();
        if !self.counted && !self.core.ack(&self.run) {
            let run = self.run.clone();
            self.core.step(|state, now, after| {
                state
                    .machine
                    .settle(now, run, Settled::Acked, &mut after.fx);
            });
        }
        if let Some(mut extras) = extras {
            extras.end(Ending::Acked);
        }
        item
    }

    /// The job failed for good: its item is dead-lettered.
    pub fn fail(mut self) {
        self.bury(Settled::Failed, Exit::Failed, None);
    }

    /// As [`fail`](Self::fail), with the cause for the [`DeadLetter`](super::DeadLetter).
    pub fn fail_because(mut self, error: impl Into<Box<dyn Error + Send + Sync>>) {
        self.bury(Settled::Failed, Exit::Failed, Some(error.into()));
    }

    /// The attempt failed: puts the job back, to leave again after the back-off.
    ///
    /// There is always room for it, above the bound if need be, and it keeps its place in depth while it waits. With its
    /// [attempts](super::Builder::max_attempts) used up it fails; after the close of the queue it is dead-lettered as
    /// [`Returned`](Exit::Returned).
    pub fn retry(self, after: impl Into<Backoff>) {
        let delay = after.into().delay(self.run.attempt);
        self.put_back(delay, true);
    }

    /// As [`retry`](Self::retry), and keeps why: however the job ends that is not done, its
    /// [letter](super::DeadLetter::cause) has the last cause it was given.
    pub fn retry_because(
        mut self,
        error: impl Into<Box<dyn Error + Send + Sync>>,
        after: impl Into<Backoff>,
    ) {
        let delay = after.into().delay(self.run.attempt);
        let (core, run) = (&self.core, &self.run);
        let parcel = self.parcel.as_mut();
        let before = parcel.and_then(|parcel| parcel.remember(error.into(), || terms(core, run)));
        self.put_back(delay, true);
        drop(before);
    }

    /// Why its last attempt failed, if whoever put it back [said](Self::retry_because) so.
    #[must_use]
    pub fn last_cause(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.held().extras.as_ref()?.cause.as_deref()
    }

    /// The span its producer was in when it made the offer, to do the work in; none if nobody listened.
    ///
    /// [`Workers`](super::workers::Workers) run their handlers in it.
    #[cfg(feature = "tracing")]
    #[must_use]
    pub fn span(&self) -> tracing::Span {
        let extras = self.held().extras.as_ref();
        let span = extras.and_then(|extras| extras.span.clone());
        span.unwrap_or_else(tracing::Span::none)
    }

    /// Abandons it, with the cause for its letter.
    pub(crate) fn abandon_because(mut self, error: Box<dyn Error + Send + Sync>) {
        self.bury(Settled::Abandoned, Exit::Abandoned, Some(error));
    }

    /// The downstream asked for patience: puts the job back for `delay`, and this start does not count as an attempt.
    pub fn defer(self, delay: Duration) {
        self.put_back(delay, false);
    }

    /// Corrects the cost that the schedule was charged for this departure, once the consumer knows it.
    ///
    /// What comes after leaves sooner or later by the difference; the last word counts. It does not settle the job. Its
    /// tenant's share is corrected too; its depth is not.
    ///
    /// A debt is paid at the rate, however long that takes. A refund is worth no more than
    /// [`catch_up`](super::Builder::catch_up), and never ends in a salvo: once another job has departed, what follows
    /// leaves at most at [`catch_up_pace`](super::Builder::catch_up_pace). So where jobs overlap, estimate low, and pay
    /// the rest afterwards.
    pub fn settle_cost(&mut self, actual: u64) {
        let run = &mut self.run;
        self.core
            .step(|state, now, _| state.machine.settle_cost(now, run, actual));
    }

    /// The job failed for good; hands out its item, of which the queue keeps no letter.
    #[cfg(feature = "broker")]
    pub(crate) fn into_inner_failed(mut self) -> T {
        let Parcel { item, extras } = self.take();
        let run = self.run.clone();
        self.core.step(|state, now, after| {
            state
                .machine
                .settle(now, run, Settled::Failed, &mut after.fx);
        });
        if let Some(mut extras) = extras {
            extras.end(Ending::Failed);
        }
        item
    }

    fn put_back(mut self, delay: Duration, counts: bool) {
        let parcel = self.take();
        let run = self.run.clone();
        self.core.step(|state, now, after| {
            let of = run.clone();
            let queue = &mut state.machine;
            let back = if counts {
                queue.retry(now, of, parcel, delay, &mut after.fx)
            } else {
                queue.defer(now, of, parcel, delay, &mut after.fx)
            };
            match back {
                Ok(key) => state.watch_job(now, key, after),
                Err((exit, parcel)) => after.bury(&run, parcel, exit, None),
            }
        });
    }

    fn bury(&mut self, how: Settled, exit: Exit, cause: Option<Box<dyn Error + Send + Sync>>) {
        let parcel = self.take();
        let run = self.run.clone();
        self.core.step(|state, now, after| {
            after.bury(&run, parcel, exit, cause);
            state.machine.settle(now, run, how, &mut after.fx);
        });
    }

    fn take(&mut self) -> Parcel<T> {
        self.parcel.take().expect("a job is settled once, by value")
    }

    fn held(&self) -> &Parcel<T> {
        self.parcel
            .as_ref()
            .expect("a job that can be reached is not settled")
    }
}

impl<T> Deref for Job<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.held().item
    }
}

impl<T> DerefMut for Job<T> {
    fn deref_mut(&mut self) -> &mut T {
        let parcel = self
            .parcel
            .as_mut()
            .expect("a job that can be reached is not settled");
        &mut parcel.item
    }
}

impl<T> Drop for Job<T> {
    fn drop(&mut self) {
        if self.parcel.is_none() {
            return;
        }
        if self.counted {
            // The item of another one of its row panicked as it was dropped.
            if let Some(mut extras) = self.take().extras {
                extras.end(Ending::Acked);
            }
            return;
        }
        let Some(keep) = self.keep.take() else {
            return self.bury(Settled::Abandoned, Exit::Abandoned, None);
        };
        // Nobody to keep it: it is abandoned after all, as it comes back without a keep.
        drop(keep.put(Self {
            core: Arc::clone(&self.core),
            parcel: self.parcel.take(),
            run: self.run.clone(),
            counted: self.counted,
            keep: None,
        }));
    }
}

impl<T> fmt::Debug for Job<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

/// The terms of a job for which nothing is kept but what the machine keeps.
fn terms<T>(core: &Core<T>, run: &InFlight) -> Terms {
    core.look(|state, now| {
        let mut terms = Terms::new();
        if let Some(key) = state.machine.tenant_of(run.owner) {
            terms = terms.tenant(key.clone());
        }
        match on_tokio(run.expires_at, now) {
            Some(at) => terms.expires_at(at),
            None => terms,
        }
    })
}
