//! Limits whose state lives on a server.

use std::fmt;

use futures_util::FutureExt as _;
use tokio::runtime::Handle;

use super::asking::Shared;
use super::builder::LimitsBuilder;
use super::counts::Counts;
use super::deciding::{Careful, Deciding};
use super::endpoint::Endpoint;
use super::error::Error;
use super::plan::Layout;
use super::warning::{self, Warning};
use crate::error::BuildError;
use crate::limiter::{Charge, Ruling, Store};
use crate::policy::Limit;
use crate::sync::Arc;

/// Limits that all processes share which use the same server and prefix; a handle.
///
/// Goes under a [`Hierarchy`](crate::Hierarchy) with [`build_on`](crate::HierarchyBuilder::build_on), of any of the five
/// limits. A decision is made by one script on the server: by its clock, all levels charged or none, and nothing written by a
/// refusal (but for an instant that cannot be, after the clock was set back or a burst was lowered, which is put
/// right).
///
/// A decision has three outcomes: granted, refused, or unknown when no answer came by its deadline. What is unknown is
/// decided by [`WhenUnknown`](super::WhenUnknown), level by level, and the [`Ruling`] says so:
/// [`is_degraded`](Ruling::is_degraded). A decision of unknown outcome is never repeated; the server may have charged it,
/// once.
///
/// Use a server, or at least a database, whose `maxmemory-policy` is `noeviction`: any other forgets limits when memory
/// runs out. [`connect`](Self::connect) looks.
///
/// # Examples
/// ```no_run
/// use sluicegate::redis::{Endpoint, Limits, WhenUnknown};
/// use sluicegate::{Hierarchy, Rate};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let limits = Limits::builder(Endpoint::new("redis://127.0.0.1/")?)
///     .when_unknown(WhenUnknown::Share { nodes: 8 })
///     .build()?;
/// let hierarchy = Hierarchy::<&'static str>::builder()
///     .level("everybody", Rate::per_second(1000).burst(10_000), |_| ())
///     .level("user", Rate::per_second(50).burst(500), |user| *user)
///     .build_on(limits)?;
/// let ruling = hierarchy.decide(&"ada", 1).await;
/// if ruling.is_granted() {
///     // .. and give back what turned out not to be needed:
///     hierarchy.refund(ruling.charge());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limits {
    pub(super) shared: Arc<Shared>,
}

impl Limits {
    /// Starts a builder for limits on this server.
    pub fn builder(endpoint: Endpoint) -> LimitsBuilder {
        LimitsBuilder::new(endpoint)
    }

    pub(super) fn built(settings: LimitsBuilder, layout: Layout) -> Self {
        Self {
            shared: Arc::new(Shared::new(settings, layout)),
        }
    }

    /// Connects, and looks at what would make limits forget or fail. Without it the first decision connects.
    ///
    /// Waits for the endpoint's connect timeout at most, and as long again for the server's answers.
    ///
    /// # Errors
    /// If there is no connection, or its user may not even ask how the server is set up: `CONFIG` being refused is
    /// tolerated, `INFO` is not.
    pub async fn connect(&self) -> Result<Vec<Warning>, Error> {
        let patience = self.shared.connect_timeout;
        self.shared.link.connect(patience).await?;
        let warnings = warning::look(&self.shared.link, patience).await?;
        #[cfg(feature = "tracing")]
        for warning in &warnings {
            tracing::warn!(%warning, "redis limits");
        }
        Ok(warnings)
    }

    /// Decides about many charges in one go: each by itself, in their order, up to 64 of the same kinds of limits in one
    /// call.
    ///
    /// # Cancel safety
    /// As of a single decision: dropped early, it goes on in a task, and gives back what it was granted.
    pub async fn decide_many(&self, charges: impl IntoIterator<Item = Charge>) -> Vec<Ruling> {
        let charges: Vec<_> = charges.into_iter().collect();
        let shared = Arc::clone(&self.shared);
        let future = async move { shared.decide_many(charges).await };
        Careful::new(self.clone(), future.boxed()).await
    }

    /// Says what a decision would be, and writes nothing. With cost 0 it tells what is left.
    ///
    /// # Errors
    /// If the server does not answer within the deadline, or cannot keep one of the limits.
    ///
    /// # Cancel safety
    /// Nothing is ever charged.
    pub async fn peek(&self, charge: Charge) -> Result<Ruling, Error> {
        self.shared.peek(&charge).await
    }

    /// Forgets what the keys of a charge have used, at every level.
    ///
    /// # Errors
    /// If the server does not answer within the deadline, or cannot keep one of the limits.
    ///
    /// # Cancel safety
    /// Dropped early, it may be done or not.
    pub async fn reset(&self, charge: &Charge) -> Result<(), Error> {
        self.shared.reset(charge).await
    }

    /// What has happened so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// The last error because of which the server could not decide, with the errors that caused it as its source.
    #[must_use]
    pub fn last_error(&self) -> Option<Error> {
        self.shared.last_error()
    }

    /// The caller's runtime, or the one that was last seen.
    pub(super) fn runtime(&self) -> Option<Handle> {
        self.shared.runtime()
    }
}

impl Store for Limits {
    type Deciding = Deciding;

    fn decide(&self, charge: Charge) -> Deciding {
        let shared = Arc::clone(&self.shared);
        let future = async move { shared.decide(charge).await };
        Deciding::new(self.clone(), future.boxed())
    }

    fn refund(&self, charge: Charge) {
        self.shared.refund(&charge);
    }

    fn accepts(&self, levels: &[(Arc<str>, Limit)]) -> Result<(), BuildError> {
        self.shared.accepts(levels)
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits")
            .field("link", &self.shared.link)
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}
