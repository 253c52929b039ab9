//! Limits at work: shared by threads, judged by a clock, waited for in line.

mod account;
mod cell;
mod direct;
mod keyed;
mod keyed_builder;
mod keyed_line;
mod line;
mod reservation;
mod shard;
mod table;
mod turn;
mod waiting;
mod word;

pub use direct::RateLimiter;
pub use keyed::KeyedLimiter;
pub use keyed_builder::KeyedLimiterBuilder;
pub use reservation::Reservation;
pub use table::WhenKeysFull;
