//! The edge of an HTTP or gRPC service: limits and a queue as layers for any tower service.
//!
//! ```text
//!            Callers            Admission            Turnstile
//!  request --> who asks? --> may they, now? --> whose turn is it? --> the service --> response + fields
//!                 | nobody knows    | refused        | refused
//!                 v                 v                v
//!          a strict share      429, code 8      503, code 14       + Retry-After, a problem body, RetryInfo
//! ```
//! - [`AdmissionLayer`] asks limits: a [`RateLimiter`](crate::RateLimiter), a [`KeyedLimiter`](crate::KeyedLimiter) or a
//!   [`Hierarchy`](crate::Hierarchy) over any store.
//! - [`QueueLayer`] lets requests take their turn at a [`Turnstile`](crate::queue::Turnstile): so many a second, so many
//!   in flight, refused at the door when their turn would come too late.
//! - [`GateLayer`] is both as one door: what the queue refuses is charged to nobody.
//!
//! A layer's state is shared by its clones, by every service it made and every connection. A refusal is a response, never
//! an error. [`Callers`] says who asks, and believes no header unless told which proxies to trust. What a client is told
//! is written by [`HeaderDialect`]s, pure functions of one decision; a browser reads it if [`EXPOSED_FIELDS`] are exposed
//! and the CORS layer is outermost. Preflights are not counted.
//!
//! The order of layers matters: put limits outside of anything that holds a permit while it waits.

mod address;
mod admitted;
mod body;
mod caller;
mod callers;
mod counts;
mod dialect;
mod fields;
#[cfg(feature = "axum")]
mod for_axum;
#[cfg(feature = "tonic")]
mod for_tonic;
mod forwarded;
mod future;
mod grpc;
mod head;
mod layer;
mod lists;
mod notice;
mod problem;
mod proxies;
mod refused;
mod route;
mod secret;
mod service;
mod settings;
mod slow;

pub use self::admitted::{Admitted, ChargeMore};
pub use self::body::EdgeBody;
pub use self::caller::{Caller, Unidentified};
pub use self::callers::{Callers, CallersBuilder, Peer};
pub use self::counts::EdgeCounts;
pub use self::dialect::{EXPOSED_FIELDS, HeaderDialect, ResetSemantics, ResetUnit};
pub use self::future::EdgeFuture;
pub use self::head::Head;
pub use self::layer::{AdmissionLayer, GateLayer, LayerBuilder, QueueLayer};
pub use self::notice::{Notice, QuotaUnit, Standing};
pub use self::problem::{CustomBody, DeniedRequest, RefusalBody};
pub use self::proxies::{AddressHeader, TrustedProxies};
pub use self::refused::RefusalKind;
pub use self::route::{Route, RouteTemplate};
pub use self::service::EdgeService;
pub use self::settings::{AdmissionMode, Deadline, Nobody};
