//! Real time read from the processor's time stamp counter.

use std::fmt;
use std::sync::LazyLock;

use futures_util::future::BoxFuture;

use super::Clock;
use super::real::{ANCHOR, sleep_on_runtime};
use crate::tick::Tick;
use crate::timer::pacing;

/// Clock that reads the processor's time stamp counter, about twice as fast as the system's monotonic clock.
///
/// Starts at Unix time, like [`TokioClock`](super::TokioClock), and shares one counter reading per process, so that all
/// of them agree. The counter is measured once, at the first use, which takes up to a fifth of a second; the error of
/// that measurement, a few parts per million, stays. Always real time: the paused time of a tokio runtime is not
/// obeyed. On machines without a steady counter it reads the system's clock.
#[derive(Clone, Copy)]
pub struct FastClock {
    counter: &'static Counter,
}

impl FastClock {
    /// Makes a handle to the process's counter, and measures it if this is the first one.
    #[must_use]
    pub fn new() -> Self {
        Self { counter: &COUNTER }
    }
}

impl Default for FastClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for FastClock {
    #[inline(always)]
    fn now(&self) -> Tick {
        self.counter.at(self.counter.clock.raw())
    }

    fn sleep_until(&self, deadline: Tick) -> BoxFuture<'static, ()> {
        let clock = *self;
        Box::pin(async move {
            let mut on_runtime = true;
            loop {
                let now = clock.now();
                if now >= deadline {
                    return;
                }
                let leg = (deadline - now).min(pacing::LONGEST);
                if on_runtime {
                    // A runtime whose time is paused says at once that the time is over. Trusting it again and again
                    // would be spinning, so one sleep that was too short by half is enough.
                    let until = tokio::time::Instant::now() + leg;
                    on_runtime = sleep_on_runtime(until).await && clock.now() - now > leg / 2;
                } else {
                    pacing::sleep_until(std::time::Instant::now() + leg).await;
                }
            }
        })
    }
}

impl fmt::Debug for FastClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FastClock")
    }
}

/// The counter, and how its readings become Unix time: one product, one shift, one sum.
struct Counter {
    clock: quanta::Clock,
    /// Nanoseconds of 2^[`SHIFT`] counts.
    nanos: u64,
    /// Unix time at a reading of zero, which may lie before the epoch: sums wrap.
    zero: u64,
}

impl Counter {
    #[inline(always)]
    fn at(&self, raw: u64) -> Tick {
        Tick::from_nanos(self.zero.wrapping_add(scaled(raw, self.nanos)))
    }
}

/// Nanoseconds of so many counts.
#[inline(always)]
fn scaled(raw: u64, nanos: u64) -> u64 {
    ((u128::from(raw) * u128::from(nanos)) >> SHIFT) as u64
}

/// Bits to which the length of a count is kept: a reading strays from the measured rate by less than 2^-30 of it even
/// if a count takes a microsecond.
const SHIFT: u32 = 40;

static COUNTER: LazyLock<Counter> = LazyLock::new(|| {
    let clock = quanta::Clock::new();
    let nanos = clock.delta_as_nanos(0, 1 << SHIFT);
    let raw = clock.raw();
    // By way of the anchor, so that it agrees with the other real clock.
    let unix = ANCHOR.real_now().as_nanos();
    let zero = unix.wrapping_sub(scaled(raw, nanos));
    Counter { clock, nanos, zero }
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TokioClock;
    use crate::timer::block_on;
    use std::time::Duration;

    /// Fails if one of the two did not start at Unix time; how fast they run is not asserted.
    #[test]
    fn it_agrees_with_the_default_clock() {
        let first = TokioClock.now();
        let fast = FastClock::new().now();
        let apart = fast.max(first) - fast.min(first);
        assert!(apart < Duration::from_secs(3600), "apart by {apart:?}");
    }

    #[test]
    fn it_sleeps_without_a_runtime() {
        let clock = FastClock::new();
        let deadline = clock.now() + Duration::from_millis(1);
        block_on(clock.sleep_until(deadline));
        assert!(clock.now() >= deadline);
    }

    #[tokio::test(start_paused = true)]
    async fn paused_time_does_not_end_its_sleeps_early() {
        let clock = FastClock::default();
        let deadline = clock.now() + Duration::from_millis(2);
        clock.sleep_until(deadline).await;
        assert!(clock.now() >= deadline);
    }
}
