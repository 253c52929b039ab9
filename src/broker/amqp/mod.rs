//! RabbitMQ as a broker: one quorum queue, and one of dead letters beside it.
//!
//! What holds, and who sees to it:
//! - A message is stored when the server has confirmed it; a queue that is full refuses it.
//! - What is taken is asked for: a consumer exists for the length of a [`take`](Broker::take), with as much prefetch as
//!   was asked for, so nothing lies handed out in this process and waits. It is settled on the channel it came on.
//! - Deliveries are counted by the server, from the second on; [`Delivery::attempt`] is one more.
//! - Depth is what is ready, as told by the server, and what this handle and its clones hold. What other processes hold
//!   is not told: see [`held_elsewhere`](AmqpBuilder::held_elsewhere).
//! - Publishing has a connection of its own, so that an alarm which blocks it does not stop the drain.
//! - An ack is not confirmed: lost with the connection, its message comes again.
//! - A quorum queue survives `kill -9` of a single server, but (3.10) not within a second or two of being declared.
//! - A connection or channel that was closed is opened again at the next call, with a back-off up to 2 s.

mod builder;
mod link;
mod wire;

use std::fmt;
use std::time::Duration;

use futures_util::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions,
    BasicPublishOptions, BasicQosOptions, QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::{Confirmation, Consumer};
use tokio::time::{Instant, timeout, timeout_at};

pub use self::builder::AmqpBuilder;
use self::link::{Link, PATIENCE, Session};
use super::capability::{Capabilities, Capability};
use super::contract::{Broker, Depth};
use super::error::{BrokerError, BrokerErrorKind};
use super::message::{Delivery, Message};
use crate::sync::{Arc, Ordering, Weak};

/// A RabbitMQ queue, for [`Admission`](super::Admission) and [`Source`](super::Source).
///
/// The connection comes back by itself. Clones share it.
///
/// # Examples
/// ```no_run
/// use sluicegate::broker::{Amqp, Broker, Message};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let orders = Amqp::builder("amqp://guest:guest@127.0.0.1:5672/%2f", "orders")
///     .max_deliveries(5)
///     .connect()
///     .await?;
/// orders.publish(&Message::new("an order").id("order-7")).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Amqp {
    link: Arc<Link>,
    queue: Arc<str>,
    /// Whether this is the queue of dead letters.
    dead: bool,
}

/// Receipt of [`Amqp`]: good for as long as its connection lasts.
#[derive(Clone)]
pub struct AmqpReceipt {
    session: Weak<Session>,
    tag: u64,
}

impl Amqp {
    /// Begins a connection to the server at `url` and its queue of this name.
    ///
    /// The URL holds user, password and virtual host, as `amqp://user:password@host:port/%2f`, and may ask for
    /// heartbeats, as `?heartbeat=10`.
    pub fn builder(url: impl Into<String>, queue: impl Into<String>) -> AmqpBuilder {
        AmqpBuilder::new(url.into(), queue.into())
    }

    fn new(link: Arc<Link>, queue: String) -> Self {
        Self {
            link,
            queue: queue.into(),
            dead: false,
        }
    }

    fn stale(&self) -> BrokerError {
        BrokerError::new(
            BrokerErrorKind::Stale,
            format!("delivery of queue {} is over", self.queue),
        )
    }

    fn late(&self, kind: BrokerErrorKind, what: &str) -> BrokerError {
        let text = format!("queue {}: {what}: no answer in {PATIENCE:?}", self.queue);
        BrokerError::new(kind, text)
    }

    /// The session of a delivery, of which this is the last word.
    fn last_word(&self, receipt: &AmqpReceipt) -> Result<Arc<Session>, BrokerError> {
        let session = receipt.session.upgrade().ok_or_else(|| self.stale())?;
        if session.is_over() || !session.lets_go(receipt.tag, self.dead) {
            return Err(self.stale());
        }
        Ok(session)
    }

    async fn store(&self, queue: &str, message: &Message) -> Result<(), BrokerError> {
        let (size, most) = (message.payload().len(), self.link.settings.max_payload);
        if size > most {
            let text = format!("payload is {size} bytes, queue {queue} takes {most}");
            return Err(BrokerError::new(BrokerErrorKind::TooLarge, text));
        }
        let session = self.link.session().await?;
        if session.blocked.load(Ordering::Relaxed) {
            let text = format!("queue {queue}: the server has blocked its publishers");
            return Err(BrokerError::new(BrokerErrorKind::Blocked, text));
        }
        let properties = wire::outgoing(message)?;
        let options = BasicPublishOptions {
            // A message for a queue that is gone comes back, instead of being confirmed into nothing.
            mandatory: true,
            ..BasicPublishOptions::default()
        };
        let sent = session.publish.basic_publish(
            "".into(),
            queue.into(),
            options,
            message.payload(),
            properties,
        );
        let wrong = |error| wire::error(queue, "publishing", error);
        let confirmed = timeout(PATIENCE, async { sent.await?.await }).await;
        let confirmed = confirmed
            .map_err(|_| self.late(BrokerErrorKind::Unconfirmed, "publishing"))?
            .map_err(wrong)?;
        match confirmed {
            Confirmation::Ack(None) => Ok(()),
            Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_)) => Err(BrokerError::new(
                BrokerErrorKind::Missing,
                format!("queue {queue} does not exist: the message came back"),
            )),
            Confirmation::Nack(None) => Err(BrokerError::new(
                BrokerErrorKind::Full,
                format!("queue {queue} is full: the server refused the message"),
            )),
            Confirmation::NotRequested => Err(BrokerError::new(
                BrokerErrorKind::Unconfirmed,
                format!("queue {queue} confirms nothing"),
            )),
        }
    }

    /// Takes with a consumer of its own, that is gone again before this returns.
    async fn collect(
        &self,
        session: &Arc<Session>,
        most: u16,
        wait: Duration,
    ) -> Result<Vec<Delivery<AmqpReceipt>>, BrokerError> {
        let wrong = |error| wire::error(&self.queue, "consuming", error);
        let channel = &session.consume;
        let number = session.takes.fetch_add(1, Ordering::Relaxed);
        let tag = format!("sluicegate-{number}");
        let qos = channel.basic_qos(most, BasicQosOptions::default());
        qos.await.map_err(wrong)?;
        let mut consumer = channel
            .basic_consume(
                (&*self.queue).into(),
                tag.as_str().into(),
                BasicConsumeOptions::default(),
                FieldTable::default(),
            )
            .await
            .map_err(wrong)?;
        let mut taken = Vec::new();
        let until = Instant::now() + wait.max(ROUND_TRIP);
        while taken.len() < usize::from(most) {
            let by = match taken.is_empty() {
                true => until,
                false => Instant::now() + ROUND_TRIP,
            };
            match timeout_at(by, consumer.next()).await {
                Ok(Some(Ok(delivered))) => taken.push(self.delivery(session, delivered)),
                Ok(Some(Err(error))) if taken.is_empty() => return Err(wrong(error)),
                Ok(_) | Err(_) => break,
            }
        }
        let cancel = channel.basic_cancel(tag.as_str().into(), BasicCancelOptions::default());
        if cancel.await.is_ok() {
            self.rest(session, &mut consumer, usize::from(most), &mut taken)
                .await;
        }
        Ok(taken)
    }

    /// What came between the last one that was looked at and the end of the consumer.
    async fn rest(
        &self,
        session: &Arc<Session>,
        consumer: &mut Consumer,
        most: usize,
        taken: &mut Vec<Delivery<AmqpReceipt>>,
    ) {
        while let Ok(Some(Ok(delivered))) = timeout(ROUND_TRIP, consumer.next()).await {
            if taken.len() < most {
                taken.push(self.delivery(session, delivered));
            } else {
                session.put_back(delivered.delivery_tag).await;
            }
        }
    }

    fn delivery(
        &self,
        session: &Arc<Session>,
        delivered: lapin::message::Delivery,
    ) -> Delivery<AmqpReceipt> {
        let tag = delivered.delivery_tag;
        session.holds(tag, self.dead);
        let (message, attempt) = wire::incoming(delivered);
        Delivery {
            message,
            attempt,
            receipt: AmqpReceipt {
                session: Arc::downgrade(session),
                tag,
            },
        }
    }

    async fn requeue(&self, receipt: &AmqpReceipt) -> Result<(), BrokerError> {
        let session = self.last_word(receipt)?;
        let options = BasicNackOptions {
            requeue: true,
            ..BasicNackOptions::default()
        };
        let put_back = session.consume.basic_nack(receipt.tag, options).await;
        put_back.map_err(|error| wire::error(&self.queue, "putting back", error))
    }
}

impl Broker for Amqp {
    type Receipt = AmqpReceipt;

    fn name(&self) -> &str {
        &self.queue
    }

    fn capabilities(&self) -> Capabilities {
        match self.link.settings.quorum {
            true => Capabilities::none().with(Capability::DeliveryCount),
            false => Capabilities::none(),
        }
    }

    fn hold(&self) -> Option<Duration> {
        Some(self.link.settings.consumer_timeout)
    }

    fn max_deliveries(&self) -> Option<u32> {
        self.link.settings.max_deliveries.filter(|_| !self.dead)
    }

    async fn publish(&self, message: &Message) -> Result<(), BrokerError> {
        self.store(&self.queue, message).await
    }

    async fn depth(&self) -> Result<Depth, BrokerError> {
        let session = self.link.session().await?;
        let options = QueueDeclareOptions::durable().passive();
        let name = (&*self.queue).into();
        let asked = session
            .ask
            .queue_declare(name, options, FieldTable::default());
        let queue = timeout(PATIENCE, asked)
            .await
            .map_err(|_| self.late(BrokerErrorKind::Disconnected, "asking for its depth"))?
            .map_err(|error| wire::error(&self.queue, "asking for its depth", error))?;
        let elsewhere = match self.dead {
            true => 0,
            false => self.link.settings.held_elsewhere,
        };
        Ok(Depth {
            queued: u64::from(queue.message_count()),
            in_flight: session.in_flight(self.dead).saturating_add(elsewhere),
            blocked: session.blocked.load(Ordering::Relaxed),
        })
    }

    async fn take(
        &self,
        most: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery<AmqpReceipt>>, BrokerError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        let session = self.link.session().await?;
        let most = u16::try_from(most).unwrap_or(u16::MAX);
        // The semaphore is never closed.
        let turn = session.taking.acquire().await;
        let taken = timeout(wait + PATIENCE, self.collect(&session, most, wait)).await;
        drop(turn);
        taken.map_err(|_| self.late(BrokerErrorKind::Disconnected, "consuming"))?
    }

    async fn ack(&self, receipt: &AmqpReceipt) -> Result<(), BrokerError> {
        let session = self.last_word(receipt)?;
        let acked = session
            .consume
            .basic_ack(receipt.tag, BasicAckOptions::default())
            .await;
        acked.map_err(|error| wire::error(&self.queue, "acking", error))
    }

    async fn retry(&self, receipt: &AmqpReceipt, _: Duration) -> Result<(), BrokerError> {
        self.requeue(receipt).await
    }

    async fn give_back(&self, receipt: &AmqpReceipt) -> Result<(), BrokerError> {
        self.requeue(receipt).await
    }

    async fn dead_letter(
        &self,
        delivery: &Delivery<AmqpReceipt>,
        why: &str,
    ) -> Result<(), BrokerError> {
        let letter = delivery
            .message
            .as_dead_letter(&self.queue, why, delivery.attempt);
        let dead = self.link.settings.dead();
        self.store(&dead, &letter).await?;
        self.ack(&delivery.receipt).await
    }

    async fn heartbeat(&self, _: &AmqpReceipt) -> Result<(), BrokerError> {
        // The server has no such verb: a message is held for as long as its channel, up to the consumer timeout.
        Ok(())
    }

    fn dead_letters(&self) -> Self {
        Self {
            link: Arc::clone(&self.link),
            queue: self.link.settings.dead().into(),
            dead: true,
        }
    }
}

impl fmt::Debug for Amqp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Amqp")
            .field("queue", &self.queue)
            .field("connected", &self.link.is_connected())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for AmqpReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmqpReceipt")
            .field("tag", &self.tag)
            .finish_non_exhaustive()
    }
}

/// A message that is ready comes within this; longer than any round trip, short beside a wait that was asked for.
const ROUND_TRIP: Duration = Duration::from_millis(50);
