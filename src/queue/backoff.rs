//! How long a failed job waits for its next attempt.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::tick::nanos;

/// Time before a retry.
///
/// # Examples
/// ```
/// use sluicegate::queue::Backoff;
/// use std::time::Duration;
///
/// let doubling = Backoff::exponential(Duration::from_millis(100), Duration::from_secs(30));
/// let exact = Backoff::from(Duration::from_secs(5));
/// # let _ = (doubling, exact);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    jitter: bool,
}

impl Backoff {
    /// Doubles from `first` with every attempt, up to `most`.
    ///
    /// The delay is drawn at random from the upper half, so that jobs which failed together do not return together.
    #[must_use]
    pub const fn exponential(first: Duration, most: Duration) -> Self {
        Self {
            first,
            most,
            jitter: true,
        }
    }

    /// The longest delay that it comes to.
    #[cfg(feature = "broker")]
    pub(crate) const fn most(self) -> Duration {
        self.most
    }

    /// The delay after the attempt of this number, which is 1 for the first.
    pub(crate) fn delay(self, attempt: u32) -> Duration {
        let doublings = attempt.saturating_sub(1).min(63);
        let full = nanos(self.first)
            .saturating_mul(1 << doublings)
            .min(nanos(self.most));
        if !self.jitter {
            return Duration::from_nanos(full);
        }
        let half = full / 2;
        let drawn = random() % (full - half).saturating_add(1).max(1);
        Duration::from_nanos(half + drawn)
    }
}

/// Exactly this long, after every attempt.
impl From<Duration> for Backoff {
    fn from(delay: Duration) -> Self {
        Self {
            first: delay,
            most: delay,
            jitter: false,
        }
    }
}

/// Numbers that differ from call to call and from process to process, which is all that jitter needs.
fn random() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_duration_is_kept_to_the_nanosecond() {
        let exact = Backoff::from(Duration::from_nanos(1_234_567));
        for attempt in [1, 2, 100, u32::MAX] {
            assert_eq!(exact.delay(attempt), Duration::from_nanos(1_234_567));
        }
    }

    #[test]
    fn doubling_stays_between_half_and_whole_and_below_the_most() {
        let doubling = Backoff::exponential(SECOND, 10 * SECOND);
        for (attempt, whole) in [
            (1, 1),
            (2, 2),
            (3, 4),
            (4, 8),
            (5, 10),
            (64, 10),
            (u32::MAX, 10),
        ] {
            for _ in 0..100 {
                let delay = doubling.delay(attempt);
                assert!(
                    delay >= whole * SECOND / 2 && delay <= whole * SECOND,
                    "{delay:?}"
                );
            }
        }
    }

    #[test]
    fn extremes_do_not_overflow() {
        let vast = Backoff::exponential(Duration::MAX, Duration::MAX);
        assert!(vast.delay(1) >= Duration::from_nanos(u64::MAX / 2));
        assert_eq!(
            Backoff::exponential(Duration::ZERO, SECOND).delay(9),
            Duration::ZERO
        );
    }

    #[test]
    fn jobs_that_failed_together_do_not_return_together() {
        let doubling = Backoff::exponential(SECOND, SECOND);
        let delays: std::collections::HashSet<_> = (0..100).map(|_| doubling.delay(1)).collect();
        assert!(delays.len() > 90, "{}", delays.len());
    }
}
