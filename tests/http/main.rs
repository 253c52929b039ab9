//! Promises of the HTTP and gRPC edge.

mod kit;

#[path = "../../examples/support/echo.rs"]
mod echo;
mod fields;
mod grpc;
mod keys;
mod layer;
mod queue;
mod servers;
mod worked;
