//! The three layers, and how they are set up.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use http::StatusCode;
use tower_layer::Layer;

use super::caller::Unidentified;
use super::counts::EdgeCounts;
use super::dialect::{HeaderDialect, ResetSemantics};
use super::head::Head;
use super::problem::RefusalBody;
use super::service::EdgeService;
use super::settings::{AdmissionMode, Edge, Nobody, Queue, Shared, Telling};
use crate::clock::{Clock, TokioClock};
use crate::error::BuildError;
use crate::limiter::{Admission, RateLimiter};
use crate::policy::Limit;
use crate::queue::{Terms, Turnstile};
use crate::rate::Rate;
use crate::sync::Arc;
use crate::sync::process::AtomicU64;

macro_rules! layer {
    ($(#[$docs:meta])* $name:ident $(<$edge:ident>)?, $admission:ty) => {
        $(#[$docs])*
        pub struct $name$(<$edge: Admission>)? {
            shared: Arc<Shared<$admission>>,
        }

        impl$(<$edge: Admission>)? $name$(<$edge>)? {
            /// What its services have done so far, all together.
            #[must_use]
            pub fn counts(&self) -> EdgeCounts {
                self.shared.telling.counters.read()
            }
        }

        impl<S $(, $edge: Admission)?> Layer<S> for $name$(<$edge>)? {
            type Service = EdgeService<S, $admission>;

            fn layer(&self, inner: S) -> Self::Service {
                EdgeService::new(inner, Arc::clone(&self.shared))
            }
        }

        impl$(<$edge: Admission>)? Clone for $name$(<$edge>)? {
            fn clone(&self) -> Self {
                let shared = Arc::clone(&self.shared);
                Self { shared }
            }
        }

        impl$(<$edge: Admission>)? fmt::Debug for $name$(<$edge>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("counts", &self.counts())
                    .finish_non_exhaustive()
            }
        }

        impl$(<$edge: Admission>)? LayerBuilder<$admission, $name$(<$edge>)?> {
            /// Makes the layer.
            ///
            /// # Errors
            /// If two dialects write the same fields, a status is no refusal, or a bound is zero.
            pub fn build(self) -> Result<$name$(<$edge>)?, BuildError> {
                let shared = Arc::new(self.checked()?);
                Ok($name { shared })
            }
        }
    };
}

layer! {
    /// Layer that asks limits who may pass.
    ///
    /// # Examples
    /// Ten a second for each address, and what that costs told to clients.
    /// ```
    /// use sluicegate::http::{AdmissionLayer, Callers};
    /// use sluicegate::{Key, KeyedLimiter, Rate};
    ///
    /// let limiter = KeyedLimiter::<Key>::builder(Rate::per_second(10).burst(20)).build()?;
    /// let layer = AdmissionLayer::builder(limiter, Callers::by_peer().addresses()).build()?;
    /// # let _ = layer;
    /// # Ok::<(), sluicegate::BuildError>(())
    /// ```
    AdmissionLayer<A>, A
}

layer! {
    /// Layer in which requests wait for their turn: shaped to a rate, so many in flight, and refused at the door when their
    /// turn would come too late.
    ///
    /// A client that leaves gives up its place.
    ///
    /// # Examples
    /// ```
    /// use sluicegate::Rate;
    /// use sluicegate::http::QueueLayer;
    /// use sluicegate::queue::Builder;
    /// use std::time::Duration;
    ///
    /// let database = Builder::shedding(Rate::per_second(200), Duration::from_secs(2))
    ///     .max_in_flight(8)
    ///     .turnstile()?;
    /// let layer = QueueLayer::builder(database).build()?;
    /// # let _ = layer;
    /// # Ok::<(), sluicegate::BuildError>(())
    /// ```
    QueueLayer, Nobody
}

layer! {
    /// Limits and a queue as one door, by the rules of a [`Gate`](crate::Gate).
    ///
    /// What the queue would refuse is charged to nobody; what it refuses later, or is given up in it, is given back; and
    /// while the queue is under pressure, buckets keep half of their burst.
    GateLayer<A>, A
}

/// Builder of a layer `L` over limits `A`.
#[must_use]
pub struct LayerBuilder<A: Admission, L> {
    shared: Shared<A>,
    built: PhantomData<fn() -> L>,
}

impl<A: Admission> AdmissionLayer<A> {
    /// Starts a builder: `identify` tells whom the limits count, see [`Callers`](super::Callers).
    pub fn builder(
        admission: A,
        identify: impl Fn(&Head<'_>) -> Result<A::Context, Unidentified> + Send + Sync + 'static,
    ) -> LayerBuilder<A, Self> {
        LayerBuilder::new(Some(edge(admission, identify)), None)
    }
}

impl QueueLayer {
    /// Starts a builder.
    pub fn builder(turnstile: Turnstile) -> LayerBuilder<Nobody, Self> {
        LayerBuilder::new(None, Some(queue(turnstile)))
    }
}

impl<A: Admission> GateLayer<A> {
    /// Starts a builder: `identify` tells whom the limits count, see [`Callers`](super::Callers).
    pub fn builder(
        admission: A,
        identify: impl Fn(&Head<'_>) -> Result<A::Context, Unidentified> + Send + Sync + 'static,
        turnstile: Turnstile,
    ) -> LayerBuilder<A, Self> {
        LayerBuilder::new(Some(edge(admission, identify)), Some(queue(turnstile)))
    }
}

/// A layer that has limits.
pub trait Limited: sealed::Sealed {}
impl<A: Admission> Limited for AdmissionLayer<A> {}
impl<A: Admission> Limited for GateLayer<A> {}

/// A layer that has a queue.
pub trait Queued: sealed::Sealed {}
impl Queued for QueueLayer {}
impl<A: Admission> Queued for GateLayer<A> {}

mod sealed {
    pub trait Sealed {}
    impl<A: super::Admission> Sealed for super::AdmissionLayer<A> {}
    impl Sealed for super::QueueLayer {}
    impl<A: super::Admission> Sealed for super::GateLayer<A> {}
}

/// What layers with limits are told.
impl<A: Admission, L: Limited> LayerBuilder<A, L> {
    /// Units that a request costs. Default 1; 0 is let through uncounted.
    pub fn cost(mut self, cost: impl Fn(&Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.edge().cost = Some(Box::new(cost));
        self
    }

    /// What becomes of those whom a limit refuses. Default [`AdmissionMode::Refuse`].
    pub fn mode(mut self, mode: AdmissionMode) -> Self {
        self.edge().mode = mode;
        self
    }

    /// Gives handlers no [`Admitted`](super::Admitted), which saves the record of what was charged. Default: they get it.
    pub fn without_hold(mut self) -> Self {
        self.edge().held = false;
        self
    }

    /// Requests that may wait at once in [`AdmissionMode::Wait`]; more are refused. Default 1,024.
    pub fn max_waiting(mut self, most: u64) -> Self {
        self.edge().most_waiting = most;
        self
    }

    /// Limit that all those share of whom it is not known who they are. Default 1 a second, 5 at once.
    ///
    /// If it is reached in earnest, the server does not hand over the address of its peers.
    pub fn unidentified(mut self, limit: impl Into<Limit>) -> Self {
        self.edge().strangers = RateLimiter::new(limit);
        self
    }

    /// Clock that waits go by, in [`AdmissionMode::Wait`]; the limits' own. Default [`TokioClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.edge().clock = Box::new(clock);
        self
    }

    /// Levels of a hierarchy that are about what the service can take. Default: the one called "global".
    ///
    /// Their refusals are 503, not 429, and clients are not told of their numbers.
    pub fn shared_levels<N: Into<std::sync::Arc<str>>>(
        mut self,
        names: impl IntoIterator<Item = N>,
    ) -> Self {
        self.shared.telling.shared_levels = names.into_iter().map(Into::into).collect();
        self
    }

    /// Dialects in which clients are told how limits stand. Default [`HeaderDialect::ListDraft`] alone.
    pub fn headers(mut self, dialects: impl IntoIterator<Item = HeaderDialect>) -> Self {
        self.shared.telling.speech.dialects = dialects.into_iter().collect();
        self
    }

    /// What a reset means while quota is left. Default [`ResetSemantics::Full`].
    pub fn reset_semantics(mut self, reset: ResetSemantics) -> Self {
        self.shared.telling.speech.reset = reset;
        self
    }

    /// Tells how limits stand on redirects too. Default: not, as little quota keeps some clients from following.
    pub fn headers_on_redirects(mut self) -> Self {
        self.shared.telling.speech.on_redirects = true;
        self
    }

    /// Tells everybody the exact wait. Default: up to a tenth of it is added, at most 30 s, so that those who were
    /// refused together do not come back together; nothing to waits under 10 s, and the same for one key every time.
    pub fn exact_retry_after(mut self) -> Self {
        self.shared.telling.spread = None;
        self
    }

    fn edge(&mut self) -> &mut Edge<A> {
        self.shared.edge.as_mut().expect("such a layer has limits")
    }
}

/// What layers with a queue are told.
impl<A: Admission, L: Queued> LayerBuilder<A, L> {
    /// Terms on which a request enters the queue: priority, tenant, a shorter deadline. The cost and the request's own
    /// deadline, a [`Deadline`](super::Deadline) or a `grpc-timeout`, are in those that are handed in.
    pub fn terms(
        mut self,
        terms: impl Fn(&Head<'_>, Terms) -> Terms + Send + Sync + 'static,
    ) -> Self {
        self.queue().terms = Some(Box::new(terms));
        self
    }

    /// Counts a request as in flight until its body has been sent. Default: until the response has begun.
    pub fn until_body_ends(mut self) -> Self {
        self.queue().until_body_ends = true;
        self
    }

    fn queue(&mut self) -> &mut Queue {
        self.shared
            .queue
            .as_mut()
            .expect("such a layer has a queue")
    }
}

/// What all layers are told.
impl<A: Admission, L> LayerBuilder<A, L> {
    fn new(edge: Option<Edge<A>>, queue: Option<Queue>) -> Self {
        Self {
            shared: Shared {
                edge,
                queue,
                exempt: Vec::new(),
                telling: Telling::default(),
            },
            built: PhantomData,
        }
    }

    /// Requests that are not limited: health checks, say. CORS preflights never are. May be given several times.
    pub fn exempt(mut self, rule: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.shared.exempt.push(Box::new(rule));
        self
    }

    /// Form of a refusal's body. Default [`RefusalBody::Problem`].
    pub fn body(mut self, body: RefusalBody) -> Self {
        self.shared.telling.body = body;
        self
    }

    /// Status of what can never be granted. Default 429; 413 or 400 say the same.
    pub fn too_costly_status(mut self, status: StatusCode) -> Self {
        self.shared.telling.too_costly = status;
        self
    }

    /// Longest `Retry-After`, rounded up to seconds. Default a day.
    pub fn longest_retry_after(mut self, longest: Duration) -> Self {
        self.shared.telling.longest_retry_after = super::notice::ceil(longest);
        self
    }

    fn checked(self) -> Result<Shared<A>, BuildError> {
        let telling = &self.shared.telling;
        let dialects = &telling.speech.dialects;
        for (index, dialect) in dialects.iter().enumerate() {
            if dialects[..index]
                .iter()
                .any(|before| before.clashes(*dialect))
            {
                let rule = "another dialect writes the same fields";
                return Err(BuildError::setting("headers", format!("{dialect:?}"), rule));
            }
        }
        let status = telling.too_costly;
        if !status.is_client_error() {
            let rule = "what can never be granted is answered with a 4xx";
            return Err(BuildError::setting("too_costly_status", status, rule));
        }
        if telling.longest_retry_after == 0 {
            let rule = "a wait is at least a second";
            return Err(BuildError::setting("longest_retry_after", "0 s", rule));
        }
        Ok(self.shared)
    }
}

fn edge<A: Admission>(
    admission: A,
    identify: impl Fn(&Head<'_>) -> Result<A::Context, Unidentified> + Send + Sync + 'static,
) -> Edge<A> {
    Edge {
        admission,
        identify: Box::new(identify),
        cost: None,
        strangers: RateLimiter::new(Rate::per_second(1).burst(5)),
        mode: AdmissionMode::default(),
        held: true,
        clock: Box::new(TokioClock),
        most_waiting: 1024,
        waiting: AtomicU64::new(0),
    }
}

fn queue(turnstile: Turnstile) -> Queue {
    Queue {
        turnstile,
        terms: None,
        until_body_ends: false,
    }
}

impl<A: Admission, L> fmt::Debug for LayerBuilder<A, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerBuilder")
            .field("headers", &self.shared.telling.speech)
            .field("body", &self.shared.telling.body)
            .finish_non_exhaustive()
    }
}
