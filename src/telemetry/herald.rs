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
