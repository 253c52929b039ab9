//! Limits that a fleet shares, on Redis or Valkey, 7.0 and later.
//!
//! An [`Endpoint`] says where the server is and who asks.

mod dial;
mod endpoint;
mod error;
#[allow(dead_code)] // Until both the limits and the queue are on it.
mod link;
pub mod queue;
mod reply;
#[allow(dead_code)] // As above.
mod script;

pub use endpoint::Endpoint;
pub use error::Error;
pub use queue::Queue;
