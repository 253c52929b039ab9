//! The thread that publishes once a second while there are queues, so that a recorder is all a program has to install.
//!
//! It runs on real time whatever clock a queue has, keeps no queue alive, and delays none: a recorder that blocks holds
//! up this thread alone. It is started with the first queue and ends some time after the last one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use super::{publisher, roll};
use crate::sync::process::Mutex;

/// Starts the thread unless it runs.
pub(super) fn rouse() {
    let mut running = RUNNING.lock();
    if !*running {
        let thread = thread::Builder::new().name("sluicegate-metrics".into());
        // Where the system has no thread to give, the next queue tries again, and whoever scrapes publishes anyway.
        *running = thread.spawn(run).is_ok();
    }
}

fn run() {
    let mut empty = 0;
    while empty < LINGER || !retire() {
        thread::sleep(PERIOD);
        empty = if roll::is_empty() { empty + 1 } else { 0 };
        // A recorder that panics has been reported by the panic hook; the next second may be better.
        let outcome = catch_unwind(AssertUnwindSafe(publisher::publish));
        let sampled = catch_unwind(AssertUnwindSafe(super::sample));
        std::mem::forget(sampled);
        // The payload is foreign too, and its drop may panic once more.
        std::mem::forget(outcome);
    }
}

/// Ends the thread, unless a queue has come meanwhile: it is in the roll before it looks whether the thread runs.
fn retire() -> bool {
    let mut running = RUNNING.lock();
    *running = !roll::is_empty();
    !*running
}

static RUNNING: Mutex<bool> = Mutex::new(false);
/// Often enough for every scraper, rare enough not to be seen in a profile.
const PERIOD: Duration = Duration::from_secs(1);
/// Publications after the last queue has ended.
const LINGER: u32 = 10;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc::{Sender, channel};
    use std::sync::{Arc, Weak};

    use metrics::{
        Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    };

    use super::*;
    use crate::telemetry::roll::{Detail, Look, Measured, Seat, Totals};
    use crate::words::Pressure;

    /// Sends on what it is told of offers to this test's queue.
    struct Wire(Sender<u64>);

    struct Line(Sender<u64>);

    impl CounterFn for Line {
        fn increment(&self, _: u64) {}
        fn absolute(&self, value: u64) {
            let _ = self.0.send(value);
        }
    }

    impl Recorder for Wire {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            let is_mine = key.labels().any(|label| label.value() == "heralded");
            if is_mine && key.name() == "sluicegate_queue_offered_total" {
                return Counter::from_arc(Arc::new(Line(self.0.clone())));
            }
            Counter::noop()
        }
        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }
        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    /// Something with so many offers.
    struct Stub(AtomicU64);

    impl Measured for Stub {
        fn look(&self) -> Look {
            let mut totals = Totals::default();
            totals.ledger.offered = self.0.load(Ordering::Relaxed);
            Look {
                totals,
                depth: 0,
                max_depth: 1,
                pressure: Pressure::Healthy,
                paused: false,
                rate: None,
                oldest_wait: None,
                since_departure: None,
            }
        }

        fn detail(&self) -> Detail {
            unreachable!("nobody takes a snapshot in this test")
        }
    }

    #[test]
    fn a_recorder_is_all_that_has_to_be_installed() {
        let stub = Arc::new(Stub(AtomicU64::new(1)));
        let seat = Seat::take(Some("heralded"));
        let weak: Weak<Stub> = Arc::downgrade(&stub);
        seat.fill(weak);
        let (wire, told) = channel();
        metrics::set_global_recorder(Wire(wire)).expect("it is the only one in this binary");
        stub.0.store(2, Ordering::Relaxed);
        // Real time, as the thread has.
        let patience = Duration::from_secs(60);
        assert_eq!(told.recv_timeout(patience), Ok(2));
        let mut final_totals = stub.look().totals;
        final_totals.ledger.offered = 3;
        drop(stub);
        seat.leave(&final_totals);
        let last = std::iter::from_fn(|| told.recv_timeout(patience).ok()).find(|told| *told == 3);
        assert_eq!(last, Some(3), "the end is told too");
    }
}
