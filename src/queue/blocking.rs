//! Forms for threads that are not asynchronous, as those that drive a blocking database client.

use tokio::sync::Mutex;

use super::{Accepted, Job, Receiver, Refusal, Refused, Sender, Turn, Turnstile};
use crate::timer::block_on;

impl<T> Sender<T> {
    /// Sends an item as [`send`](Self::send) does; the thread sleeps meanwhile.
    ///
    /// It needs no runtime, and may be called on the threads of `spawn_blocking`.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Panics
    /// On a thread that drives asynchronous tasks, which it would hold up.
    #[track_caller]
    pub fn blocking_send(&self, item: T) -> Result<Accepted, Refused<T>> {
        refuse_async_threads();
        block_on(self.send(item))
    }
}

impl<T> Receiver<T> {
    /// Takes the next job as [`recv`](Self::recv) does; the thread sleeps meanwhile.
    ///
    /// It needs no runtime, and may be called on the threads of `spawn_blocking`.
    ///
    /// # Panics
    /// On a thread that drives asynchronous tasks, which it would hold up.
    #[track_caller]
    pub fn blocking_recv(&self) -> Option<Job<T>> {
        refuse_async_threads();
        block_on(self.recv())
    }
}

impl Turnstile {
    /// Waits for a turn as [`enter`](Self::enter) does; the thread sleeps meanwhile.
    ///
    /// It needs no runtime, and may be called on the threads of `spawn_blocking`.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    ///
    /// # Panics
    /// On a thread that drives asynchronous tasks, which it would hold up.
    #[track_caller]
    pub fn blocking_enter(&self) -> Result<Turn, Refusal> {
        refuse_async_threads();
        block_on(self.enter())
    }
}

/// Panics, with the caller's place, on a thread that drives asynchronous tasks.
///
/// Only tokio knows: a thread of `spawn_blocking` has a runtime too and may block. Its blocking calls ask, and this one,
/// on a lock that is free, does nothing else.
#[track_caller]
fn refuse_async_threads() {
    drop(Mutex::new(()).blocking_lock());
}
