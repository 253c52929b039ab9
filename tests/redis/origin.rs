//! Mistakes that limiters on Redis are known for, none of which is repeated: decisions, costs and queries.

use std::time::{Duration, Instant};

use sluicegate::redis::Limits;
use sluicegate::{Hierarchy, LeakyBucket, Limit, ManualClock, Rate, Tick};

use crate::kit::{
    DAY, PATIENCE, assert_every_key_ends, built, charge, contents, five, left, left_there, single,
    wait_for_left, writes,
};
use crate::limits::limits;
use crate::server::Server;

/// Limits on this server by a clock that is moved by hand, with the same limit in this process.
fn both(
    server: &Server,
    prefix: &str,
    limit: Limit,
) -> (ManualClock, Hierarchy<u64, Limits>, Hierarchy<u64>) {
    let clock = ManualClock::new();
    clock.set(Tick::from_nanos(1_764_550_000_000_000_000));
    let store = limits(server).prefix(prefix).clock(clock.clone());
    let (_, there) = built(store, limit);
    let here = Hierarchy::<u64>::builder().level("user", limit, |user| *user);
    let here = here.clock(clock.clone()).build();
    (clock, there, here.expect("the level can be kept"))
}

#[tokio::test]
async fn refused_calls_are_not_counted() {
    let server = Server::start();
    let minute = Duration::from_secs(60);
    for (name, limit) in five(100, minute) {
        let (clock, there, here) = both(&server, name, limit);
        // Two a second where 100 a minute are allowed: whoever counts refusals grants nothing from the second minute on.
        let mut each = Vec::new();
        for _ in 0..6 {
            let mut granted = 0;
            for _ in 0..120 {
                let ruling = there.decide(&1, 1).await;
                assert!(!ruling.is_degraded(), "{name}: {ruling:?}");
                let other = here.check(&1, 1);
                assert_eq!(ruling.is_granted(), other.is_granted(), "{name}");
                assert_eq!(left(&ruling), left(&other), "{name}");
                granted += u64::from(ruling.is_granted());
                clock.advance(Duration::from_millis(500));
            }
            each.push(granted);
        }
        assert!(each.iter().all(|n| *n >= 95), "{name}: {each:?}");
        // A burst, and so many a minute.
        assert!(each.iter().sum::<u64>() <= 700, "{name}: {each:?}");
    }
}

#[tokio::test]
async fn refused_units_weigh_in_no_window_to_come() {
    let server = Server::start();
    let minute = Duration::from_secs(60);
    for (name, limit) in five(10, minute) {
        let (clock, there, _) = both(&server, name, limit);
        for user in [1, 2] {
            assert!(there.decide(&user, 10).await.is_granted(), "{name}");
        }
        for _ in 0..30 {
            // The first is flooded with calls that are refused, the second is left in peace.
            for cost in [1, 3, 10] {
                let ruling = there.decide(&1, cost).await;
                assert!(!ruling.is_degraded(), "{name}: {ruling:?}");
                assert!(!ruling.is_granted(), "{name}: {ruling:?}");
            }
            clock.advance(Duration::from_millis(100));
        }
        for _ in 0..25 {
            clock.advance(Duration::from_millis(6_500));
            let flooded = there.decide(&1, 0).await;
            let other = there.decide(&2, 0).await;
            assert_eq!(left(&flooded), left(&other), "{name}");
        }
        assert_eq!(left(&there.decide(&1, 0).await), [10], "{name}");
    }
}

#[tokio::test]
async fn leaky_bucket_leaks() {
    let server = Server::start();
    let meter =
        |rate: Rate, depth: u64| -> Limit { LeakyBucket::new(rate, depth).expect("valid").into() };
    // Polled far more often than it leaks a unit: each part of a unit counts.
    let (clock, there, _) = both(&server, "often", meter(Rate::per_second(10), 5));
    assert!(there.decide(&1, 5).await.is_granted());
    let mut granted = 0;
    for _ in 0..1_000 {
        clock.advance(Duration::from_millis(1));
        granted += u64::from(there.decide(&1, 1).await.is_granted());
    }
    assert_eq!(granted, 10);
    // A third of a second is no whole number of anything.
    let (clock, there, _) = both(&server, "thirds", meter(Rate::per_second(3), 1));
    assert!(there.decide(&1, 1).await.is_granted());
    let mut granted = 0;
    for _ in 0..1_000 {
        clock.advance(Duration::from_millis(10));
        granted += u64::from(there.decide(&1, 1).await.is_granted());
    }
    // 29.4 could have left at steps of 10 ms: each waits for its step, 340 ms.
    assert_eq!(granted, 29);
    // A hundred years idle are one step, and the bucket is empty then rather than less than that.
    let (clock, there, _) = both(&server, "idle", meter(Rate::per_second(100_000), 50));
    assert!(there.decide(&1, 50).await.is_granted());
    let start = Instant::now();
    clock.advance(100 * 365 * DAY);
    let ruling = there.decide(&1, 50).await;
    assert!(
        ruling.is_granted() && start.elapsed() < PATIENCE,
        "{ruling:?}"
    );
    assert!(!there.decide(&1, 1).await.is_granted());
    // By the server's clock: what is told to wait is granted after that wait, and the mark ends by itself.
    let (_, there) = built(
        limits(&server).prefix("real"),
        meter(Rate::per_second(4), 2),
    );
    assert!(there.decide(&1, 2).await.is_granted());
    for _ in 0..6 {
        let Some(wait) = there.decide(&1, 1).await.retry_after() else {
            continue;
        };
        assert!(wait <= Duration::from_millis(250), "{wait:?}");
        tokio::time::sleep(wait).await;
        assert!(there.decide(&1, 1).await.is_granted(), "after {wait:?}");
    }
    assert_every_key_ends(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_and_charge_are_one_step() {
    let server = Server::start();
    for (name, limit) in five(100, DAY) {
        // Two processes, each with a connection of its own, and a call for each decision.
        let process = || built(limits(&server).prefix(name).never_merge(), limit).1;
        let processes = [process(), process()];
        let tasks: Vec<_> = (0..40)
            .map(|task| {
                let there = processes[task % 2].clone();
                tokio::spawn(async move {
                    let mut granted = 0;
                    for cost in [1, 3, 1] {
                        let ruling = there.decide(&1, cost).await;
                        assert!(!ruling.is_degraded(), "{ruling:?}");
                        granted += cost * u64::from(ruling.is_granted());
                    }
                    granted
                })
            })
            .collect();
        let mut granted = 0;
        for task in tasks {
            granted += task.await.expect("no panic");
        }
        // 200 were asked for, and single units to the end.
        assert_eq!(granted, 100, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_phantom_entries() {
    let server = Server::start();
    for (name, limit) in five(10, DAY) {
        let store = || limits(&server).prefix(name).forget_refusals().never_merge();
        let (flooding, flood) = built(store(), limit);
        let (looking, other) = built(store(), limit);
        assert!(flood.decide(&1, 9).await.is_granted(), "{name}");
        let flood = tokio::spawn(async move {
            let refusals = (0..300).map(|_| flood.decide(&1, 2));
            futures_util::future::join_all(refusals).await
        });
        // Whoever adds first and takes back later would show others less than is there.
        for _ in 0..100 {
            assert_eq!(left_there(&looking, limit, 1).await, 1, "{name}");
        }
        let last = other.decide(&1, 1).await;
        assert!(last.is_granted() && !last.is_degraded(), "{name}: {last:?}");
        for ruling in flood.await.expect("no panic") {
            assert!(!ruling.is_degraded(), "{name}: {ruling:?}");
            assert!(!ruling.is_granted(), "{name}: {ruling:?}");
        }
        assert_eq!(flooding.counts().granted, 1, "{name}");
    }
}

#[tokio::test]
async fn cost_is_honoured() {
    let server = Server::start();
    for (name, limit) in five(10, DAY) {
        let (_, there) = built(limits(&server).prefix(name), limit);
        for expected in [7, 4, 1] {
            assert_eq!(left(&there.decide(&1, 3).await), [expected], "{name}");
        }
        let refused = there.decide(&1, 3).await;
        assert!(!refused.is_granted(), "{name}: {refused:?}");
        assert!(refused.retry_after().is_some(), "{name}: {refused:?}");
        assert_eq!(left(&refused), [1], "{name}");
        // What can never fit is told apart from what has to wait, and costs nothing.
        let never = there.decide(&1, 11).await;
        assert!(!never.is_granted() && !never.is_degraded(), "{name}");
        assert_eq!(never.retry_after(), None, "{name}: {never:?}");
        assert!(there.decide(&1, 0).await.is_granted(), "{name}");
        assert!(there.decide(&1, 1).await.is_granted(), "{name}");
        assert!(!there.decide(&1, 1).await.is_granted(), "{name}");
        assert!(there.decide(&1, 0).await.is_granted(), "{name}");
    }
}

#[tokio::test]
async fn available_means_available() {
    let server = Server::start();
    for (name, limit) in five(10, DAY) {
        let (store, there) = built(limits(&server).prefix(name), limit);
        for used in [0, 2, 3, 4] {
            assert!(there.decide(&1, used).await.is_granted(), "{name}");
            let free = left_there(&store, limit, 1).await;
            let more = store.peek(charge(limit, 1, free + 1)).await;
            assert!(!more.expect("it answers").is_granted(), "{name}: {free}");
            let all = store
                .peek(charge(limit, 1, free))
                .await
                .expect("it answers");
            assert!(all.is_granted(), "{name}: {free}");
            assert_eq!(left(&all), [0], "{name}");
        }
        let free = left_there(&store, limit, 1).await;
        assert_eq!(free, 1, "{name}");
        assert!(there.decide(&1, free).await.is_granted(), "{name}");
    }
}

#[tokio::test]
async fn queries_do_not_write() {
    let server = Server::start();
    for (name, limit) in five(10, DAY) {
        let store = limits(&server).prefix(name).build().expect("valid");
        let there = single(&store, limit);
        let query = async |cost| {
            let ruling = store.peek(charge(limit, 1, cost)).await;
            ruling.expect("the server answers")
        };
        let before = (server.keys(), writes(&server));
        for cost in [0, 1, 10, 11] {
            assert_eq!(query(cost).await.is_granted(), cost <= 10, "{name}");
        }
        assert_eq!((server.keys(), writes(&server)), before, "{name}");
        let charged = there.decide(&1, 8).await;
        let before = (contents(&server), writes(&server));
        for cost in [0, 1, 2, 3, 11] {
            assert_eq!(query(cost).await.is_granted(), cost <= 2, "{name}");
        }
        let _ = there.decide(&1, 0).await;
        assert_eq!((contents(&server), writes(&server)), before, "{name}");
        // Nothing is left behind by what was given back either.
        there.refund(charged.charge());
        wait_for_left(&store, limit, 1, 10).await;
    }
}
