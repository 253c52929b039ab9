//! Messages and errors, as the server has them and as this crate has them.

use std::error::Error;

use async_nats::HeaderMap;
use async_nats::header::{HeaderName, HeaderValue};
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{Error as Said, ErrorCode};

use crate::broker::error::{BrokerError, BrokerErrorKind};
use crate::broker::message::Message;

/// A message to be published under this key against doubles.
pub(super) fn outgoing(
    message: &Message,
    key: Option<&str>,
) -> Result<PublishMessage, BrokerError> {
    let mut headers = HeaderMap::new();
    for (name, value) in message.headers() {
        let wrong = |error: Box<dyn Error + Send + Sync>| {
            BrokerError::new(
                BrokerErrorKind::Other,
                format!("header {name:?} cannot be sent"),
            )
            .because(error)
        };
        let parsed = name
            .parse::<HeaderName>()
            .map_err(|error| wrong(error.into()))?;
        let value = value
            .parse::<HeaderValue>()
            .map_err(|error| wrong(error.into()))?;
        headers.insert(parsed, value);
    }
    if let Some(name) = message.name().filter(|name| Some(*name) != key) {
        headers.insert(NAME, name);
    }
    let mut publish = PublishMessage::build().payload(message.payload().to_vec().into());
    publish = publish.headers(headers);
    if let Some(key) = key {
        publish = publish.message_id(key);
    }
    Ok(publish)
}

/// A message as it came.
pub(super) fn incoming(message: async_nats::Message) -> Message {
    with_headers(message.payload.to_vec(), message.headers.as_ref())
}

pub(super) fn with_headers(payload: Vec<u8>, headers: Option<&HeaderMap>) -> Message {
    let mut message = Message::new(payload);
    let (mut key, mut named) = (None, None);
    for (name, values) in headers.into_iter().flat_map(HeaderMap::iter) {
        let Some(value) = values.first().map(HeaderValue::as_str) else {
            continue;
        };
        match AsRef::<str>::as_ref(name) {
            NAME => named = Some(value),
            KEY => key = Some(value),
            name if name.starts_with("Nats-") => {}
            name => message = message.header(name, value),
        }
    }
    match named.or(key) {
        Some(name) => message.id(name),
        None => message,
    }
}

pub(super) fn publish_error(stream: &str, connected: bool, error: PublishError) -> BrokerError {
    let kind = match error.kind() {
        PublishErrorKind::StreamNotFound => BrokerErrorKind::Missing,
        PublishErrorKind::MaxPayloadExceeded => BrokerErrorKind::TooLarge,
        PublishErrorKind::TimedOut => BrokerErrorKind::Unconfirmed,
        PublishErrorKind::BrokenPipe => BrokerErrorKind::Disconnected,
        PublishErrorKind::MaxAckPending => BrokerErrorKind::Blocked,
        _ => return self::error(stream, "publishing", connected, error),
    };
    BrokerError::new(kind, format!("stream {stream}: publishing: {error}")).because(error)
}

/// Any other error, by the code of the server if there is one in it.
pub(super) fn error(
    stream: &str,
    what: &str,
    connected: bool,
    error: impl Error + Send + Sync + 'static,
) -> BrokerError {
    let mut deepest: Option<&(dyn Error + 'static)> = Some(&error);
    let mut kind = None;
    let mut text = error.to_string();
    while let Some(cause) = deepest {
        if let Some(said) = cause.downcast_ref::<Said>() {
            kind = Some(self::kind(said));
            text = said.to_string();
        }
        deepest = cause.source();
    }
    let kind = kind.unwrap_or_else(|| {
        if !connected {
            BrokerErrorKind::Disconnected
        } else if text.contains("timed out") {
            BrokerErrorKind::Unconfirmed
        } else {
            BrokerErrorKind::Other
        }
    });
    BrokerError::new(kind, format!("stream {stream}: {what}: {text}")).because(error)
}

/// What the server's code means here.
pub(super) fn kind(said: &Said) -> BrokerErrorKind {
    match said.error_code() {
        ErrorCode::STREAM_NOT_FOUND | ErrorCode::CONSUMER_NOT_FOUND => BrokerErrorKind::Missing,
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM => {
            BrokerErrorKind::TooLarge
        }
        ErrorCode::STORAGE_RESOURCES_EXCEEDED
        | ErrorCode::MEMORY_RESOURCES_EXCEEDED
        | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED => BrokerErrorKind::Full,
        // The code of every failure to store; a bound says so.
        ErrorCode::STREAM_STORE_FAILED if said.to_string().contains("maximum") => {
            BrokerErrorKind::Full
        }
        _ => BrokerErrorKind::Other,
    }
}

/// Header by which the server knows doubles.
const KEY: &str = "Nats-Msg-Id";
/// Header with the name of a message, where it is not the key.
const NAME: &str = "sluicegate-name";
