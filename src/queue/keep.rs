//! Where the job of a handler stays if it is dropped before the handler has said what became of it.
//!
//! ```text
//!   Open --job dropped unsettled--> Kept --handler over--> settled by what the handler returned
//!     +-------handler over--------> Over: a job that lives on elsewhere is on its own, and may be abandoned
//! ```

use std::mem;

use super::job::Job;
use crate::sync::{Arc, Mutex};

/// Shared by a handler's job and whoever runs the handler. A keep that is dropped abandons what it holds.
pub(crate) struct Keep<T>(Mutex<State<T>>);

enum State<T> {
    Open,
    Kept(Job<T>),
    Over,
}

impl<T> Keep<T> {
    pub(crate) fn open() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Open)))
    }

    /// Takes the job in, or gives it back: the handler is over.
    pub(crate) fn put(&self, job: Job<T>) -> Result<(), Job<T>> {
        let mut state = self.0.lock();
        match *state {
            State::Open => *state = State::Kept(job),
            // The caller drops it with the lock released.
            State::Kept(_) | State::Over => return Err(job),
        }
        Ok(())
    }

    /// The handler is over: hands out the job, unless it is settled already or lives on.
    pub(crate) fn end(&self) -> Option<Job<T>> {
        match mem::replace(&mut *self.0.lock(), State::Over) {
            State::Kept(job) => Some(job),
            State::Open | State::Over => None,
        }
    }
}
