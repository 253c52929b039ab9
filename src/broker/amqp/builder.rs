//! Settings of a connection to RabbitMQ.

use std::fmt;
use std::time::Duration;

use lapin::types::{AMQPValue, FieldTable};

use super::Amqp;
use super::link::Link;
use crate::broker::error::BrokerError;
use crate::sync::Arc;

/// Builder of an [`Amqp`].
#[derive(Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct AmqpBuilder {
    pub(super) url: String,
    pub(super) queue: String,
    pub(super) create: bool,
    pub(super) quorum: bool,
    pub(super) max_depth: Option<u64>,
    pub(super) max_deliveries: Option<u32>,
    pub(super) max_payload: usize,
    pub(super) consumer_timeout: Duration,
    pub(super) held_elsewhere: u64,
}

impl AmqpBuilder {
    pub(super) const fn new(url: String, queue: String) -> Self {
        Self {
            url,
            queue,
            create: true,
            quorum: true,
            max_depth: None,
            max_deliveries: None,
            max_payload: MAX_PAYLOAD,
            consumer_timeout: CONSUMER_TIMEOUT,
            held_elsewhere: 0,
        }
    }

    /// Takes the queue and its dead letters, `<queue>.dead`, as they are, and makes neither. Default: makes what is
    /// missing; a queue that was made otherwise is refused.
    pub const fn existing(mut self) -> Self {
        self.create = false;
        self
    }

    /// Says that the queue is a classic one, which counts no deliveries: no policy that needs the count can be built on
    /// it. Default: a quorum queue.
    pub const fn classic(mut self) -> Self {
        self.quorum = false;
        self
    }

    /// Messages that may be ready before the server refuses more. Default: no bound.
    ///
    /// It is a backstop, not a gate: it does not count what consumers hold, and a quorum queue takes one more.
    pub const fn max_depth(mut self, messages: u64) -> Self {
        self.max_depth = Some(messages);
        self
    }

    /// Deliveries of a message after which the server itself moves it to the dead letters, also if every consumer dies
    /// over it. Default: no bound of the server's. Quorum queues only.
    ///
    /// The server's own setting, `x-delivery-limit`, counts the deliveries after the first: it is set one lower.
    pub const fn max_deliveries(mut self, deliveries: u32) -> Self {
        self.max_deliveries = Some(deliveries);
        self
    }

    /// Largest payload, in bytes, refused on this side: the server closes the channel over one above its own bound.
    /// Default 128 MiB, that of the server.
    pub const fn max_payload(mut self, bytes: usize) -> Self {
        self.max_payload = bytes;
        self
    }

    /// The server's `consumer_timeout`, after which it closes the channel of whoever holds a message. Default 30 min, that
    /// of the server.
    pub const fn consumer_timeout(mut self, time: Duration) -> Self {
        self.consumer_timeout = time;
        self
    }

    /// Messages that consumers in other processes hold at most, which the server does not tell: added to the depth.
    /// Default 0.
    pub const fn held_elsewhere(mut self, messages: u64) -> Self {
        self.held_elsewhere = messages;
        self
    }

    /// Connects, and finds or makes the queue and its dead letters.
    ///
    /// # Errors
    /// [`Credentials`](crate::broker::BrokerErrorKind::Credentials),
    /// [`Disconnected`](crate::broker::BrokerErrorKind::Disconnected),
    /// [`Missing`](crate::broker::BrokerErrorKind::Missing) where nothing is to be made, and
    /// [`Unsuitable`](crate::broker::BrokerErrorKind::Unsuitable) for a queue that was made with other settings.
    pub async fn connect(self) -> Result<Amqp, BrokerError> {
        let queue = self.queue.clone();
        let link = Arc::new(Link::new(self));
        link.session().await?;
        Ok(Amqp::new(link, queue))
    }

    pub(super) fn dead(&self) -> String {
        format!("{}{DEAD}", self.queue)
    }

    /// Arguments of the queue itself.
    pub(super) fn arguments(&self) -> FieldTable {
        let mut table = self.dead_arguments();
        let mut set = |name: &str, value| {
            table.insert(name.into(), value);
        };
        set("x-overflow", text("reject-publish"));
        if let Some(most) = self.max_depth {
            set("x-max-length", count(most));
        }
        if let Some(deliveries) = self.max_deliveries.filter(|_| self.quorum) {
            set(
                "x-delivery-limit",
                count(u64::from(deliveries) - u64::from(deliveries > 0)),
            );
            set("x-dead-letter-exchange", text(""));
            set("x-dead-letter-routing-key", text(&self.dead()));
            // Confirmed before it is gone from here; the other way may lose it.
            set("x-dead-letter-strategy", text("at-least-once"));
        }
        table
    }

    pub(super) fn dead_arguments(&self) -> FieldTable {
        let mut table = FieldTable::default();
        let kind = if self.quorum { "quorum" } else { "classic" };
        table.insert("x-queue-type".into(), text(kind));
        table
    }
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

fn count(number: u64) -> AMQPValue {
    AMQPValue::LongLongInt(i64::try_from(number).unwrap_or(i64::MAX))
}

/// The URL may hold a password: it is not shown.
impl fmt::Debug for AmqpBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmqpBuilder")
            .field("queue", &self.queue)
            .field("quorum", &self.quorum)
            .field("max_depth", &self.max_depth)
            .field("max_deliveries", &self.max_deliveries)
            .finish_non_exhaustive()
    }
}

pub(super) const DEAD: &str = ".dead";
const MAX_PAYLOAD: usize = 128 << 20;
const CONSUMER_TIMEOUT: Duration = Duration::from_secs(30 * 60);
