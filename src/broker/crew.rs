//! Runs the handlers of a source, and tells the broker what became of each message.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::contract::Broker;
use super::error::{BrokerError, BrokerErrorKind};
use super::message::Delivery;
use super::numbers::Settled;
use super::source::{Held, Received, Shared, pause};
use super::source_builder::Delays;
use super::verdict::Verdict;
use crate::queue::workers::message;
use crate::queue::{Job, Receiver};
use crate::sync::Arc;

pub(super) struct Crew<B: Broker, H> {
    shared: Arc<Shared<B>>,
    handler: Arc<H>,
    tasks: TaskTracker,
    /// Fires when the time of the last handlers is up.
    cut: CancellationToken,
    /// Messages whose retry waits in this process.
    delayed: Arc<Semaphore>,
}

/// How a message is to be settled.
enum Ends {
    Ack,
    Bury(String),
    Retry(Duration),
}

impl<B: Broker, H, F> Crew<B, H>
where
    H: Fn(Received) -> F + Send + Sync + 'static,
    F: Future + Send + 'static,
    F::Output: Into<Verdict>,
{
    pub(super) fn new(shared: Arc<Shared<B>>, handler: H) -> Self {
        Self {
            shared,
            handler: Arc::new(handler),
            tasks: TaskTracker::new(),
            cut: CancellationToken::new(),
            delayed: Arc::new(Semaphore::new(MOST_DELAYED)),
        }
    }

    /// Takes jobs, which the queue's own bound in flight keeps few, until there will be no more.
    pub(super) async fn serve(&self, receiver: &Receiver<Held<B>>) {
        while let Some(job) = receiver.recv().await {
            let one = One {
                shared: Arc::clone(&self.shared),
                cut: self.cut.clone(),
                delayed: Arc::clone(&self.delayed),
            };
            self.tasks.spawn(one.work(job, Arc::clone(&self.handler)));
        }
    }

    /// Waits for the handlers until the deadline; then they are cut, and what is left is told to the broker.
    pub(super) async fn finish(&self, deadline: Instant) {
        self.tasks.close();
        select(pin!(self.tasks.wait()), pin!(sleep_until(deadline))).await;
        self.cut.cancel();
        self.tasks.wait().await;
    }
}

/// One message on its way.
struct One<B: Broker> {
    shared: Arc<Shared<B>>,
    cut: CancellationToken,
    delayed: Arc<Semaphore>,
}

impl<B: Broker> One<B> {
    async fn work<H, F>(self, job: Job<Held<B>>, handler: Arc<H>)
    where
        H: Fn(Received) -> F,
        F: Future,
        F::Output: Into<Verdict>,
    {
        let bound = self.shared.plan.max_deliveries.unwrap_or(u32::MAX);
        let attempt = job.delivery.attempt;
        let ends = if attempt > bound {
            // Whoever had it before died over it (keeps I3).
            let had = attempt - 1;
            Ends::Bury(format!("delivered {had} times, at most {bound}"))
        } else {
            let verdict = self.handle(&job, handler).await;
            self.ends(attempt, bound, verdict)
        };
        self.settle(job, ends).await;
    }

    /// Runs the handler; `None` = it was cut at the end of the source.
    async fn handle<H, F>(&self, job: &Job<Held<B>>, handler: Arc<H>) -> Option<Verdict>
    where
        H: Fn(Received) -> F,
        F: Future,
        F::Output: Into<Verdict>,
    {
        let received = Received {
            message: job.delivery.message.clone(),
            attempt: job.delivery.attempt,
            waited: job.waited(),
            departed_at: job.departed_at(),
        };
        let work = async { handler(received).await.into() };
        let work = pin!(AssertUnwindSafe(work).catch_unwind());
        let limit = self.shared.plan.handler_within;
        let late = async {
            match limit.and_then(|limit| job.taken_at.checked_add(limit)) {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let (cut, late) = (pin!(self.cut.cancelled()), pin!(late));
        let over = select(cut, late);
        match select(work, over).await {
            Either::Left((Ok(verdict), _)) => Some(verdict),
            Either::Left((Err(panic), _)) => Some(Verdict::Error(message(panic).into())),
            Either::Right((Either::Left(_), _)) => None,
            Either::Right((Either::Right(_), _)) => {
                let limit = limit.unwrap_or_default();
                Some(Verdict::Error(
                    format!("handler was not done {limit:?} after the message was taken").into(),
                ))
            }
        }
    }

    fn ends(&self, attempt: u32, bound: u32, verdict: Option<Verdict>) -> Ends {
        let last = attempt >= bound;
        match verdict {
            None => Ends::Retry(Duration::ZERO),
            Some(Verdict::Ack) => Ends::Ack,
            Some(Verdict::DeadLetter(why)) => Ends::Bury(why),
            Some(Verdict::Retry(_)) if last => Ends::Bury(format!(
                "delivered {attempt} times, and its handler asks for another"
            )),
            Some(Verdict::Error(error)) if last => Ends::Bury(error.to_string()),
            Some(Verdict::Retry(backoff)) => Ends::Retry(backoff.delay(attempt)),
            Some(Verdict::Error(_)) => Ends::Retry(self.shared.plan.backoff.delay(attempt)),
        }
    }

    async fn settle(self, job: Job<Held<B>>, ends: Ends) {
        let broker = &self.shared.broker;
        match ends {
            Ends::Ack => {
                let receipt = &job.delivery.receipt;
                let told = self.tell(|| broker.ack(receipt)).await;
                self.shared
                    .count(told.map_or(Settled::Lost, |()| Settled::Acked));
                job.ack();
            }
            Ends::Bury(why) => {
                let delivery = &job.delivery;
                let told = self.tell(|| broker.dead_letter(delivery, &why)).await;
                let how = told.map_or(Settled::Lost, |()| Settled::DeadLettered);
                self.shared.count(how);
                job.fail();
            }
            Ends::Retry(delay) => self.put_back(job, delay).await,
        }
    }

    async fn put_back(self, job: Job<Held<B>>, delay: Duration) {
        let here = self.shared.plan.delays == Delays::Here && !delay.is_zero();
        if !here {
            let told = self.retry(&job.delivery, delay).await;
            self.shared.count(told);
            return job.fail();
        }
        // It waits here without a place of those in flight, so that others go on; there is a bound to that, too.
        let waits = Arc::clone(&self.delayed).acquire_owned().await;
        let Held {
            delivery,
            hold,
            place,
            ..
        } = job.into_inner_failed();
        drop(place);
        select(pin!(sleep(delay)), pin!(self.cut.cancelled())).await;
        let told = self.retry(&delivery, Duration::ZERO).await;
        self.shared.count(told);
        drop((hold, waits));
    }

    async fn retry(&self, delivery: &Delivery<B::Receipt>, delay: Duration) -> Settled {
        let receipt = &delivery.receipt;
        let told = self.tell(|| self.shared.broker.retry(receipt, delay)).await;
        told.map_or(Settled::Lost, |()| Settled::Retried)
    }

    /// Says it to the broker until it has heard it, for a while.
    async fn tell<T>(&self, verb: impl Fn() -> T) -> Result<(), BrokerError>
    where
        T: Future<Output = Result<(), BrokerError>>,
    {
        let began = Instant::now();
        for failures in 1.. {
            let answer = tokio::time::timeout(PATIENCE, verb()).await;
            let error = match answer {
                Ok(Ok(())) => {
                    self.shared.link.answered(0);
                    return Ok(());
                }
                Ok(Err(error)) => error,
                Err(_) => BrokerError::new(
                    BrokerErrorKind::Unconfirmed,
                    format!("broker has not answered within {PATIENCE:?}"),
                ),
            };
            self.shared.numbers.failed(error.kind());
            if !error.kind().is_transient() {
                return Err(error);
            }
            // With every place taken by what cannot be settled, this is the only sign of an outage.
            self.shared.link.failed(&error.to_string());
            if began.elapsed() >= PATIENCE {
                return Err(error);
            }
            sleep(pause(failures)).await;
        }
        Ok(())
    }
}

/// Longest time spent on settling one message with a broker that does not answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Messages that wait here for their retry; more keep their places.
const MOST_DELAYED: usize = 1_024;
