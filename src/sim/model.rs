//! What is simulated: a queue, its edge, those who call and what does the work.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::callers::Callers;
use super::downstream::Downstream;
use super::edge::{Level, Per};
use super::report::Report;
use super::run::Run;
use super::trace::Arrival;
use crate::error::BuildError;
use crate::machine::{Settings, Spec};
use crate::policy::Limit;
use crate::queue::Builder;
use crate::rate::Rate;
use crate::tick::Tick;
use crate::words::Priority;

/// The production queue on virtual time: the same machine, replayed.
///
/// Arrivals pass the edge (if levels were given), then the queue; whatever departs is served by the [`Downstream`].
/// Departures are taken on the instant, as by consumers and a timer that are never late: set `consumers` to see what
/// too few of them do. Time per arrival is constant but for a logarithm of what is in flight; memory holds what is
/// under way, never the trace.
///
/// # Examples
/// ```
/// use sluicegate::Rate;
/// use sluicegate::queue::Builder;
/// use sluicegate::sim::{Pattern, Simulation};
///
/// let queue = Builder::new(Rate::per_second(1000)).max_depth(50);
/// let arrivals = Pattern::Poisson { rate: Rate::per_second(1500) }.arrivals(1).take(20_000);
/// let report = Simulation::new(queue)?.run_all(arrivals);
/// assert_eq!(report.outcomes.total(), 20_000);
/// let refused = report.outcomes.refused() as f64 / 20_000.0;
/// assert!((0.30..0.37).contains(&refused), "a third is too much for the rate, got {refused}");
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a simulation does nothing until it runs"]
pub struct Simulation {
    pub(super) spec: Spec,
    pub(super) settings: Settings,
    pub(super) changes: Vec<(Tick, Settings)>,
    pub(super) levels: Vec<Level>,
    pub(super) callers: Callers,
    pub(super) downstream: Downstream,
    pub(super) consumers: u64,
    pub(super) lanes: HashMap<Box<str>, Priority>,
    pub(super) tenants: bool,
    pub(super) seed: u64,
}

impl Simulation {
    /// Simulates the queue that this builder would build; its clock and timer thread are not used.
    ///
    /// # Errors
    /// Those of [`Builder::build`].
    pub fn new(queue: Builder) -> Result<Self, BuildError> {
        let spec = queue.into_spec();
        Ok(Self {
            settings: spec.resolve()?,
            spec,
            changes: Vec::new(),
            levels: Vec::new(),
            callers: Callers::default(),
            downstream: Downstream::default(),
            consumers: u64::MAX,
            lanes: HashMap::new(),
            tenants: false,
            seed: 0,
        })
    }

    /// Simulates what a configuration says: edge, queue, lanes and tenants.
    ///
    /// Its calendar says what time it is only together with the first arrival: give its changes to
    /// [`rates`](Self::rates).
    ///
    /// # Errors
    /// Those of [`new`](Self::new); a configuration that was read has none.
    #[cfg(feature = "config")]
    pub fn of(config: &crate::config::Config) -> Result<Self, BuildError> {
        let mut simulation = Self::new(config.builder())?;
        for level in config.levels() {
            let per = if level.per_key { Per::Key } else { Per::All };
            simulation = simulation.level(Arc::clone(&level.name), level.limit, per);
        }
        for (key, priority) in config.lanes() {
            simulation = simulation.lane(key, priority);
        }
        simulation.tenants = config.is_fair();
        Ok(simulation)
    }

    /// Adds a level of the edge. A grant is charged on all levels or on none.
    pub fn level(mut self, name: impl Into<Arc<str>>, limit: Limit, per: Per) -> Self {
        let name = name.into();
        self.levels.push(Level { name, limit, per });
        self
    }

    /// Sets how callers behave. Default: they take the first answer.
    pub fn callers(mut self, callers: Callers) -> Self {
        self.callers = callers;
        self
    }

    /// Sets what does the work. Default: a downstream that takes no time.
    pub fn downstream(mut self, downstream: Downstream) -> Self {
        self.downstream = downstream;
        self
    }

    /// Sets how many jobs are worked on at once. Default: as many as the queue hands out. At least 1.
    pub const fn consumers(mut self, consumers: u64) -> Self {
        self.consumers = if consumers == 0 { 1 } else { consumers };
        self
    }

    /// Changes the rate of the queue at these times of the run, in their order.
    ///
    /// # Errors
    /// If a rate does not go with settings made by hand.
    pub fn rates(
        mut self,
        changes: impl IntoIterator<Item = (Duration, Rate)>,
    ) -> Result<Self, BuildError> {
        for (at, rate) in changes {
            let mut spec = self.spec.clone();
            spec.rate = Some(rate);
            self.changes.push((Tick::ZERO + at, spec.resolve()?));
        }
        Ok(self)
    }

    /// Puts the jobs of a key into the lane of this priority. Default: normal.
    pub fn lane(mut self, key: impl Into<Box<str>>, priority: Priority) -> Self {
        self.lanes.insert(key.into(), priority);
        self
    }

    /// Treats every key as a tenant with a fair share of its lane.
    pub const fn fair(mut self) -> Self {
        self.tenants = true;
        self
    }

    /// Sets the seed of what chance there is in the downstream. Default 0.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Runs until every arrival has ended one way or another.
    ///
    /// # Errors
    /// The first error among the arrivals.
    pub fn run<E>(
        &self,
        arrivals: impl IntoIterator<Item = Result<Arrival, E>>,
    ) -> Result<Report, E> {
        Run::new(self).through(arrivals.into_iter())
    }

    /// Runs arrivals among which there are no errors, as a pattern makes them.
    #[must_use]
    pub fn run_all(&self, arrivals: impl IntoIterator<Item = Arrival>) -> Report {
        let Ok(report) = self.run(arrivals.into_iter().map(Ok::<_, std::convert::Infallible>));
        report
    }
}
