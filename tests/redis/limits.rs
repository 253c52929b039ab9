//! Shared limits: what they let through together, and what they leave on the server.

use std::time::Duration;

use sluicegate::redis::{Endpoint, Limits, LimitsBuilder};
use sluicegate::{FixedWindow, Hierarchy, LeakyBucket, Limit, Rate, SlidingCounter, SlidingLog};

use crate::server::{Options, Server};

pub(crate) fn limits(server: &Server) -> LimitsBuilder {
    let endpoint = Endpoint::new(server.url()).expect("the address is valid");
    // A busy machine is no outage.
    Limits::builder(endpoint).deadline(Duration::from_secs(5))
}

type Caller = (u8, u8);

/// A level for each limit, by the one half of the caller and the other in turn.
fn hierarchy(server: &Server, prefix: &str, levels: &[Limit]) -> Hierarchy<Caller, Limits> {
    let mut hierarchy = Hierarchy::<Caller>::builder();
    for (index, limit) in levels.iter().enumerate() {
        let key = move |caller: &Caller| if index % 2 == 0 { caller.0 } else { caller.1 };
        hierarchy = hierarchy.level(format!("level {index}"), *limit, key);
    }
    let store = limits(server).prefix(prefix).build();
    let hierarchy = hierarchy.build_on(store.expect("the settings are valid"));
    hierarchy.expect("the levels can be kept")
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
        let there = hierarchy(&server, &format!("tight {tight}"), &levels);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_who_share_calls_get_exactly_what_a_key_of_any_kind_has() {
    let server = Server::start();
    let day = Duration::from_secs(86_400);
    let kinds: [Limit; 6] = [
        Rate::per_hour(1).burst(300).into(),
        // Its unit does not take whole microseconds.
        Rate::new(7, day).expect("valid").burst(300).into(),
        LeakyBucket::new(Rate::per_hour(1), 300)
            .expect("valid")
            .into(),
        FixedWindow::new(300, day).expect("valid").into(),
        SlidingLog::new(300, day).expect("valid").into(),
        SlidingCounter::new(300, day).expect("valid").into(),
    ];
    for (index, kind) in kinds.into_iter().enumerate() {
        let store = limits(&server).prefix(format!("merged {index}"));
        let store = store.forget_refusals().build().expect("valid");
        let hierarchy = Hierarchy::<()>::builder()
            .level("all", kind, |()| ())
            .build_on(store.clone())
            .expect("valid");
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let hierarchy = hierarchy.clone();
                tokio::spawn(async move {
                    let mut granted = 0;
                    for _ in 0..5 {
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
        assert_eq!(granted, 300, "{kind}");
        assert!(store.counts().merged > 0, "{kind}");
    }
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
async fn one_script_carries_sixteen_levels_of_any_kind() {
    let server = Server::start();
    let minute = Duration::from_secs(60);
    let kinds: [Limit; 6] = [
        Rate::per_minute(5).burst(3).into(),
        // Its unit does not take whole microseconds.
        Rate::per_minute(7).burst(3).into(),
        LeakyBucket::new(Rate::per_hour(7), 3)
            .expect("valid")
            .into(),
        FixedWindow::new(3, minute).expect("valid").into(),
        SlidingLog::new(3, minute).expect("valid").into(),
        SlidingCounter::new(3, minute).expect("valid").into(),
    ];
    let mixed = kinds.iter().copied().cycle().take(16).collect();
    let uniform = kinds.iter().map(|kind| vec![*kind; 16]);
    for (index, levels) in uniform.chain([mixed]).enumerate() {
        let there = hierarchy(&server, &format!("kind {index}"), &levels);
        let granted = there.decide(&(1, 1), 3).await;
        assert!(granted.is_granted() && !granted.is_degraded(), "{index}");
        let refused = there.decide(&(1, 1), 3).await;
        assert!(!refused.is_granted() && !refused.is_degraded(), "{index}");
        there.refund(granted.charge());
    }
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
