//! The queue itself: what is not about one job.

use std::fmt;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::builder::{Builder, adopted};
use super::codec::{Codec, Json};
use super::core::Core;
use super::dead_letters::DeadLetters;
use super::drain::DrainReport;
use super::error::Error;
use super::receiver::Receiver;
use super::sender::Sender;
use super::settings::{Settings, default_catch_up};
use super::snapshot::Snapshot;
use super::store::Store;
use crate::rate::Rate;
use crate::sync::{Arc, Ordering};
use crate::words::Pressure;

/// A queue that a fleet shares: its handles, and what is said to all processes at once.
///
/// A handle; clones are the same queue. It keeps nothing open: a queue on a server is open until it is
/// [closed](Self::close), whoever is there.
#[derive(Clone)]
pub struct Queue {
    pub(super) core: Arc<Core>,
}

impl Queue {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// A handle for producers, whose items are kept as JSON.
    #[must_use]
    pub fn sender<T>(&self) -> Sender<T>
    where
        Json: Codec<T>,
    {
        self.sender_as(Json)
    }

    /// The same in another format.
    #[must_use]
    pub fn sender_as<T, C: Codec<T>>(&self, codec: C) -> Sender<T, C> {
        Sender::new(&self.core, codec)
    }

    /// A handle for consumers of items that are kept as JSON.
    #[must_use]
    pub fn receiver<T>(&self) -> Receiver<T>
    where
        Json: Codec<T>,
    {
        self.receiver_as(Json)
    }

    /// The same in another format.
    #[must_use]
    pub fn receiver_as<T, C: Codec<T>>(&self, codec: C) -> Receiver<T, C> {
        Receiver::new(&self.core, codec)
    }

    /// The dead letters, with items that were kept as JSON.
    #[must_use]
    pub fn dead_letters<T>(&self) -> DeadLetters<T>
    where
        Json: Codec<T>,
    {
        self.dead_letters_as(Json)
    }

    /// The same in another format.
    #[must_use]
    pub fn dead_letters_as<T, C: Codec<T>>(&self, codec: C) -> DeadLetters<T, C> {
        DeadLetters::new(&self.core, codec)
    }

    /// Sets the rate of the whole fleet, from the next departure on.
    ///
    /// What is owed or ahead keeps its number of jobs. The depth and its marks stay.
    ///
    /// # Errors
    /// A rate that cannot be kept, or a server that does not answer; then the rate may have been set.
    pub async fn set_rate(&self, rate: Rate) -> Result<(), Error> {
        let mut settings = self.stored().await?;
        if settings.catch_up == default_catch_up(settings.rate) {
            settings.catch_up = default_catch_up(rate);
        }
        settings.rate = rate;
        let settings = settings.checked()?;
        let mut pairs = vec![("rate", rate.to_string())];
        pairs.extend(settings.schedule());
        self.set(&pairs, settings).await
    }

    /// Sets everything that holds for the whole fleet, at once.
    ///
    /// # Errors
    /// As [`set_rate`](Self::set_rate), for every setting.
    pub async fn apply(&self, builder: &Builder) -> Result<(), Error> {
        let settings = builder.settings()?;
        self.set(&settings.pairs(), settings).await
    }

    async fn set(&self, pairs: &[(&'static str, String)], settings: Settings) -> Result<(), Error> {
        let mut arguments: Vec<&[u8]> = vec![b"set"];
        for (name, value) in pairs {
            arguments.extend([name.as_bytes(), value.as_bytes()]);
        }
        self.tell(&arguments).await?;
        *self.core.settings.lock() = settings;
        Ok(())
    }

    /// The settings as they are on the server now.
    async fn stored(&self) -> Result<Settings, Error> {
        let asked = self.core.settings.lock().clone();
        let stored = self.core.store.open("adopt").await?;
        Ok(adopted(asked, &stored))
    }

    /// Stops all departures until [`resume`](Self::resume), also if this process ends. Offers go on being taken while
    /// there is room.
    ///
    /// # Errors
    /// A server that does not answer; the queue may be paused then.
    pub async fn pause(&self, reason: &str) -> Result<(), Error> {
        self.tell(&[b"pause", reason.as_bytes()]).await
    }

    /// Has departures go on; what was owed before the pause is forgiven.
    ///
    /// # Errors
    /// A server that does not answer.
    pub async fn resume(&self) -> Result<(), Error> {
        self.tell(&[b"resume"]).await
    }

    /// Takes no more offers, from any process. What is in the queue still leaves, and retries come back to it.
    ///
    /// # Errors
    /// A server that does not answer.
    pub async fn close(&self) -> Result<(), Error> {
        self.tell(&[b"close"]).await
    }

    /// Takes offers again.
    ///
    /// # Errors
    /// A server that does not answer.
    pub async fn reopen(&self) -> Result<(), Error> {
        self.tell(&[b"reopen"]).await
    }

    async fn tell(&self, arguments: &[&[u8]]) -> Result<(), Error> {
        let store: &Store = &self.core.store;
        store
            .call(&store.scripts.control, None, arguments)
            .await
            .map(|_| ())
    }

    /// Closes the queue and waits until the fleet's consumers have emptied it, for at most `within`.
    ///
    /// It takes no jobs itself. What is left at the end stays on the server: nothing is lost by it, and
    /// [`reopen`](Self::reopen) goes on with it.
    ///
    /// # Errors
    /// A server that does not answer at the beginning or at the end.
    ///
    /// # Cancel safety
    /// Dropped, the queue is closed.
    pub async fn drain(&self, within: Duration) -> Result<DrainReport, Error> {
        let until = Instant::now() + within;
        let ended = |of: &Snapshot| of.acked + of.dead_letters_written;
        self.close().await?;
        let first = ended(&self.snapshot().await?);
        loop {
            let last = Instant::now() >= until;
            match self.snapshot().await {
                Ok(now) if last || now.depth + now.in_flight == 0 => {
                    return Ok(DrainReport {
                        settled: ended(&now).saturating_sub(first),
                        in_flight: now.in_flight,
                        left: now.depth,
                    });
                }
                Err(error) if last => return Err(error),
                Ok(_) | Err(_) => {}
            }
            tokio::time::sleep_until((Instant::now() + LOOK).min(until)).await;
        }
    }

    /// Numbers of the whole fleet, all of one instant, and of this process.
    ///
    /// # Errors
    /// A server that does not answer.
    pub async fn snapshot(&self) -> Result<Snapshot, Error> {
        let store = &self.core.store;
        let (_, reply) = store.call(&store.scripts.look, None, &[]).await?;
        let snapshot = Snapshot::read(reply, &self.core)?;
        self.core.tell(snapshot.pressure);
        Ok(snapshot)
    }

    /// State of the ladder as this process last heard of it.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        *self.core.pressure.borrow()
    }

    /// The same, for whoever waits for it to change. It is heard with every offer and every snapshot of this process.
    #[must_use]
    pub fn watch_pressure(&self) -> watch::Receiver<Pressure> {
        self.core.pressure.subscribe()
    }

    /// Times the server was found without the queue, or without its group, and both were made anew.
    #[must_use]
    pub fn restored(&self) -> u64 {
        // Relaxed: a number for people.
        self.core.store.restored.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("name", &self.core.name)
            .finish_non_exhaustive()
    }
}

/// How often a drain looks.
const LOOK: Duration = Duration::from_millis(50);
