//! Whether work flows.

use std::time::Duration;

use crate::machine::queue::Machine;
use crate::tick::Tick;
use crate::words::Health;

impl<P> Machine<P> {
    /// Red once a departure is overdue by eight intervals and at least a second.
    pub(crate) fn health(&self, now: Tick) -> Health {
        let now = now.max(self.now);
        match self.red_after() {
            Some(patience) if now > patience => Health::Red,
            _ => Health::Green,
        }
    }

    /// Instant after which it is red, unless something departs or changes before.
    pub(crate) fn red_after(&self) -> Option<Tick> {
        if self.is_idle() {
            return None;
        }
        let (due, patience) = match &self.schedule {
            Some(schedule) => (schedule.due(), schedule.span(8).max(LEAST_PATIENCE)),
            None => (Tick::ZERO, LEAST_PATIENCE),
        };
        let since = due
            .max(self.busy_since)
            .max(self.last_departure.unwrap_or_default());
        Some(since + patience)
    }
}

const LEAST_PATIENCE: Duration = Duration::from_secs(1);
