//! Brokers: one suite that every broker passes, admission before them, the drain behind them, and real servers that are
//! killed in the middle.

mod admission;
#[cfg(feature = "amqp")]
mod amqp;
mod conformance;
mod memory;
#[cfg(feature = "nats")]
mod nats;
mod plain;
#[cfg(any(feature = "amqp", feature = "nats"))]
mod scenes;
mod source;
