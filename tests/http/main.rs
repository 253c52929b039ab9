//! Promises of the HTTP and gRPC edge.

mod kit;

mod fields;
mod keys;
mod layer;
mod worked;
