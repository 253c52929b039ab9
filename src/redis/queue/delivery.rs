//! Jobs that this process holds: taken, kept alive, and not settled.
//!
//! ```text
//!   server --take--> stash --recv--> Job --settle--> gone
//!                      |               +--dropped--> no longer kept alive: another consumer's after the claim time
//!                      +--nobody came within a second--> given back, uncounted
//! ```
//! - D1  Whatever is in the stash or in a [`Job`](super::Job) is in the registry, and is kept alive by its task.
//! - D2  A question for jobs is asked by a task of its own, so a caller who gives up loses no job: it is in the stash.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::core::{Core, Settling};
use super::store::{bytes, natural, text};
use crate::redis::link::Value;
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, Weak};

/// A job as the server handed it out.
#[derive(Debug)]
pub(super) struct Raw {
    pub(super) id: String,
    pub(super) payload: Vec<u8>,
    pub(super) token: u32,
    pub(super) attempt: u32,
    pub(super) offered: u64,
    pub(super) key: String,
    pub(super) cause: String,
    pub(super) history: String,
    pub(super) headers: String,
    pub(super) exit: String,
    pub(super) departed: u64,
}

impl Raw {
    /// Reads one of the jobs of an answer.
    pub(super) fn read(job: Value, departed: u64) -> Option<Self> {
        let Value::Array(parts) = job else {
            return None;
        };
        let mut parts = parts.into_iter();
        let id = text(&parts.next()?);
        let payload = bytes(parts.next()?);
        let small = |part: Option<Value>| u32::try_from(natural(part.as_ref())).unwrap_or(u32::MAX);
        let (token, attempt) = (small(parts.next()), small(parts.next()));
        let offered = natural(parts.next().as_ref());
        let mut next = || parts.next().as_ref().map(text).unwrap_or_default();
        Some(Self {
            id,
            payload,
            token,
            attempt,
            offered,
            key: next(),
            cause: next(),
            history: next(),
            headers: next(),
            exit: next(),
            departed,
        })
    }
}

/// Headers as they are kept: a JSON object, or nothing at all if there are none.
pub(super) fn headers_text(headers: &BTreeMap<String, String>) -> String {
    if headers.is_empty() {
        return String::new();
    }
    serde_json::to_string(headers).unwrap_or_default()
}

/// What [`headers_text`] wrote; anything else counts as none.
pub(super) fn headers_of(text: &str) -> BTreeMap<String, String> {
    serde_json::from_str(text).unwrap_or_default()
}

/// What this process holds.
#[derive(Default)]
pub(super) struct Registry {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    held: HashMap<String, Held>,
    stash: VecDeque<(Instant, Raw, Guard)>,
    is_kept: bool,
}

struct Held {
    token: u32,
    lost: Arc<AtomicBool>,
}

/// Keeps a delivery alive until it is dropped.
pub(super) struct Guard {
    core: Weak<Core>,
    id: String,
    lost: Arc<AtomicBool>,
}

impl Guard {
    /// Whether the server said that it is no longer ours.
    pub(super) fn is_lost(&self) -> bool {
        // Relaxed: a hint, the server is asked before anything is done about it.
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            let mut inner = core.registry.inner.lock();
            // The same entry may have been delivered to us anew meanwhile, which is another delivery.
            let is_same = |held: &Held| Arc::ptr_eq(&held.lost, &self.lost);
            if inner.held.get(&self.id).is_some_and(is_same) {
                inner.held.remove(&self.id);
            }
        }
    }
}

impl Core {
    /// Takes jobs into the stash, and sees to it that they are kept alive.
    pub(super) fn accept(self: &Arc<Self>, jobs: Vec<Raw>) {
        if jobs.is_empty() {
            return;
        }
        let now = Instant::now();
        let start = {
            let mut inner = self.registry.inner.lock();
            for raw in jobs {
                let lost = Arc::new(AtomicBool::new(false));
                let guard = Guard {
                    core: Arc::downgrade(self),
                    id: raw.id.clone(),
                    lost: Arc::clone(&lost),
                };
                let held = Held {
                    token: raw.token,
                    lost,
                };
                inner.held.insert(raw.id.clone(), held);
                inner.stash.push_back((now, raw, guard));
            }
            !std::mem::replace(&mut inner.is_kept, true)
        };
        if start {
            tokio::spawn(keep(Arc::downgrade(self)));
        }
    }

    /// The next job that was taken for whoever comes.
    pub(super) fn unstash(&self) -> Option<(Raw, Guard)> {
        let (_, raw, guard) = self.registry.inner.lock().stash.pop_front()?;
        Some((raw, guard))
    }

    /// Gives back, uncounted, what has been in the stash for so long.
    pub(super) async fn give_back(&self, older: Duration) {
        loop {
            let stale = {
                let mut inner = self.registry.inner.lock();
                match inner.stash.front() {
                    Some((since, ..)) if since.elapsed() >= older => inner.stash.pop_front(),
                    _ => None,
                }
            };
            let Some((_, raw, guard)) = stale else { return };
            let settling = Settling {
                id: &raw.id,
                token: raw.token,
                how: "defer",
                delay: Duration::ZERO,
                cause: "",
                headers: "",
            };
            // If it fails the job is another consumer's after the claim time.
            let _ = self.settle(&settling).await;
            drop(guard);
        }
    }

    /// Tells the server that all these are being worked on, and their holders which are lost.
    async fn hold_all(&self) {
        let all: Vec<(String, String, Arc<AtomicBool>)> = {
            let inner = self.registry.inner.lock();
            let held = inner.held.iter();
            held.map(|(id, held)| (id.clone(), held.token.to_string(), Arc::clone(&held.lost)))
                .collect()
        };
        for some in all.chunks(HELD_AT_ONCE) {
            let mut arguments = vec![self.consumer.as_bytes()];
            for (id, token, _) in some {
                arguments.extend([id.as_bytes(), token.as_bytes()]);
            }
            let hold = &self.store.scripts.hold;
            // Without an answer nothing is known: the next round is soon.
            let Ok((_, answers)) = self.store.call(hold, None, &arguments).await else {
                continue;
            };
            for ((.., lost), answer) in some.iter().zip(&answers) {
                if natural(Some(answer)) == 0 {
                    lost.store(true, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Says that nobody keeps what is held alive any more, also if its runtime ends: whoever takes the next job starts anew.
struct Keeper(Weak<Core>);

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(core) = self.0.upgrade() {
            core.registry.inner.lock().is_kept = false;
        }
    }
}

/// Keeps alive what is held, until nothing is.
async fn keep(core: Weak<Core>) {
    let mut keeper = Keeper(Weak::clone(&core));
    let mut held_at = Instant::now();
    loop {
        let Some(strong) = core.upgrade() else { return };
        let claim = strong.settings.lock().claim_after;
        let every = (claim / 4).min(LINGER / 2);
        drop(strong);
        tokio::time::sleep(every).await;
        let Some(core) = core.upgrade() else { return };
        core.give_back(LINGER).await;
        if held_at.elapsed() + every / 2 >= claim / 4 {
            held_at = Instant::now();
            core.hold_all().await;
        }
        let mut inner = core.registry.inner.lock();
        if inner.held.is_empty() {
            inner.is_kept = false;
            // Another may be at work as soon as the lock is free.
            keeper.0 = Weak::new();
            return;
        }
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Guard").field(&self.id).finish()
    }
}

/// How long a job waits in this process for somebody to take it.
const LINGER: Duration = Duration::from_secs(1);
const HELD_AT_ONCE: usize = 128;
