//! The drain behind a broker: takes what can start soon, paces it, settles it at the broker.
//!
//! ```text
//!   broker --take--> [ queue of this process: rate, bound in flight ] --> handler --+--> ack
//!     ^                     held, kept alive by heartbeats                          +--> retry, delayed
//!     +-----------------------------------------------------------------------------+--> dead letters
//! ```
//! - I1  a message is taken only into a place that is free, and holds it until it is settled at the broker.
//! - I2  every delivery ends in one verb at the broker, or the broker takes it back when its hold has passed.
//! - I3  a handler never runs on a delivery beyond the bound: the count is the broker's, so crashes count.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, join, select};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::contract::Broker;
use super::crew::Crew;
use super::holds::{Hold, Holds};
use super::link::{Link, SourceHealth};
use super::message::{Delivery, Message};
use super::numbers::{Numbers, Settled};
use super::source_builder::{Plan, SourceBuilder};
use super::verdict::Verdict;
use crate::queue::{Control, Receiver, Sender};
use crate::sync::Arc;
use crate::tick::Tick;

/// A message for a handler.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Received {
    /// The message.
    pub message: Message,
    /// Which delivery of it this is, by the broker's count: 1 at the first.
    pub attempt: u32,
    /// How long it waited in this process.
    pub waited: Duration,
    /// When it departed, on the clock of the source's queue. Spacing is judged on these instants.
    pub departed_at: Tick,
}

/// What a source did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SourceReport {
    /// Messages done and acked.
    pub acked: u64,
    /// Deliveries put back after a failure, to come again.
    pub retried: u64,
    /// Messages moved to the dead letters.
    pub dead_lettered: u64,
    /// Deliveries put back untouched at the end.
    pub given_back: u64,
    /// Deliveries that could not be settled: they come again.
    pub lost: u64,
    /// Deliveries that were not the first of their message.
    pub redelivered: u64,
}

/// The drain behind a broker.
///
/// In this process its messages are the jobs of a queue: [`control`](Self::control) changes rate and bounds, pauses, and
/// shows the ledger, which counts deliveries: what is retried or dead-lettered has failed there.
///
/// The connection is the broker's to get back; a source goes on asking, with a back-off up to 2 s, and shows it in its
/// [health](Self::health).
///
/// # Examples
/// ```
/// use sluicegate::Rate;
/// use sluicegate::broker::{Broker, Memory, Message, Received, Source};
/// use tokio_util::sync::CancellationToken;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// let orders = Memory::new("orders");
/// for text in ["1", "2", "three"] {
///     orders.publish(&Message::new(text)).await?;
/// }
/// let source = Source::builder(orders.clone())
///     .rate(Rate::per_second(100))
///     .max_deliveries(2)
///     .build()?;
/// let stop = CancellationToken::new();
/// let insert = |received: Received| async move {
///     let text = String::from_utf8(received.message.into_payload())?;
///     text.parse::<u32>()?;
///     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// };
/// let running = tokio::spawn(source.run(insert, stop.clone()));
/// while orders.depth().await?.total() > 0 {
///     tokio::time::sleep(std::time::Duration::from_millis(10)).await;
/// }
/// stop.cancel();
/// let report = running.await?;
/// assert_eq!((report.acked, report.retried, report.dead_lettered), (2, 1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a source does nothing until it runs"]
pub struct Source<B: Broker> {
    shared: Arc<Shared<B>>,
    sender: Sender<Held<B>>,
    receiver: Receiver<Held<B>>,
}

/// What pump, crew and handles share.
pub(super) struct Shared<B: Broker> {
    pub(super) broker: B,
    pub(super) plan: Plan,
    pub(super) link: Link,
    pub(super) numbers: Numbers,
    pub(super) holds: Arc<Holds<B::Receipt>>,
    pub(super) places: Arc<Semaphore>,
}

/// A delivery in this process.
pub(super) struct Held<B: Broker> {
    pub(super) delivery: Delivery<B::Receipt>,
    pub(super) taken_at: Instant,
    pub(super) hold: Hold<B::Receipt>,
    pub(super) place: OwnedSemaphorePermit,
}

impl<B: Broker> Source<B> {
    /// Begins a source on this broker.
    pub fn builder(broker: B) -> SourceBuilder<B> {
        SourceBuilder::new(broker)
    }

    pub(super) fn new(
        broker: B,
        plan: Plan,
        sender: Sender<Held<B>>,
        receiver: Receiver<Held<B>>,
    ) -> Self {
        let numbers = Numbers::new(broker.name());
        let shared = Shared {
            link: Link::new(receiver.control()),
            numbers,
            broker,
            plan,
            holds: Holds::new(),
            places: Arc::new(Semaphore::new(plan.places.min(Semaphore::MAX_PERMITS))),
        };
        Self {
            shared: Arc::new(shared),
            sender,
            receiver,
        }
    }

    /// Switches, numbers and health of the queue in this process.
    #[must_use]
    pub fn control(&self) -> Control {
        self.receiver.control()
    }

    /// A watch on the source that can be kept while it runs.
    #[must_use]
    pub fn health(&self) -> SourceHealth {
        self.shared.link.health()
    }

    /// Takes and handles messages until `shutdown` fires.
    ///
    /// Then it takes no more, and goes on with what it holds, at the rate, for at most
    /// [`finish_within`](SourceBuilder::finish_within). At the deadline what has not started is given back, and handlers
    /// that still run are dropped at their next await: their messages are put back, to be delivered again.
    ///
    /// A handler that panics has failed like one that returns an error.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropped, it takes no more; handlers that run go on, and their messages are settled. What was held and had not
    /// started comes again when its hold has passed, or the connection ends.
    pub async fn run<H, F>(self, handler: H, shutdown: CancellationToken) -> SourceReport
    where
        H: Fn(Received) -> F + Send + Sync + 'static,
        F: Future + Send + 'static,
        F::Output: Into<Verdict>,
    {
        let Self {
            shared,
            sender,
            receiver,
        } = self;
        let crew = Crew::new(Arc::clone(&shared), handler);
        let stop = CancellationToken::new();
        let work = async {
            let serving = join(shared.pump(sender, &stop), crew.serve(&receiver));
            let serving = pin!(serving);
            let told = pin!(shutdown.cancelled());
            // The pump only ends when it is told, so this is over first.
            let serving = match select(told, serving).await {
                Either::Left(((), serving)) => serving,
                Either::Right(_) => return,
            };
            stop.cancel();
            let deadline = Instant::now() + shared.plan.finish_within;
            let drain = async {
                let report = receiver.drain(shared.plan.finish_within).await;
                for letter in report.returned {
                    shared.give_back(letter.item).await;
                }
            };
            join(drain, serving).await;
            crew.finish(deadline).await;
        };
        // Heartbeats go on until the last message is settled.
        let beats = pin!(shared.holds.beat(&shared.broker, &shared.numbers));
        select(pin!(work), beats).await;
        shared.link.report()
    }
}

impl<B: Broker> Shared<B> {
    /// Fetches into free places, until told to stop.
    async fn pump(&self, sender: Sender<Held<B>>, stop: &CancellationToken) {
        let mut failures = 0;
        while !stop.is_cancelled() {
            let first = {
                let free = pin!(Arc::clone(&self.places).acquire_owned());
                match select(free, pin!(stop.cancelled())).await {
                    Either::Left((Ok(place), _)) => place,
                    _ => return,
                }
            };
            let mut places = vec![first];
            while let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
                places.push(place);
            }
            // Not dropped halfway: what it had been handed would be gone until its hold has passed.
            let wait = self.plan.wait;
            let taking = self.broker.take(places.len(), wait);
            match tokio::time::timeout(wait + STALLED, taking).await {
                Ok(Ok(deliveries)) => {
                    failures = 0;
                    self.came(&deliveries);
                    for delivery in deliveries {
                        // A broker that hands out more than it was asked for waits for a place.
                        let place = match places.pop() {
                            Some(place) => place,
                            None => match Arc::clone(&self.places).acquire_owned().await {
                                Ok(place) => place,
                                Err(_) => return,
                            },
                        };
                        self.admit(&sender, delivery, place).await;
                    }
                    continue;
                }
                Ok(Err(error)) => {
                    self.numbers.failed(error.kind());
                    self.link.failed(&error.to_string());
                }
                Err(_) => self.link.failed("the broker does not answer"),
            }
            self.numbers.polled(false);
            failures += 1;
            drop(places);
            let pause = pin!(tokio::time::sleep(pause(failures)));
            select(pause, pin!(stop.cancelled())).await;
        }
    }

    fn came(&self, deliveries: &[Delivery<B::Receipt>]) {
        let again = deliveries.iter().filter(|one| one.attempt > 1).count() as u64;
        let first = deliveries.len() as u64 - again;
        self.link.answered(again);
        self.numbers.polled(true);
        self.numbers.delivered(first, again);
    }

    async fn admit(
        &self,
        sender: &Sender<Held<B>>,
        delivery: Delivery<B::Receipt>,
        place: OwnedSemaphorePermit,
    ) {
        let held = Held {
            hold: self.holds.keep(delivery.receipt.clone()),
            delivery,
            taken_at: Instant::now(),
            place,
        };
        // There is a place in the queue for every place here, so it does not wait; it fails only once a drain has begun.
        if let Err(refused) = sender.send(held).await {
            self.give_back(refused.into_inner()).await;
        }
    }

    async fn give_back(&self, held: Held<B>) {
        let given = self.broker.give_back(&held.delivery.receipt).await;
        self.count(match given {
            Ok(()) => Settled::GivenBack,
            Err(_) => Settled::Lost,
        });
    }

    pub(super) fn count(&self, how: Settled) {
        self.link.settled(how);
        self.numbers.settled(how);
    }
}

impl<B: Broker> fmt::Debug for Source<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("broker", &self.shared.broker)
            .field("plan", &self.shared.plan)
            .finish_non_exhaustive()
    }
}

/// Time before the next try after so many failures in a row: doubling from 50 ms to 2 s.
pub(super) fn pause(failures: u32) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(10));
    doubled.min(LONGEST_PAUSE)
}

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A call that takes this much longer than it was asked to wait is given up.
const STALLED: Duration = Duration::from_secs(10);
