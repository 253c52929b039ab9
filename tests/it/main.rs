//! The promises of the crate, one module each, in one binary.

mod layering;
mod limits;
mod queue;
