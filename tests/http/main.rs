//! Promises of the HTTP and gRPC edge.

mod kit;

mod layer;
