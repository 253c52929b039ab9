//! Foreign code that a step leaves to run once its lock is released.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

/// Wakers to call. The first one needs no allocation, and most steps wake one.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    first: Option<Waker>,
    rest: Vec<Waker>,
}

impl Wakers {
    pub(crate) const fn new() -> Self {
        Self {
            first: None,
            rest: Vec::new(),
        }
    }

    pub(crate) fn push(&mut self, waker: Waker) {
        if self.first.is_none() {
            self.first = Some(waker);
        } else {
            self.rest.push(waker);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Calls them in order; the first panic among them goes on after the last.
    pub(crate) fn wake_all(self) {
        let mut shield = Shield::default();
        self.wake(&mut shield);
        shield.finish();
    }

    /// Calls them in order.
    pub(crate) fn wake(self, shield: &mut Shield) {
        for waker in self.first.into_iter().chain(self.rest) {
            shield.call(|| waker.wake());
        }
    }
}

/// Runs foreign code so that a panic in one piece does not keep the others from running.
#[derive(Debug, Default)]
pub(crate) struct Shield(Option<Box<dyn Any + Send>>);

impl Shield {
    pub(crate) fn call(&mut self, code: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(code)) {
            match &self.0 {
                None => self.0 = Some(panic),
                // Its drop is foreign too and may panic once more.
                Some(_) => std::mem::forget(panic),
            }
        }
    }

    /// Goes on with the first panic, unless the thread is panicking already: a second one would end the process.
    pub(crate) fn finish(self) {
        if let Some(panic) = self.0 {
            if std::thread::panicking() {
                std::mem::forget(panic);
            } else {
                resume_unwind(panic);
            }
        }
    }
}
