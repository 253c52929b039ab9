//! What wakes a queue for its next departure, and how late that may be.

mod block_on;
pub(crate) mod pacing;

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;

pub(crate) use self::block_on::block_on;
use crate::clock::Clock;
use crate::sync::Arc;
use crate::tick::Tick;

/// What a queue's departures are timed with.
///
/// A late wake-up never costs throughput: what fell due meanwhile is repaid. It costs evenness, since what is owed
/// leaves as a small clump. The choice bounds the size of such clumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
// Named by `queue`, which is where users find it.
pub enum Timer {
    /// The sleep of the queue's clock: for the default clock the timers of the tokio runtime, and paused time is
    /// obeyed. Departures are usually less than 2.5 ms late, since these timers round up to the millisecond. Costs no
    /// thread. The default.
    #[default]
    Runtime,
    /// Absolute sleeps of one thread that all such queues of the process share, without spinning: departures are
    /// usually less than 0.25 ms late. Costs that thread and a switch to it per wake-up. For clocks that run with real
    /// time; paused or manual time is not obeyed.
    Precise,
}

impl Timer {
    /// Worst usual lateness of a wake-up: the tolerance of the peak meter, and what estimates add for the timer.
    pub(crate) const fn grain(self) -> Duration {
        match self {
            Self::Runtime => Duration::from_micros(2_500),
            Self::Precise => Duration::from_micros(250),
        }
    }

    /// Sleeps until `clock` reads `deadline` or later. Cancel safe: dropping it forgets the sleep.
    pub(crate) fn sleep_until(
        self,
        clock: &Arc<dyn Clock>,
        deadline: Tick,
    ) -> BoxFuture<'static, ()> {
        match self {
            Self::Runtime => clock.sleep_until(deadline),
            Self::Precise => Box::pin(precise(Arc::clone(clock), deadline)),
        }
    }
}

/// Sleeps on the pacing thread, measured again by the clock after each sleep, as the two may drift apart.
async fn precise(clock: Arc<dyn Clock>, deadline: Tick) {
    loop {
        let now = clock.now();
        if now >= deadline {
            return;
        }
        let leg = (deadline - now).min(pacing::LONGEST);
        pacing::sleep_until(Instant::now() + leg).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TokioClock;

    #[test]
    fn a_precise_sleep_needs_no_runtime_and_is_never_early() {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock);
        let deadline = clock.now() + Duration::from_millis(3);
        block_on(Timer::Precise.sleep_until(&clock, deadline));
        assert!(clock.now() >= deadline);
    }
}
