//! A durable queue that a fleet shares, and one fixed rate for the whole fleet.
mod builder;
mod codec;
mod core;
mod dead_letters;
mod delivery;
mod drain;
mod error;
mod handle;
mod job;
mod offer;
mod receiver;
mod sender;
mod settings;
mod snapshot;
mod store;

pub use self::builder::{Builder, Existing};
pub use self::codec::{Bytes, Cbor, Codec, Json};
pub use self::dead_letters::{DeadLetter, DeadLetters, Death};
pub use self::drain::DrainReport;
pub use self::error::{Error, ErrorKind, OfferError, TryRecvError};
pub use self::handle::Queue;
pub use self::job::Job;
pub use self::offer::Offer;
pub use self::receiver::Receiver;
pub use self::sender::{Accepted, Sender};
pub use self::snapshot::Snapshot;
