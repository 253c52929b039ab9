//! Handle for consumers.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use tokio::time::sleep;

use super::codec::{Codec, Json};
use super::core::{Core, How, Settling};
use super::dead_letters::DeadLetters;
use super::delivery::{Guard, Raw};
use super::error::{Error, TryRecvError};
use super::handle::Queue;
use super::job::Job;
use super::settings::MOST_AT_ONCE;
use crate::sync::{Arc, Ordering};

/// Handle for consumers; all of the fleet share one schedule.
///
/// Clones ask one after the other, in their order, so a process asks the server once for all its consumers.
pub struct Receiver<T, C = Json> {
    core: Arc<Core>,
    codec: C,
    items: PhantomData<fn() -> T>,
}

impl<T, C: Codec<T>> Receiver<T, C> {
    pub(super) fn new(core: &Arc<Core>, codec: C) -> Self {
        core.receivers.fetch_add(1, Ordering::SeqCst);
        Self {
            core: Arc::clone(core),
            codec,
            items: PhantomData,
        }
    }

    /// Waits for the next job; `None` once the queue is closed and nothing is left in it, in flight included.
    ///
    /// It rides out a server that is gone, frozen, loading, or empty after a restart. A payload that cannot be read is
    /// dead-lettered with the error as its cause, and the next job is waited for.
    ///
    /// # Errors
    /// What waiting does not mend: missing rights, something else under the queue's keys, a layout of another version.
    /// It comes after a pause that grows to a second, so a loop that goes on does no harm.
    ///
    /// # Cancel safety
    /// Dropping it loses no job: one that was taken goes to the next call, or back after a second.
    pub async fn recv(&self) -> Result<Option<Job<T>>, Error> {
        Ok(self.recv_many(1).await?.pop())
    }

    /// Waits for jobs, and takes up to `most` of those that are due; empty once the queue is closed and nothing is left.
    ///
    /// Each is a departure of its own. At most 1,000 are taken in one go.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    ///
    /// # Cancel safety
    /// As [`recv`](Self::recv).
    pub async fn recv_many(&self, most: usize) -> Result<Vec<Job<T>>, Error> {
        let most = most.clamp(1, MOST_AT_ONCE as usize);
        // The turn is never closed.
        let _turn = self.core.turn.acquire().await.ok();
        loop {
            let jobs = self.collect(most).await;
            if !jobs.is_empty() {
                return Ok(jobs);
            }
            match self.ask(most).await {
                Ok((How::Taken, _)) => self.core.manners.lock().met(),
                Ok((How::Over, _)) => return Ok(Vec::new()),
                Ok((how, wait)) => {
                    let pause = self.core.manners.lock().idle(how, wait);
                    sleep(pause).await;
                }
                Err(error) => {
                    let pause = self.core.manners.lock().failed();
                    sleep(pause).await;
                    if !error.is_transient() {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Takes a job if one is due, with one question to the server.
    ///
    /// # Errors
    /// Why there is none.
    ///
    /// # Cancel safety
    /// As [`recv`](Self::recv).
    pub async fn try_recv(&self) -> Result<Job<T>, TryRecvError> {
        let _turn = self.core.turn.acquire().await.ok();
        loop {
            if let Some(job) = self.collect(1).await.pop() {
                return Ok(job);
            }
            match self.ask(1).await.map_err(TryRecvError::Failed)? {
                (How::Taken, _) => {}
                (How::NotDue, after) => return Err(TryRecvError::NotDue { after }),
                (How::Empty, _) => return Err(TryRecvError::Empty),
                (How::Held, _) => return Err(TryRecvError::Held),
                (How::Paused, _) => return Err(TryRecvError::Paused),
                (How::Over, _) => return Err(TryRecvError::Closed),
            }
        }
    }

    /// Asks in a task of its own, so that the answer is not lost with the caller.
    async fn ask(&self, most: usize) -> Result<(How, Duration), Error> {
        let core = Arc::clone(&self.core);
        let asked = tokio::spawn(async move {
            let answer = core.ask(most).await?;
            let got_some = !answer.jobs.is_empty();
            core.accept(answer.jobs);
            if got_some && core.receivers.load(Ordering::SeqCst) == 0 {
                core.give_back(Duration::ZERO).await;
            }
            Ok((answer.how, answer.wait))
        });
        match asked.await {
            Ok(answer) => answer,
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            // The runtime is shutting down; so is whoever waits here.
            Err(_) => std::future::pending().await,
        }
    }

    async fn collect(&self, most: usize) -> Vec<Job<T>> {
        let mut jobs = Vec::new();
        while jobs.len() < most
            && let Some((raw, guard)) = self.core.unstash()
        {
            match self.codec.decode(&raw.payload) {
                Ok(item) => jobs.push(Job::new(&self.core, item, raw, guard)),
                Err(error) => self.bury(&raw, guard, &error.to_string()).await,
            }
        }
        jobs
    }

    async fn bury(&self, raw: &Raw, guard: Guard, error: &str) {
        let cause = super::job::shortened(&format!("the payload cannot be read: {error}"));
        let settling = Settling {
            id: &raw.id,
            token: raw.token,
            how: "fail",
            delay: Duration::ZERO,
            cause: &cause,
            headers: "",
        };
        // If that fails it comes again after the claim time, and is judged then.
        let _ = self.core.settle(&settling).await;
        drop(guard);
    }

    /// The dead letters.
    #[must_use]
    pub fn dead_letters(&self) -> DeadLetters<T, C> {
        DeadLetters::new(&self.core, self.codec.clone())
    }

    /// The queue.
    #[must_use]
    pub fn control(&self) -> Queue {
        Queue::new(Arc::clone(&self.core))
    }
}

impl super::core::Manners {
    fn met(&mut self) {
        *self = Self::default();
    }

    /// Time until the next question after one to which there was nothing.
    fn idle(&mut self, how: How, wait: Duration) -> Duration {
        self.failures = 0;
        match how {
            How::NotDue => {
                self.idle = 0;
                // The rate may be raised meanwhile.
                return wait.min(LOOK);
            }
            // A place may be free at any moment.
            How::Held => return HELD,
            _ => {}
        }
        self.idle = self.idle.saturating_add(1);
        let patient = SHORTEST * (1 << self.idle.min(16).saturating_sub(1));
        patient.min(LONGEST).min(wait.max(SHORTEST))
    }

    fn failed(&mut self) -> Duration {
        self.idle = 0;
        self.failures = self.failures.saturating_add(1);
        let doublings = self.failures.min(6) - 1;
        (FIRST_PAUSE * (1 << doublings)).min(LONGEST_PAUSE)
    }
}

impl<T, C: Clone> Clone for Receiver<T, C> {
    fn clone(&self) -> Self {
        self.core.receivers.fetch_add(1, Ordering::SeqCst);
        Self {
            core: Arc::clone(&self.core),
            codec: self.codec.clone(),
            items: PhantomData,
        }
    }
}

/// The last one gone: what was taken for nobody is given back, and the server forgets this consumer once it holds nothing.
impl<T, C> Drop for Receiver<T, C> {
    fn drop(&mut self) {
        // SeqCst: either the question under way sees that nobody is left, or its jobs are seen here.
        if self.core.receivers.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let core = Arc::clone(&self.core);
        runtime.spawn(async move {
            core.give_back(Duration::ZERO).await;
            let arguments: [&[u8]; 2] = [b"leave", core.consumer.as_bytes()];
            let store = &core.store;
            // It is forgotten later if this fails.
            let _ = store.call(&store.scripts.control, None, &arguments).await;
        });
    }
}

impl<T, C> fmt::Debug for Receiver<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("queue", &self.core.name)
            .finish_non_exhaustive()
    }
}

/// Time between two questions to an empty queue: it doubles from the first to the last.
const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(32);
/// The same while the fleet holds all that it may.
const HELD: Duration = Duration::from_millis(4);
/// The same while nothing is due for longer.
const LOOK: Duration = Duration::from_millis(500);
/// The same while the server gives no answer.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
