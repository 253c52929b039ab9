//! Messages and errors, as RabbitMQ has them and as this crate has them.

use lapin::message::Delivery as Delivered;
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Error, ErrorKind};

use crate::broker::error::{BrokerError, BrokerErrorKind};
use crate::broker::message::{DEAD_REASON, Message};

/// Properties of a message to be stored.
pub(super) fn outgoing(message: &Message) -> Result<BasicProperties, BrokerError> {
    let mut headers = FieldTable::default();
    for (name, value) in message.headers() {
        let name = short("header", name)?;
        headers.insert(name.into(), AMQPValue::LongString(value.into()));
    }
    let mut properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_headers(headers);
    if let Some(name) = message.name() {
        properties = properties.with_message_id(short("id", name)?.into());
    }
    Ok(properties)
}

/// What the protocol has one byte of length for.
fn short<'a>(what: &str, text: &'a str) -> Result<&'a str, BrokerError> {
    if text.len() <= usize::from(u8::MAX) {
        return Ok(text);
    }
    Err(BrokerError::new(
        BrokerErrorKind::Unsuitable,
        format!("{what} is {} bytes, at most 255", text.len()),
    ))
}

/// A message as it came, and which delivery it is: 1 at the first.
pub(super) fn incoming(delivered: Delivered) -> (Message, u32) {
    let mut message = Message::new(delivered.data);
    if let Some(id) = delivered.properties.message_id() {
        message = message.id(id.as_str());
    }
    let (mut earlier, mut died) = (u32::from(delivered.redelivered), None);
    if let Some(headers) = delivered.properties.headers() {
        for (name, value) in headers.inner() {
            let name = name.as_str();
            match (name, value) {
                // Absent at the first delivery; the server counts those before this one.
                (COUNT, value) => earlier = number(value).unwrap_or(earlier),
                (DIED, AMQPValue::LongString(why)) => died = Some(why.to_string()),
                (name, AMQPValue::LongString(text)) if !name.starts_with("x-") => {
                    message = message.header(name, text.to_string());
                }
                _ => {}
            }
        }
    }
    if let Some(why) = died.filter(|_| message.header_value(DEAD_REASON).is_none()) {
        message = message.header(DEAD_REASON, format!("the broker says {why}"));
    }
    (message, earlier.saturating_add(1))
}

fn number(value: &AMQPValue) -> Option<u32> {
    match value {
        AMQPValue::ShortShortInt(n) => u32::try_from(*n).ok(),
        AMQPValue::ShortShortUInt(n) => Some(u32::from(*n)),
        AMQPValue::ShortInt(n) => u32::try_from(*n).ok(),
        AMQPValue::ShortUInt(n) => Some(u32::from(*n)),
        AMQPValue::LongInt(n) => u32::try_from(*n).ok(),
        AMQPValue::LongUInt(n) => Some(*n),
        AMQPValue::LongLongInt(n) => u32::try_from(*n).ok(),
        _ => None,
    }
}

/// An error, by the server's code if it has one.
pub(super) fn error(queue: &str, what: &str, error: Error) -> BrokerError {
    let text = error.to_string();
    let kind = match error.kind() {
        ErrorKind::ProtocolError(said) => match said.get_id() {
            NOT_FOUND => BrokerErrorKind::Missing,
            ACCESS_REFUSED | NOT_ALLOWED => BrokerErrorKind::Credentials,
            PRECONDITION_FAILED | RESOURCE_LOCKED => BrokerErrorKind::Unsuitable,
            _ => BrokerErrorKind::Disconnected,
        },
        ErrorKind::InvalidChannelState(..)
        | ErrorKind::InvalidConnectionState(_)
        | ErrorKind::InvalidChannel(_)
        | ErrorKind::IOError(_)
        | ErrorKind::MissingHeartbeatError => BrokerErrorKind::Disconnected,
        _ => BrokerErrorKind::Other,
    };
    BrokerError::new(kind, format!("queue {queue}: {what}: {text}")).because(error)
}

/// Kept on disk.
const PERSISTENT: u8 = 2;
/// Header with the earlier deliveries of a message in a quorum queue.
const COUNT: &str = "x-delivery-count";
/// Header with which the server puts a message among the dead letters.
const DIED: &str = "x-first-death-reason";
const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const RESOURCE_LOCKED: u16 = 405;
const PRECONDITION_FAILED: u16 = 406;
const NOT_ALLOWED: u16 = 530;
