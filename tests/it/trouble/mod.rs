//! What goes wrong behind a queue, and what it does then. In paused time.

mod bad_input;
mod causes;
#[cfg(feature = "tracing")]
mod events;
mod freshness;
mod rates;

use std::time::Duration;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MILLI: Duration = Duration::from_millis(1);
