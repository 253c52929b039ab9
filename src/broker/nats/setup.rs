//! Stream and consumer: made, or looked at and refused if the promises cannot be kept on them.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{
    Config, ConsumerErrorKind, DiscardPolicy, RetentionPolicy, StorageType, Stream,
};
use async_nats::jetstream::{Context, ErrorCode};

use super::wire;
use crate::broker::error::{BrokerError, BrokerErrorKind};

/// A stream and a consumer as they are wished for.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) stream: String,
    pub(super) subject: String,
    pub(super) consumer: String,
    pub(super) create: bool,
    pub(super) max_depth: Option<u64>,
    pub(super) max_in_flight: Option<u64>,
    pub(super) ack_wait: Duration,
    pub(super) in_memory: bool,
    pub(super) replicas: usize,
}

/// What was found or made.
pub(super) struct Found {
    pub(super) stream: Stream,
    pub(super) consumer: PullConsumer,
}

impl Place {
    fn refuse(&self, why: impl std::fmt::Display) -> BrokerError {
        BrokerError::new(
            BrokerErrorKind::Unsuitable,
            format!("stream {} {why}", self.stream),
        )
    }

    fn other(
        &self,
        what: &str,
        kind: BrokerErrorKind,
        error: impl std::fmt::Display,
    ) -> BrokerError {
        BrokerError::new(kind, format!("stream {}: {what}: {error}", self.stream))
    }

    fn config(&self) -> Config {
        let bound = self.max_depth.and_then(|most| i64::try_from(most).ok());
        Config {
            name: self.stream.clone(),
            subjects: vec![self.subject.clone()],
            retention: RetentionPolicy::WorkQueue,
            discard: DiscardPolicy::New,
            // One bound alone: two together lose messages on servers before 2.10.
            max_messages: bound.unwrap_or(-1),
            max_bytes: -1,
            max_messages_per_subject: -1,
            max_consumers: -1,
            max_message_size: -1,
            storage: match self.in_memory {
                true => StorageType::Memory,
                false => StorageType::File,
            },
            num_replicas: self.replicas,
            ..Config::default()
        }
    }

    fn consumer_config(&self) -> pull::Config {
        let pending = self.max_in_flight.and_then(|most| i64::try_from(most).ok());
        pull::Config {
            durable_name: Some(self.consumer.clone()),
            ack_policy: AckPolicy::Explicit,
            deliver_policy: DeliverPolicy::All,
            ack_wait: self.ack_wait,
            // Without end: what is used up stays in the stream and is handed out no more.
            max_deliver: -1,
            max_ack_pending: pending.unwrap_or(UNBOUNDED_PENDING),
            ..pull::Config::default()
        }
    }
}

/// Finds stream and consumer, or makes them where that is allowed.
pub(super) async fn ensure(context: &Context, place: &Place) -> Result<Found, BrokerError> {
    let stream = match context.get_stream(&place.stream).await {
        Ok(stream) => stream,
        Err(error) => {
            let kind = match error.kind() {
                GetStreamErrorKind::JetStream(said) => wire::kind(&said),
                _ => BrokerErrorKind::Disconnected,
            };
            if kind != BrokerErrorKind::Missing || !place.create {
                return Err(place.other("looking for it", kind, error));
            }
            match context.create_stream(place.config()).await {
                Ok(_) => {}
                Err(error) => {
                    let kind = match error.kind() {
                        CreateStreamErrorKind::JetStream(said) => wire::kind(&said),
                        CreateStreamErrorKind::InvalidStreamName
                        | CreateStreamErrorKind::EmptyStreamName => BrokerErrorKind::Unsuitable,
                        _ => BrokerErrorKind::Other,
                    };
                    return Err(place.other("making it", kind, error));
                }
            }
            let made = context.get_stream(&place.stream).await;
            made.map_err(|error| place.other("looking at it", BrokerErrorKind::Other, error))?
        }
    };
    suits(place, &stream.cached_info().config)?;
    let found = stream.get_consumer::<pull::Config>(&place.consumer).await;
    // A request that was not answered finds nothing either; then the next one fails too.
    let consumer = match found {
        Ok(consumer) if !place.create => consumer,
        Ok(consumer) if consumer.cached_info().config.deliver_subject.is_some() => consumer,
        Err(error) if !place.create => {
            let what = format!("looking for its consumer {}", place.consumer);
            return Err(place.other(&what, BrokerErrorKind::Missing, error));
        }
        _ => {
            let made = stream.create_consumer(place.consumer_config()).await;
            made.map_err(|error| consumer_error(place, error))?
        }
    };
    consumer_suits(place, &consumer)?;
    Ok(Found { stream, consumer })
}

fn suits(place: &Place, config: &Config) -> Result<(), BrokerError> {
    if config.retention == RetentionPolicy::Limits {
        return Err(
            place.refuse("keeps what was acked (retention by limits): acking frees no room")
        );
    }
    let bounded = config.max_messages > 0 || config.max_bytes > 0;
    if config.discard == DiscardPolicy::Old && bounded {
        return Err(place.refuse("drops its oldest messages when it is full"));
    }
    if let Some(asked) = place.max_depth
        && i64::try_from(asked).ok() != Some(config.max_messages)
    {
        let has = match u64::try_from(config.max_messages) {
            Ok(most) => format!("holds at most {most} messages, asked for {asked}"),
            Err(_) => format!("has no bound of messages, asked for {asked}"),
        };
        return Err(place.refuse(has));
    }
    Ok(())
}

fn consumer_suits(place: &Place, consumer: &PullConsumer) -> Result<(), BrokerError> {
    let info = consumer.cached_info();
    let name = &place.consumer;
    if info.config.deliver_subject.is_some() {
        return Err(place.refuse(format!("has a consumer {name} that pushes")));
    }
    if info.config.ack_policy != AckPolicy::Explicit {
        return Err(place.refuse(format!(
            "has a consumer {name} that is not acked message by message"
        )));
    }
    Ok(())
}

fn consumer_error(
    place: &Place,
    error: async_nats::jetstream::stream::ConsumerError,
) -> BrokerError {
    let kind = match error.kind() {
        // Another consumer has this work queue already.
        ConsumerErrorKind::JetStream(said)
            if said.error_code() == ErrorCode::CONSUMER_WQ_MULTIPLE_UNFILTERED =>
        {
            BrokerErrorKind::Unsuitable
        }
        ConsumerErrorKind::JetStream(said) => wire::kind(&said),
        ConsumerErrorKind::TimedOut => BrokerErrorKind::Disconnected,
        _ => BrokerErrorKind::Other,
    };
    place.other(
        &format!("making its consumer {}", place.consumer),
        kind,
        error,
    )
}

/// The server's default of 1,000 would stop a fleet of consumers without a word.
const UNBOUNDED_PENDING: i64 = -1;
