//! The queue: jobs come when they come, and leave at a fixed rate.
//!
//! # A job's story
//! ```text
//!              refused: item back, reason, when to come back
//!                 ^
//!   offer --------+--> in line --> place --> queued --departure due--> in flight --+--> acked
//!     try_send    |      | gives up  |         |  ^                       |        +--> failed
//!     send        |      v           v         |  +----- retry, defer ----+        +--> abandoned
//!     reserve     |   left the    given back   +--> expired, evicted, cancelled, returned
//!     track       |   line        unused
//!                 +------------------> place       (where there is room, no line is stood in)
//! ```
//! A producer *offers* a job. If there is room below the high mark it has its *place* at once. If not, a producer that
//! cannot wait is *refused* and told when to come back; one that can stands *in line*, first come, first served. Whoever
//! wants the place before the item [`reserve`](Sender::reserve)s it and holds a [`Permit`].
//!
//! A *queued* job leaves when a *departure* is due and a consumer asks. Departures keep an absolute schedule: none is
//! before its time, a late one does not push the later ones, and after a stall there is no salvo. Which job goes is
//! decided at that instant, so urgency, fairness and expiry act on the whole backlog. From then on the [`Job`] is
//! *in flight*, until its consumer settles it.
//!
//! Nothing ends silently. What nobody acknowledged is a [`DeadLetter`] with its item and its [`Exit`], and the
//! [`Ticket`] of a tracked job tells its [`Ending`]. The [`Ledger`] says at every instant where all jobs are.
//!
//! # Which queue
//! | start from | for |
//! |---|---|
//! | [`Builder::new`] | work that must not be lost: producers are slowed down |
//! | [`Builder::shedding`] | work that is worthless when late: it starts within the promise, or is refused |
//! | [`Builder::unpaced`] | a bounded queue with everything but a rate |
//! | [`Builder::turnstile`] | callers that do their work themselves and need a turn for it |
//!
//! # Ends
//! - The last [`Sender`] dropped, or [`close`](Sender::close): no more offers, those in line are refused, what is queued
//!   still leaves, and permits may still send. Then [`recv`](Receiver::recv) answers `None`.
//! - The last [`Receiver`] dropped: the same, and what is queued is dead-lettered as [`Exit::Returned`].
//! - [`drain`](Receiver::drain): close, wait for what is left, and give it back by value at the deadline.
//!
//! Permits and jobs outlive all of it. A [`Control`], a [`WeakSender`] and [`DeadLetters`] keep nothing open.
//!
//! # Cancel safety
//! Every future may be dropped at any point. In line it leaves the line, and a place it was granted goes to the next; a
//! consumer that was woken hands its wake on. Only [`send`](Sender::send) owns an item while it waits, and drops it
//! then. A future that is polled once and put aside delays others, for at most a second in line and a grain of the timer
//! at a departure, and blocks nobody.
//!
//! Every future takes part in tokio's cooperative scheduling. An offer is made at the first poll even if the task's
//! budget is used up; its outcome is then handed out at the next poll.
//!
//! # Time
//! Whatever time brings (expiry, a deadline in line, a retry, the wake-up for a departure) happens on time with no
//! traffic and with nobody polling: one background task per queue sees to it. It is started when there is something to
//! wait for, on the runtime on which the queue was built, else on the caller's, else on a thread that the process shares
//! for this. It ends with the queue, and moves on if its runtime ends before. Time is that of the queue's
//! [`Clock`](crate::Clock).
//!
//! # Foreign code
//! Wakers, drops of items and tickets run with no lock held: they may use the queue. A panic in one of them reaches the
//! caller whose step ran it, after the rest of that step is done; in the background task it is only reported by the
//! panic hook.

mod after;
mod backoff;
mod batch;
mod blocking;
mod builder;
mod consumers;
mod control;
mod core;
mod dead_letters;
mod desk;
mod drain;
mod driver;
mod enter;
mod job;
#[cfg_attr(not(feature = "tracing"), path = "journal_silent.rs")]
mod journal;
mod keep;
mod line;
mod linger;
#[cfg(all(feature = "metrics", not(sluicegate_loom)))]
mod measured;
#[cfg(all(test, sluicegate_loom))]
mod models;
mod offer;
pub(crate) mod paced;
mod parcel;
mod permit;
mod port;
mod receiver;
mod refused;
mod send;
mod sender;
mod sink;
mod snapshot;
mod state;
mod stream;
mod terms;
mod ticket;
mod tuning;
mod turns;
mod turnstile;
mod wakers;
mod watch;
pub mod workers;

pub use self::backoff::Backoff;
pub use self::builder::Builder;
pub use self::control::Control;
pub use self::dead_letters::{DeadLetter, DeadLetters};
pub use self::drain::DrainReport;
pub use self::enter::Enter;
pub use self::job::Job;
pub use self::offer::Offer;
pub use self::permit::{OwnedPermit, Permit, ReserveOwned};
pub use self::receiver::{Receiver, TryRecvError};
pub use self::refused::Refused;
pub use self::send::Accepted;
pub use self::sender::{Sender, WeakSender};
pub use self::sink::SenderSink;
pub use self::snapshot::{Ledgers, Snapshot};
pub use self::terms::Terms;
pub(crate) use self::terms::terms_setters;
pub use self::ticket::{Ending, Ticket};
pub use self::tuning::DownstreamVitals;
pub use self::turnstile::{Turn, Turnstile};
pub use crate::error::BuildError;
pub use crate::ledger::Ledger;
pub use crate::policy::aimd::Aimd;
pub use crate::refusal::{Reason, Refusal};
pub use crate::timer::Timer;
pub use crate::words::{Exit, Health, Pressure, Priority, WhenFull};
