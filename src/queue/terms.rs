//! What an offer asks for: one value for senders, permits, sinks and turnstiles.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::key::Key;
use crate::machine::{Ask, Spec};
use crate::tick::Tick;
use crate::words::Priority;

/// Terms on which a job is offered.
///
/// # Examples
/// ```
/// use sluicegate::queue::{Priority, Terms};
/// use std::time::Duration;
///
/// let terms = Terms::new().cost(3).priority(Priority::High).expires_in(Duration::from_secs(2));
/// # let _ = terms;
/// ```
#[derive(Clone, Debug)]
#[must_use = "terms do nothing until an offer is made on them"]
pub struct Terms {
    cost: u64,
    priority: Priority,
    expires_in: Option<Duration>,
    expires_at: Option<Instant>,
    run_estimate: Option<Duration>,
    tenant: Option<Key>,
    token: Option<CancellationToken>,
}

impl Terms {
    /// Makes the terms of an offer that says nothing: cost 1, priority normal, no expiry of its own.
    pub const fn new() -> Self {
        Self {
            cost: 1,
            priority: Priority::Normal,
            expires_in: None,
            expires_at: None,
            run_estimate: None,
            tenant: None,
            token: None,
        }
    }

    /// Weight of the job, in the units of depth and rate. Default 1; 0 is charged as 1.
    ///
    /// A dearer job takes more room and delays what comes after it for longer. Above the bound of the queue it is
    /// refused as [`TooCostly`](super::Reason::TooCostly).
    pub const fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// How urgent the job is. Default [`Priority::Normal`].
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Whose job it is: tenants share the queue fairly and are counted apart. Default: nobody's.
    pub fn tenant(mut self, key: impl Into<Key>) -> Self {
        self.tenant = Some(key.into());
        self
    }

    /// Longest time from the offer to the first start. Default: that of the queue.
    ///
    /// A shorter one is refused or expires sooner, which keeps stale work from the consumers. A retry is not bound by
    /// it. Where an instant and a span are both given, the earlier one counts.
    pub const fn expires_in(mut self, after: Duration) -> Self {
        self.expires_in = Some(after);
        self
    }

    /// Instant by which every start of the job must be made, retries included. Default: never.
    ///
    /// It is read on the tokio clock and converted to the queue's clock when the offer is made.
    pub const fn expires_at(mut self, at: Instant) -> Self {
        self.expires_at = Some(at);
        self
    }

    /// Time that the job takes once started: it is not started if it could not end before it expires, whether by the
    /// queue's expiry or its own, and is refused at once where it never could. Default zero.
    pub const fn run_estimate(mut self, takes: Duration) -> Self {
        self.run_estimate = Some(takes);
        self
    }

    /// Token whose firing takes the offer out of the line, or the job out of the queue. Default: none.
    ///
    /// It is checked once more at the departure: a job whose token has fired never starts. One in flight goes on.
    pub fn cancelled_by(mut self, token: CancellationToken) -> Self {
        self.token = Some(token);
        self
    }

    /// Cost that is charged.
    pub(crate) fn charged(&self) -> u64 {
        self.cost.max(1)
    }

    /// What the machine is asked, made at `now` on the queue's clock.
    pub(crate) fn ask(&self, now: Tick, spec: &Spec) -> Ask {
        Ask {
            cost: self.charged(),
            priority: self.priority,
            tenant: self
                .tenant
                .as_ref()
                .map(|key| (key.clone(), spec.weight(key))),
            expires_at: self.expires_at.map(|at| on_clock(at, now)),
            expires_in: self.expires_in,
            run_estimate: self.run_estimate,
        }
    }

    /// Whether the machine keeps all there is to keep of a job on these terms, its tenant aside.
    pub(crate) const fn is_plain(&self) -> bool {
        self.run_estimate.is_none() && self.token.is_none()
    }

    pub(crate) const fn has_tenant(&self) -> bool {
        self.tenant.is_some()
    }

    /// Whether a job on these terms has something to keep beside what the machine keeps of every job.
    pub(crate) const fn is_kept(&self) -> bool {
        !self.is_plain() || self.tenant.is_some()
    }

    /// The terms on which a job goes on that was offered on these: of its first start nothing is asked any more.
    pub(crate) fn onwards(mut self) -> Self {
        self.expires_in = None;
        self
    }

    pub(crate) const fn token(&self) -> Option<&CancellationToken> {
        self.token.as_ref()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.token
            .as_ref()
            .is_some_and(CancellationToken::is_cancelled)
    }
}

/// What an offer goes by: terms, or none. Nearly all offers have none, and carry nothing about for it.
pub(crate) trait Asks {
    /// See [`Terms::ask`].
    fn ask(&self, now: Tick, spec: &Spec) -> Ask;

    /// See [`Terms::token`].
    fn token(&self) -> Option<&CancellationToken>;

    /// See [`Terms::is_cancelled`].
    fn is_cancelled(&self) -> bool;

    /// The terms, if there are any.
    fn terms(&self) -> Option<&Terms>;
}

impl Asks for Terms {
    fn ask(&self, now: Tick, spec: &Spec) -> Ask {
        Self::ask(self, now, spec)
    }

    fn token(&self) -> Option<&CancellationToken> {
        Self::token(self)
    }

    fn is_cancelled(&self) -> bool {
        Self::is_cancelled(self)
    }

    fn terms(&self) -> Option<&Terms> {
        Some(self)
    }
}

/// No terms: what [`Terms::new`] says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain;

impl Asks for Plain {
    #[inline]
    fn ask(&self, _: Tick, _: &Spec) -> Ask {
        Ask::default()
    }

    #[inline]
    fn token(&self) -> Option<&CancellationToken> {
        None
    }

    #[inline]
    fn is_cancelled(&self) -> bool {
        false
    }

    #[inline]
    fn terms(&self) -> Option<&Terms> {
        None
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self::new()
    }
}

/// What the tokio clock will read at `at`, if both clocks run alike from `now` on; `None` = never.
pub(crate) fn on_tokio(at: Tick, now: Tick) -> Option<Instant> {
    let here = Instant::now();
    if at == Tick::MAX {
        None
    } else if at >= now {
        here.checked_add(at - now)
    } else {
        here.checked_sub(now - at)
    }
}

/// The tick at which the tokio clock will read `at`, if both clocks run alike from here on.
fn on_clock(at: Instant, now: Tick) -> Tick {
    let here = Instant::now();
    match at.checked_duration_since(here) {
        Some(ahead) => now + ahead,
        None => now.before(here - at),
    }
}

/// The setters of [`Terms`] for a builder that holds them in a field `terms`.
macro_rules! terms_setters {
    () => {
        /// Puts other terms in place of all that was set so far.
        pub fn terms(mut self, terms: $crate::queue::Terms) -> Self {
            self.terms = terms;
            self
        }

        /// See [`Terms::cost`](crate::queue::Terms::cost).
        pub fn cost(mut self, cost: u64) -> Self {
            self.terms = self.terms.cost(cost);
            self
        }

        /// See [`Terms::priority`](crate::queue::Terms::priority).
        pub fn priority(mut self, priority: $crate::queue::Priority) -> Self {
            self.terms = self.terms.priority(priority);
            self
        }

        /// See [`Terms::tenant`](crate::queue::Terms::tenant).
        pub fn tenant(mut self, key: impl Into<$crate::key::Key>) -> Self {
            self.terms = self.terms.tenant(key);
            self
        }

        /// See [`Terms::expires_in`](crate::queue::Terms::expires_in).
        pub fn expires_in(mut self, after: std::time::Duration) -> Self {
            self.terms = self.terms.expires_in(after);
            self
        }

        /// See [`Terms::expires_at`](crate::queue::Terms::expires_at).
        pub fn expires_at(mut self, at: tokio::time::Instant) -> Self {
            self.terms = self.terms.expires_at(at);
            self
        }

        /// See [`Terms::run_estimate`](crate::queue::Terms::run_estimate).
        pub fn run_estimate(mut self, takes: std::time::Duration) -> Self {
            self.terms = self.terms.run_estimate(takes);
            self
        }

        /// See [`Terms::cancelled_by`](crate::queue::Terms::cancelled_by).
        pub fn cancelled_by(mut self, token: tokio_util::sync::CancellationToken) -> Self {
            self.terms = self.terms.cancelled_by(token);
            self
        }
    };
}
pub(crate) use terms_setters;
