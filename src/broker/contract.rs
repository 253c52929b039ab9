//! What a broker is to this crate.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use super::capability::Capabilities;
use super::error::BrokerError;
use super::message::{Delivery, Message};

/// How much one queue or stream holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Depth {
    /// Messages that wait.
    pub queued: u64,
    /// Messages handed out and not settled; on some brokers also those put back that are not handed out again yet. With
    /// [`Capability::ExactDepth`](super::Capability::ExactDepth) by anybody, else by this handle and its clones.
    pub in_flight: u64,
    /// Whether the broker has stopped taking from publishers.
    pub blocked: bool,
}

impl Depth {
    /// Queued and in flight: what a bound is about.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.queued.saturating_add(self.in_flight)
    }
}

/// One queue or stream of a message broker, with its dead letters beside it.
///
/// A handle: clones share the connection. An implementation gets its connection back by itself; a call made while there
/// is none fails as [`Disconnected`](super::BrokerErrorKind::Disconnected) within seconds and never hangs. At-least-once:
/// what was confirmed is handed out until it is acked or dead-lettered, so it may be handed out twice.
///
/// # Cancel safety
/// A future dropped halfway leaves its outcome unknown: a message may have been published, settled, or handed out to
/// nobody, in which case it is delivered again when its [hold](Self::hold) has passed. Nothing is lost by it.
pub trait Broker: Clone + Debug + Send + Sync + 'static {
    /// Names one delivery. It outlives the connection, after which it is
    /// [`Stale`](super::BrokerErrorKind::Stale) where the broker has taken the message back.
    type Receipt: Clone + Debug + Send + Sync + 'static;

    /// Name of the queue or stream, for messages, metrics and dead letters.
    fn name(&self) -> &str;

    /// What the broker keeps by itself, as this queue or stream is set up.
    fn capabilities(&self) -> Capabilities;

    /// How long a delivery may be held before the broker takes it back, or closes the consumer; `None` = as long as the
    /// connection lasts. With [`Capability::Heartbeat`](super::Capability::Heartbeat) it counts from the last heartbeat.
    fn hold(&self) -> Option<Duration>;

    /// Most deliveries after which the broker itself hands a message out no more; `None` = no such bound.
    fn max_deliveries(&self) -> Option<u32> {
        None
    }

    /// Messages that are handed out ahead of [`take`](Self::take) and wait in this process. Default 0.
    fn prefetch(&self) -> u64 {
        0
    }

    /// Stores a message; done once the broker has confirmed it, as durably as the queue or stream is.
    ///
    /// # Errors
    /// [`Full`](super::BrokerErrorKind::Full) and [`TooLarge`](super::BrokerErrorKind::TooLarge) say that it was not
    /// stored; after [`Unconfirmed`](super::BrokerErrorKind::Unconfirmed) or
    /// [`Disconnected`](super::BrokerErrorKind::Disconnected) it may have been.
    fn publish(&self, message: &Message) -> impl Future<Output = Result<(), BrokerError>> + Send;

    /// How much is held now.
    ///
    /// # Errors
    /// Any; nothing was changed.
    fn depth(&self) -> impl Future<Output = Result<Depth, BrokerError>> + Send;

    /// Takes up to `most` messages, waiting up to `wait` for the first. Empty = there was none.
    ///
    /// With [`Capability::FleetRate`](super::Capability::FleetRate) it hands out only what is due.
    ///
    /// # Errors
    /// Any; what was handed out and did not arrive is delivered again.
    fn take(
        &self,
        most: usize,
        wait: Duration,
    ) -> impl Future<Output = Result<Vec<Delivery<Self::Receipt>>, BrokerError>> + Send;

    /// The message is done: removes it.
    ///
    /// # Errors
    /// Any; the message may be delivered again.
    fn ack(&self, receipt: &Self::Receipt) -> impl Future<Output = Result<(), BrokerError>> + Send;

    /// Puts it back, to be delivered again after `after` and counted as one delivery more.
    ///
    /// Without [`Capability::DelayedRetry`](super::Capability::DelayedRetry) the delay is ignored.
    ///
    /// # Errors
    /// Any; the message is delivered again when its hold has passed.
    fn retry(
        &self,
        receipt: &Self::Receipt,
        after: Duration,
    ) -> impl Future<Output = Result<(), BrokerError>> + Send;

    /// Puts it back untouched, to be delivered at once: the consumer is about to stop.
    ///
    /// With [`Capability::UncountedReturn`](super::Capability::UncountedReturn) the delivery does not count.
    ///
    /// # Errors
    /// As [`retry`](Self::retry).
    fn give_back(
        &self,
        receipt: &Self::Receipt,
    ) -> impl Future<Output = Result<(), BrokerError>> + Send;

    /// Moves it to the dead letters, with [headers](Message::as_dead_letter) that say why, and how often it had been
    /// delivered. It is among them before it is gone from here, so a crash between the two leaves it in both.
    ///
    /// # Errors
    /// Any; the message is still here, or in both.
    fn dead_letter(
        &self,
        delivery: &Delivery<Self::Receipt>,
        why: &str,
    ) -> impl Future<Output = Result<(), BrokerError>> + Send;

    /// Tells the broker that it is still being worked on.
    ///
    /// # Errors
    /// [`Stale`](super::BrokerErrorKind::Stale) where the broker says that it was taken back.
    fn heartbeat(
        &self,
        receipt: &Self::Receipt,
    ) -> impl Future<Output = Result<(), BrokerError>> + Send;

    /// The dead letters, as a queue like any other: to count, to read, to ack, to publish elsewhere.
    ///
    /// Its own dead letters are itself: what is dead-lettered there is put back at its end.
    #[must_use]
    fn dead_letters(&self) -> Self;
}
