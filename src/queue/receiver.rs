//! The consumers' handle.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::task::coop::poll_proceed;

use super::control::Control;
use super::core::Core;
use super::dead_letters::DeadLetters;
use super::drain::{self, DrainReport};
use super::job::Job;
use crate::machine::NotTaken;
use crate::sync::{Arc, Ordering};

/// Handle to take jobs out of a queue at its rate; clones share one schedule.
///
/// However many consumers there are, together they get one job per departure; the consumer that has waited longest is
/// woken for it. A job is chosen at the instant it departs, so what is more urgent or expires is known then.
///
/// The queue ends when the last receiver is dropped: it closes, offers in line are refused, and what is queued is
/// dead-lettered as [`Returned`](super::Exit::Returned).
///
/// As a [`Stream`](futures_core::Stream) it yields what [`recv`](Self::recv) does.
pub struct Receiver<T> {
    core: Arc<Core<T>>,
    /// Place among the waiting consumers, of the stream.
    pub(super) place: Option<u64>,
}

/// Why there is no job now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// Nothing is queued that may leave: the queue is empty, or its jobs wait for a retry.
    Empty,
    /// A job is queued, and may leave after this time.
    NotDue {
        /// Time from now to the departure.
        after: Duration,
    },
    /// A job is queued, but the queue is paused or as many are in flight as may be.
    Held,
    /// The queue is closed, and nothing is queued, delayed or reserved.
    Closed,
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no job is queued"),
            Self::NotDue { after } => write!(f, "the next job leaves in {after:?}"),
            Self::Held => f.write_str("the queue is paused, or its in-flight bound is reached"),
            Self::Closed => f.write_str("the queue is closed and empty"),
        }
    }
}

impl Error for TryRecvError {}

impl<T> Receiver<T> {
    pub(crate) fn new(core: Arc<Core<T>>) -> Self {
        Self { core, place: None }
    }

    pub(crate) const fn core(&self) -> &Arc<Core<T>> {
        &self.core
    }

    /// Waits for the next departure and takes its job. `None` once the queue is closed and nothing is queued, delayed
    /// or reserved; jobs in flight do not count.
    ///
    /// # Cancel safety
    /// Dropping it loses no job: one that it was woken for goes to the next consumer.
    pub async fn recv(&self) -> Option<Job<T>> {
        Recv {
            core: &self.core,
            id: None,
        }
        .await
    }

    /// Takes a job if a departure is due now.
    ///
    /// # Errors
    /// Why there is none.
    pub fn try_recv(&self) -> Result<Job<T>, TryRecvError> {
        let (taken, now) = self
            .core
            .step(|state, now, after| (state.take(now, None, after), now));
        match taken {
            Ok(taken) => Ok(Job::new(&self.core, taken)),
            Err(NotTaken::Empty) => Err(TryRecvError::Empty),
            Err(NotTaken::NotDue(at)) => Err(TryRecvError::NotDue { after: at - now }),
            Err(NotTaken::Held) => Err(TryRecvError::Held),
            Err(NotTaken::Closed) => Err(TryRecvError::Closed),
        }
    }

    /// The operator's handle.
    #[must_use]
    pub fn control(&self) -> Control {
        Control::new(self.core.port())
    }

    /// Handle to the jobs that nobody acknowledged.
    #[must_use]
    pub fn dead_letters(&self) -> DeadLetters<T> {
        self.core.outlet.letters()
    }

    /// Takes no more offers: those in line are refused, what is queued still leaves. `true` if this call did it.
    pub fn close(&self) -> bool {
        self.core.close()
    }

    /// Closes the queue and waits until all it holds has left and is settled, at most for `within`.
    ///
    /// The rate is kept, and somebody has to go on receiving. At the deadline what is queued or delayed is given back by
    /// value; what is in flight then is only counted. Of several drains the earliest deadline holds, and one of them
    /// reports what was given back.
    ///
    /// # Cancel safety
    /// Dropped early, the queue stays closed and the deadline stays; without another drain to report it, what is given
    /// back is dead-lettered as [`Returned`](super::Exit::Returned).
    pub async fn drain(&self, within: Duration) -> DrainReport<T> {
        drain::run(&self.core, within).await
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        // Relaxed: whoever clones holds one, so the count cannot be zero.
        self.core.receivers.fetch_add(1, Ordering::Relaxed);
        Self {
            core: Arc::clone(&self.core),
            place: None,
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        leave(&self.core, self.place);
        // Acquire and release: the end comes after all that the other receivers did.
        if self.core.receivers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.core
                .step(|state, now, after| state.machine.end(now, &mut after.fx));
        }
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(&self.core).finish()
    }
}

/// Future of the next job.
struct Recv<'a, T> {
    core: &'a Arc<Core<T>>,
    /// Place among the waiting consumers.
    id: Option<u64>,
}

impl<T> Future for Recv<'_, T> {
    type Output = Option<Job<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { core, id } = &mut *self;
        poll_recv(core, id, cx)
    }
}

impl<T> Drop for Recv<'_, T> {
    fn drop(&mut self) {
        leave(self.core, self.id);
    }
}

/// Takes the next job, or waits for it in line as consumer `id`.
pub(super) fn poll_recv<T>(
    core: &Arc<Core<T>>,
    id: &mut Option<u64>,
    cx: &mut Context<'_>,
) -> Poll<Option<Job<T>>> {
    let budget = ready!(poll_proceed(cx));
    // First without a waker, as cloning one is foreign code that most polls can do without; unless there is nothing to
    // be taken, as far as can be told without the lock.
    let mut taken = match core.depth() {
        0 => Err(NotTaken::Empty),
        _ => core.step(|state, now, after| Ok(Job::raw(core, state.take(now, *id, after)?))),
    };
    if !matches!(taken, Ok(_) | Err(NotTaken::Closed)) {
        let waker = cx.waker().clone();
        taken = core.step(|state, now, after| {
            let taken = state.take(now, *id, after);
            let stale = match taken {
                Ok(_) | Err(NotTaken::Closed) => Some(waker),
                Err(_) => state.desk.consumers().enroll(id, waker),
            };
            after.drop_later(stale);
            Ok(Job::raw(core, taken?))
        });
    }
    let job = match taken {
        Ok(mut job) => {
            job.unwatch();
            Some(job)
        }
        Err(NotTaken::Closed) => None,
        Err(_) => return Poll::Pending,
    };
    budget.made_progress();
    if job.is_some() {
        // Taking has ended its place in line.
        *id = None;
    }
    Poll::Ready(job)
}

/// Leaves the line of consumers: what it was woken for goes to the next.
pub(super) fn leave<T>(core: &Arc<Core<T>>, id: Option<u64>) {
    if let Some(id) = id {
        core.step(|state, _, after| after.drop_later(state.desk.consumers().leave(id)));
    }
}
