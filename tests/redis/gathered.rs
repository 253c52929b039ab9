//! Callers of different keys who ask at the same time: few calls, each decision as if it had been alone.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sluicegate::redis::{Endpoint, Limits, LimitsBuilder};
use sluicegate::{Admission, Hierarchy, ManualClock, Rate, Ruling, Tick};

use crate::kit::{
    DAY, PATIENCE, assert_every_key_ends, built, five, left, left_there, wait_for_left,
};
use crate::limits::limits;
use crate::server::{Options, Server};

fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread();
    { runtime }.enable_all().build().expect("a runtime")
}

/// A user's level of each of these kinds.
fn levels(kinds: &[usize], units: u64) -> sluicegate::HierarchyBuilder<u64> {
    let span = Duration::from_micros(1_000_003);
    let mut levels = Hierarchy::<u64>::builder();
    for (index, kind) in kinds.iter().enumerate() {
        let limit = five(units + index as u64, span)[*kind].1;
        levels = levels.level(format!("level {index}"), limit, |user| *user);
    }
    levels
}

/// What a ruling says, with its waits in microseconds.
type Said = (bool, Vec<u64>, Vec<u128>, Option<String>);

fn said(ruling: &Ruling) -> Said {
    let waits = ruling.decisions().map(|(_, decision)| decision.reset_after);
    (
        ruling.is_granted(),
        left(ruling),
        waits.map(|wait| wait.as_nanos().div_ceil(1000)).collect(),
        ruling.binding().map(str::to_owned),
    )
}

#[test]
fn callers_who_ask_at_once_are_told_what_they_would_have_been_told_one_by_one() {
    let (server, runtime) = (Server::start(), runtime());
    let (gathered, merged) = (Cell::new(0), Cell::new(0));
    let number = Cell::new(0);
    let kinds = prop::collection::vec(0..5_usize, 1..7);
    // Those of one number ask for the same, and may share a decision within a call.
    let users = prop::collection::vec(0..20_u64, 1..60);
    let rounds = prop::collection::vec((0..1_500_u64, users), 1..5);
    let mut runner = TestRunner::new(Config {
        cases: 120,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(&(kinds, 1..20_u64, rounds), |(kinds, units, rounds)| {
        number.set(number.get() + 1);
        let clock = ManualClock::new();
        clock.set(Tick::from_nanos(1_764_550_000_123_456_000));
        let store = limits(&server).prefix(format!("case {}", number.get()));
        let store = store.clock(clock.clone()).build().expect("valid");
        let there = levels(&kinds, units).build_on(store.clone()).expect("kept");
        let here = levels(&kinds, units).clock(clock.clone()).build();
        let here = here.expect("kept");
        for (passed, users) in rounds {
            clock.advance(Duration::from_micros(1_000 * passed));
            let cost = |user: u64| 1 + user % 5;
            let calls = users
                .iter()
                .map(|user| there.decide_for(*user, cost(*user)));
            let told = runtime.block_on(join_all(calls));
            let mut all: Vec<(u64, Said)> = Vec::new();
            for (user, ruling) in users.iter().zip(&told) {
                prop_assert!(!ruling.is_degraded(), "{:?}", store.last_error());
                all.push((*user, said(ruling)));
            }
            let mut alone: Vec<(u64, Said)> = Vec::new();
            for user in users {
                let charge = here.charge(&user, cost(user));
                alone.push((user, said(&runtime.block_on(here.admit(charge)))));
            }
            // Who of one number came first is not told.
            all.sort_unstable();
            alone.sort_unstable();
            prop_assert_eq!(all, alone);
        }
        let counts = store.counts();
        gathered.set(gathered.get() + counts.gathered);
        merged.set(merged.get() + counts.merged);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    assert!(gathered.get() > 500, "{} went together", gathered.get());
    assert!(merged.get() > 500, "{} were merged", merged.get());
    assert_every_key_ends(&server);
}

/// Calls of one store, each by a caller of its own.
trait DecideFor {
    fn decide_for(&self, user: u64, cost: u64) -> impl Future<Output = Ruling>;
}

impl DecideFor for Hierarchy<u64, Limits> {
    async fn decide_for(&self, user: u64, cost: u64) -> Ruling {
        self.decide(&user, cost).await
    }
}

async fn exactly_a_hundred_of_two_hundred(store: LimitsBuilder) {
    let everybody = Rate::per_day(1).burst(100);
    let own = Rate::per_day(1).burst(2);
    let store = store.build().expect("valid");
    let hierarchy = Hierarchy::<u64>::builder()
        .level("everybody", everybody, |_| ())
        .level("user", own, |user| *user)
        .build_on(store.clone())
        .expect("the levels can be kept");
    let tasks = (0..200).map(|user| {
        let hierarchy = hierarchy.clone();
        tokio::spawn(async move { hierarchy.decide(&user, 1).await })
    });
    let mut granted = 0;
    for ruling in join_all(tasks.collect::<Vec<_>>()).await {
        let ruling = ruling.expect("no panic");
        assert!(!ruling.is_degraded(), "{:?}", store.last_error());
        granted += u32::from(ruling.is_granted());
        assert!(ruling.is_granted() || ruling.binding() == Some("everybody"));
    }
    assert_eq!(granted, 100);
    let counts = store.counts();
    assert!(counts.gathered > 100, "{counts:?}");
    assert!(counts.sent < 100, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_callers_of_a_shared_hundred_are_granted_exactly_that() {
    exactly_a_hundred_of_two_hundred(limits(&Server::start())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_callers_on_a_cluster_are_granted_exactly_that() {
    let server = Options::default().cluster().start();
    let endpoint = Endpoint::cluster([server.url()]).expect("valid");
    let store = Limits::builder(endpoint).deadline(Duration::from_secs(5));
    exactly_a_hundred_of_two_hundred(store).await;
}

/// Decisions that have begun, and that nobody polls.
fn begun(
    hierarchy: &Hierarchy<u64, Limits>,
    users: std::ops::Range<u64>,
) -> Vec<Pin<Box<impl Future<Output = Ruling> + use<>>>> {
    let begin = |user| {
        let hierarchy = hierarchy.clone();
        let mut call = Box::pin(async move { hierarchy.decide(&user, 1).await });
        let waits = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(waits.is_pending());
        call
    };
    users.map(begin).collect()
}

#[tokio::test]
async fn callers_that_nobody_polls_hold_up_nobody() {
    let server = Server::start();
    let (store, there) = built(limits(&server), five(10, DAY)[0].1);
    assert!(there.decide(&0, 1).await.is_granted());
    let stalled = begun(&there, 100..140);
    let start = Instant::now();
    for user in 0..20 {
        let ruling = there.decide(&user, 1).await;
        assert!(ruling.is_granted() && !ruling.is_degraded(), "{ruling:?}");
    }
    // The deadline is five seconds: a call that waited for one of the stalled would have met it.
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        store.counts()
    );
    for call in stalled {
        assert!(call.await.is_granted());
    }
}

#[test]
fn a_runtime_that_nobody_drives_holds_up_nobody_on_another_one() {
    let server = Server::start();
    let (idle, driven) = (runtime(), runtime());
    let (_store, there) = built(limits(&server), five(10, DAY)[0].1);
    // The connection is driven by the runtime that makes it.
    assert!(driven.block_on(there.decide(&0, 1)).is_granted());
    let stalled = idle.block_on(async { begun(&there, 100..140) });
    let start = Instant::now();
    for user in 0..20 {
        let ruling = driven.block_on(there.decide(&user, 1));
        assert!(ruling.is_granted() && !ruling.is_degraded(), "{ruling:?}");
    }
    // The deadline is five seconds.
    assert!(start.elapsed() < Duration::from_secs(4));
    drop(stalled);
}

#[tokio::test]
async fn callers_that_go_away_give_back_what_they_were_granted() {
    let server = Server::start();
    for (name, limit) in five(100, DAY) {
        let (store, there) = built(limits(&server).prefix(name), limit);
        assert!(there.decide(&0, 1).await.is_granted());
        for round in 0..5 {
            drop(begun(&there, 1..30));
            for user in 1..30 {
                wait_for_left(&store, limit, user, 100).await;
            }
            assert_eq!(left_there(&store, limit, 0).await, 99, "{name}, {round}");
        }
    }
}

#[tokio::test]
async fn what_lies_under_one_key_is_the_trouble_of_its_caller_alone() {
    let server = Server::start();
    for (name, limit) in five(100, DAY) {
        let (store, there) = built(limits(&server).prefix(name), limit);
        assert!(there.decide(&7, 1).await.is_granted());
        let seven = |key: &String| key.contains(&name.replace(' ', "%20"));
        let key = server.keys().into_iter().find(seven).expect("it is there");
        server.ask(&["DEL", &key]);
        server.ask(&["LPUSH", &key, "foreign"]);
        for _ in 0..3 {
            let calls = (0..40_u64).map(|user| there.decide_for(user, 1));
            for (user, ruling) in join_all(calls).await.into_iter().enumerate() {
                assert_eq!(
                    ruling.is_degraded(),
                    user == 7,
                    "{name}: {user}, {ruling:?}"
                );
            }
        }
        let error = store.last_error().expect("there was one");
        assert!(error.is_wrong_type(), "{error}");
        // Nobody else was charged more or less than three times.
        assert_eq!(left_there(&store, limit, 8).await, 97, "{name}");
        assert!(store.counts().gathered > 0);
    }
}

#[tokio::test]
async fn without_a_server_everybody_is_answered_by_their_own_deadline() {
    let server = Server::start();
    let store = limits(&server).deadline(Duration::from_millis(200));
    let (store, there) = built(store, five(10, DAY)[0].1);
    let _ = crate::kit::recovered(&there, 0).await;
    server.freeze();
    let start = Instant::now();
    let calls = (1..200_u64).map(|user| there.decide_for(user, 1));
    for ruling in join_all(calls).await {
        assert!(ruling.is_degraded(), "{ruling:?}");
    }
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    let sent = store.counts().sent;
    // The breaker is open: nothing is sent for whoever comes now.
    for user in 200..300 {
        assert!(there.decide(&user, 1).await.is_degraded());
    }
    assert!(store.counts().sent <= sent + 2, "{:?}", store.counts());
    server.thaw();
    let _ = crate::kit::recovered(&there, 0).await;
}
