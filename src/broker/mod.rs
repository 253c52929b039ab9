//! Message brokers: admission in front of one, and a steady drain behind it.
//!
//! ```text
//!   producers --> edge --> ladder over the broker's depth --> publish --confirm--> broker
//!                                                                                    |
//!   downstream <-- handlers <-- queue: rate, bound in flight <-- take what can start-+
//!                     |                                                              ^
//!                     +--> ack, retry later, dead letter ----------------------------+
//! ```
//! A [`Broker`] is one queue or stream of any system. What it keeps by itself it says as [`Capabilities`]; a policy that
//! it cannot keep is refused by name when it is built, not approximated.
//!
//! Everything here is at-least-once: a message that was accepted is handed out until it is acked or dead-lettered, and
//! may be handed out twice. Handlers are idempotent, or ask [`Message::name`].

mod admission;
mod admission_builder;
#[cfg(feature = "amqp")]
mod amqp;
mod capability;
mod contract;
mod crew;
mod door;
mod error;
mod holds;
mod link;
mod memory;
mod message;
#[cfg(feature = "nats")]
mod nats;
mod numbers;
mod polls;
mod rejected;
mod source;
mod source_builder;
mod verdict;

pub use self::admission::Admission;
pub use self::admission_builder::AdmissionBuilder;
#[cfg(feature = "amqp")]
pub use self::amqp::{Amqp, AmqpBuilder, AmqpReceipt};
pub use self::capability::{Capabilities, Capability};
pub use self::contract::{Broker, Depth};
pub use self::error::{BrokerError, BrokerErrorKind};
pub use self::link::SourceHealth;
pub use self::memory::{Memory, MemoryReceipt};
pub use self::message::{DEAD_DELIVERIES, DEAD_FROM, DEAD_LETTER, DEAD_REASON, Delivery, Message};
#[cfg(feature = "nats")]
pub use self::nats::{Nats, NatsBuilder, NatsReceipt};
pub use self::rejected::{Rejected, RejectedBy};
pub use self::source::{Received, Source, SourceReport};
pub use self::source_builder::SourceBuilder;
pub use self::verdict::Verdict;
