//! Time that is moved by hand.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::Clock;
use crate::sync::{Arc, Mutex};
use crate::tick::Tick;

/// Clock that stands still until it is moved, for tests and simulations.
///
/// Starts at [`Tick::ZERO`]. Clones share the same time. Moving it forward wakes the sleeps that are over by then;
/// moving it back wakes nobody.
///
/// # Examples
/// ```
/// use sluicegate::{Clock, ManualClock, Tick};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let seen_by_a_limiter = clock.clone();
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(seen_by_a_limiter.now(), Tick::from_nanos(1_000_000_000));
/// ```
#[derive(Clone, Default)]
pub struct ManualClock {
    shared: Arc<Mutex<Shared>>,
}

impl ManualClock {
    /// Makes a clock that reads [`Tick::ZERO`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the time forward, at most to [`Tick::MAX`], and wakes whoever sleeps no longer.
    pub fn advance(&self, duration: Duration) {
        self.shift(|now| now + duration);
    }

    /// Moves the time to `now`, forward or back, and wakes whoever sleeps no longer.
    pub fn set(&self, now: Tick) {
        self.shift(|_| now);
    }

    fn shift(&self, to: impl FnOnce(Tick) -> Tick) {
        let due = {
            let mut shared = self.shared.lock();
            shared.now = to(shared.now);
            // The first key that may not be woken is the first one after `now`, whatever its id.
            let split = (shared.now, u64::MAX);
            let later = shared.sleepers.split_off(&split);
            std::mem::replace(&mut shared.sleepers, later)
        };
        // In the order of their deadlines, and with the lock released: a waker is foreign code.
        due.into_values().for_each(Waker::wake);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Tick {
        self.shared.lock().now
    }

    fn sleep_until(&self, deadline: Tick) -> BoxFuture<'static, ()> {
        Box::pin(Sleep {
            shared: Arc::clone(&self.shared),
            deadline,
            id: None,
        })
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.now()).finish()
    }
}

#[derive(Default)]
struct Shared {
    now: Tick,
    /// By deadline, then by the order in which they came.
    sleepers: BTreeMap<(Tick, u64), Waker>,
    last_id: u64,
}

/// Place among the sleepers: taken at the first poll that has to wait, left when woken or dropped.
struct Sleep {
    shared: Arc<Mutex<Shared>>,
    deadline: Tick,
    id: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        // Cloned before the lock is taken; the one it replaces is dropped after it is released.
        let waker = cx.waker().clone();
        let mut shared = this.shared.lock();
        if shared.now >= this.deadline {
            return Poll::Ready(());
        }
        let id = *this.id.get_or_insert_with(|| {
            shared.last_id += 1;
            shared.last_id
        });
        let replaced = shared.sleepers.insert((this.deadline, id), waker);
        drop(shared);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let waker = self.shared.lock().sleepers.remove(&(self.deadline, id));
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::task::Wake;

    fn sleepers(clock: &ManualClock) -> usize {
        clock.shared.lock().sleepers.len()
    }

    #[test]
    fn a_sleep_ends_exactly_at_its_deadline() {
        let clock = ManualClock::new();
        let mut sleep = clock.sleep_until(Tick::from_nanos(10));
        assert_eq!((&mut sleep).now_or_never(), None);
        clock.advance(Duration::from_nanos(9));
        assert_eq!((&mut sleep).now_or_never(), None);
        clock.advance(Duration::from_nanos(1));
        assert_eq!(sleep.now_or_never(), Some(()));
        assert_eq!(clock.sleep_until(clock.now()).now_or_never(), Some(()));
    }

    #[tokio::test]
    async fn moving_forward_wakes_the_sleepers_of_every_clone() {
        let clock = ManualClock::new();
        let other = clock.clone();
        let sleeper = tokio::spawn(async move {
            other.sleep_until(Tick::from_nanos(5)).await;
            other.now()
        });
        while sleepers(&clock) == 0 {
            tokio::task::yield_now().await;
        }
        clock.set(Tick::from_nanos(7));
        let seen = sleeper.await.expect("the sleeper does not panic");
        assert_eq!(seen, Tick::from_nanos(7));
    }

    #[test]
    fn moving_back_is_allowed_and_wakes_nobody() {
        let clock = ManualClock::new();
        clock.set(Tick::MAX);
        clock.set(Tick::from_nanos(3));
        let mut sleep = clock.sleep_until(Tick::from_nanos(4));
        assert_eq!((&mut sleep).now_or_never(), None);
        clock.set(Tick::ZERO);
        assert_eq!(sleepers(&clock), 1);
        assert_eq!((&mut sleep).now_or_never(), None);
        clock.advance(Duration::MAX);
        assert_eq!(clock.now(), Tick::MAX);
        assert_eq!(sleep.now_or_never(), Some(()));
    }

    #[test]
    fn the_last_tick_wakes_its_sleepers_too() {
        let clock = ManualClock::new();
        let mut sleep = clock.sleep_until(Tick::MAX);
        assert_eq!((&mut sleep).now_or_never(), None);
        clock.set(Tick::MAX);
        assert_eq!(sleepers(&clock), 0);
        assert_eq!(sleep.now_or_never(), Some(()));
    }

    #[test]
    fn dropped_and_ended_sleeps_leave_nothing_behind() {
        let clock = ManualClock::new();
        let mut sleeps: Vec<_> = (1..=100)
            .map(|nanos| clock.sleep_until(Tick::from_nanos(nanos)))
            .collect();
        for _ in 0..3 {
            for sleep in &mut sleeps {
                assert_eq!(sleep.now_or_never(), None);
            }
        }
        assert_eq!(sleepers(&clock), 100);
        clock.advance(Duration::from_nanos(40));
        assert_eq!(sleepers(&clock), 60);
        drop(sleeps);
        assert_eq!(sleepers(&clock), 0);
        assert_eq!(Arc::strong_count(&clock.shared), 1);
    }

    /// A waker that reads the clock would never return if it were called under the clock's lock.
    #[test]
    fn a_waker_may_use_the_clock() {
        struct Reads(ManualClock, Mutex<Option<Tick>>);
        impl Wake for Reads {
            fn wake(self: Arc<Self>) {
                *self.1.lock() = Some(self.0.now());
            }
        }
        let clock = ManualClock::new();
        let reads = Arc::new(Reads(clock.clone(), Mutex::new(None)));
        let waker = Waker::from(Arc::clone(&reads));
        let mut sleep = clock.sleep_until(Tick::from_nanos(1));
        let polled = sleep.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        clock.advance(Duration::from_nanos(2));
        assert_eq!(*reads.1.lock(), Some(Tick::from_nanos(2)));
    }
}
