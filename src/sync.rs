//! The one place that names lock types.
//!
//! Code which takes its locks and atomics from here can be driven by loom: with `--cfg sluicegate_loom` they are
//! loom's and every interleaving of a small model is tried, otherwise they are std's. Promises:
//!
//! - A poisoned lock is entered anyway. Foreign code never runs under a lock of this crate, so a panic while one is
//!   held is our own bug: refusing service to everybody else would add nothing to it.
//! - A loom type outside a model panics. What belongs to the process rather than to a queue takes the types of
//!   [`process`], which are std's always; they are not modelled.
//! - [`Arc`] and [`Weak`] are std's in both: loom has no `Weak`, and counting is not what our models are about. Under
//!   loom they are invisible, neither a point at which threads switch nor one that orders memory.
//!
//! Models are the tests named `loom_*`: `RUSTFLAGS="--cfg sluicegate_loom" cargo test --release --lib loom`.

// A facade: which of its names are in use depends on features and cfgs.
#![allow(dead_code, unused_imports)]

#[cfg(sluicegate_loom)]
use loom::sync as imp;
use std::fmt;
#[cfg(not(sluicegate_loom))]
use std::sync as imp;
use std::sync::{PoisonError, TryLockError};

pub(crate) use imp::MutexGuard;
pub(crate) use imp::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
pub(crate) use std::sync::atomic::Ordering;
pub(crate) use std::sync::{Arc, Weak};

/// Lock that is modelled under loom and never fails.
pub(crate) struct Mutex<T>(imp::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    /// Waits for the lock; poison is ignored. Never held across an await, nor while foreign code runs.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        match self.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    /// Stays away for longer and longer before it sleeps.
    ///
    /// What the lock guards moves to this core's caches with it, which takes longer than most of what is done under it.
    /// So whoever holds it had better do several things in a row: a thread that has to wait looks again after a while,
    /// not at once.
    #[cold]
    fn wait(&self) -> MutexGuard<'_, T> {
        #[cfg(not(sluicegate_loom))]
        for pauses in BACK_OFF {
            for _ in 0..pauses {
                std::hint::spin_loop();
            }
            if let Some(guard) = self.try_lock() {
                return guard;
            }
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock if nobody holds it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poison)) => Some(poison.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pauses before each look at a lock that was held: together a few microseconds, less than a sleep and its wake-up take.
#[cfg(not(sluicegate_loom))]
const BACK_OFF: [u32; 2] = [64, 128];

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Says nothing of the content, so that printing never waits for a lock.
impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Mutex { .. }")
    }
}

/// Keeps what is written apart, in the memory of a processor's caches, from its neighbours that are only read.
///
/// Two lines of 64 bytes, as they are fetched in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

impl<T> std::ops::Deref for Apart<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// What a static may hold, or a closure may touch that runs under a lock of somebody else: std's types in every build,
/// never modelled.
pub(crate) mod process {
    use std::sync::{PoisonError, TryLockError};

    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64};
    pub(crate) use std::sync::{Condvar, MutexGuard};

    /// Lock of a static, entered even if it is poisoned.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Takes the lock if nobody holds it.
        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            match self.0.try_lock() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(poison)) => Some(poison.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            }
        }
    }
}

/// Holds an item that is only taken out by value, so that the holder is `Sync` for every `T: Send`.
///
/// A `Mutex` is what safe code has for that; it is never locked, only taken apart.
pub(crate) struct SyncCell<T>(std::sync::Mutex<T>);

impl<T> SyncCell<T> {
    pub(crate) const fn new(item: T) -> Self {
        Self(std::sync::Mutex::new(item))
    }

    pub(crate) fn into_inner(self) -> T {
        self.0
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(all(test, not(sluicegate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_poisoned_lock_is_entered_anyway() {
        let shared = Arc::new(Mutex::new(1));
        let other = Arc::clone(&shared);
        let panicked = std::thread::spawn(move || {
            let _guard = other.lock();
            panic!("poisons the lock");
        })
        .join();
        assert!(panicked.is_err());
        *shared.lock() += 1;
        assert_eq!(shared.try_lock().map(|value| *value), Some(2));
        let lock = Arc::into_inner(shared).expect("the other thread has ended");
        assert_eq!(lock.into_inner(), 2);
    }

    #[test]
    fn try_lock_refuses_while_the_lock_is_held() {
        let lock = Mutex::new(());
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert!(lock.try_lock().is_some());
    }
}

#[cfg(all(test, sluicegate_loom))]
mod models {
    use super::*;

    /// Two threads raise a number under the lock and a flag beside it: no rise is lost, and whoever sees both flags
    /// sees both rises.
    #[test]
    fn loom_the_lock_excludes_and_publishes() {
        loom::model(|| {
            let shared = Arc::new((Mutex::new(0_u64), AtomicUsize::new(0)));
            let other = Arc::clone(&shared);
            let rise = |shared: &(Mutex<u64>, AtomicUsize)| {
                *shared.0.lock() += 1;
                shared.1.fetch_add(1, Ordering::Release);
            };
            let thread = loom::thread::spawn(move || rise(&other));
            rise(&shared);
            if shared.1.load(Ordering::Acquire) == 2 {
                assert_eq!(*shared.0.lock(), 2);
            }
            thread.join().expect("the other thread does not panic");
            assert_eq!(*shared.0.lock(), 2);
        });
    }
}
