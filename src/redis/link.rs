//! The one place that names the driver's connections.
//!
//! A [`Link`] is one connection which many callers share, and which is made anew when it is lost:
//!
//! ```text
//!   Idle --first command--> Connecting --> Up --lost, nonsense, three timeouts in a row, READONLY--> Idle
//!                            ^      |
//!         next attempt due --+      +--failed--> Down
//! ```
//!
//! - L1  A command waits for its own deadline at most, whether the link is connecting or stalled; while it is down it
//!   fails at once.
//! - L2  Nothing is sent twice. A command whose reply is lost has failed, and what it did is not known.
//! - L3  A command whose caller has gone before it was written is not written.

use std::fmt;
use std::time::Duration;

use ::redis::aio::{ConnectionLike as _, MultiplexedConnection};
use ::redis::cluster_async::ClusterConnection;
pub(super) use ::redis::{Cmd, Value, cmd};
use ::redis::{Pipeline, RedisResult};
use futures_util::future::join_all;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

use super::dial;
use super::endpoint::Endpoint;
use super::error::{Error, Kind};
use super::reply;
use crate::sync::{Arc, AtomicU32, AtomicU64, Mutex, Ordering, Weak};

/// A connection that many callers share; a handle.
#[derive(Clone)]
pub(super) struct Link {
    shared: Arc<Shared>,
}

struct Shared {
    endpoint: Endpoint,
    phase: Mutex<Phase>,
    changed: Notify,
    /// Attempts to connect that failed in a row.
    failures: AtomicU32,
    /// Timeouts in a row on the connection that is up. Changed under the lock of the phase; read without it.
    timeouts: AtomicU32,
    sent: AtomicU64,
    connected: AtomicU64,
}

enum Phase {
    Idle,
    Connecting,
    Up(Up),
    Down { until: Instant, error: Error },
}

struct Up {
    connection: Connection,
    /// Number of this connection among those of the link.
    generation: u64,
}

#[derive(Clone)]
pub(super) enum Connection {
    One(MultiplexedConnection),
    Many(ClusterConnection),
}

impl Link {
    /// Connects nothing yet.
    pub(super) fn new(endpoint: Endpoint) -> Self {
        let shared = Shared {
            endpoint,
            phase: Mutex::new(Phase::Idle),
            changed: Notify::new(),
            failures: AtomicU32::new(0),
            timeouts: AtomicU32::new(0),
            sent: AtomicU64::new(0),
            connected: AtomicU64::new(0),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.shared.endpoint.cluster
    }

    /// Commands handed to a connection so far; those of a batch count one by one.
    pub(super) fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Connections made so far.
    pub(super) fn connected(&self) -> u64 {
        self.shared.connected.load(Ordering::Relaxed)
    }

    /// Waits for a connection; an error tells why there is none.
    pub(super) async fn connect(&self, deadline: Duration) -> Result<(), Error> {
        let until = Instant::now() + deadline;
        self.connection(until).await.map(|_| ())
    }

    /// Sends a command and waits for its reply, together at most `deadline`. An error reply is an error.
    ///
    /// Dropped early, the command may have been sent or not.
    pub(super) async fn run(&self, command: &Cmd, deadline: Duration) -> Result<Value, Error> {
        let until = Instant::now() + deadline;
        self.run_until(command, until, deadline).await
    }

    /// The same until an instant, which is `deadline` after what the caller began.
    pub(super) async fn run_until(
        &self,
        command: &Cmd,
        until: Instant,
        deadline: Duration,
    ) -> Result<Value, Error> {
        let (connection, generation) = self.connection(until).await?;
        self.shared.sent.fetch_add(1, Ordering::Relaxed);
        let reply = match timeout_at(until, connection.send(command)).await {
            Ok(reply) => reply.map_err(reply::failure).and_then(reply::checked),
            Err(_) => Err(Error::new(Kind::Timeout { deadline })),
        };
        self.shared.settle(generation, reply.as_ref().err());
        reply
    }

    /// Sends commands in one go; each has a reply or an error reply of its own. Not atomic.
    pub(super) async fn run_many(
        &self,
        commands: Vec<Cmd>,
        deadline: Duration,
    ) -> Result<Vec<Result<Value, Error>>, Error> {
        let until = Instant::now() + deadline;
        let (connection, generation) = self.connection(until).await?;
        let count = commands.len() as u64;
        self.shared.sent.fetch_add(count, Ordering::Relaxed);
        let replies = match timeout_at(until, connection.send_many(commands)).await {
            Ok(replies) => replies.map_err(reply::failure),
            Err(_) => Err(Error::new(Kind::Timeout { deadline })),
        };
        self.shared.settle(generation, replies.as_ref().err());
        replies
    }

    /// The connection, made if there is none (L1).
    async fn connection(&self, until: Instant) -> Result<(Connection, u64), Error> {
        // Nearly always.
        if let Some(up) = self.shared.up() {
            return Ok(up);
        }
        let begun = Instant::now();
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.shared.ask()? {
                Ask::Up(connection, generation) => return Ok((connection, generation)),
                Ask::Connect => {
                    let attempt = Attempt(Arc::downgrade(&self.shared));
                    tokio::spawn(attempt.run(self.shared.endpoint.clone()));
                }
                Ask::Wait => {}
            }
            if timeout_at(until, changed).await.is_err() {
                let deadline = until - begun;
                let timeout = Error::new(Kind::Timeout { deadline });
                return Err(Error::caused(Kind::Unreachable, timeout));
            }
        }
    }
}

/// What a caller who needs a connection finds.
enum Ask {
    Up(Connection, u64),
    Connect,
    Wait,
}

impl Shared {
    fn up(&self) -> Option<(Connection, u64)> {
        match &*self.phase.lock() {
            Phase::Up(up) => Some((up.connection.clone(), up.generation)),
            _ => None,
        }
    }

    fn ask(&self) -> Result<Ask, Error> {
        let mut phase = self.phase.lock();
        match &*phase {
            Phase::Up(up) => return Ok(Ask::Up(up.connection.clone(), up.generation)),
            Phase::Connecting => return Ok(Ask::Wait),
            Phase::Down { until, error } if Instant::now() < *until => return Err(error.clone()),
            Phase::Idle | Phase::Down { .. } => {}
        }
        *phase = Phase::Connecting;
        Ok(Ask::Connect)
    }

    /// Takes what a reply says about the connection.
    fn settle(&self, generation: u64, error: Option<&Error>) {
        if error.is_none() && self.timeouts.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut phase = self.phase.lock();
        let Phase::Up(up) = &*phase else { return };
        if up.generation != generation {
            return;
        }
        let is_lost = match error.map(Error::kind) {
            // After nonsense, or half a reply, nobody knows where the next one begins.
            Some(Kind::Lost | Kind::ReadOnly | Kind::Unexpected { .. }) => true,
            // A socket that swallows everything looks alive for ever.
            Some(Kind::Timeout { .. }) => {
                self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= TIMEOUTS
            }
            _ => {
                self.timeouts.store(0, Ordering::Relaxed);
                false
            }
        };
        let old = is_lost.then(|| std::mem::replace(&mut *phase, Phase::Idle));
        drop(phase);
        // The driver's connection ends outside the lock.
        drop(old);
    }

    /// The driver has seen the connection end without being asked.
    fn lost(&self, generation: u64) {
        self.settle(generation, Some(&Error::new(Kind::Lost)));
    }
}

/// One attempt to connect. Dropped half-way, with its runtime, it lets the next caller begin another.
struct Attempt(Weak<Shared>);

impl Attempt {
    async fn run(self, endpoint: Endpoint) {
        let Some(generation) = self.generation() else {
            return;
        };
        let watcher = Weak::clone(&self.0);
        let on_lost = move || {
            if let Some(shared) = watcher.upgrade() {
                shared.lost(generation);
            }
        };
        let limit = endpoint.connect_timeout;
        let made = match timeout(limit, dial::dial(&endpoint, on_lost)).await {
            Ok(made) => made,
            Err(_) => Err(Error::caused(
                Kind::Unreachable,
                Error::new(Kind::Timeout { deadline: limit }),
            )),
        };
        let Some(shared) = self.0.upgrade() else {
            return;
        };
        let phase = match made {
            Ok(connection) => {
                // Nothing is up until the phase says so.
                shared.timeouts.store(0, Ordering::Relaxed);
                shared.failures.store(0, Ordering::Relaxed);
                Phase::Up(Up {
                    connection,
                    generation,
                })
            }
            Err(error) => {
                let failures = shared.failures.fetch_add(1, Ordering::Relaxed);
                let until = Instant::now() + pause(failures);
                Phase::Down { until, error }
            }
        };
        *shared.phase.lock() = phase;
    }

    fn generation(&self) -> Option<u64> {
        let shared = self.0.upgrade()?;
        Some(shared.connected.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let Some(shared) = self.0.upgrade() else {
            return;
        };
        let mut phase = shared.phase.lock();
        if let Phase::Connecting = *phase {
            *phase = Phase::Idle;
        }
        drop(phase);
        shared.changed.notify_waiters();
    }
}

/// Pause before the next attempt, after so many failed ones: doubled each time, up to a second.
fn pause(failures: u32) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << failures.min(10));
    doubled.min(LONGEST_PAUSE)
}

impl Connection {
    async fn send(self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::One(mut one) => one.send_packed_command(command).await,
            Self::Many(mut many) => many.req_packed_command(command).await,
        }
    }

    async fn send_many(self, commands: Vec<Cmd>) -> RedisResult<Vec<Result<Value, Error>>> {
        match self {
            Self::One(mut one) => {
                let count = commands.len();
                let mut pipeline = Pipeline::with_capacity(count);
                for command in commands {
                    pipeline.add_command(command);
                }
                pipeline.ignore_errors();
                let replies = one.send_packed_commands(&pipeline, 0, count);
                Ok(replies.await?.into_iter().map(reply::checked).collect())
            }
            // Commands of several slots go to several nodes.
            Self::Many(many) => {
                let each = commands.iter().map(|command| {
                    let mut many = many.clone();
                    async move { many.req_packed_command(command).await }
                });
                let replies = join_all(each).await.into_iter();
                Ok(replies.map(|reply| reply.map_err(reply::failure)).collect())
            }
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match &*self.shared.phase.lock() {
            Phase::Idle => "idle",
            Phase::Connecting => "connecting",
            Phase::Up(_) => "up",
            Phase::Down { .. } => "down",
        };
        f.debug_struct("Link")
            .field("endpoint", &self.shared.endpoint)
            .field("phase", &phase)
            .finish()
    }
}

/// Timeouts in a row after which the connection is made anew.
const TIMEOUTS: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
