//! Backpressure-aware async queue and admission control, between eager producers and one fragile downstream.
//!
//! Jobs enter a bounded queue and leave it at a fixed rate, with so many in flight at once. Past healthy depths the queue
//! says so: producers that can wait get an awaitable permit, those that cannot get a refusal that hands their item back
//! and says when to come again. At the door, limiters decide who may offer work at all. It all runs in the process, on
//! tokio.
//!
//! ```
//! use sluicegate::queue::Builder;
//! use sluicegate::{Cause, Gate, KeyedLimiter, Rate};
//! use std::time::Duration;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
//! // 200 writes a second leave, 8 at once; started within 2 s, or refused. Every caller may offer 5 a second.
//! let (tx, rx) = Builder::shedding(Rate::per_second(200), Duration::from_secs(2))
//!     .max_in_flight(8)
//!     .build()?;
//! let callers = KeyedLimiter::builder(Rate::per_second(5).burst(2)).build()?;
//! let gate = Gate::new(callers, tx);
//!
//! gate.try_send(&"alice", "first")?;
//! gate.try_send(&"alice", "second")?;
//! let denied = gate.try_send(&"alice", "third").expect_err("her burst is two");
//! assert!(matches!(denied.cause(), Cause::Edge(_)));
//! assert!(denied.retry_after() <= Some(Duration::from_millis(200)));
//! assert_eq!(denied.into_inner(), "third");
//!
//! let job = rx.recv().await.expect("two are queued");
//! assert_eq!(*job, "first");
//! job.ack();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What do you need?
//!
//! | need | type |
//! |---|---|
//! | a bounded queue that drains at a rate, and producers that wait | [`queue::Builder::new`], [`Sender::send`](queue::Sender::send) |
//! | the same, with a promise: started in time or refused at once | [`queue::Builder::shedding`], [`Sender::try_send`](queue::Sender::try_send) |
//! | backpressure without a rate | [`queue::Builder::unpaced`] |
//! | room first, the item later | [`Sender::reserve`](queue::Sender::reserve), [`Permit`](queue::Permit) |
//! | cost, priority, tenant, deadline, cancellation of one job | [`Sender::offer`](queue::Sender::offer), [`Terms`](queue::Terms) |
//! | to know how a job ended | [`Offer::track`](queue::Offer::track), [`Ticket`](queue::Ticket) |
//! | jobs that survive crashes, and one rate for many processes | `redis::Queue`, feature `redis` |
//! | consumers that retry, survive panics and shut down | [`Workers`](queue::workers::Workers) |
//! | a rate and a bound for work that stays where it is | [`Turnstile`](queue::Turnstile) |
//! | a stream slowed down to a rate | [`PacedExt::paced`] |
//! | one limit, for everybody or for each key | [`RateLimiter`], [`KeyedLimiter`]; [`Local`] without threads |
//! | several limits, all of which must agree | [`Hierarchy`] |
//! | a limit and a queue that know of each other | [`Gate`] |
//! | limits or a queue before an HTTP or gRPC service | [`http::AdmissionLayer`], [`http::QueueLayer`], [`http::GateLayer`] |
//! | to choose a limit | [`Requirements::recommend`], [`Policy`] |
//! | to see what is queued and refused, why, and because of whom | [`observe`], [`observe::Watched`], [`observe::snapshot()`] |
//! | to change rates, pause, look | [`queue::Control`], [`queue::Snapshot`] |
//! | time under control, in tests | [`ManualClock`] |
//!
//! # Modules
//!
//! Each layer uses only those below it, and a test reads the sources to see that it does.
//!
//! ```text
//!   rim      observe  http  config  sim  bin     metrics, layers, the file, virtual time, the command
//!   engine   queue  limiter  gate                what one awaits: locks briefly, wakes who is due
//!   ground   clock  timer  sync  telemetry       time, sleeping, locks, publishing
//!   machine  machine                             the whole queue as a state machine that is told the time
//!   rules    policy                              limits, the ladder, the schedule: arithmetic
//!   words    rate  decision  key  ledger  ...    values and names
//! ```
//!
//! The machine neither awaits nor reads a clock. What runs in production is what the simulator replays and the property
//! tests drive.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `metrics` | yes | [`observe`]: every queue and every watched limiter publishes through the `metrics` facade; snapshots, advice |
//! | `prometheus` | | [`observe::serve`]: those numbers on a loopback port |
//! | `json` | | [`observe::Snapshot::to_json`] |
//! | `tracing` | | events when a queue's state changes, and the producer's span around the handler of its job |
//! | `quanta` | | [`FastClock`]: a clock that reads the processor's time stamp counter |
//! | `serde` | | rates and limits in their text forms |
//! | `config` | | [`config`]: all settings in one TOML file, with live reload and a calendar |
//! | `broker` | | [`broker`]: admission in front of a message broker and a steady drain behind it; one in memory |
//! | `nats` | | the same on NATS JetStream |
//! | `amqp` | | the same on RabbitMQ |
//! | `redis` | | [`redis`]: limits that a fleet shares, and a durable queue with one rate for it, on Redis or Valkey |
//! | `tower` | | [`http`]: admission, a queue and both together as layers for any tower service |
//! | `axum` | | the same for axum: refusals as responses, the handler's hold on its charge, route templates |
//! | `tonic` | | the same for gRPC: refusals as statuses, the address of the connection |
//! | `sim` | | [`sim`]: the machine on virtual time, and the formulas that size a queue |
//! | `page` | | [`observe::page`]: a live page of all that, as an axum router |
//! | `cli` | | the command `sluicegate`: `simulate`, `size`, `check`, `top` |
//!
//! The core itself has no switch: features only add.

#[cfg(feature = "broker")]
pub mod broker;
mod clock;
#[cfg(feature = "config")]
pub mod config;
mod decision;
mod error;
mod gate;
#[cfg(feature = "tower")]
pub mod http;
mod key;
mod ledger;
mod limiter;
mod machine;
#[cfg(feature = "metrics")]
pub mod observe;
mod policy;
pub mod queue;
mod rate;
#[cfg(feature = "redis")]
pub mod redis;
mod refusal;
#[cfg(feature = "sim")]
pub mod sim;
mod sync;
mod tally;
#[cfg(feature = "metrics")]
mod telemetry;
mod tick;
mod timer;
mod words;

#[cfg(feature = "quanta")]
pub use clock::FastClock;
pub use clock::{Clock, ManualClock, TokioClock};
pub use decision::{Decision, Limited, Verdict};
pub use error::{AcquireError, BuildError, LimitError, RateError};
pub use gate::{Cause, Denied, Gate, GateOffer};
pub use key::{IntoKey, Key};
pub use limiter::{
    Admission, Charge, Deciding, Hierarchy, HierarchyBuilder, Immediate, KeyCounts, KeyedLimiter,
    KeyedLimiterBuilder, LevelStatus, Local, RateLimiter, Reservation, Ruling, Solo, Store,
    WhenKeysFull,
};
pub use policy::{
    FixedWindow, LeakyBucket, Limit, LimitState, Policy, Recommendation, Requirements,
    SlidingCounter, SlidingLog, TokenBucket,
};
pub use queue::paced::{Paced, PacedExt, paced};
pub use rate::Rate;
pub use tick::Tick;

/// The program in the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
