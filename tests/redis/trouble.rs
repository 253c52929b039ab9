//! Shared limits under load while their server is stopped, killed, emptied, or made to forget its scripts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sluicegate::redis::Limits;
use sluicegate::{Charge, FixedWindow, Hierarchy, Key, Limit};
use tokio::task::JoinHandle;

use crate::kit::{
    DAY, PATIENCE, Single, assert_every_key_ends, built, charge, five, left, left_there,
};
use crate::limits::limits;
use crate::server::{Options, Server};

/// Callers that go on asking until they are told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    seen: Arc<Seen>,
    tasks: Vec<JoinHandle<()>>,
}

/// What they were told.
#[derive(Default)]
struct Seen {
    calls: AtomicU64,
    granted: AtomicU64,
    refused: AtomicU64,
    degraded: AtomicU64,
    /// Longest time of a call, in microseconds.
    longest: AtomicU64,
}

impl Load {
    fn begin(there: &Single, callers: usize) -> Self {
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Seen::default()));
        let tasks = (0..callers).map(|_| {
            let (there, stop, seen) = (there.clone(), Arc::clone(&stop), Arc::clone(&seen));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    let ruling = there.decide(&1, 1).await;
                    let took = start.elapsed().as_micros() as u64;
                    seen.longest.fetch_max(took, Ordering::Relaxed);
                    let count = match (ruling.is_degraded(), ruling.is_granted()) {
                        (true, _) => &seen.degraded,
                        (false, true) => &seen.granted,
                        (false, false) => &seen.refused,
                    };
                    count.fetch_add(1, Ordering::Relaxed);
                    seen.calls.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            })
        });
        Self {
            tasks: tasks.collect(),
            stop,
            seen,
        }
    }

    fn read(&self, count: impl Fn(&Seen) -> &AtomicU64) -> u64 {
        count(&self.seen).load(Ordering::Relaxed)
    }

    /// Waits until so many more of these were seen.
    async fn more(&self, what: &str, count: impl Fn(&Seen) -> &AtomicU64, more: u64) {
        let (start, before) = (Instant::now(), self.read(&count));
        while self.read(&count) < before + more {
            assert!(start.elapsed() < PATIENCE, "no more {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn end(self) -> Arc<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.expect("no panic");
        }
        self.seen
    }
}

fn a_day(units: u64) -> Limit {
    FixedWindow::new(units, DAY).expect("valid").into()
}

/// Charged on the server: what is missing there.
async fn used(store: &Limits, units: u64) -> u64 {
    units - left_there(store, a_day(units), 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_stopped_for_ten_seconds_delays_nobody_and_is_found_again() {
    const UNITS: u64 = 10_000_000;
    let server = Server::start();
    let store = limits(&server).deadline(Duration::from_millis(200));
    let store = store.break_after(5, Duration::from_millis(500));
    let (store, there) = built(store.never_merge(), a_day(UNITS));
    let load = Load::begin(&there, 30);
    load.more("grants", |seen| &seen.granted, 100).await;
    load.seen.longest.store(0, Ordering::Relaxed);
    let before = store.counts();
    server.freeze();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let frozen = store.counts();
    server.thaw();
    // Nobody has waited for it to go on: 200 ms were allowed, and a busy machine takes its time.
    let longest = Duration::from_micros(load.read(|seen| &seen.longest));
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    // What was under way, then one try for each pause of 500 ms: thousands asked, and hardly anything was sent.
    let (sent, skipped) = (frozen.sent - before.sent, frozen.skipped - before.skipped);
    assert!(sent <= 500, "{before:?} {frozen:?}");
    assert!(skipped >= 1_000, "{before:?} {frozen:?}");
    // It goes on by itself.
    load.more("grants after it went on", |seen| &seen.granted, 100)
        .await;
    let seen = load.end().await;
    let granted = seen.granted.load(Ordering::Relaxed);
    let counts = store.counts();
    let unknown = counts.timeouts + counts.errors;
    let (direct, _) = built(limits(&server), a_day(UNITS));
    let used = used(&direct, UNITS).await;
    // Each call is charged once, and those of unknown outcome at most once.
    assert!(
        (granted..=granted + unknown).contains(&used),
        "{granted} {used} {counts:?}"
    );
    assert_every_key_ends(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_and_restarted_empty_grants_a_whole_limit_anew_and_no_more() {
    const UNITS: u64 = 200;
    let mut server = Server::start();
    let store = limits(&server).break_after(3, Duration::from_millis(100));
    let (store, there) = built(store.forget_refusals(), a_day(UNITS));
    let load = Load::begin(&there, 10);
    for round in 1..=3 {
        load.more("refusals", |seen| &seen.refused, 30).await;
        let granted = load.read(|seen| &seen.granted);
        let counts = store.counts();
        // What was charged without an answer is missing from what was granted.
        let unknown = counts.timeouts + counts.errors;
        assert!(
            granted <= round * UNITS,
            "{granted} of {round} times {UNITS}"
        );
        assert!(granted + unknown >= round * UNITS, "{granted} {counts:?}");
        assert_eq!(used(&store, UNITS).await, UNITS);
        if round < 3 {
            server.kill();
            load.more("answers without it", |seen| &seen.degraded, 30)
                .await;
            server.begin();
        }
    }
    let seen = load.end().await;
    let longest = Duration::from_micros(seen.longest.load(Ordering::Relaxed));
    assert!(longest < PATIENCE, "{longest:?}");
    assert_every_key_ends(&server);
}

/// Makes the server forget its scripts over and over, until it is dropped.
struct Flushing {
    stop: Arc<AtomicBool>,
    flushes: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Flushing {
    fn begin(server: &Arc<Server>) -> Self {
        let (stop, flushes) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (server, done, count) = (Arc::clone(server), Arc::clone(&stop), Arc::clone(&flushes));
        let thread = std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                server.ask(&["SCRIPT", "FLUSH"]);
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self {
            stop,
            flushes,
            thread: Some(thread),
        }
    }

    fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is ended once");
        thread.join().expect("no panic");
        self.flushes.load(Ordering::Relaxed)
    }
}

impl Drop for Flushing {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_flushed_in_a_loop_under_load_change_no_count() {
    let server = Arc::new(Server::start());
    for (name, limit) in five(300, DAY) {
        let store = || limits(&server).prefix(name).deadline(PATIENCE);
        let (store, there) = built(store().never_merge().forget_refusals(), limit);
        let flushing = Flushing::begin(&server);
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let there = there.clone();
                tokio::spawn(async move {
                    let mut granted = 0;
                    for _ in 0..20 {
                        let ruling = there.decide(&1, 1).await;
                        assert!(!ruling.is_degraded(), "{ruling:?}");
                        granted += u64::from(ruling.is_granted());
                    }
                    granted
                })
            })
            .collect();
        let mut granted = 0;
        for task in tasks {
            granted += task.await.expect("no panic");
        }
        // A batch whose scripts are gone asks again for each that has not run.
        for ruling in store
            .decide_many((0..64).map(|_| charge(limit, 2, 1)))
            .await
        {
            assert!(ruling.is_granted() && !ruling.is_degraded(), "{ruling:?}");
        }
        let flushes = flushing.end();
        assert_eq!(granted, 300, "{name}, {flushes} flushes");
        assert_eq!(left_there(&store, limit, 2).await, 300 - 64, "{name}");
        assert!(flushes > 0 && store.counts().script_loads > 0, "{name}");
    }
    assert_every_key_ends(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_on_a_server_killed_in_the_middle_is_charged_to_all_levels_or_none() {
    // It keeps a file, in which what it has answered is written down.
    let mut server = Options::default().durable().start();
    let store = limits(&server).break_after(3, Duration::from_millis(100));
    let store = store.never_merge().build().expect("valid");
    // No bucket gets a unit back while this runs.
    let levels = five(1_000_000, 1_000 * DAY);
    let mut hierarchy = Hierarchy::<()>::builder();
    for (name, limit) in levels {
        hierarchy = hierarchy.level(name, limit, |()| ());
    }
    let hierarchy = hierarchy.build_on(store.clone()).expect("valid");
    let granted = Arc::new(AtomicU64::new(0));
    for _ in 0..3 {
        let start = Instant::now();
        let before = granted.load(Ordering::Relaxed);
        let callers = (0..10).map(|_| {
            let (hierarchy, granted) = (hierarchy.clone(), Arc::clone(&granted));
            tokio::spawn(async move {
                // Until the server is gone; before that it may still be on its way back.
                let mut own = 0_u64;
                loop {
                    match hierarchy.decide(&(), 1).await.is_degraded() {
                        true if own > 0 => return,
                        true => tokio::time::sleep(Duration::from_millis(20)).await,
                        false => {
                            own += 1;
                            granted.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            })
        });
        let callers: Vec<_> = callers.collect();
        while granted.load(Ordering::Relaxed) < before + 100 {
            assert!(start.elapsed() < PATIENCE, "it does not recover");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server.kill();
        for caller in callers {
            caller.await.expect("no panic");
        }
        server.begin();
        let names = levels.map(|(name, limit)| (name, limit, Key::from(())));
        let charge = Charge::new(0, names);
        let there = loop {
            if let Ok(there) = store.peek(charge.clone()).await {
                break there;
            }
            assert!(start.elapsed() < PATIENCE, "it does not recover");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let used: Vec<u64> = left(&there).iter().map(|left| 1_000_000 - left).collect();
        assert!(used.iter().all(|units| *units == used[0]), "{used:?}");
        let (granted, counts) = (granted.load(Ordering::Relaxed), store.counts());
        let unknown = counts.timeouts + counts.errors;
        assert!(
            (granted..=granted + unknown).contains(&used[0]),
            "{granted} {used:?} {counts:?}"
        );
    }
}
