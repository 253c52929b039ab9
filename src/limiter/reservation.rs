//! A grant whose time may lie in the future.

use std::fmt;
use std::time::Duration;

use super::direct::{InLine, Shared};
use super::line::Entered;
use super::waiting::Waiting;
use crate::error::AcquireError;
use crate::sync::{Arc, Mutex};
use crate::tick::Tick;

/// Place in the line of a [`RateLimiter`](crate::RateLimiter), taken before it is needed.
///
/// Wait for it with [`wait`](Self::wait), or act on your own after [`delay`](Self::delay) and say so with
/// [`take`](Self::take). Dropped without either, it is given back, and those behind move up.
///
/// # Examples
/// ```
/// use sluicegate::{ManualClock, Rate, RateLimiter};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let limiter = RateLimiter::with_clock(Rate::per_second(10).burst(1), clock.clone());
/// let first = limiter.reserve(1)?;
/// let second = limiter.reserve(1)?;
/// assert_eq!((first.delay(), second.delay()), (Duration::ZERO, Duration::from_millis(100)));
///
/// first.take();
/// drop(second);
/// clock.advance(Duration::from_millis(100));
/// assert!(limiter.check(1).is_granted(), "what was not used was given back");
/// # Ok::<(), sluicegate::AcquireError>(())
/// ```
#[must_use = "a reservation that is dropped is given back"]
pub struct Reservation {
    shared: Arc<Shared>,
    cost: u64,
    held: Mutex<Held>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// Charged at this instant.
    Grant(Tick),
    /// A place in line.
    Place(u64),
    /// Used, or refused.
    Nothing,
}

impl Reservation {
    pub(super) fn new(shared: Arc<Shared>, entered: Entered, cost: u64) -> Self {
        let held = match entered {
            Entered::Granted(at) => Held::Grant(at),
            Entered::Waits(id) => Held::Place(id),
        };
        Self {
            shared,
            cost,
            held: Mutex::new(held),
        }
    }

    /// Units that it stands for.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Time until its turn comes, as known now; zero if it has come.
    ///
    /// In a bucket it comes no later, unless the limit is changed. Behind others at a rule that counts in windows it is
    /// a lower bound.
    #[must_use]
    pub fn delay(&self) -> Duration {
        let held = *self.held.lock();
        match held {
            Held::Place(id) => {
                let now = self.shared.now();
                self.shared.account.due(now, id) - now
            }
            Held::Grant(_) | Held::Nothing => Duration::ZERO,
        }
    }

    /// Waits for the turn, and uses the reservation. Done at once if it was used already.
    ///
    /// # Errors
    /// [`AcquireError::Never`] if the limit was changed to one that can never grant the cost.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the reservation as it is; it can be waited for again.
    pub async fn wait(&self) -> Result<(), AcquireError> {
        let held = *self.held.lock();
        let result = match held {
            Held::Place(id) => {
                let shared = &*self.shared;
                Waiting::beside(InLine { shared, id }).await
            }
            Held::Grant(_) | Held::Nothing => Ok(()),
        };
        *self.held.lock() = Held::Nothing;
        result
    }

    /// Keeps what is reserved for good; the caller waits for the [`delay`](Self::delay) on its own.
    pub fn take(self) {
        let held = std::mem::replace(&mut *self.held.lock(), Held::Nothing);
        if let Held::Place(id) = held {
            self.shared.account.take(id);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let now = self.shared.now();
        match *self.held.get_mut() {
            Held::Grant(at) => self.shared.account.refund(now, at, self.cost),
            Held::Place(id) => self.shared.account.cancel(now, id),
            Held::Nothing => {}
        }
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("cost", &self.cost)
            .field("delay", &self.delay())
            .finish_non_exhaustive()
    }
}
