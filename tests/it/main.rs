//! One binary, one module per promise.

mod chart;
mod trace;
