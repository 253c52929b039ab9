//! Limits that a fleet shares, on Redis or Valkey, 7.0 and later.
//!
//! An [`Endpoint`] says where the server is and who asks; [`Limits`] keeps the state of a
//! [`Hierarchy`](crate::Hierarchy) there.
//!
//! ```text
//!   Hierarchy --> Limits --> memory of refusals --> breaker --> merged calls --> one script --> server
//!                    |                                   |
//!                    +-- WhenUnknown: allow, refuse, own share <--- no answer by the deadline
//! ```
//!
//! | promise | exact? |
//! |---|---|
//! | one decision: all levels charged or none, by the server's clock, waits to the microsecond | yes, on one server or under one hash tag |
//! | callers of one key merged into one call | yes |
//! | callers of different keys, and batches, in one call | yes: each decision is made by itself, in turn; one that fails fails alone |
//! | refusals repeated from memory | yes, but for refunds, resets and raised limits elsewhere, and a server that starts empty, until the told wait is over |
//! | a level kept apart on a cluster ([`apart`](LimitsBuilder::apart)) | charged levels before it are given back when it refuses or does not answer; others may see them meanwhile |
//! | no answer | the charge may have been made, once; nothing is sent twice |
//! | node's own share of the limit ([`WhenUnknown::Share`]) | all nodes together stay within the limit, if it has a unit for each |
//! | the server restarts empty, or evicts | limits start anew |
//!
//! A user of the server's access control list needs no more for limits than these rights, with the prefix in place of
//! `sluicegate`, and no fewer: a script that may not do all of it stops half-way, with some levels charged.
//! [`Limits::connect`] asks for `+info +config|get` besides, and does without the latter. A database other than 0 takes
//! `+select`.
//!
//! ```text
//! ACL SETUSER limits on >secret resetkeys ~{sluicegate* resetchannels -@all +evalsha +script|load
//!     +time +get +set +del +strlen +getrange +setrange +append +pexpire
//! ```

mod asking;
mod breaker;
mod builder;
mod chores;
mod counts;
mod deciding;
mod denials;
mod dial;
mod endpoint;
mod error;
mod fallback;
mod flights;
mod gathering;
mod limits;
mod link;
mod outcome;
mod plan;
pub mod queue;
mod reply;
mod rule;
mod script;
mod scripts;
mod shape;
mod together;
mod warning;

pub use builder::LimitsBuilder;
pub use counts::Counts;
pub use deciding::Deciding;
pub use endpoint::Endpoint;
pub use error::Error;
pub use fallback::WhenUnknown;
pub use limits::Limits;
pub use queue::Queue;
pub use warning::Warning;
