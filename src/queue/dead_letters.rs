//! Where jobs go that nobody acknowledged: with their item, the reason, and a bound.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;

use super::wakers::Shield;
use crate::sync::{Arc, AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::words::Exit;

/// A job that left the queue without an acknowledgement.
pub struct DeadLetter<T> {
    /// The item, untouched.
    pub item: T,
    /// How it left.
    pub exit: Exit,
    /// How long it waited: from its offer, or from the instant its last retry was due, to its start or its end.
    pub waited: Duration,
    /// Starts it had.
    pub attempts: u32,
    /// What the consumer gave as the cause, the last time it gave one.
    pub cause: Option<Box<dyn Error + Send + Sync>>,
}

impl<T> fmt::Debug for DeadLetter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetter")
            .field("exit", &self.exit)
            .field("waited", &self.waited)
            .field("attempts", &self.attempts)
            .field("cause", &self.cause)
            .finish_non_exhaustive()
    }
}

/// Handle to the dead letters of a queue; clones share them.
///
/// The outlet holds as many as [`Builder::dead_letters`](super::Builder::dead_letters) says. When it is full the newest
/// is dropped and counted in [`Snapshot::dead_letters_lost`](super::Snapshot::dead_letters_lost). It ends once the queue
/// is closed and nothing is left in it that could still fail. A handle keeps nothing open.
///
/// As a [`Stream`] it yields until then.
pub struct DeadLetters<T> {
    letters: Pin<Box<async_channel::Receiver<DeadLetter<T>>>>,
    held: Arc<AtomicUsize>,
}

impl<T> DeadLetters<T> {
    /// Waits for the next letter; `None` once there can be no more.
    ///
    /// # Cancel safety
    /// Dropping it loses no letter.
    pub async fn recv(&self) -> Option<DeadLetter<T>> {
        let letter = self.letters.recv().await.ok()?;
        self.took_one();
        Some(letter)
    }

    /// Takes a letter if there is one.
    #[must_use]
    pub fn try_recv(&self) -> Option<DeadLetter<T>> {
        let letter = self.letters.try_recv().ok()?;
        self.took_one();
        Some(letter)
    }

    fn took_one(&self) {
        // Relaxed: the count bounds memory, the channel orders the letters.
        self.held.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<T> Stream for DeadLetters<T> {
    type Item = DeadLetter<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<DeadLetter<T>>> {
        let next = self.letters.as_mut().poll_next(cx);
        if let Poll::Ready(Some(_)) = &next {
            self.took_one();
        }
        next
    }
}

impl<T> Clone for DeadLetters<T> {
    fn clone(&self) -> Self {
        Self {
            letters: self.letters.clone(),
            held: Arc::clone(&self.held),
        }
    }
}

impl<T> fmt::Debug for DeadLetters<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetters")
            .field("len", &self.letters.len())
            .finish_non_exhaustive()
    }
}

/// The queue's end of it.
///
/// It ends when no more letters can come. A step that will send letters says so under the queue's lock
/// ([`expect`](Self::expect)) and sends them after; a later step may see that the queue is over in between. So the outlet
/// is shut by whoever comes last: the sender that finds the end announced, or the announcer that finds nobody sending.
pub(crate) struct Outlet<T> {
    sender: async_channel::Sender<DeadLetter<T>>,
    /// Keeps the channel open while nobody reads.
    receiver: async_channel::Receiver<DeadLetter<T>>,
    held: Arc<AtomicUsize>,
    most: usize,
    /// A turnstile writes no letters, and loses none.
    silent: bool,
    lost: AtomicU64,
    senders: AtomicUsize,
    over: AtomicBool,
}

impl<T> Outlet<T> {
    /// Makes an outlet for `most` letters; it takes memory as they come.
    pub(crate) fn new(most: usize) -> Self {
        let (sender, receiver) = async_channel::unbounded();
        Self {
            sender,
            receiver,
            held: Arc::new(AtomicUsize::new(0)),
            most,
            silent: false,
            lost: AtomicU64::new(0),
            senders: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        }
    }

    /// Makes an outlet that takes no letters.
    pub(crate) fn silent() -> Self {
        Self {
            silent: true,
            ..Self::new(0)
        }
    }

    /// Another handle for whoever reads.
    pub(crate) fn letters(&self) -> DeadLetters<T> {
        DeadLetters {
            letters: Box::pin(self.receiver.clone()),
            held: Arc::clone(&self.held),
        }
    }

    /// Letters dropped because the outlet was full.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Announces letters; called under the queue's lock, and followed by [`done`](Self::done).
    pub(crate) fn expect(&self) {
        // Sequentially consistent here and below: of `done` and `end` at least one must see the other.
        self.senders.fetch_add(1, Ordering::SeqCst);
    }

    /// Puts a letter in, or drops and counts it.
    pub(crate) fn send(&self, letter: DeadLetter<T>, shield: &mut Shield) {
        if self.silent {
            return shield.call(|| drop(letter));
        }
        let room = self
            .held
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
                (held < self.most).then_some(held + 1)
            })
            .is_ok();
        if !room {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return shield.call(|| drop(letter));
        }
        shield.call(|| {
            if let Err(closed) = self.sender.try_send(letter) {
                self.held.fetch_sub(1, Ordering::Relaxed);
                self.lost.fetch_add(1, Ordering::Relaxed);
                drop(closed);
            }
        });
    }

    pub(crate) fn done(&self) {
        if self.senders.fetch_sub(1, Ordering::SeqCst) == 1 && self.over.load(Ordering::SeqCst) {
            self.sender.close();
        }
    }

    /// No more letters will be announced.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        if self.senders.load(Ordering::SeqCst) == 0 {
            self.sender.close();
        }
    }
}
