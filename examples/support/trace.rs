//! The trace reader of the simulator: it names nothing else of the crate, so that an example needs no feature for it.

#[allow(dead_code, unreachable_pub, reason = "an example uses part of it")]
#[path = "../../src/sim/trace/mod.rs"]
mod reader;

#[allow(unused_imports, reason = "an example uses part of it")]
pub(crate) use reader::{Arrival, Bound, Columns, Notes, Trace, TraceError};
