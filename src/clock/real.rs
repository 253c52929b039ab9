//! Real time: the system's monotonic clock, anchored once per process at Unix time, and the sleeps that go with it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::{Handle, Id};

use super::Clock;
use crate::sync::process::Mutex;
use crate::tick::Tick;
use crate::timer::pacing;

/// Clock of the tokio runtime, and of the system where there is none; the default.
///
/// Reads nanoseconds since the Unix epoch: the wall clock as it stood at the first use in this process, carried on by
/// the monotonic clock. Later corrections of the wall clock are not followed. Within a tokio runtime whose time is
/// paused it is paused too.
///
/// A sleep uses the timers of the runtime that polls it first, which are good to about a millisecond. Where there is no
/// runtime, or one without timers, it uses a thread that the process shares for this. To learn that a runtime lacks
/// timers takes a caught panic, once per runtime, which the panic hook reports; a program built with `panic = "abort"`
/// has to enable them.
///
/// # Examples
/// ```
/// use sluicegate::{Clock, TokioClock};
/// use std::time::Duration;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// let later = TokioClock.now() + Duration::from_secs(3600);
/// TokioClock.sleep_until(later).await; // at once, as the time of this runtime is paused
/// assert!(TokioClock.now() >= later);
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioClock;

impl Clock for TokioClock {
    #[inline]
    fn now(&self) -> Tick {
        ANCHOR.tick(tokio::time::Instant::now().into_std())
    }

    fn sleep_until(&self, deadline: Tick) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                let now = Self.now();
                if now >= deadline {
                    return;
                }
                // Far deadlines are slept in legs: they may lie beyond what timers and instants can hold.
                let until = ANCHOR.instant(now + (deadline - now).min(pacing::LONGEST));
                if !sleep_on_runtime(until.into()).await {
                    return sleep_on_pacing_thread(deadline).await;
                }
            }
        })
    }
}

/// One instant as both clocks saw it.
pub(super) struct Anchor {
    unix: Tick,
    instant: Instant,
}

impl Anchor {
    #[cfg(feature = "quanta")]
    /// Real time, whatever a runtime's paused time says.
    pub(super) fn real_now(&self) -> Tick {
        self.tick(Instant::now())
    }

    #[inline]
    fn tick(&self, instant: Instant) -> Tick {
        match instant.checked_duration_since(self.instant) {
            // Nanoseconds since the anchor fit 64 bits for 584 years; a product of 128 is not needed.
            Some(since) => {
                let nanos = since.as_secs().saturating_mul(1_000_000_000);
                let nanos = nanos.saturating_add(since.subsec_nanos().into());
                Tick::from_nanos(self.unix.as_nanos().saturating_add(nanos))
            }
            // A runtime's paused time may stand at an instant before the anchor was set.
            None => self.unix.before(self.instant - instant),
        }
    }

    /// The inverse of [`tick`](Self::tick), for ticks at most [`pacing::LONGEST`] from now.
    fn instant(&self, tick: Tick) -> Instant {
        match tick.as_nanos().checked_sub(self.unix.as_nanos()) {
            Some(since) => self.instant + Duration::from_nanos(since),
            None => {
                let before = self.instant.checked_sub(self.unix - tick);
                before.unwrap_or(self.instant)
            }
        }
    }
}

/// The process's anchor, set at the first use of it.
pub(super) static ANCHOR: LazyLock<Anchor> = LazyLock::new(|| Anchor {
    // A wall clock before 1970 is a clock that was never set: the epoch will do.
    unix: Tick::ZERO
        + SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default(),
    instant: Instant::now(),
});

/// Sleeps on the timers of the runtime that polls this; false, and at once, if there are none.
///
/// A sleep whose runtime ends while another one polls it is false as well: tokio panics then.
pub(super) async fn sleep_on_runtime(until: tokio::time::Instant) -> bool {
    match runtime_sleep(until) {
        Some(sleep) => AssertUnwindSafe(sleep).catch_unwind().await.is_ok(),
        None => false,
    }
}

fn runtime_sleep(until: tokio::time::Instant) -> Option<tokio::time::Sleep> {
    let runtime = Handle::try_current().ok()?.id();
    if TIMERLESS.lock().contains(&runtime) {
        return None;
    }
    // There is no way to ask a runtime whether it has timers, other than to see tokio panic. A catch costs nothing as
    // long as there is nothing to catch, so only runtimes without timers are noted down.
    let sleep = catch_unwind(|| tokio::time::sleep_until(until)).ok();
    if sleep.is_none() {
        let mut timerless = TIMERLESS.lock();
        if timerless.len() == MOST_NOTED {
            timerless.remove(0);
        }
        timerless.push(runtime);
    }
    sleep
}

/// Sleeps until real time has reached `deadline`, whatever a runtime's paused time says.
async fn sleep_on_pacing_thread(deadline: Tick) {
    loop {
        let instant = Instant::now();
        let now = ANCHOR.tick(instant);
        if now >= deadline {
            return;
        }
        pacing::sleep_until(instant + (deadline - now).min(pacing::LONGEST)).await;
    }
}

/// Runtimes that were seen to lack timers. An id may be used again after its runtime has ended; at worst a runtime with
/// timers then sleeps on the pacing thread.
static TIMERLESS: Mutex<Vec<Id>> = Mutex::new(Vec::new());

/// Enough for every program but one that keeps making runtimes; what is forgotten is found out again.
const MOST_NOTED: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timer::block_on;
    use tokio::runtime::Builder;
    use tokio::time::advance;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn paused_time_is_obeyed() {
        let start = TokioClock.now();
        let sleep = TokioClock.sleep_until(start + HOUR);
        tokio::pin!(sleep);
        advance(HOUR - Duration::from_nanos(1)).await;
        assert_eq!(TokioClock.now() - start, HOUR - Duration::from_nanos(1));
        assert!(futures_util::poll!(&mut sleep).is_pending());
        advance(Duration::from_millis(1)).await;
        sleep.await;
        assert!(TokioClock.now() >= start + HOUR);
    }

    #[tokio::test(start_paused = true)]
    async fn it_reads_unix_time() {
        let year_2020 = Tick::from_nanos(1_577_836_800_000_000_000);
        assert!(TokioClock.now() > year_2020);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_tick_can_be_slept_for() {
        let mut sleep = TokioClock.sleep_until(Tick::MAX);
        for _ in 0..10 {
            assert!(futures_util::poll!(&mut sleep).is_pending());
            advance(pacing::LONGEST).await;
        }
        let elsewhere = sleep_on_pacing_thread(Tick::MAX);
        tokio::pin!(elsewhere);
        assert!(futures_util::poll!(elsewhere).is_pending());
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleep_beyond_the_timers_range_ends_in_time() {
        let deadline = TokioClock.now() + 4 * pacing::LONGEST;
        TokioClock.sleep_until(deadline).await;
        let late = TokioClock.now() - deadline;
        assert!(late < Duration::from_millis(2), "late by {late:?}");
    }

    #[test]
    fn it_sleeps_without_a_runtime() {
        let deadline = TokioClock.now() + Duration::from_millis(1);
        block_on(TokioClock.sleep_until(deadline));
        assert!(TokioClock.now() >= deadline);
    }

    #[test]
    fn it_sleeps_on_a_runtime_without_timers() {
        let runtime = Builder::new_current_thread()
            .build()
            .expect("a runtime can be built");
        runtime.block_on(async {
            for _ in 0..2 {
                let deadline = TokioClock.now() + Duration::from_millis(1);
                TokioClock.sleep_until(deadline).await;
                assert!(TokioClock.now() >= deadline);
            }
            let noted = TIMERLESS.lock().clone();
            let runtime = Handle::current().id();
            assert_eq!(noted.iter().filter(|id| **id == runtime).count(), 1);
        });
    }

    #[test]
    fn it_survives_the_end_of_the_runtime_whose_timers_it_used() {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime can be built");
        let mut span = Duration::from_millis(1);
        let (deadline, sleep) = loop {
            let deadline = TokioClock.now() + span;
            let mut sleep = TokioClock.sleep_until(deadline);
            if runtime.block_on(async { futures_util::poll!(&mut sleep).is_pending() }) {
                break (deadline, sleep);
            }
            // The machine stalled for longer than that before the first poll.
            span *= 2;
        };
        drop(runtime);
        block_on(sleep);
        assert!(TokioClock.now() >= deadline);
    }

    #[test]
    fn ticks_and_instants_convert_both_ways() {
        let earlier = ANCHOR.instant - Duration::from_nanos(7);
        let later = ANCHOR.instant + Duration::from_nanos(7);
        for instant in [earlier, ANCHOR.instant, later] {
            assert_eq!(ANCHOR.instant(ANCHOR.tick(instant)), instant);
        }
    }
}
