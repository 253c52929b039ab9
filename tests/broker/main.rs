//! Brokers: one suite that every broker passes, admission before them, the drain behind them, and real servers that are
//! killed in the middle.

mod conformance;
mod memory;
