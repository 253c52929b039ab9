//! What can be asked of a queue whatever its items are.

use std::time::Duration;

use tokio::sync::watch;

use super::core::Core;
use super::snapshot::{Ledgers, Snapshot};
use super::tuning::DownstreamVitals;
use crate::error::BuildError;
use crate::machine::Spec;
use crate::policy::aimd::Aimd;
use crate::rate::Rate;
use crate::sync::Arc;
use crate::words::{Health, Pressure};

/// A queue without its item type.
pub(crate) trait Port: Send + Sync {
    /// Changes the settings, all at once or not at all.
    fn change(&self, change: &mut dyn FnMut(&mut Spec)) -> Result<(), BuildError>;
    /// As `change`, reaching the new rate over a time.
    fn ramp(&self, rate: Rate, over: Duration) -> Result<(), BuildError>;
    fn adapt(
        &self,
        follow: Option<Aimd>,
        vitals: Option<Arc<dyn DownstreamVitals>>,
    ) -> Result<(), BuildError>;
    fn pause(&self, why: Arc<str>);
    fn resume(&self);
    fn snapshot(&self) -> Snapshot;
    fn ledgers(&self) -> Ledgers;
    fn pressure(&self) -> Pressure;
    fn watch_pressure(&self) -> watch::Receiver<Pressure>;
    fn rate_changes(&self) -> u64;
    fn health(&self) -> Health;
}

/// Makes the port of a queue.
pub(crate) fn open<T: Send + 'static>(core: Arc<Core<T>>) -> Arc<dyn Port> {
    Arc::new(OpenPort(core))
}

struct OpenPort<T>(Arc<Core<T>>);

impl<T: Send + 'static> Port for OpenPort<T> {
    fn change(&self, change: &mut dyn FnMut(&mut Spec)) -> Result<(), BuildError> {
        self.0.step(|state, now, after| {
            let mut spec = state.spec.clone();
            change(&mut spec);
            let settings = spec.resolve()?;
            state.spec = spec;
            state.machine.apply(now, settings, &mut after.fx);
            Ok(())
        })
    }

    fn ramp(&self, rate: Rate, over: Duration) -> Result<(), BuildError> {
        self.0.step(|state, now, after| {
            let mut spec = state.spec.clone();
            spec.rate = Some(rate);
            let settings = spec.resolve()?;
            state.spec = spec;
            state.machine.ramp(now, settings, over, &mut after.fx);
            Ok(())
        })
    }

    fn adapt(
        &self,
        follow: Option<Aimd>,
        vitals: Option<Arc<dyn DownstreamVitals>>,
    ) -> Result<(), BuildError> {
        self.0
            .step(|state, now, after| state.machine.adapt(now, follow, &mut after.fx))?;
        let interval = follow.map_or(Duration::ZERO, |follow| follow.interval);
        self.0.set_vitals(vitals.map(|vitals| (vitals, interval)));
        Ok(())
    }

    fn pause(&self, why: Arc<str>) {
        self.0
            .step(|state, now, after| state.machine.pause(now, why, &mut after.fx));
    }

    fn resume(&self) {
        self.0
            .step(|state, now, after| state.machine.resume(now, &mut after.fx));
    }

    fn snapshot(&self) -> Snapshot {
        self.0.snapshot()
    }

    fn ledgers(&self) -> Ledgers {
        self.0.look(|state, _| Ledgers::of(&state.machine))
    }

    fn pressure(&self) -> Pressure {
        self.0.pressure()
    }

    fn watch_pressure(&self) -> watch::Receiver<Pressure> {
        self.0.watch_pressure()
    }

    fn rate_changes(&self) -> u64 {
        self.0.look(|state, _| state.machine.rate_changes())
    }

    fn health(&self) -> Health {
        self.0.look(|state, now| state.machine.health(now))
    }
}
