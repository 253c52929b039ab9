//! How a queue on a server is asked for.

use std::time::Duration;

use tokio::sync::{Semaphore, watch};

use super::core::Core;
use super::delivery::Registry;
use super::error::{Error, ErrorKind};
use super::handle::Queue;
use super::settings::{Settings, default_catch_up};
use super::store::{Scripts, Store, text};
use crate::rate::Rate;
use crate::redis::endpoint::Endpoint;
use crate::redis::link::{Link, Value};
use crate::sync::{Arc, AtomicU64, Mutex};
use crate::words::Pressure;

/// What to do about a queue of this name that exists already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// It must be set as asked; else nothing is changed and the error names the first difference.
    #[default]
    Agree,
    /// Its settings hold, and those asked for are for the case that there is none.
    Adopt,
    /// The settings asked for hold from now on, for every process.
    Replace,
}

/// Settings of a queue that a fleet shares.
///
/// Those on the server hold for all processes; the others ([`max_payload`](Self::max_payload),
/// [`max_waiters`](Self::max_waiters), [`remember_ids`](Self::remember_ids), [`deadline`](Self::deadline),
/// [`consumer`](Self::consumer)) are this process's own.
///
/// # Examples
/// ```no_run
/// use sluicegate::Rate;
/// use sluicegate::redis::Endpoint;
/// use sluicegate::redis::queue::Builder;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Endpoint::new("redis://127.0.0.1/")?;
/// let queue = Builder::new("orders", Rate::per_second(200))
///     .max_depth(1_000)
///     .max_in_flight(16)
///     .open(server)
///     .await?;
/// queue.sender::<String>().try_send("insert".into()).await?;
/// let rx = queue.receiver::<String>();
/// while let Some(job) = rx.recv().await? {
///     println!("{}", *job);
///     job.ack().await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    name: String,
    rate: Rate,
    max_depth: Option<u64>,
    marks: Option<(u64, u64)>,
    max_in_flight: u64,
    max_attempts: u32,
    claim_after: Duration,
    expire_after: Duration,
    max_wait: Duration,
    catch_up: Option<u64>,
    pace: u32,
    dead_letters: u64,
    existing: Existing,
    max_payload: u64,
    max_waiters: u64,
    remember: Duration,
    deadline: Duration,
    consumer: Option<String>,
}

impl Builder {
    /// Takes the queue's name, which is part of all its keys, and the rate of the whole fleet.
    pub fn new(name: impl Into<String>, rate: Rate) -> Self {
        Self {
            name: name.into(),
            rate,
            max_depth: None,
            marks: None,
            max_in_flight: 0,
            max_attempts: ATTEMPTS,
            claim_after: CLAIM,
            expire_after: Duration::ZERO,
            max_wait: Duration::ZERO,
            catch_up: None,
            pace: PACE,
            dead_letters: LETTERS,
            existing: Existing::Agree,
            max_payload: PAYLOAD,
            max_waiters: WAITERS,
            remember: REMEMBER,
            deadline: DEADLINE,
            consumer: None,
        }
    }

    /// Sets the most jobs that wait, delayed ones included; default what departs in 5 s, from 1 to 2^20.
    ///
    /// Raising it makes jobs wait longer, lowering it refuses more of a spike.
    pub fn max_depth(mut self, jobs: u64) -> Self {
        self.max_depth = Some(jobs);
        self
    }

    /// Sets the marks of the ladder, `low < high <= max_depth`; default half and four fifths of the depth.
    ///
    /// At `high` the queue is overloaded and refuses whoever cannot wait, until it is down to `low`.
    pub fn watermarks(mut self, low: u64, high: u64) -> Self {
        self.marks = Some((low, high));
        self
    }

    /// Sets the most jobs that the whole fleet holds; default no bound.
    pub fn max_in_flight(mut self, jobs: u64) -> Self {
        self.max_in_flight = jobs;
        self
    }

    /// Sets how often a job is started before it is dead-lettered; default 20, 0 = without end.
    ///
    /// The server counts, so starts count which killed their consumer.
    pub fn max_attempts(mut self, starts: u32) -> Self {
        self.max_attempts = starts;
        self
    }

    /// Sets how long a consumer may be silent about a job until another may take it; default 30 s, at least 100 ms.
    ///
    /// A process that runs speaks up for its jobs four times in this span, however long they take. Raising it leaves the
    /// jobs of the dead lying longer; lowering it makes a process that was merely stopped for a while do a job twice.
    pub fn claim_after(mut self, silence: Duration) -> Self {
        self.claim_after = silence;
        self
    }

    /// Sets how long after its offer a job may start for the first time, else it is dead-lettered; default no end.
    pub fn expire_after(mut self, age: Duration) -> Self {
        self.expire_after = age;
        self
    }

    /// Sets the longest predicted wait from offer to start, and the longest stay in line; default no bound.
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.max_wait = wait;
        self
    }

    /// Sets how many departures may be owed; default what falls due in 100 ms, at least 1.
    ///
    /// What was not taken in time is made up for, that much of it; 0 = strict spacing, at a lower rate.
    pub fn catch_up(mut self, jobs: u64) -> Self {
        self.catch_up = Some(jobs);
        self
    }

    /// Sets how much faster than the rate that is made up for, 1 to 1000; default 1.1.
    pub fn catch_up_pace(mut self, pace: f64) -> Self {
        // A cast saturates, and no number becomes 0, which is refused.
        self.pace = (pace * 1_000.0).round() as u32;
        self
    }

    /// Sets how many dead letters the server keeps; default 100,000. When it has as many the newest is dropped and
    /// counted.
    pub fn dead_letters(mut self, letters: u64) -> Self {
        self.dead_letters = letters;
        self
    }

    /// Sets what to do if the queue exists; default [`Existing::Agree`].
    pub fn existing(mut self, existing: Existing) -> Self {
        self.existing = existing;
        self
    }

    /// Sets the longest payload in bytes that this process offers; default 1 MiB.
    pub fn max_payload(mut self, bytes: u64) -> Self {
        self.max_payload = bytes;
        self
    }

    /// Sets how many offers of this process may wait in line; default 65,536.
    pub fn max_waiters(mut self, offers: u64) -> Self {
        self.max_waiters = offers;
        self
    }

    /// Sets how long an [id](super::Offer::id) is remembered, so that the same offer made again is not a second job;
    /// default 10 minutes. Each id takes about 100 bytes of the server's memory for so long.
    pub fn remember_ids(mut self, window: Duration) -> Self {
        self.remember = window;
        self
    }

    /// Sets how long one question to the server may take; default 2 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the name under which this process holds jobs; default one that is like no other.
    ///
    /// Processes of the same name do each other no harm: every delivery has a token of its own.
    pub fn consumer(mut self, name: impl Into<String>) -> Self {
        self.consumer = Some(name.into());
        self
    }

    /// Opens the queue, and makes it if there is none.
    ///
    /// # Errors
    /// A setting that breaks a rule, a queue that is [set otherwise](Existing), or a server that does not answer.
    ///
    /// # Cancel safety
    /// Dropped, the queue may have been made.
    pub async fn open(self, server: Endpoint) -> Result<Queue, Error> {
        self.open_on(Link::new(server)).await
    }

    /// Opens it on a connection that is there.
    pub(in crate::redis) async fn open_on(self, link: Link) -> Result<Queue, Error> {
        let settings = self.settings()?;
        let scripts = Arc::new(Scripts::new());
        let store = Store::new(link, scripts, &self.name, settings.pairs(), self.deadline);
        let mode = match self.existing {
            Existing::Agree => "create",
            Existing::Adopt => "adopt",
            Existing::Replace => "replace",
        };
        let stored = store.open(mode).await?;
        let settings = adopted(settings, &stored);
        let core = self.core(store, settings);
        Ok(Queue::new(Arc::new(core)))
    }

    pub(super) fn settings(&self) -> Result<Settings, Error> {
        if self.name.is_empty() || self.name.contains(['{', '}']) {
            let rule = format!(
                "a queue's name is not empty and has no braces, got {:?}",
                self.name
            );
            return Err(ErrorKind::Setting { rule }.into());
        }
        let max_depth = self
            .max_depth
            .unwrap_or_else(|| self.rate.units_in(DEPTH).clamp(1, 1 << 20));
        let (low, high) = self.marks.unwrap_or_else(|| {
            let low = max_depth / 2;
            (
                low,
                (max_depth / 5 * 4 + max_depth % 5 * 4 / 5).max(low + 1),
            )
        });
        Settings {
            rate: self.rate,
            max_depth,
            low,
            high,
            max_in_flight: self.max_in_flight,
            max_attempts: self.max_attempts,
            claim_after: self.claim_after,
            expire_after: self.expire_after,
            max_wait: self.max_wait,
            catch_up: self.catch_up.unwrap_or_else(|| default_catch_up(self.rate)),
            pace: self.pace,
            dead_letters: self.dead_letters,
        }
        .checked()
    }

    fn core(self, store: Store, settings: Settings) -> Core {
        let settings = Mutex::new(settings);
        Core {
            name: self.name.into(),
            store,
            settings,
            is_of_letters: false,
            consumer: self.consumer.unwrap_or_else(unique_name),
            max_payload: self.max_payload,
            remember: self.remember,
            line: Semaphore::new(1),
            max_waiters: self.max_waiters,
            waiting: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            comeback: Mutex::new(None),
            pressure: watch::Sender::new(Pressure::Healthy),
            registry: Registry::default(),
            receivers: AtomicU64::new(0),
            turn: Semaphore::new(1),
            manners: Mutex::default(),
        }
    }
}

/// The settings that hold, by what the server said.
pub(super) fn adopted(mut asked: Settings, stored: &[Value]) -> Settings {
    for pair in stored.chunks_exact(2) {
        let value = text(&pair[1]);
        let number = value.parse::<u64>().ok();
        match (text(&pair[0]).as_str(), number) {
            ("rate", _) => asked.rate = value.parse().unwrap_or(asked.rate),
            ("max", Some(of)) => asked.max_depth = of,
            ("low", Some(of)) => asked.low = of,
            ("high", Some(of)) => asked.high = of,
            ("flight", Some(of)) => asked.max_in_flight = of,
            ("attempts", Some(of)) => asked.max_attempts = u32::try_from(of).unwrap_or(u32::MAX),
            ("claim", Some(of)) => asked.claim_after = Duration::from_millis(of),
            ("expire", Some(of)) => asked.expire_after = Duration::from_micros(of),
            ("patience", Some(of)) => asked.max_wait = Duration::from_micros(of),
            ("units", Some(of)) => asked.catch_up = of,
            ("pace", Some(of)) => asked.pace = u32::try_from(of).unwrap_or(u32::MAX),
            ("letters", Some(of)) => asked.dead_letters = of,
            _ => {}
        }
    }
    asked
}

/// A name that no other process has, and no earlier one of this machine had.
fn unique_name() -> String {
    use std::hash::{BuildHasher, RandomState};
    let drawn = RandomState::new().hash_one(std::process::id());
    format!("{}-{drawn:016x}", std::process::id())
}

const DEPTH: Duration = Duration::from_secs(5);
const ATTEMPTS: u32 = 20;
const CLAIM: Duration = Duration::from_secs(30);
const PACE: u32 = 1_100;
const LETTERS: u64 = 100_000;
const PAYLOAD: u64 = 1 << 20;
const WAITERS: u64 = 65_536;
const REMEMBER: Duration = Duration::from_secs(600);
const DEADLINE: Duration = Duration::from_secs(2);
