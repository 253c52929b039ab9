//! Shared limits: the scripts against the rules of this process, and what they leave on the server.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sluicegate::redis::{Endpoint, Limits, LimitsBuilder};
use sluicegate::{
    Charge, FixedWindow, Hierarchy, LeakyBucket, Limit, ManualClock, Rate, Ruling, SlidingCounter,
    SlidingLog,
};

use crate::server::{Options, Server};

pub(crate) fn limits(server: &Server) -> LimitsBuilder {
    let endpoint = Endpoint::new(server.url()).expect("the address is valid");
    // A busy machine is no outage.
    Limits::builder(endpoint).deadline(Duration::from_secs(5))
}

type Caller = (u8, u8);

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime starts")
}

/// The same levels in this process and on the server, on one clock.
fn both(
    server: &Server,
    prefix: &str,
    levels: &[Limit],
) -> (
    ManualClock,
    Hierarchy<Caller>,
    Hierarchy<Caller, Limits>,
    Limits,
) {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_800_000_000));
    let mut here = Hierarchy::<Caller>::builder().clock(clock.clone());
    let mut there = Hierarchy::<Caller>::builder();
    for (index, limit) in levels.iter().enumerate() {
        let key = move |caller: &Caller| if index % 2 == 0 { caller.0 } else { caller.1 };
        let name = format!("level {index}");
        here = here.level(name.as_str(), *limit, key);
        there = there.level(name.as_str(), *limit, key);
    }
    let store = limits(server).prefix(prefix).clock(clock.clone()).build();
    let store = store.expect("the settings are valid");
    let here = here.build().expect("the levels are valid");
    let there = there.build_on(store.clone());
    (clock, here, there.expect("the levels can be kept"), store)
}

/// Waits of the server are whole microseconds, rounded up.
fn micros(wait: Option<Duration>) -> Option<u128> {
    wait.map(|wait| wait.as_nanos().div_ceil(1000))
}

fn assert_same(here: &Ruling, there: &Ruling, step: usize) -> Result<(), TestCaseError> {
    prop_assert!(!there.is_degraded(), "step {}: {:?}", step, there);
    prop_assert_eq!(
        here.is_granted(),
        there.is_granted(),
        "step {}: {:?} {:?}",
        step,
        here,
        there
    );
    prop_assert_eq!(
        micros(here.retry_after()),
        micros(there.retry_after()),
        "step {}: {:?} {:?}",
        step,
        here,
        there
    );
    for ((_, here), (name, there)) in here.decisions().zip(there.decisions()) {
        prop_assert_eq!(here.limit, there.limit, "step {}, {}", step, name);
        prop_assert_eq!(here.remaining, there.remaining, "step {}, {}", step, name);
    }
    Ok(())
}

fn limit() -> impl Strategy<Value = Limit> {
    (0..5_u8, 1..2_000_u64, 1..40_u64, 1..5_000_u64).prop_map(|(kind, count, units, millis)| {
        let window = Duration::from_millis(millis);
        // A faster bucket is refused when it is built, which has a test of its own.
        let rate = Rate::new(count.min(100 * millis), window).expect("more than zero");
        match kind {
            0 => rate.burst(units).into(),
            1 => LeakyBucket::new(rate, units).expect("valid").into(),
            2 => FixedWindow::new(units, window).expect("valid").into(),
            3 => SlidingLog::new(units, window).expect("valid").into(),
            _ => SlidingCounter::new(units, window).expect("valid").into(),
        }
    })
}

/// Microseconds that pass, who asks, the cost, and whether the charge is given back.
type Step = (u64, Caller, u64, bool);

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![Just(0_u64), 1..1_000_u64, 1_000..3_000_000_u64];
    let step = (gap, (0..2_u8, 0..2_u8), 1..6_u64, prop::bool::weighted(0.1));
    prop::collection::vec(step, 1..most)
}

/// Waits until what was given back, from a task, shows on the server as it does here; it may never, which then fails as
/// the next decision.
async fn arrived(store: &Limits, charge: &Charge, here: &Ruling) {
    let left = |ruling: &Ruling| -> Vec<u64> {
        let decisions = ruling.decisions();
        decisions.map(|(_, decision)| decision.remaining).collect()
    };
    for _ in 0..200 {
        let there = store
            .peek(charge.clone())
            .await
            .expect("the server answers");
        if left(here) == left(&there) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Runs schedules on fresh keys, one runtime and one server for all.
fn replay(cases: u32, levels: impl Strategy<Value = Vec<Limit>>) {
    let server = Server::start();
    let runtime = runtime();
    let case = std::cell::Cell::new(0);
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&(levels, steps(60)), |(levels, steps)| {
        case.set(case.get() + 1);
        let (clock, here, there, store) = both(&server, &format!("case {}", case.get()), &levels);
        runtime.block_on(async {
            for (step, (gap, caller, cost, given_back)) in steps.into_iter().enumerate() {
                clock.advance(Duration::from_micros(gap));
                let (mine, theirs) = (here.check(&caller, cost), there.decide(&caller, cost).await);
                assert_same(&mine, &theirs, step)?;
                if given_back && mine.is_granted() {
                    here.refund(mine.charge());
                    let charge = theirs.charge();
                    there.refund(charge.clone());
                    arrived(&store, &charge, &here.peek(&caller, cost)).await;
                }
            }
            Ok(())
        })
    });
    outcome.expect("the server decides as the rules do");
}

#[test]
fn each_limit_decides_as_its_rule_does() {
    replay(120, limit().prop_map(|limit| vec![limit]));
}

#[test]
fn hierarchies_decide_as_in_this_process() {
    replay(60, prop::collection::vec(limit(), 6));
}

#[tokio::test]
async fn a_refusal_at_any_of_six_levels_charges_none_of_the_others() {
    let server = Server::start();
    for tight in 0..6_usize {
        let levels: Vec<Limit> = (0..6)
            .map(|level| {
                Rate::per_hour(1)
                    .burst(if level == tight { 1 } else { 10 })
                    .into()
            })
            .collect();
        let (_, _, there, _) = both(&server, &format!("tight {tight}"), &levels);
        assert!(there.decide(&(1, 1), 1).await.is_granted());
        for _ in 0..3 {
            let refused = there.decide(&(1, 1), 1).await;
            assert_eq!(refused.binding(), Some(format!("level {tight}").as_str()));
        }
        let left: Vec<u64> = there
            .decide(&(1, 1), 1)
            .await
            .decisions()
            .map(|(_, decision)| decision.remaining)
            .collect();
        let expected: Vec<u64> = (0..6)
            .map(|level| if level == tight { 0 } else { 9 })
            .collect();
        assert_eq!(left, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_tasks_get_exactly_what_one_key_has() {
    let server = Server::start();
    let hour = FixedWindow::new(1_000, Duration::from_secs(3600)).expect("valid");
    let hierarchy = Hierarchy::<()>::builder()
        .level("all", hour, |()| ())
        .build_on(limits(&server).build().expect("valid"))
        .expect("valid");
    let tasks: Vec<_> = (0..200)
        .map(|_| {
            let hierarchy = hierarchy.clone();
            tokio::spawn(async move {
                let mut granted = 0;
                for _ in 0..10 {
                    let ruling = hierarchy.decide(&(), 1).await;
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
    assert_eq!(granted, 1_000);
}

#[tokio::test]
async fn every_key_ends_by_itself_and_a_refusal_writes_nothing() {
    let server = Server::start();
    let minute = Duration::from_secs(60);
    let levels: [Limit; 5] = [
        Rate::per_minute(3).burst(3).into(),
        LeakyBucket::new(Rate::per_minute(3), 3)
            .expect("valid")
            .into(),
        FixedWindow::new(3, minute).expect("valid").into(),
        SlidingLog::new(3, minute).expect("valid").into(),
        SlidingCounter::new(3, minute).expect("valid").into(),
    ];
    for (index, limit) in levels.into_iter().enumerate() {
        let store = limits(&server)
            .prefix(format!("kind {index}"))
            .forget_refusals();
        let hierarchy = Hierarchy::<Caller>::builder()
            .level("user", limit, |caller| caller.0)
            .build_on(store.build().expect("valid"))
            .expect("valid");
        for caller in 0..5 {
            for _ in 0..3 {
                let _ = hierarchy.decide(&(caller, 0), 1).await;
            }
        }
        let before = writes(&server);
        for caller in 0..5 {
            let ruling = hierarchy.decide(&(caller, 0), 3).await;
            assert!(!ruling.is_granted() && !ruling.is_degraded(), "{ruling:?}");
        }
        assert_eq!(writes(&server), before, "kind {index}");
    }
    let keys = server.keys();
    assert!(keys.len() >= 25, "{keys:?}");
    for key in keys {
        let left = server.number(&["PTTL", &key]);
        assert!(left > 0, "{key} has no end: {left}");
    }
}

/// Writes that the server counts since it started.
fn writes(server: &Server) -> String {
    let info = server.ask(&["INFO", "persistence"]);
    let line = info
        .lines()
        .find(|line| line.starts_with("rdb_changes_since_last_save"));
    line.expect("the server tells").to_owned()
}

#[tokio::test]
async fn keys_of_users_neither_meet_nor_forge_a_tag() {
    let server = Server::start();
    let hierarchy = Hierarchy::<&'static str>::builder()
        .level("user", Rate::per_hour(1).burst(1), |user| *user)
        .build_on(limits(&server).build().expect("valid"))
        .expect("valid");
    let names = [
        "a",
        "a}",
        "{a}",
        "a:b",
        "a%3ab",
        "",
        "*",
        "a\r\nFLUSHALL",
        "ä",
    ];
    for name in names {
        assert!(hierarchy.decide(&name, 1).await.is_granted(), "{name:?}");
        assert!(!hierarchy.decide(&name, 1).await.is_granted(), "{name:?}");
    }
    let keys = server.keys();
    assert_eq!(keys.len(), names.len(), "{keys:?}");
    for key in keys {
        assert_eq!(key.matches(['{', '}']).count(), 2, "{key}");
    }
}

#[tokio::test]
async fn a_cluster_takes_every_script_with_its_keys_declared() {
    let server = Options::default().cluster().start();
    let endpoint = Endpoint::cluster([server.url()]).expect("the address is valid");
    let store = Limits::builder(endpoint)
        .deadline(Duration::from_secs(5))
        .tenant("tenant")
        .apart("global");
    let hierarchy = Hierarchy::<Caller>::builder()
        .level("global", Rate::per_hour(1).burst(3), |_| ())
        .level("tenant", Rate::per_hour(1).burst(9), |caller| caller.0)
        .level("user", Rate::per_hour(1).burst(9), |caller| caller.1)
        .build_on(store.build().expect("valid"))
        .expect("valid");
    for caller in [(1, 1), (2, 1), (3, 1)] {
        let ruling = hierarchy.decide(&caller, 1).await;
        assert!(ruling.is_granted() && !ruling.is_degraded(), "{ruling:?}");
    }
    let refused = hierarchy.decide(&(1, 1), 1).await;
    assert_eq!(refused.binding(), Some("global"));
}

#[test]
fn a_rate_that_cannot_be_kept_exactly_is_refused_by_name() {
    let server = Server::start();
    let hierarchy = Hierarchy::<()>::builder()
        .level("all", Rate::per_second(1_000_000).burst(10), |()| ())
        .build_on(limits(&server).build().expect("valid"));
    let error = hierarchy.expect_err("it is too fast").to_string();
    assert!(error.contains("at most 100000/s"), "{error}");
}
