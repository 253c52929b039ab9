//! Limits at work: shared by threads, judged by a clock, waited for in line.

mod account;
mod direct;
mod line;
mod reservation;
mod waiting;
mod word;

pub use direct::RateLimiter;
pub use reservation::Reservation;
