//! What shared limits do beside deciding: giving back, looking, forgetting, counting.

use std::time::Duration;

use tokio::runtime::Handle;

use super::asking::{Shared, Stamps};
use super::counts::Counts;
use super::error::Error;
use super::fallback::Receipt;
use super::link::cmd;
use super::plan::Group;
use super::rule::Rule;
use crate::error::BuildError;
use crate::limiter::{Charge, Ruling};
use crate::policy::Limit;
use crate::sync::Arc;
use crate::tick::Tick;

impl Shared {
    pub(super) async fn peek(&self, charge: &Charge) -> Result<Ruling, Error> {
        self.remember_runtime();
        let plan = self.plan(charge)?;
        self.look(charge, &plan).await
    }

    pub(super) async fn reset(&self, charge: &Charge) -> Result<(), Error> {
        self.remember_runtime();
        for group in &self.plan(charge)?.groups {
            let mut command = cmd("DEL");
            for key in group.keys() {
                command.arg(key);
            }
            self.forget_refusals(group);
            let reply = self.link.run(&command, self.deadline).await;
            self.forget_refusals(group);
            self.record(reply.as_ref().err());
            reply?;
        }
        Ok(())
    }

    /// Gives a charge back, from a task.
    pub(super) fn refund(self: &Arc<Self>, charge: &Charge) {
        let Some(at) = charge.at().filter(|_| charge.cost() > 0) else {
            return;
        };
        if let Some(receipt) = charge.receipt::<Receipt>() {
            self.counters.refunds.count();
            self.fallback.refund(receipt);
            return;
        }
        let Ok(plan) = self.plan(charge) else { return };
        let stamps = charge.receipt::<Stamps>();
        for (index, group) in plan.groups.iter().enumerate() {
            let own = stamps.and_then(|stamps| stamps.0.get(index));
            self.give_back(group, own.copied().unwrap_or(at));
        }
    }

    /// Gives back what a group was charged at `at`, from a task.
    pub(super) fn give_back(self: &Arc<Self>, group: &Arc<Group>, at: Tick) {
        self.counters.refunds.count();
        self.forget_refusals(group);
        let Some(runtime) = self.runtime().filter(|_| self.breaker.left().is_none()) else {
            // Nothing answers: the charge wears off by itself.
            self.counters.refunds_lost.count();
            return;
        };
        let (shared, group) = (Arc::clone(self), Arc::clone(group));
        runtime.spawn(async move {
            let (script, command) = group.refund(&shared.scripts, at, shared.now());
            let reply = script.run(&shared.link, &command, REFUND).await;
            // A refusal that was decided before the refund may have been remembered since.
            shared.forget_refusals(&group);
            shared.record(reply.as_ref().err());
            if reply.is_err() {
                shared.counters.refunds_lost.count();
            }
        });
    }

    fn forget_refusals(&self, group: &Group) {
        if let Some(denials) = &self.denials {
            denials.refunded(group.keys());
        }
    }

    pub(super) fn accepts(&self, levels: &[(Arc<str>, Limit)]) -> Result<(), BuildError> {
        if levels.len() > LEVELS {
            let rule = format!("a shared decision has at most {LEVELS} levels");
            return Err(BuildError::setting("level", levels.len(), rule));
        }
        for (_, limit) in levels {
            Rule::new(limit)?;
        }
        let policies = self
            .unknown_at
            .iter()
            .map(|(name, _)| ("when_unknown_at", name));
        for (setting, name) in policies.chain(self.layout.named()) {
            if !levels.iter().any(|(level, _)| level == name) {
                let rule = "the hierarchy has a level of this name";
                return Err(BuildError::setting(setting, format!("{name:?}"), rule));
            }
        }
        Ok(())
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            script_loads: self.scripts.loads(),
            connects: self.link.connected(),
            sent: self.link.sent(),
            ..self.counters.read()
        }
    }

    pub(super) fn last_error(&self) -> Option<Error> {
        self.last_error.lock().clone()
    }

    pub(super) fn runtime(&self) -> Option<Handle> {
        match Handle::try_current() {
            Ok(runtime) => Some(runtime),
            Err(_) => self.runtime.get().cloned(),
        }
    }

    /// Refunds and drops may come from outside of it.
    pub(super) fn remember_runtime(&self) {
        if self.runtime.get().is_none()
            && let Ok(runtime) = Handle::try_current()
        {
            // Somebody else's will do as well.
            let _ = self.runtime.set(runtime);
        }
    }
}

/// Levels of one script: each takes up to eleven of the 200 names that it may have.
const LEVELS: usize = 16;
/// How long a refund waits for the server; nobody waits for it.
const REFUND: Duration = Duration::from_secs(1);
