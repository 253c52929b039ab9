//! One limit for everybody who holds a handle.

use std::fmt;
use std::task::Waker;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::account::Account;
use super::line::{Entered, Standing};
use super::reservation::Reservation;
use super::waiting::{Place, Waiting};
use crate::clock::{AnyClock, Clock, TokioClock};
use crate::decision::Decision;
use crate::error::AcquireError;
use crate::policy::Limit;
use crate::sync::Arc;
use crate::tick::Tick;

/// One limit, of any kind, shared by its clones: ask it now, wait for it, or reserve with it.
///
/// Checks of a bucket are one atomic exchange when granted and only read when refused; they take a lock while somebody
/// waits. Rates are kept within 1 ppm from one a day to 1e9 a second. (Buckets that take more than days to fill, and the
/// three rules that count in windows, always take the lock; buckets are then exact.)
///
/// **The line.** Those who wait are served in the order in which they first asked, whatever their cost: a costly one is
/// not overtaken by cheap ones, and shares differ by at most one grant. While they wait, [`check`](Self::check) is
/// refused. In a bucket the answer is exact even then, unless somebody gives up; behind a line at one of the rules that
/// count in windows, `retry_after` is a lower bound. A place that is given up lets those behind move up at once; one
/// that is held without being polled delays them by at most the cost that was given up before it.
///
/// # Examples
/// ```
/// use sluicegate::{ManualClock, Rate, RateLimiter};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let limiter = RateLimiter::with_clock(Rate::per_second(10).burst(2), clock.clone());
/// assert!(limiter.check(2).is_granted());
///
/// let refused = limiter.check(1);
/// assert_eq!(refused.retry_after(), Some(Duration::from_millis(100)));
/// clock.advance(Duration::from_millis(100));
/// assert!(limiter.check(1).is_granted());
/// ```
#[derive(Clone)]
pub struct RateLimiter {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) account: Account,
    clock: AnyClock,
}

impl RateLimiter {
    /// Makes a limiter in tokio's time.
    #[must_use]
    pub fn new(limit: impl Into<Limit>) -> Self {
        Self::with_clock(limit, TokioClock)
    }

    /// Makes a limiter in the time of `clock`.
    #[must_use]
    pub fn with_clock(limit: impl Into<Limit>, clock: impl Clock) -> Self {
        let clock = AnyClock::of(clock);
        let account = Account::new(limit.into(), clock.now());
        Self {
            shared: Arc::new(Shared { account, clock }),
        }
    }

    /// Charges `cost` if it fits now; a refusal changes nothing.
    #[inline(always)] // What the caller does not read of the decision is then not worked out.
    pub fn check(&self, cost: u64) -> Decision {
        self.shared.account.check(self.shared.now(), cost)
    }

    /// Says what [`check`](Self::check) would, and charges nothing; with cost 0 it tells what is left.
    pub fn peek(&self, cost: u64) -> Decision {
        self.shared.account.peek(self.shared.now(), cost)
    }

    /// Gives back a cost that turned out not to be needed, charged at the decision's [`at`](Decision::at).
    ///
    /// After the limit's window that changes nothing: it has come back by itself.
    pub fn refund(&self, charged_at: Tick, cost: u64) {
        let now = self.shared.now();
        self.shared.account.refund(now, charged_at, cost);
    }

    /// Changes the limit, at once and for those who wait too.
    ///
    /// Of the same kind of limit, what is used stays used, in units: a bucket may be in debt afterwards. Another kind
    /// starts fresh. Everybody in line is planned anew, and refused if the cost no longer fits.
    pub fn set_limit(&self, limit: impl Into<Limit>) {
        let now = self.shared.now();
        self.shared.account.set_limit(now, limit.into());
    }

    /// The limit as it stands.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.shared.account.limit()
    }

    /// Waits in line until `cost` is granted.
    ///
    /// # Errors
    /// [`AcquireError::Never`], at once, if the cost can never be granted.
    ///
    /// # Cancel safety
    /// Dropping the future gives up its place, or the grant if it came already, and lets those behind move up. The place
    /// is that of the first poll.
    pub async fn acquire(&self, cost: u64) -> Result<(), AcquireError> {
        self.wait(cost, Tick::MAX).await
    }

    /// Waits in line until `cost` is granted, at most `within`.
    ///
    /// # Errors
    /// [`AcquireError::Never`] if the cost can never be granted, and [`AcquireError::TooLate`] if the turn would come
    /// later: both at once, without waiting, where that can be known. At the rules that count in windows the turn of one
    /// who comes behind others is known as a lower bound only; it may then be `TooLate` after the time is over.
    ///
    /// # Cancel safety
    /// Dropping the future gives up its place, or the grant if it came already, and lets those behind move up. The place
    /// is that of the first poll.
    pub async fn acquire_within(&self, cost: u64, within: Duration) -> Result<(), AcquireError> {
        let deadline = self.shared.now() + within;
        self.wait(cost, deadline).await
    }

    /// Takes a place in line now, to be waited for or acted on later.
    ///
    /// # Errors
    /// [`AcquireError::Never`] if the cost can never be granted.
    pub fn reserve(&self, cost: u64) -> Result<Reservation, AcquireError> {
        let now = self.shared.now();
        let entered = self.shared.account.enter(now, cost, Tick::MAX)?;
        Ok(Reservation::new(Arc::clone(&self.shared), entered, cost))
    }

    async fn wait(&self, cost: u64, deadline: Tick) -> Result<(), AcquireError> {
        let now = self.shared.now();
        if cost > 0 && self.shared.account.check_open(now, cost) {
            return Ok(());
        }
        match self.shared.account.enter(now, cost, deadline)? {
            Entered::Granted(_) => Ok(()),
            Entered::Waits(id) => {
                let shared = &*self.shared;
                Waiting::new(InLine { shared, id }).await
            }
        }
    }

    /// As [`check`](Self::check); in a bucket a grant leaves half of it, or what the cost leaves.
    pub(crate) fn check_keeping_half(&self, cost: u64) -> Decision {
        let now = self.shared.now();
        self.shared.account.check_locked(now, cost, true)
    }
}

impl Shared {
    #[inline(always)]
    pub(super) fn now(&self) -> Tick {
        self.clock.now()
    }
}

/// A place in the line of a direct limiter.
pub(super) struct InLine<'a> {
    pub(super) shared: &'a Shared,
    pub(super) id: u64,
}

impl Place for InLine<'_> {
    fn poll_place(&self, waker: Waker) -> Standing {
        self.shared.account.poll(self.shared.now(), self.id, waker)
    }

    fn cancel(&self) {
        self.shared.account.cancel(self.shared.now(), self.id);
    }

    fn sleep_until(&self, deadline: Tick) -> BoxFuture<'static, ()> {
        self.shared.clock.sleep_until(deadline)
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter")
            .field("limit", &self.limit())
            .field("clock", &self.shared.clock)
            .finish_non_exhaustive()
    }
}
