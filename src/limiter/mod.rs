//! Limits at work: shared by threads, judged by a clock, waited for in line.

mod account;
mod admission;
mod cell;
mod direct;
mod hierarchy;
mod hierarchy_builder;
mod keyed;
mod keyed_builder;
mod keyed_line;
mod line;
mod local;
#[cfg(all(test, sluicegate_loom))]
mod models;
mod reservation;
mod ruling;
mod shard;
mod solo;
mod state;
mod status;
mod store;
mod table;
mod turn;
mod waiting;
mod word;

pub use direct::RateLimiter;
pub use hierarchy::Hierarchy;
pub use hierarchy_builder::HierarchyBuilder;
pub use keyed::KeyedLimiter;
pub use keyed_builder::KeyedLimiterBuilder;
pub use local::Local;
pub use reservation::Reservation;
pub use ruling::Ruling;
pub use solo::Solo;
pub use status::{KeyCounts, LevelStatus};
pub use store::{Admission, Charge, Deciding, Immediate, Store};
pub use table::WhenKeysFull;
