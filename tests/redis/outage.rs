//! Shared limits while the server is in trouble: an answer in time, whatever happens.

use std::time::{Duration, Instant};

use sluicegate::redis::{Endpoint, Limits, LimitsBuilder, WhenUnknown};
use sluicegate::{Hierarchy, Rate};

use crate::kit::{DAY, built, charge, contents, five};
use crate::limits::limits;
use crate::server::{Options, Server};

/// Far above any deadline set here, far below a hang: what a busy machine may add.
const PATIENCE: Duration = Duration::from_secs(10);

fn hierarchy(store: LimitsBuilder, burst: u64) -> (Limits, Hierarchy<u64, Limits>) {
    let store = store.build().expect("the settings are valid");
    let hierarchy = Hierarchy::<u64>::builder()
        .level("user", Rate::per_hour(1).burst(burst), |user| *user)
        .build_on(store.clone())
        .expect("the levels can be kept");
    (store, hierarchy)
}

/// Asks until the answer is the server's own again.
async fn recovered(hierarchy: &Hierarchy<u64, Limits>) {
    let start = Instant::now();
    while hierarchy.decide(&99, 1).await.is_degraded() {
        assert!(start.elapsed() < PATIENCE, "it does not recover");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_outage_is_answered_in_time_then_without_a_call_and_ends_by_itself() {
    let mut server = Server::start();
    let store = limits(&server)
        .deadline(Duration::from_millis(200))
        .break_after(3, Duration::from_secs(2));
    let (store, hierarchy) = hierarchy(store, 10);
    recovered(&hierarchy).await;
    server.kill();
    let start = Instant::now();
    while store.counts().skipped == 0 {
        let ruling = hierarchy.decide(&1, 1).await;
        assert!(ruling.is_degraded() && !ruling.is_granted(), "{ruling:?}");
        assert!(ruling.retry_after().is_some(), "{ruling:?}");
        assert!(start.elapsed() < PATIENCE, "the breaker does not open");
    }
    let before = store.counts();
    for _ in 0..100 {
        assert!(hierarchy.decide(&1, 1).await.is_degraded());
    }
    let after = store.counts();
    // One in so long may look whether the server is back.
    assert!(after.sent - before.sent <= 1, "{before:?} {after:?}");
    assert!(after.skipped - before.skipped >= 99, "{before:?} {after:?}");
    assert!(store.last_error().is_some());
    server.begin();
    recovered(&hierarchy).await;
}

#[tokio::test]
async fn a_server_that_is_down_at_the_start_is_no_panic_and_no_hang() {
    let mut server = Server::start();
    server.kill();
    let (store, hierarchy) = hierarchy(limits(&server).deadline(Duration::from_millis(200)), 10);
    let start = Instant::now();
    assert!(hierarchy.decide(&1, 1).await.is_degraded());
    // What costs nothing and what can never fit are no matter of the state.
    let nothing = hierarchy.decide(&1, 0).await;
    assert!(nothing.is_granted() && nothing.is_degraded(), "{nothing:?}");
    let never = hierarchy.decide(&1, 11).await;
    assert!(!never.is_granted(), "{never:?}");
    assert_eq!(never.retry_after(), None, "{never:?}");
    assert!(start.elapsed() < PATIENCE);
    assert!(store.connect().await.is_err());
    server.begin();
    recovered(&hierarchy).await;
}

#[tokio::test]
async fn a_frozen_server_times_out_and_nothing_is_sent_twice() {
    let server = Server::start();
    let store = limits(&server)
        .deadline(Duration::from_millis(200))
        .when_unknown(WhenUnknown::Allow);
    let (store, hierarchy) = hierarchy(store, 1000);
    recovered(&hierarchy).await;
    server.freeze();
    let ruling = hierarchy.decide(&1, 1).await;
    assert!(ruling.is_granted() && ruling.is_degraded(), "{ruling:?}");
    assert!(store.counts().timeouts + store.counts().errors > 0);
    server.thaw();
    recovered(&hierarchy).await;
    // The call that timed out may have been charged, once.
    let ruling = hierarchy.decide(&1, 1).await;
    let left = ruling
        .decisions()
        .map(|(_, decision)| decision.remaining)
        .next();
    assert!(left >= Some(998), "{ruling:?}");
}

#[tokio::test]
async fn shares_of_all_nodes_admit_no_more_than_the_limit() {
    let mut server = Server::start();
    server.kill();
    let mut granted = 0;
    for _ in 0..8 {
        let store = limits(&server)
            .deadline(Duration::from_millis(50))
            .when_unknown(WhenUnknown::Share { nodes: 8 });
        let (_, hierarchy) = hierarchy(store, 80);
        for _ in 0..30 {
            granted += u64::from(hierarchy.decide(&1, 1).await.is_granted());
        }
    }
    assert_eq!(granted, 80);
}

#[tokio::test]
async fn scripts_that_are_flushed_are_loaded_again() {
    let server = Server::start();
    let (store, hierarchy) = hierarchy(limits(&server), 1000);
    for user in 0..50 {
        server.ask(&["SCRIPT", "FLUSH"]);
        let ruling = hierarchy.decide(&user, 1).await;
        assert!(ruling.is_granted() && !ruling.is_degraded(), "{ruling:?}");
    }
    assert!(store.counts().script_loads >= 50, "{:?}", store.counts());
}

#[tokio::test]
async fn a_full_memory_a_replica_and_a_foreign_type_are_unknown_not_refused() {
    let server = Server::start();
    let (_, refusing) = hierarchy(limits(&server).when_unknown(WhenUnknown::Allow), 10);
    recovered(&refusing).await;
    let key = server.keys().remove(0);
    server.ask(&["DEL", &key]);
    server.ask(&["LPUSH", &key, "something else"]);
    let ruling = refusing.decide(&99, 1).await;
    assert!(ruling.is_degraded() && ruling.is_granted(), "{ruling:?}");
    assert_eq!(server.ask(&["TYPE", &key]).trim(), "+list");
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let ruling = refusing.decide(&1, 1).await;
    assert!(ruling.is_degraded(), "{ruling:?}");
    server.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    server.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    let ruling = refusing.decide(&2, 1).await;
    assert!(ruling.is_degraded(), "{ruling:?}");
}

#[tokio::test]
async fn a_wrong_password_is_an_error_and_an_evicting_policy_a_warning() {
    let server = Options::default().password("right").start();
    let address = format!("redis://:wrong@{}/", server.address());
    let endpoint = Endpoint::new(&address).expect("the address is valid");
    let store = Limits::builder(endpoint).build().expect("valid");
    assert!(store.connect().await.is_err());
    let server = Options::default()
        .set("maxmemory-policy", "allkeys-lru")
        .start();
    let store = limits(&server).build().expect("valid");
    let warnings = store.connect().await.expect("it is there");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

#[tokio::test]
async fn a_refusal_is_repeated_from_memory_and_callers_of_one_key_share_a_call() {
    let server = Server::start();
    let (store, refused) = hierarchy(limits(&server), 1);
    assert!(refused.decide(&1, 1).await.is_granted());
    assert!(!refused.decide(&1, 1).await.is_granted());
    let sent = store.counts().sent;
    for _ in 0..20 {
        let ruling = refused.decide(&1, 1).await;
        assert!(!ruling.is_granted() && !ruling.is_degraded(), "{ruling:?}");
    }
    assert_eq!(store.counts().sent, sent);
    assert_eq!(store.counts().remembered, 20);
    let (store, hot) = hierarchy(limits(&server).prefix("hot"), 300);
    let calls = (0..500).map(|_| hot.decide(&1, 1));
    let rulings = futures_util::future::join_all(calls).await;
    let granted = rulings.iter().filter(|ruling| ruling.is_granted()).count();
    assert_eq!(granted, 300);
    assert!(store.counts().merged > 0, "{:?}", store.counts());
}

#[tokio::test]
async fn what_is_no_state_of_ours_is_unknown_and_left_as_it_is_by_each_algorithm() {
    let server = Server::start();
    for (name, limit) in five(10, DAY) {
        let store = limits(&server)
            .prefix(name)
            .when_unknown(WhenUnknown::Allow);
        let (store, there) = built(store, limit);
        let charged = there.decide(&1, 1).await;
        assert!(!charged.is_degraded(), "{name}: {charged:?}");
        let key = server.keys().remove(0);
        for foreign in [
            ["SET", &key, "hello"],
            ["SET", &key, "-1 2 3 4"],
            ["LPUSH", &key, "an element"],
            ["SADD", &key, "a member"],
        ] {
            server.ask(&["DEL", &key]);
            server.ask(&foreign);
            let before = contents(&server);
            let ruling = there.decide(&1, 1).await;
            assert!(ruling.is_degraded(), "{name} {foreign:?}: {ruling:?}");
            let error = store.last_error().expect("it is told");
            assert!(error.is_wrong_type(), "{name} {foreign:?}: {error:?}");
            let looked = store.peek(charge(limit, 1, 1)).await;
            let error = looked.expect_err("it cannot be read");
            assert!(error.is_wrong_type(), "{name} {foreign:?}: {error:?}");
            there.refund(charged.charge());
            assert_eq!(contents(&server), before, "{name} {foreign:?}");
        }
        // Other keys are as good as before, and a reset makes room for ours.
        assert!(!there.decide(&2, 1).await.is_degraded(), "{name}");
        store.reset(&charge(limit, 1, 0)).await.expect("it answers");
        assert!(!there.decide(&1, 1).await.is_degraded(), "{name}");
        server.ask(&["FLUSHALL"]);
    }
}
