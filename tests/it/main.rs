//! One binary, one module per promise.

mod trace;
