//! A circuit breaker: once the server has failed several times in a row it is left alone, but for one try at a time.
//!
//! ```text
//!   closed --failures in a row--> open --pause over: one caller tries--> closed, or open for another pause
//! ```

use std::time::Duration;

use tokio::time::Instant;

use crate::sync::{AtomicU32, AtomicU64, Ordering};

#[derive(Debug)]
pub(super) struct Breaker {
    begun: Instant,
    limit: u32,
    pause: Duration,
    failures: AtomicU32,
    /// Microseconds since `begun` until which it is open; 0 while it is closed.
    until: AtomicU64,
}

impl Breaker {
    pub(super) fn new(limit: u32, pause: Duration) -> Self {
        Self {
            begun: Instant::now(),
            limit,
            pause,
            failures: AtomicU32::new(0),
            until: AtomicU64::new(0),
        }
    }

    /// Lets a call through, or says how long the server is left alone.
    pub(super) fn admit(&self) -> Result<(), Duration> {
        let until = self.until.load(Ordering::Relaxed);
        if until == 0 {
            return Ok(());
        }
        let now = self.now();
        if now < until {
            return Err(Duration::from_micros(until - now));
        }
        // Whoever moves it on is the one that tries.
        let next = now + self.pause();
        let moved = self
            .until
            .compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed);
        moved.map(|_| ()).map_err(|_| self.pause)
    }

    /// As [`admit`](Self::admit), but never makes the caller the one that tries.
    pub(super) fn left(&self) -> Option<Duration> {
        match self.until.load(Ordering::Relaxed) {
            0 => None,
            until => Some(Duration::from_micros(until.saturating_sub(self.now()))),
        }
    }

    pub(super) fn succeeded(&self) {
        // Read first: all callers share these words.
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
        if self.until.load(Ordering::Relaxed) > 0 {
            self.until.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn failed(&self) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures >= self.limit {
            let until = self.now() + self.pause();
            self.until.store(until, Ordering::Relaxed);
        }
    }

    fn pause(&self) -> u64 {
        u64::try_from(self.pause.as_micros()).unwrap_or(u64::MAX / 4)
    }

    /// Never 0.
    fn now(&self) -> u64 {
        let passed = self.begun.elapsed().as_micros();
        u64::try_from(passed).unwrap_or(u64::MAX / 4) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_failures_in_a_row_and_lets_one_caller_try() {
        let breaker = Breaker::new(3, Duration::from_millis(100));
        breaker.failed();
        breaker.failed();
        breaker.succeeded();
        for _ in 0..3 {
            assert_eq!(breaker.admit(), Ok(()));
            breaker.failed();
        }
        assert!(breaker.admit().is_err());
        tokio::time::advance(Duration::from_millis(101)).await;
        assert_eq!(breaker.admit(), Ok(()), "one tries");
        assert!(breaker.admit().is_err(), "and only one");
        breaker.failed();
        assert!(breaker.admit().is_err());
        tokio::time::advance(Duration::from_millis(101)).await;
        assert_eq!(breaker.admit(), Ok(()));
        breaker.succeeded();
        assert_eq!((breaker.admit(), breaker.left()), (Ok(()), None));
    }
}
