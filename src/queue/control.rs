//! The operator's handle: change and look, without a hand on the jobs.

use std::fmt;

use std::time::Duration;

use tokio::sync::watch;

use super::builder::Builder;
use super::port::Port;
use super::snapshot::{Ledgers, Snapshot};
use super::tuning::DownstreamVitals;
use crate::error::BuildError;
use crate::policy::aimd::Aimd;
use crate::rate::Rate;
use crate::sync::Arc;
use crate::words::{Health, Pressure};

/// Handle to change and look at a queue of any item type; clones share the queue.
///
/// It keeps nothing open: the queue closes with its last sender and ends with its last receiver, whatever controls
/// there are. Afterwards it still tells the final numbers. A change takes effect at once, wakes whom it concerns, never
/// waits in any line, and keeps what the schedule and the line stand at.
///
/// # Examples
/// ```
/// use sluicegate::Rate;
/// use sluicegate::queue::Builder;
///
/// let (tx, _rx) = Builder::new(Rate::per_second(10)).build::<u32>()?;
/// let control = tx.control();
/// control.set_rate(Rate::per_second(200))?;
/// assert_eq!(control.snapshot().max_depth, 1_000); // derived anew: what leaves in 5 s
/// assert!(control.set_max_depth(0).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Control {
    port: Arc<dyn Port>,
}

impl Control {
    pub(crate) fn new(port: Arc<dyn Port>) -> Self {
        Self { port }
    }

    /// Changes the rate; what was derived from it is derived anew.
    ///
    /// What is owed or paid ahead is kept in units, so that a change gives and takes nothing. A queue without a rate
    /// becomes paced.
    ///
    /// # Errors
    /// If a setting made by hand does not go with it; nothing is changed then.
    pub fn set_rate(&self, rate: Rate) -> Result<(), BuildError> {
        self.port.change(&mut |spec| spec.rate = Some(rate))
    }

    /// Changes the rate in even steps over a time; any other change of the rate ends it.
    ///
    /// It starts from the rate as it is now, in the middle of another ramp too. Bounds and marks that follow the rate are
    /// derived from the new one at once. Over a time of zero it is
    /// [`set_rate`](Self::set_rate).
    ///
    /// # Errors
    /// As [`set_rate`](Self::set_rate).
    pub fn ramp(&self, rate: Rate, over: Duration) -> Result<(), BuildError> {
        self.port.ramp(rate, over)
    }

    /// Lets the rate follow what the downstream can bear, as its outcomes and run times show; starts at the ceiling.
    ///
    /// Acknowledged, failed, retried and deferred jobs are samples, after the close too; refusals, cancellations and
    /// abandoned jobs are not, nor is a handler that never ends, as long as it has not. Every change is counted in
    /// [`rate_changes`](Self::rate_changes), and told with the feature `tracing`.
    /// It ends with [`set_rate`](Self::set_rate), [`ramp`](Self::ramp), an [`apply`](Self::apply) with another rate, or
    /// [`hold_rate`](Self::hold_rate). [`Snapshot::rate`] tells where it stands.
    ///
    /// # Errors
    /// If the queue has no rate, or a field breaks its rule; nothing is changed then.
    pub fn adapt(&self, follow: Aimd) -> Result<(), BuildError> {
        self.port.adapt(Some(follow), None)
    }

    /// As [`adapt`](Self::adapt), and asks the downstream itself too.
    ///
    /// # Errors
    /// As [`adapt`](Self::adapt).
    pub fn adapt_with(
        &self,
        follow: Aimd,
        vitals: impl DownstreamVitals,
    ) -> Result<(), BuildError> {
        self.port.adapt(Some(follow), Some(Arc::new(vitals)))
    }

    /// Ends an adaptation or a ramp: the rate is the one that was set.
    pub fn hold_rate(&self) {
        // Without a rate to follow there is nothing that could be wrong with it.
        let ended = self.port.adapt(None, None);
        debug_assert!(ended.is_ok(), "{ended:?}");
    }

    /// Changes the bound of the depth; marks that were not set by hand move with it.
    ///
    /// Below the present depth nothing is thrown out: offers wait until it has drained.
    ///
    /// # Errors
    /// If it is 0, or marks set by hand do not fit; nothing is changed then.
    pub fn set_max_depth(&self, cost: u64) -> Result<(), BuildError> {
        self.port.change(&mut |spec| spec.max_depth = Some(cost))
    }

    /// Sets both marks by hand.
    ///
    /// # Errors
    /// Unless `low < high <= max_depth`; nothing is changed then.
    pub fn set_watermarks(&self, low: u64, high: u64) -> Result<(), BuildError> {
        self.port
            .change(&mut |spec| spec.watermarks = Some((low, high)))
    }

    /// Puts all settings of a builder in place of the present ones, at once.
    ///
    /// Name, clock, timer and outlet of dead letters stay as the queue was built.
    ///
    /// # Errors
    /// Those of [`Builder::build`]; nothing is changed then.
    pub fn apply(&self, builder: Builder) -> Result<(), BuildError> {
        let wanted = builder.into_spec();
        self.port.change(&mut |spec| {
            let mut new = wanted.clone();
            new.name = spec.name.take();
            new.grain = spec.grain;
            *spec = new;
        })
    }

    /// Stops departures; offers are admitted as long as there is room, and refusals then say
    /// [`Paused`](super::Reason::Paused).
    ///
    /// What was owed is forgiven, and nothing is earned meanwhile. Pausing a paused queue replaces the reason.
    pub fn pause(&self, why: impl Into<Arc<str>>) {
        self.port.pause(why.into());
    }

    /// Lets departures go on, one interval apart from the last one; without effect if the queue is not paused.
    pub fn resume(&self) {
        self.port.resume();
    }

    /// Numbers of this instant.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.port.snapshot()
    }

    /// The ledger by lane and by tenant.
    #[must_use]
    pub fn ledgers(&self) -> Ledgers {
        self.port.ledgers()
    }

    /// State of the ladder, read without a lock.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        self.port.pressure()
    }

    /// Receiver that is told whenever the state of the ladder changes; a newer state is never overwritten by an older.
    #[must_use]
    pub fn watch_pressure(&self) -> watch::Receiver<Pressure> {
        self.port.watch_pressure()
    }

    /// Times that the rate has changed since the queue was built: set, each step of a ramp, or adapted.
    #[must_use]
    pub fn rate_changes(&self) -> u64 {
        self.port.rate_changes()
    }

    /// Whether work flows: red once a job may leave and none has for eight intervals, and a second, after it was due.
    ///
    /// So it is when consumers are gone, or handlers that never end hold all [places](Builder::max_in_flight) in flight.
    #[must_use]
    pub fn health(&self) -> Health {
        self.port.health()
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("snapshot", &self.snapshot())
            .finish()
    }
}
