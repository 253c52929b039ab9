//! A limiter with an eye on it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::clock::{Clock, TokioClock};
use crate::limiter::{Admission, Charge, Immediate, LevelStatus, Ruling};
use crate::sync::Arc;
use crate::telemetry::meter::{Decided, KeysNow, LevelNow, Meter, UNMATCHED, Verdict};

/// A limiter or a hierarchy whose decisions are counted: an [`Admission`] around another one.
///
/// It decides as what it is put around does, and can stand wherever that can: alone, at a [`Gate`](crate::Gate), in a
/// layer. What it counts is published with the metrics of the [`catalogue`](super::catalogue) and told by
/// [`snapshot()`](super::snapshot()), under its name; clones count together. A request pays for one lock, which few threads share.
///
/// Of a request that is refused, the key of each of its levels is noted: who was refused most in the last minute, when
/// last, and at least how often, in memory that does not grow with the number of keys.
///
/// # Examples
/// ```
/// use sluicegate::observe::{self, Watched};
/// use sluicegate::{Hierarchy, Rate};
///
/// struct Request { user: u64, route: &'static str }
///
/// let limits = Hierarchy::<Request>::builder()
///     .level("everybody", Rate::per_second(1000).burst(1000), |_| ())
///     .level("user", Rate::per_second(1).burst(2), |request| request.user)
///     .build()?;
/// let edge = Watched::new("edge", limits).by_endpoint(|request: &Request| Some(request.route));
/// for _ in 0..5 {
///     let _ = edge.check(&Request { user: 7, route: "GET /search" }, 1);
/// }
///
/// let snapshot = observe::snapshot();
/// let seen = snapshot.limiters.iter().find(|limiter| limiter.name == "edge").expect("it lives");
/// assert_eq!((seen.verdicts.allowed, seen.verdicts.rejected), (2, 3));
/// let users = &seen.top_refused[0];
/// assert_eq!((users.level.as_str(), users.keys[0].guaranteed), ("user", 3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Watched<A: Admission> {
    inner: A,
    meter: Arc<Meter>,
    endpoint: Option<EndpointOf<A::Context>>,
}

/// Names the endpoint of a request.
type EndpointOf<C> = Arc<dyn for<'a> Fn(&'a C) -> Option<&'a str> + Send + Sync>;

impl<A: Admission + Sync> Watched<A> {
    /// Watches a limiter under a name, which may be any that no living one has: a second is `name#2`.
    pub fn new(name: &str, inner: A) -> Self {
        Self::with_clock(name, inner, TokioClock)
    }

    /// The same with a clock of its own, by which refusals are dated and samples taken; best the limiter's.
    pub fn with_clock(name: &str, inner: A, clock: impl Clock) -> Self {
        let asked = inner.clone();
        let status = move || asked.status().into_iter().map(level_now).collect();
        Self {
            meter: Meter::new(name, Box::new(clock), Box::new(status)),
            inner,
            endpoint: None,
        }
    }

    /// Counts requests by endpoint: a route with its method, never a path as it came.
    ///
    /// `None` counts as `unmatched`. The first 256 names are told apart, what comes after as `other`.
    #[must_use]
    pub fn by_endpoint(
        mut self,
        endpoint: impl for<'a> Fn(&'a A::Context) -> Option<&'a str> + Send + Sync + 'static,
    ) -> Self {
        self.endpoint = Some(Arc::new(endpoint));
        self
    }

    /// Names endpoints in advance, so that they are published before their first request.
    #[must_use]
    pub fn endpoints<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        for name in names {
            let _ = self.meter.endpoint(name);
        }
        self
    }
}

impl<A: Admission> Watched<A> {
    /// The limiter itself, unwatched.
    #[must_use]
    pub fn inner(&self) -> &A {
        &self.inner
    }

    /// The name that it is published under.
    #[must_use]
    pub fn label(&self) -> &str {
        self.meter.label()
    }

    /// Charges `cost` to every level, wherever its state lives, or to none if one refuses.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it gives back what it may have charged, and counts as never asked.
    pub async fn decide(&self, context: &A::Context, cost: u64) -> Ruling {
        let charge = self.charge(context, cost);
        self.admit(charge).await
    }

    /// Gives a granted charge back to every level. Never waits.
    pub fn refund(&self, charge: Charge) {
        self.give_back(charge);
    }
}

impl<A: Immediate> Watched<A> {
    /// Charges `cost` to every level, or to none if one refuses.
    pub fn check(&self, context: &A::Context, cost: u64) -> Ruling {
        self.rule(self.charge(context, cost))
    }
}

impl<A: Admission> Admission for Watched<A>
where
    A::Context: 'static,
{
    type Context = A::Context;
    type Deciding = WatchedDeciding<A::Deciding>;

    fn charge(&self, context: &A::Context, cost: u64) -> Charge {
        let charge = self.inner.charge(context, cost);
        let endpoint = self.endpoint.as_ref();
        let name = endpoint.and_then(|endpoint| endpoint(context));
        charge.marked(name.map_or(UNMATCHED, |name| self.meter.endpoint(name)))
    }

    fn admit(&self, charge: Charge) -> Self::Deciding {
        WatchedDeciding {
            endpoint: charge.mark(),
            inner: self.inner.admit(charge),
            meter: Arc::clone(&self.meter),
        }
    }

    fn admit_now(&self, charge: Charge) -> Result<Ruling, Charge> {
        let endpoint = charge.mark();
        let ruling = self.inner.admit_now(charge)?;
        count(&self.meter, endpoint, &ruling);
        Ok(ruling)
    }

    fn give_back(&self, charge: Charge) {
        if charge.at().is_some() {
            let names = charge.levels().map(|(name, ..)| name);
            self.meter.refund(names, charge.cost());
        }
        self.inner.give_back(charge);
    }

    fn status(&self) -> Vec<LevelStatus> {
        self.inner.status()
    }
}

impl<A: Immediate> Immediate for Watched<A>
where
    A::Context: 'static,
{
    fn rule(&self, charge: Charge) -> Ruling {
        let endpoint = charge.mark();
        let ruling = self.inner.rule(charge);
        count(&self.meter, endpoint, &ruling);
        ruling
    }
}

impl<A: Admission> Clone for Watched<A> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            meter: Arc::clone(&self.meter),
            endpoint: self.endpoint.clone(),
        }
    }
}

impl<A: Admission + fmt::Debug> fmt::Debug for Watched<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched")
            .field("label", &self.label())
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// A decision under way that is counted once it is made.
    #[must_use = "nothing is decided until it is polled"]
    pub struct WatchedDeciding<F> {
        #[pin]
        inner: F,
        meter: Arc<Meter>,
        endpoint: u32,
    }
}

impl<F: Future<Output = Ruling>> Future for WatchedDeciding<F> {
    type Output = Ruling;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ruling> {
        let this = self.project();
        let ruling = ready!(this.inner.poll(cx));
        count(this.meter, *this.endpoint, &ruling);
        Poll::Ready(ruling)
    }
}

impl<F> fmt::Debug for WatchedDeciding<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedDeciding").finish_non_exhaustive()
    }
}

fn count(meter: &Meter, endpoint: u32, ruling: &Ruling) {
    let granted = ruling.is_granted();
    let verdict = match (ruling.is_degraded(), granted) {
        (true, true) => Verdict::ErrorAllowed,
        (true, false) => Verdict::ErrorRejected,
        (false, false) => Verdict::Rejected,
        (false, true) if ruling.decisions().len() == 0 => Verdict::Exempt,
        (false, true) => Verdict::Allowed,
    };
    let charge = ruling.charged();
    // Decisions are in the order of the charge's levels, and a store that leaves one out leaves out its key.
    let all = charge.levels().len() == ruling.decisions().len();
    let levels = || {
        let keys = charge.levels().map(move |(_, _, key)| all.then_some(key));
        let keys = keys.chain(std::iter::repeat(None));
        let levels = ruling.decisions().zip(keys);
        levels.map(|((name, decision), key)| (name, decision, key))
    };
    meter.record(Decided {
        verdict,
        endpoint,
        cost: charge.cost(),
        levels,
        binding: ruling.binding_position(),
    });
}

fn level_now(level: LevelStatus) -> LevelNow {
    LevelNow {
        name: level.name,
        limit: level.limit,
        keys: level.keys.map(|keys| KeysNow {
            held: keys.held,
            max: keys.max,
            forgotten: keys.forgotten,
            turned_away: keys.turned_away,
        }),
    }
}
