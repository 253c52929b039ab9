//! NATS JetStream as a broker: one stream, one durable pull consumer, and a stream of dead letters.
//!
//! What holds, and who sees to it:
//! - The stream is a work queue: an ack frees its place. A stream that keeps what was acked is refused.
//! - Its bound is the server's (`max_msgs`, discard new), in flight included.
//! - Every verb is confirmed by the server, acks too.
//! - The consumer delivers without end, and the bound on deliveries is kept from this side. What is left in the stream
//!   and handed out no more all the same, exhausted under a bound of the consumer's own or come back with a server that
//!   was killed, is moved to the dead letters or handed out again.

mod builder;
mod fetch;
mod setup;
mod strays;
mod wire;

use std::fmt;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::stream::Stream;
use async_nats::{RequestErrorKind, connection::State};
use futures_util::future::join;

pub use self::builder::NatsBuilder;
use self::setup::Place;
use self::strays::Strays;
use super::capability::{Capabilities, Capability};
use super::contract::{Broker, Depth};
use super::error::{BrokerError, BrokerErrorKind};
use super::message::{Delivery, Message};
use crate::sync::{Arc, Mutex};

/// A JetStream stream and its consumer, for [`Admission`](super::Admission) and [`Source`](super::Source).
///
/// The connection comes back by itself, with a back-off up to 2 s. Clones share it.
///
/// # Examples
/// ```no_run
/// use sluicegate::broker::{Broker, Message, Nats};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let orders = Nats::builder("nats://127.0.0.1:4222", "ORDERS")
///     .max_depth(10_000)
///     .connect()
///     .await?;
/// orders.publish(&Message::new("an order").id("order-7")).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Nats {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    context: Context,
    stream: Stream,
    consumer: PullConsumer,
    place: Place,
    capabilities: Capabilities,
    hold: Duration,
    max_deliveries: Option<u32>,
    strays: Mutex<Strays>,
    /// The stream of dead letters; `None` = this is it.
    dead: Option<Nats>,
}

/// Receipt of [`Nats`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NatsReceipt {
    /// Subject on which the delivery is settled; empty for one that the server does not know of.
    reply: String,
    stream_sequence: u64,
}

/// What the server is told about a delivery.
enum Verb {
    Ack,
    Nak(Duration),
    Progress,
}

impl Nats {
    /// Begins a connection to the server at `url` and its stream of this name.
    ///
    /// The URL may hold a user and a password, as `nats://user:password@host:port`, and several servers, with commas.
    pub fn builder(url: impl Into<String>, stream: impl Into<String>) -> NatsBuilder {
        NatsBuilder::new(url.into(), stream.into())
    }

    /// Moves to the dead letters what the server hands out no more, since the consumer's own bound on deliveries is
    /// used up, and tells how many there were.
    ///
    /// Such messages hold their places for ever: enough of them, and the stream takes nothing any more. It is only known
    /// which they are while no message is in flight; otherwise this does nothing. [`take`](Broker::take) calls it now
    /// and then.
    ///
    /// # Errors
    /// Any; what was not moved is still there.
    pub async fn bury_exhausted(&self) -> Result<u64, BrokerError> {
        strays::bury(self).await
    }

    fn error(
        &self,
        what: &str,
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> BrokerError {
        let up = self.is_connected();
        wire::error(&self.shared.place.stream, what, up, error)
    }

    fn is_connected(&self) -> bool {
        self.shared.client.connection_state() == State::Connected
    }

    /// Without a connection a call would wait for one: it fails at once instead.
    fn reachable(&self) -> Result<(), BrokerError> {
        if self.is_connected() {
            return Ok(());
        }
        Err(BrokerError::new(
            BrokerErrorKind::Disconnected,
            format!("no connection to the server of stream {}", self.name()),
        ))
    }

    async fn store(
        &self,
        subject: &str,
        message: &Message,
        key: Option<&str>,
    ) -> Result<(), BrokerError> {
        self.reachable()?;
        let publish = wire::outgoing(message, key)?;
        let sent = self
            .shared
            .context
            .send_publish(subject.to_owned(), publish)
            .await;
        let stored = match sent {
            Ok(confirm) => confirm.await,
            Err(error) => Err(error),
        };
        match stored {
            Ok(_) => Ok(()),
            Err(error) => {
                let error = wire::publish_error(self.name(), self.is_connected(), error);
                if error.kind() == BrokerErrorKind::Missing {
                    return Err(self.missing(error).await);
                }
                Err(error)
            }
        }
    }

    /// Nobody answered for the stream: it is gone, or the server has only just begun.
    async fn missing(&self, error: BrokerError) -> BrokerError {
        match self.shared.stream.get_info().await {
            Ok(_) => BrokerError::new(
                BrokerErrorKind::Disconnected,
                format!("server is not ready for stream {}", self.name()),
            )
            .because(error),
            Err(info) => {
                let found = self.error("info of the stream", info);
                if found.kind() != BrokerErrorKind::Missing {
                    return BrokerError::new(BrokerErrorKind::Disconnected, found.to_string());
                }
                self.mend().await;
                error
            }
        }
    }

    /// Sets up again what the server has lost, where it is ours to set up.
    async fn mend(&self) {
        if self.shared.place.create {
            // Whoever calls reports the first failure; if this fails too, the next call comes here again.
            let _ = setup::ensure(&self.shared.context, &self.shared.place).await;
        }
    }

    async fn settle(&self, receipt: &NatsReceipt, verb: Verb) -> Result<(), BrokerError> {
        self.reachable()?;
        if receipt.reply.is_empty() {
            return self.settle_stray(receipt.stream_sequence, verb).await;
        }
        let said = match verb {
            Verb::Ack => "+ACK".into(),
            Verb::Progress => "+WPI".into(),
            Verb::Nak(Duration::ZERO) => "-NAK".into(),
            Verb::Nak(delay) => format!("-NAK {{\"delay\":{}}}", delay.as_nanos()),
        };
        let answer = self
            .shared
            .client
            .request(receipt.reply.clone(), said.into())
            .await;
        match answer {
            Ok(_) => Ok(()),
            // The consumer is gone, and with it the delivery; or the server has only just begun.
            Err(error) if error.kind() == RequestErrorKind::NoResponders => Err(BrokerError::new(
                BrokerErrorKind::Disconnected,
                format!("server is not ready for stream {}", self.name()),
            )),
            Err(error) => Err(self.error("settling a delivery", error)),
        }
    }

    async fn settle_stray(&self, sequence: u64, verb: Verb) -> Result<(), BrokerError> {
        match verb {
            Verb::Ack => return strays::remove(self, sequence).await,
            Verb::Progress => self.shared.strays.lock().keep(sequence, self.shared.hold),
            Verb::Nak(delay) => self.shared.strays.lock().keep(sequence, delay),
        }
        Ok(())
    }
}

impl Broker for Nats {
    type Receipt = NatsReceipt;

    fn name(&self) -> &str {
        &self.shared.place.stream
    }

    fn capabilities(&self) -> Capabilities {
        self.shared.capabilities
    }

    fn hold(&self) -> Option<Duration> {
        Some(self.shared.hold)
    }

    fn max_deliveries(&self) -> Option<u32> {
        self.shared.max_deliveries
    }

    async fn publish(&self, message: &Message) -> Result<(), BrokerError> {
        let key = message.dedup_key();
        let subject = &self.shared.place.subject;
        self.store(subject, message, key.as_deref()).await
    }

    async fn depth(&self) -> Result<Depth, BrokerError> {
        self.reachable()?;
        let (stream, consumer) = join(
            self.shared.stream.get_info(),
            self.shared.consumer.get_info(),
        )
        .await;
        let stream = stream.map_err(|error| self.error("info of the stream", error))?;
        let consumer = consumer.map_err(|error| self.error("info of the consumer", error))?;
        let total = stream.state.messages;
        // Asked one after the other, so an ack between the two may show in one only.
        let in_flight = (consumer.num_ack_pending as u64).min(total);
        Ok(Depth {
            queued: total - in_flight,
            in_flight,
            blocked: false,
        })
    }

    async fn take(
        &self,
        most: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery<NatsReceipt>>, BrokerError> {
        self.reachable()?;
        if most == 0 {
            return Ok(Vec::new());
        }
        let mut taken = self.fetch(most, None).await?;
        if taken.is_empty() && !wait.is_zero() {
            // A request for several would be kept until all of them have come.
            taken = self.fetch(1, Some(wait)).await?;
            if !taken.is_empty() && most > 1 {
                // The one that came is held already: what this may bring is a bonus.
                taken.extend(self.fetch(most - 1, None).await.unwrap_or_default());
            }
        }
        if taken.is_empty() {
            match self.max_deliveries() {
                Some(_) => {
                    self.bury_exhausted().await?;
                }
                None => taken = strays::take(self, most).await?,
            }
        }
        Ok(taken)
    }

    async fn ack(&self, receipt: &NatsReceipt) -> Result<(), BrokerError> {
        self.settle(receipt, Verb::Ack).await
    }

    async fn retry(&self, receipt: &NatsReceipt, after: Duration) -> Result<(), BrokerError> {
        self.settle(receipt, Verb::Nak(after)).await
    }

    async fn give_back(&self, receipt: &NatsReceipt) -> Result<(), BrokerError> {
        self.settle(receipt, Verb::Nak(Duration::ZERO)).await
    }

    async fn dead_letter(
        &self,
        delivery: &Delivery<NatsReceipt>,
        why: &str,
    ) -> Result<(), BrokerError> {
        let dead = self.dead_letters();
        let letter = delivery
            .message
            .as_dead_letter(self.name(), why, delivery.attempt);
        // Tried again after a crash it is the same letter.
        let place = delivery.receipt.stream_sequence;
        let key = format!("{}:{place}:{}", self.name(), delivery.attempt);
        let subject = &dead.shared.place.subject;
        dead.store(subject, &letter, Some(&key)).await?;
        self.ack(&delivery.receipt).await
    }

    async fn heartbeat(&self, receipt: &NatsReceipt) -> Result<(), BrokerError> {
        self.settle(receipt, Verb::Progress).await
    }

    fn dead_letters(&self) -> Self {
        self.shared.dead.clone().unwrap_or_else(|| self.clone())
    }
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats")
            .field("stream", &self.shared.place.stream)
            .field("subject", &self.shared.place.subject)
            .field("consumer", &self.shared.place.consumer)
            .field("connected", &self.is_connected())
            .finish_non_exhaustive()
    }
}

/// What the server keeps of itself, whatever is set.
const ALWAYS: Capabilities = Capabilities::none()
    .with(Capability::DeliveryCount)
    .with(Capability::DelayedRetry)
    .with(Capability::ExactDepth)
    .with(Capability::Deduplication)
    .with(Capability::ConfirmedAck)
    .with(Capability::Heartbeat);
