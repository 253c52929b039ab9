//! The connection to RabbitMQ: opened when it is needed, and opened again when it was lost.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::StreamExt;
use lapin::options::{BasicNackOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties, Event};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::builder::AmqpBuilder;
use super::wire;
use crate::broker::error::{BrokerError, BrokerErrorKind};
use crate::broker::source::pause;
use crate::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering};

/// What all handles to one server share.
pub(super) struct Link {
    pub(super) settings: AmqpBuilder,
    state: Mutex<State>,
    /// Whoever holds it opens the connection; the others wait for that.
    opening: Semaphore,
}

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    failures: u32,
    /// When the next try may be made, and why the last one failed.
    not_before: Option<(Instant, BrokerErrorKind, String)>,
}

/// Two connections with their channels. What was delivered here is settled here, or comes again.
///
/// Two, since an alarm stops the server from reading a connection that publishes, acks and questions included.
pub(super) struct Session {
    publisher: Connection,
    consumer: Connection,
    pub(super) publish: Channel,
    /// A queue that is not there closes the channel on which it is asked for.
    pub(super) ask: Channel,
    pub(super) consume: Channel,
    pub(super) blocked: Arc<AtomicBool>,
    /// Tags that are out and not settled, by queue.
    held: Mutex<HashSet<(u64, bool)>>,
    /// One at a time takes on the channel: the bound on what it is handed is set for each.
    pub(super) taking: Semaphore,
    pub(super) takes: AtomicU64,
}

impl Link {
    pub(super) fn new(settings: AmqpBuilder) -> Self {
        Self {
            settings,
            state: Mutex::default(),
            opening: Semaphore::new(1),
        }
    }

    fn live(&self) -> Option<Arc<Session>> {
        let session = self.state.lock().session.clone()?;
        session.is_live().then_some(session)
    }

    pub(super) fn is_connected(&self) -> bool {
        self.live().is_some()
    }

    /// The connection, opened if there is none. After a failure it fails at once until the back-off has passed.
    pub(super) async fn session(&self) -> Result<Arc<Session>, BrokerError> {
        if let Some(session) = self.live() {
            return Ok(session);
        }
        let turn = self.opening.acquire().await;
        if let Some(session) = self.live() {
            return Ok(session);
        }
        let waits = self.state.lock().not_before.clone();
        if let Some((at, kind, text)) = waits
            && Instant::now() < at
        {
            return Err(BrokerError::new(kind, text));
        }
        let opened = timeout(PATIENCE, Session::open(&self.settings)).await;
        let opened = opened.unwrap_or_else(|_| {
            Err(BrokerError::new(
                BrokerErrorKind::Disconnected,
                format!("RabbitMQ has not answered within {PATIENCE:?}"),
            ))
        });
        let mut state = self.state.lock();
        match opened {
            Ok(session) => {
                let session = Arc::new(session);
                let old = state.session.replace(Arc::clone(&session));
                (state.failures, state.not_before) = (0, None);
                drop(state);
                drop((old, turn));
                Ok(session)
            }
            Err(error) => {
                state.failures = state.failures.saturating_add(1);
                let at = Instant::now() + pause(state.failures);
                state.not_before = Some((at, error.kind(), error.to_string()));
                Err(error)
            }
        }
    }
}

impl Session {
    async fn open(settings: &AmqpBuilder) -> Result<Self, BrokerError> {
        let queue = &settings.queue;
        let connect = async || {
            let properties = ConnectionProperties::default();
            let connection = Connection::connect(&settings.url, properties).await;
            connection.map_err(|error| wire::error(queue, "connecting", error))
        };
        let channel = async |connection: &Connection| {
            let channel = connection.create_channel().await;
            channel.map_err(|error| wire::error(queue, "opening a channel", error))
        };
        let (publisher, consumer) = (connect().await?, connect().await?);
        let publish = channel(&publisher).await?;
        let (ask, consume) = (channel(&consumer).await?, channel(&consumer).await?);
        publish
            .confirm_select(ConfirmSelectOptions::default())
            .await
            .map_err(|error| wire::error(queue, "asking for confirms", error))?;
        let dead = settings.dead();
        for (name, arguments) in [
            (&dead, settings.dead_arguments()),
            (queue, settings.arguments()),
        ] {
            let (options, arguments) = match settings.create {
                true => (QueueDeclareOptions::durable(), arguments),
                false => (
                    QueueDeclareOptions::durable().passive(),
                    FieldTable::default(),
                ),
            };
            // On a channel of its own, as a refusal closes it.
            let declared = channel(&consumer).await?;
            declared
                .queue_declare(name.as_str().into(), options, arguments)
                .await
                .map_err(|error| wire::error(name, "declaring it", error))?;
            // It has served; whether the close is heard does not matter.
            let _ = declared.close(200, "done".into()).await;
        }
        let blocked = Arc::new(AtomicBool::new(false));
        let (mut events, flag) = (publisher.events_listener(), Arc::clone(&blocked));
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Event::ConnectionBlocked(_) => flag.store(true, Ordering::Relaxed),
                    Event::ConnectionUnblocked => flag.store(false, Ordering::Relaxed),
                    Event::Error(_) => return,
                    _ => {}
                }
            }
        });
        Ok(Self {
            publisher,
            consumer,
            publish,
            ask,
            consume,
            blocked,
            held: Mutex::default(),
            taking: Semaphore::new(1),
            takes: AtomicU64::new(0),
        })
    }

    /// A channel that the server closed takes the whole session with it: what was held comes again anyway.
    fn is_live(&self) -> bool {
        self.publisher.status().connected()
            && self.consumer.status().connected()
            && [&self.publish, &self.ask, &self.consume]
                .iter()
                .all(|channel| channel.status().connected())
    }

    /// Whether there is no more to be had from it.
    pub(super) fn is_over(&self) -> bool {
        !self.is_live()
    }

    pub(super) fn holds(&self, tag: u64, dead: bool) {
        self.held.lock().insert((tag, dead));
    }

    /// Ends a hold; false if it was over.
    pub(super) fn lets_go(&self, tag: u64, dead: bool) -> bool {
        self.held.lock().remove(&(tag, dead))
    }

    pub(super) fn in_flight(&self, dead: bool) -> u64 {
        let held = self.held.lock();
        held.iter().filter(|(_, of)| *of == dead).count() as u64
    }

    /// Puts back what came beyond what was asked for.
    pub(super) async fn put_back(&self, tag: u64) {
        let options = BasicNackOptions {
            requeue: true,
            ..BasicNackOptions::default()
        };
        // If it is not heard, the channel is gone, which puts it back too.
        let _ = self.consume.basic_nack(tag, options).await;
    }
}

/// Longest wait for an answer of the server.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
