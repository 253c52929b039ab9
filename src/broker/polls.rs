//! Who asks the broker for its depth, and when: one poll at a time, while there is traffic.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::admission::Core;
use super::contract::Broker;
use super::door::{Door, Settings};
use super::error::{BrokerError, BrokerErrorKind};
use crate::sync::{Arc, Mutex, MutexGuard};

/// The door, and the poll that keeps it informed.
pub(super) struct Polls {
    door: Mutex<Door>,
    running: Mutex<Running>,
    /// Rises with every poll that has ended.
    ended: watch::Sender<u64>,
}

#[derive(Default)]
struct Running {
    is: bool,
    /// Why the last one has failed, if it has.
    failed: Option<(BrokerErrorKind, String)>,
}

impl Polls {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            door: Mutex::new(Door::new(settings)),
            running: Mutex::default(),
            ended: watch::Sender::new(0),
        }
    }

    pub(super) fn door(&self) -> MutexGuard<'_, Door> {
        self.door.lock()
    }

    /// Begins a poll if it is time; waits for it if what is known is too old to decide on.
    pub(super) async fn freshen<B: Broker>(core: &Arc<Core<B>>) -> Result<(), BrokerError> {
        let every = core.settings.poll_every;
        let age = core.polls.door().age(Instant::now());
        if age.is_some_and(|age| age < every) {
            return Ok(());
        }
        let mut ended = core.polls.ended.subscribe();
        if !std::mem::replace(&mut core.polls.running.lock().is, true) {
            let running = Ended(Arc::clone(core));
            tokio::spawn(async move { running.poll().await });
        }
        if age.is_some_and(|age| age < every * STALE) {
            return Ok(());
        }
        // The sender lives in the core, so it cannot be gone.
        let _ = ended.changed().await;
        let age = core.polls.door().age(Instant::now());
        if age.is_some_and(|age| age < every * STALE) {
            return Ok(());
        }
        let (kind, message) = core.polls.running.lock().failed.clone().unwrap_or_else(|| {
            let name = core.broker.name();
            (
                BrokerErrorKind::Unconfirmed,
                format!("depth of broker {name} is not known"),
            )
        });
        Err(BrokerError::new(kind, message))
    }
}

/// A poll that runs. However it ends, also with its runtime, the next one may begin.
struct Ended<B: Broker>(Arc<Core<B>>);

impl<B: Broker> Ended<B> {
    async fn poll(self) {
        let core = &self.0;
        let began = Instant::now();
        core.polls.door().poll_begins();
        let answer = timeout(PATIENCE, core.broker.depth()).await;
        let failed = match answer {
            Ok(Ok(depth)) => {
                core.polls.door().poll_answers(began, depth);
                core.numbers.depth(depth);
                None
            }
            Ok(Err(error)) => Some((error.kind(), error.to_string())),
            Err(_) => Some((
                BrokerErrorKind::Disconnected,
                format!(
                    "broker {} has not told its depth within {PATIENCE:?}",
                    core.broker.name()
                ),
            )),
        };
        core.numbers.polled(failed.is_none());
        core.polls.running.lock().failed = failed;
    }
}

impl<B: Broker> Drop for Ended<B> {
    fn drop(&mut self) {
        let polls = &self.0.polls;
        polls.running.lock().is = false;
        polls.ended.send_modify(|ended| *ended += 1);
    }
}

/// Polling intervals after which an answer is too old to let anybody in.
const STALE: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(5);
