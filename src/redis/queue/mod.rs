//! A durable queue that a fleet shares, with one fixed rate for all of it, on Redis Streams.
//!
//! Jobs survive the processes that offer them and those that do them, and what stands behind sees so many a second from
//! the whole fleet, evenly spaced, however many workers there are.
//!
//! # A job's story
//! ```text
//!              refused: item back, reason, when to come back      (nothing is written)
//!                 ^
//!   offer --------+--> queued --departure due--> in flight --+--> acked: deleted
//!     try_send    |      ^ ^                        |        +--> failed, abandoned, expired: a dead letter
//!     send: waits |      | +-- silent for the claim time          |
//!                 |      +---- retry, defer: delayed on the server |
//!                 |      +---- redriven ---------------------------+
//! ```
//! Every step is one script on the server: it happens as a whole or not at all, and by one clock, the server's.
//!
//! # What is promised
//! - **Depth.** `depth = queued + delayed` is below its bound at every offer, whoever offers; only jobs that are put back
//!   lift it above. A refusal says how deep it is and when to come back, and writes nothing.
//! - **Rate.** The server keeps the time of the next departure, and whoever asks then has it: there is no leader, no window
//!   and no share per worker. A departure is the instant at which a job is handed out, by the server's clock
//!   ([`Job::departed_at`]). Any closed window `w` of them holds at most `min(floor(w R + catch_up), floor(pace R (w + 2.5 ms)))
//!   + 1` departures. Handlers see that, and what was on its way to them. The schedule advances by what was taken, in exact
//!   fractions of a microsecond; idle time earns nothing, and what is owed after a stall is bounded by
//!   [`catch_up`](Builder::catch_up).
//! - **At least once.** A job leaves the server when it is acknowledged or dead-lettered, and not before. Each delivery has a
//!   fencing token: who was silent for longer than the [claim time](Builder::claim_after) can neither ack it nor put it
//!   back, is told so, and is counted.
//! - **A bound on starts.** The server counts them, also those that killed their consumer. After
//!   [`max_attempts`](Builder::max_attempts) the job is dead-lettered in the step that takes it out.
//! - **Order.** First come, first served; what is put back waits anew, behind the others. Offers that wait keep their order
//!   within a process, and none is promised between processes. There is one lane: no priorities, no tenants, and each job
//!   costs one.
//!
//! # What is not
//! - A server that loses its data loses the jobs: use an append-only file (`appendfsync everysec` loses a second at most), and
//!   a `maxmemory-policy` of `noeviction`. Replicas take over with what had reached them.
//! - Jobs may be done twice; handlers are idempotent, or ask [`Job::offer_id`].
//! - Expiry is judged when a job would depart, so one that is late holds its place until then.
//! - A server's clock that is set *forward* makes all jobs in flight look silent, so they are handed out again, at the rate.
//!   One that is set back shifts schedule, delays and claims along, and stalls nothing.
//!
//! # When the server is in trouble
//! A server that was restarted empty, or whose stream or group was deleted, gets the queue back from whoever comes first,
//! with what its stream still has ([`Queue::restored`]). [`Receiver::recv`] rides out what passes; what does not, like a key
//! of another type, is an error that comes after a pause. An offer whose answer is lost is an
//! [error that says so](Error::may_have_run), and is safe to be made again under its [id](Offer::id).
//!
//! # Keys
//! All begin with `sluicegate:{name}:`, so they share a slot of a cluster: `state` (settings, schedule, counters), `jobs`
//! (a stream with the group `fleet`; `XLEN`, `XPENDING` and `XINFO` tell what they always do), `later` and `parked` (delayed
//! jobs), `dead` (dead letters), and `id:...` for every remembered id, the only keys that expire.
//!
//! # Waiting
//! A process asks the server once for all its consumers: at the next departure while there is work, and every 2 to 32 ms
//! while there is none.

mod broker;
mod builder;
mod codec;
mod core;
mod dead_letters;
mod delivery;
mod drain;
mod error;
mod handle;
mod job;
mod offer;
mod receiver;
mod sender;
mod settings;
mod snapshot;
mod store;

pub use self::broker::Receipt;
pub use self::builder::{Builder, Existing};
pub use self::codec::{Bytes, Cbor, Codec, Json};
pub use self::dead_letters::{DeadLetter, DeadLetters, Death};
pub use self::drain::DrainReport;
pub use self::error::{Error, ErrorKind, OfferError, TryRecvError};
pub use self::handle::Queue;
pub use self::job::Job;
pub use self::offer::Offer;
pub use self::receiver::Receiver;
pub use self::sender::{Accepted, Sender};
pub use self::snapshot::Snapshot;
