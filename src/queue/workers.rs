//! The loop that every consumer writes: take a job, handle it, settle it, and end in good order.
//!
//! ```text
//!   serving --token fired--> draining, at most for `finish_within` --> cut: what still runs is dropped
//!      +-----queue closed and empty----> waiting for the last handlers --token fired--> draining
//! ```
//! - I1  A job is taken only when a handler can run it at once: nothing is fetched ahead.
//! - I2  Whatever a handler does, its job is settled once: by itself, by what it returns, or as abandoned.

mod outcome;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::outcome::Outcome;
use super::backoff::Backoff;
use super::core::Core;
use super::drain::{DrainReport, settled};
use super::job::Job;
use super::keep::Keep;
use super::receiver::Receiver;
use crate::sync::Arc;

/// Consumers of a queue: handlers that run side by side, each with one job at a time.
///
/// A handler is an async function of the [`Job`]. It settles the job itself, or drops it and lets its return value do
/// that, see [`Outcome`]. What it settled itself stands, whatever it returns. A job that it moved elsewhere, as into a
/// task of its own, is on its own once the handler has returned: dropped unsettled then, it is abandoned.
///
/// A handler that panics takes nothing down: its job is counted as abandoned, and the message is the cause of its dead
/// letter.
///
/// # Examples
/// ```
/// use sluicegate::Rate;
/// use sluicegate::queue::workers::Workers;
/// use sluicegate::queue::{Builder, Job};
/// use tokio_util::sync::CancellationToken;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// let (tx, rx) = Builder::new(Rate::per_second(100)).max_attempts(1).build()?;
/// for text in ["1", "2", "three"] {
///     tx.try_send(text)?;
/// }
/// let (control, letters) = (rx.control(), rx.dead_letters());
/// drop(tx); // no more jobs: the workers end once these are done
/// let parse = |job: Job<&'static str>| async move { job.parse::<u32>().map(drop) };
/// Workers::new(rx).concurrency(2).run(parse, CancellationToken::new()).await;
/// assert_eq!(control.snapshot().ledger.acked, 2);
/// assert_eq!(letters.try_recv().expect("one has failed").item, "three");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "workers do nothing until they run"]
pub struct Workers<T> {
    receiver: Receiver<T>,
    concurrency: usize,
    backoff: Backoff,
    finish_within: Duration,
}

impl<T: Send + 'static> Workers<T> {
    /// Workers on the jobs of this receiver.
    pub fn new(receiver: Receiver<T>) -> Self {
        Self {
            receiver,
            concurrency: CONCURRENCY,
            backoff: Backoff::exponential(FIRST_BACKOFF, LONGEST_BACKOFF),
            finish_within: FINISH_WITHIN,
        }
    }

    /// Most handlers that run at the same time. Default 8; 0 counts as 1.
    ///
    /// Higher keeps the rate when jobs take long (it needs rate x time per job), at the price of as much work at once in
    /// the downstream; lower spares it. Workers of several processes or queues add up:
    /// [`max_in_flight`](super::Builder::max_in_flight) bounds those of one queue together.
    pub const fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = if handlers == 0 { 1 } else { handlers };
        self
    }

    /// How long a job waits whose handler returned an error. Default: doubling from 100 ms to 30 s, with jitter.
    ///
    /// Longer is kinder to a downstream that is ill; shorter finishes sooner where errors are rare.
    pub fn backoff(mut self, backoff: impl Into<Backoff>) -> Self {
        self.backoff = backoff.into();
        self
    }

    /// Longest time from the shutdown to the end. Default 8 s, below the 10 s that common supervisors grant.
    ///
    /// Longer lets more of the backlog be done, at the queue's rate; shorter gives more of it back.
    pub const fn finish_within(mut self, time: Duration) -> Self {
        self.finish_within = time;
        self
    }

    /// Handles jobs until the queue is closed and everything in it is settled, or until `shutdown` fires.
    ///
    /// After the shutdown the queue takes no more offers and [drains](Receiver::drain) at its rate. At the deadline, what
    /// is queued or delayed is given back in the report. Handlers that still run are dropped at their next await: their
    /// jobs are [abandoned](super::Exit::Abandoned), and their items dead-lettered, since nobody knows how far they
    /// got. They are counted in [`DrainReport::in_flight`]. A job that is to be retried after the shutdown is
    /// dead-lettered as [`Returned`](super::Exit::Returned), with its error. So whoever keeps what was not done reads
    /// both the report and the [dead letters](Receiver::dead_letters).
    ///
    /// The report counts what was settled from the shutdown, or the end of the queue, on. If this was the last receiver,
    /// the queue ends with it.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropping it takes no more jobs and closes nothing, unless it held the last receiver. Handlers that run go on to
    /// their end, and their jobs are settled.
    pub async fn run<H, F>(self, handler: H, shutdown: CancellationToken) -> DrainReport<T>
    where
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future + Send + 'static,
        F::Output: Into<Outcome>,
    {
        let Self {
            receiver,
            concurrency,
            backoff,
            finish_within,
        } = self;
        let crew = Crew {
            handler: Arc::new(handler),
            backoff,
            places: Arc::new(Semaphore::new(concurrency.min(Semaphore::MAX_PERMITS))),
            tasks: TaskTracker::new(),
            cut: CancellationToken::new(),
        };
        let core = receiver.core();
        let mut told = pin!(shutdown.cancelled());
        let mut serving = pin!(crew.serve(&receiver));
        let over = matches!(select(&mut serving, &mut told).await, Either::Left(_));
        let ended = ended(core);
        if over {
            let all = pin!(async {
                let report = receiver.drain(Duration::MAX).await;
                crew.all_over().await;
                report
            });
            if let Either::Left((report, _)) = select(all, told).await {
                return since(report, core, ended);
            }
        }
        let deadline = core.clock.now() + finish_within;
        let report = {
            let drain = pin!(receiver.drain(finish_within));
            if over {
                drain.await
            } else {
                match select(drain, serving).await {
                    Either::Left((report, _)) => report,
                    Either::Right(((), drain)) => drain.await,
                }
            }
        };
        let report = since(report, core, ended);
        // Handlers that have settled their jobs may still have something to do.
        select(
            pin!(crew.all_over()),
            core.timer.sleep_until(&core.clock, deadline),
        )
        .await;
        crew.cut.cancel();
        report
    }
}

impl<T> fmt::Debug for Workers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers")
            .field("receiver", &self.receiver)
            .field("concurrency", &self.concurrency)
            .field("backoff", &self.backoff)
            .field("finish_within", &self.finish_within)
            .finish()
    }
}

/// What runs the handlers.
struct Crew<H> {
    handler: Arc<H>,
    backoff: Backoff,
    places: Arc<Semaphore>,
    tasks: TaskTracker,
    /// Fires when the time of the last handlers is up.
    cut: CancellationToken,
}

impl<H> Crew<H> {
    /// Takes jobs and has them handled, until there will be no more.
    async fn serve<T, F>(&self, receiver: &Receiver<T>)
    where
        T: Send + 'static,
        H: Fn(Job<T>) -> F + Send + Sync + 'static,
        F: Future + Send + 'static,
        F::Output: Into<Outcome>,
    {
        loop {
            // The place first, then the job (keeps I1).
            let place = Arc::clone(&self.places).acquire_owned().await;
            let Some(job) = receiver.recv().await else {
                return;
            };
            let handled = handle(
                job,
                Arc::clone(&self.handler),
                self.backoff,
                self.cut.clone(),
            );
            self.tasks.spawn(async move {
                handled.await;
                drop(place);
            });
        }
    }

    async fn all_over(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Runs the handler on a job and settles it by what comes of that (keeps I2).
async fn handle<T, H, F>(job: Job<T>, handler: Arc<H>, backoff: Backoff, cut: CancellationToken)
where
    H: Fn(Job<T>) -> F,
    F: Future,
    F::Output: Into<Outcome>,
{
    let keep = Keep::open();
    let job = job.kept_by(&keep);
    let result = {
        #[cfg(feature = "tracing")]
        let span = job.span();
        let work = async { handler(job).await.into() };
        #[cfg(feature = "tracing")]
        let work = tracing::Instrument::instrument(work, span);
        let work = pin!(AssertUnwindSafe(work).catch_unwind());
        match select(work, pin!(cut.cancelled())).await {
            Either::Left((result, _)) => Some(result),
            Either::Right(_) => None,
        }
        // Here what is left of the handler is dropped, and its job with it.
    };
    let job = keep.end();
    match result {
        Some(Ok(outcome)) => outcome.settle(job, backoff),
        Some(Err(panic)) => {
            let message = message(panic);
            if let Some(job) = job {
                job.abandon_because(message.into());
            }
        }
        None => drop(job),
    }
}

/// What a panic said.
pub(crate) fn message(panic: Box<dyn Any + Send>) -> String {
    let text = match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => match panic.downcast::<&'static str>() {
            Ok(text) => (*text).to_owned(),
            Err(panic) => {
                // It is foreign, and its drop may panic once more.
                std::mem::forget(panic);
                String::from("no message")
            }
        },
    };
    format!("handler panicked: {text}")
}

fn ended<T>(core: &Core<T>) -> u64 {
    core.look(|state, _| settled(&state.machine.ledger()))
}

fn since<T>(mut report: DrainReport<T>, core: &Core<T>, before: u64) -> DrainReport<T> {
    report.settled = ended(core) - before;
    report
}

const CONCURRENCY: usize = 8;
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);
const FINISH_WITHIN: Duration = Duration::from_secs(8);
