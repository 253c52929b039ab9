//! What is published, and what is handed out.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// Payload, headers and the publisher's own name for it. Clones share them.
///
/// # Examples
/// ```
/// use sluicegate::broker::Message;
///
/// let order = Message::new("{\"order\":7}").id("order-7").header("tenant", "acme");
/// assert_eq!(order.payload(), b"{\"order\":7}");
/// assert_eq!(order.header_value("tenant"), Some("acme"));
/// ```
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Message {
    payload: Arc<Vec<u8>>,
    id: Option<Arc<str>>,
    headers: Arc<BTreeMap<String, String>>,
}

impl Message {
    /// Makes a message without a name and without headers.
    #[must_use]
    pub fn new(payload: impl Into<Vec<u8>>) -> Self {
        Self {
            payload: Arc::new(payload.into()),
            ..Self::default()
        }
    }

    /// Names it, so that publishing it again after an unknown outcome is recognised by brokers that can
    /// ([`Capability::Deduplication`](super::Capability::Deduplication)), and by consumers everywhere.
    #[must_use]
    pub fn id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Adds a header, in place of an earlier one of that name.
    ///
    /// Printable names without spaces or colons and values without line breaks are safe on every broker. What begins
    /// with `sluicegate-` is written by this crate.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.headers).insert(name.into(), value.into());
        self
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The payload alone.
    #[must_use]
    pub fn into_payload(self) -> Vec<u8> {
        Arc::unwrap_or_clone(self.payload)
    }

    /// The name it was given.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// What a broker is to know it by when it looks for doubles: its name, and for one that comes back from the dead
    /// letters also which of them it was, so that publishing it once more is not taken for a double.
    #[must_use]
    pub fn dedup_key(&self) -> Option<Cow<'_, str>> {
        let name = self.name()?;
        Some(match self.header_value(DEAD_LETTER) {
            None => Cow::Borrowed(name),
            Some(letter) => Cow::Owned(format!("{name}#{letter}")),
        })
    }

    /// Value of one header.
    #[must_use]
    pub fn header_value(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// All headers, by name.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The message as it is put among the dead letters: with the headers [`DEAD_REASON`] and [`DEAD_DELIVERIES`],
    /// [`DEAD_FROM`], the place it comes from, and [`DEAD_LETTER`], a name of its own.
    #[must_use]
    pub fn as_dead_letter(&self, from: &str, why: &str, deliveries: u32) -> Self {
        let why: String = why
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(LONGEST_REASON)
            .collect();
        self.clone()
            .header(DEAD_REASON, why)
            .header(DEAD_DELIVERIES, deliveries.to_string())
            .header(DEAD_FROM, from)
            .header(
                DEAD_LETTER,
                format!("{:016x}", RandomState::new().hash_one(())),
            )
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("id", &self.id)
            .field("bytes", &self.payload.len())
            .field("headers", &self.headers)
            .finish()
    }
}

/// Header of a dead letter: why it is one.
pub const DEAD_REASON: &str = "sluicegate-dead-reason";
/// Header of a dead letter: how often it had been handed out.
pub const DEAD_DELIVERIES: &str = "sluicegate-dead-deliveries";
/// Header of a dead letter: queue or stream from which it was taken.
pub const DEAD_FROM: &str = "sluicegate-dead-from";

/// Header of a dead letter: which one it is.
pub const DEAD_LETTER: &str = "sluicegate-dead-letter";

/// Characters of a reason that are kept: brokers bound their headers.
const LONGEST_REASON: usize = 1_000;

/// A message in the hands of a consumer, and the receipt to settle it with.
#[derive(Clone, Debug)]
pub struct Delivery<R> {
    /// The message.
    pub message: Message,
    /// Which delivery of it this is: 1 at the first. Without
    /// [`Capability::DeliveryCount`](super::Capability::DeliveryCount) it is 2 for every later one.
    pub attempt: u32,
    /// What [`Broker::ack`](super::Broker::ack) and its sisters want.
    pub receipt: R,
}
