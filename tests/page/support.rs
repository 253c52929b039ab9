//! Queues to look at, and waiting for what is to come.

use std::time::{Duration, Instant};

use sluicegate::queue::{Builder, Receiver, Sender};

/// A queue without a rate: what is in it stays until it is taken.
pub(crate) fn queue(name: &str, max_depth: u64) -> (Sender<u32>, Receiver<u32>) {
    let builder = Builder::unpaced().name(name).max_depth(max_depth);
    builder.build().expect("it is valid")
}

/// Asks again and again until there is an answer; a machine under load may take its time.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
