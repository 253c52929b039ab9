//! Brokers: one suite that every broker passes, admission before them, the drain behind them, and real servers that are
//! killed in the middle.

mod admission;
mod conformance;
mod memory;
mod plain;
mod source;
