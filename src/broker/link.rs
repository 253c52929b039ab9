//! How a source and its broker get on, for whoever watches.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use super::numbers::Settled;
use super::source::SourceReport;
use crate::queue::Control;
use crate::sync::{Arc, Mutex};
use crate::words::Health;

/// What is known of the broker, and the counts so far.
#[derive(Clone)]
pub(super) struct Link {
    state: Arc<Mutex<State>>,
    control: Control,
}

#[derive(Debug, Default)]
struct State {
    down_since: Option<Instant>,
    error: Option<String>,
    outages: u64,
    report: SourceReport,
}

/// Watch on a [`Source`](super::Source); keeps nothing running.
#[derive(Clone)]
pub struct SourceHealth(Link);

impl Link {
    pub(super) fn new(control: Control) -> Self {
        Self {
            state: Arc::default(),
            control,
        }
    }

    pub(super) fn health(&self) -> SourceHealth {
        SourceHealth(self.clone())
    }

    pub(super) fn answered(&self, redelivered: u64) {
        let mut state = self.state.lock();
        state.down_since = None;
        state.report.redelivered += redelivered;
    }

    pub(super) fn failed(&self, error: &str) {
        let mut state = self.state.lock();
        if state.down_since.is_none() {
            state.down_since = Some(Instant::now());
            state.outages += 1;
        }
        state.error = Some(error.to_owned());
    }

    pub(super) fn settled(&self, how: Settled) {
        let report = &mut self.state.lock().report;
        let counter = match how {
            Settled::Acked => &mut report.acked,
            Settled::Retried => &mut report.retried,
            Settled::DeadLettered => &mut report.dead_lettered,
            Settled::GivenBack => &mut report.given_back,
            Settled::Lost => &mut report.lost,
        };
        *counter += 1;
    }

    pub(super) fn report(&self) -> SourceReport {
        self.state.lock().report
    }
}

impl SourceHealth {
    /// Red while the broker does not answer, or while there is a backlog in this process and nothing starts.
    #[must_use]
    pub fn health(&self) -> Health {
        match self.down_for() {
            Some(_) => Health::Red,
            None => self.0.control.health(),
        }
    }

    /// How long the broker has not answered; `None` = it did last time.
    #[must_use]
    pub fn down_for(&self) -> Option<Duration> {
        Some(self.0.state.lock().down_since?.elapsed())
    }

    /// What the broker said when it last failed, also if that is over.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        self.0.state.lock().error.clone()
    }

    /// How often the broker stopped answering.
    #[must_use]
    pub fn outages(&self) -> u64 {
        self.0.state.lock().outages
    }

    /// What the source did so far.
    #[must_use]
    pub fn report(&self) -> SourceReport {
        self.0.report()
    }
}

impl fmt::Debug for SourceHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceHealth")
            .field("health", &self.health())
            .field("outages", &self.outages())
            .field("report", &self.report())
            .finish_non_exhaustive()
    }
}
