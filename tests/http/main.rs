//! Promises of the HTTP and gRPC edge.

mod kit;

mod dialects;
#[path = "../../examples/support/echo.rs"]
mod echo;
mod fields;
mod grpc;
mod keys;
mod layer;
mod queue;
mod remote;
mod servers;
mod worked;
