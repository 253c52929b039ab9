//! Limits that change while their keys are in use, and what is given back or forgotten.

use std::time::Duration;

use sluicegate::redis::Endpoint;
use sluicegate::redis::Limits;
use sluicegate::{
    FixedWindow, Hierarchy, Limit, ManualClock, Rate, SlidingCounter, SlidingLog, Tick,
};

use crate::kit::{
    DAY, Single, assert_every_key_ends, built, charge, five, left, left_there, wait_for_left,
};
use crate::limits::limits;
use crate::server::{Options, Server};

/// Limits by a clock that is moved by hand.
fn by_hand(server: &Server, prefix: &str, limit: Limit) -> (ManualClock, Limits, Single) {
    let clock = ManualClock::new();
    clock.set(Tick::from_nanos(1_764_550_000_000_000_000));
    let store = limits(server).prefix(prefix).clock(clock.clone());
    let (store, there) = built(store, limit);
    (clock, store, there)
}

#[tokio::test]
async fn reset_gives_a_key_everything_back_and_no_other() {
    let server = Server::start();
    for (name, limit) in five(10, DAY) {
        let (store, there) = built(limits(&server).prefix(name), limit);
        for user in [1, 2] {
            assert!(there.decide(&user, 10).await.is_granted(), "{name}");
        }
        // Remembered from here on.
        assert!(!there.decide(&1, 1).await.is_granted(), "{name}");
        assert!(!there.decide(&1, 1).await.is_granted(), "{name}");
        let asked = store.reset(&charge(limit, 1, 0)).await;
        asked.expect("the server answers");
        assert_eq!(left_there(&store, limit, 1).await, 10, "{name}");
        assert!(there.decide(&1, 10).await.is_granted(), "{name}");
        assert_eq!(left_there(&store, limit, 2).await, 0, "{name}");
        // What was never charged can be forgotten, too.
        let asked = store.reset(&charge(limit, 3, 5)).await;
        asked.expect("the server answers");
    }
    assert_every_key_ends(&server);
}

#[tokio::test]
async fn reset_reaches_every_level_of_a_cluster() {
    let server = Options::default().cluster().start();
    let endpoint = Endpoint::cluster([server.url()]).expect("the address is valid");
    let store = Limits::builder(endpoint).deadline(Duration::from_secs(5));
    let store = store
        .tenant("tenant")
        .apart("global")
        .build()
        .expect("valid");
    let hierarchy = Hierarchy::<(u64, u64)>::builder()
        .level("global", Rate::per_hour(1).burst(3), |_| ())
        .level("tenant", Rate::per_hour(1).burst(3), |caller| caller.0)
        .level("user", Rate::per_hour(1).burst(3), |caller| caller.1)
        .build_on(store.clone())
        .expect("the levels can be kept");
    let spent = hierarchy.decide(&(1, 1), 3).await;
    assert!(spent.is_granted() && !spent.is_degraded(), "{spent:?}");
    assert_eq!(server.keys().len(), 3);
    store.reset(&spent.charge()).await.expect("it answers");
    assert_eq!(server.keys(), Vec::<String>::new());
    assert!(hierarchy.decide(&(1, 1), 3).await.is_granted());
}

#[tokio::test]
async fn a_reset_without_a_server_is_an_error() {
    let mut server = Server::start();
    let [(_, limit), ..] = five(10, DAY);
    let store = limits(&server).deadline(Duration::from_millis(200));
    let (store, _) = built(store, limit);
    server.kill();
    let error = store.reset(&charge(limit, 1, 0)).await;
    let error = error.expect_err("nobody answers");
    assert!(error.is_disconnected(), "{error}");
    assert!(!error.may_have_run(), "{error}");
}

#[tokio::test]
async fn a_raised_limit_counts_at_once_and_a_lowered_one_is_no_longer_wait_than_its_own() {
    let server = Server::start();
    let minute = Duration::from_secs(60);
    let bigger = five(25, minute);
    let smaller = five(4, minute);
    for (index, (name, limit)) in five(10, minute).into_iter().enumerate() {
        let (clock, store, there) = by_hand(&server, name, limit);
        let change = |to: Limit| there.set_limit("user", to).expect("it can be kept");
        assert!(there.decide(&1, 8).await.is_granted(), "{name}");
        // A bucket keeps its instant: 8 of 10 a minute are 48 s, which is 20 units of 25 a minute. Windows keep units.
        change(bigger[index].1);
        let free = if index < 2 { 5 } else { 17 };
        assert_eq!(left(&there.decide(&1, 0).await), [free], "{name}");
        assert!(there.decide(&1, free).await.is_granted(), "{name}");
        assert!(!there.decide(&1, 1).await.is_granted(), "{name}");
        // What is used is beyond the smaller one: it is full, and for no longer than it could be by itself.
        change(smaller[index].1);
        let refused = there.decide(&1, 1).await;
        assert!(
            !refused.is_granted() && !refused.is_degraded(),
            "{name}: {refused:?}"
        );
        assert_eq!(left(&refused), [0], "{name}");
        let wait = refused.retry_after().expect("it fits by and by");
        let longest = if name == "sliding counter" {
            2 * minute
        } else {
            minute
        };
        assert!(wait <= longest, "{name}: {wait:?}");
        clock.advance(wait);
        assert!(
            there.decide(&1, 1).await.is_granted(),
            "{name} after {wait:?}"
        );
        clock.advance(longest);
        assert_eq!(left_there(&store, smaller[index].1, 1).await, 4, "{name}");
    }
    assert_every_key_ends(&server);
}

#[tokio::test]
async fn a_changed_window_keeps_what_is_used_and_waits_no_longer_than_the_new_one() {
    let server = Server::start();
    let hour = Duration::from_secs(3600);
    let second = Duration::from_secs(1);
    let short = five(10, second);
    for (index, (name, limit)) in five(10, hour).into_iter().enumerate() {
        let (clock, _, there) = by_hand(&server, name, limit);
        assert!(there.decide(&1, 10).await.is_granted(), "{name}");
        there
            .set_limit("user", short[index].1)
            .expect("it can be kept");
        let refused = there.decide(&1, 1).await;
        assert!(
            !refused.is_granted() && !refused.is_degraded(),
            "{name}: {refused:?}"
        );
        let wait = refused.retry_after().expect("it fits by and by");
        assert!(wait <= 2 * second, "{name}: {wait:?}");
        clock.advance(wait);
        assert!(
            there.decide(&1, 1).await.is_granted(),
            "{name} after {wait:?}"
        );
        // And back: nothing that was stored by the short one makes the long one let more through.
        there.set_limit("user", limit).expect("it can be kept");
        let mut granted = 0;
        for _ in 0..12 {
            granted += u64::from(there.decide(&1, 1).await.is_granted());
        }
        assert!(granted <= 10, "{name}: {granted}");
    }
    assert_every_key_ends(&server);
}

#[tokio::test]
async fn another_kind_of_limit_starts_fresh_and_the_old_one_is_still_there() {
    let server = Server::start();
    let kinds = five(10, DAY);
    for (from, (name, limit)) in kinds.into_iter().enumerate() {
        for (to, (other, changed)) in kinds.into_iter().enumerate() {
            if from == to {
                continue;
            }
            let (store, there) = built(limits(&server).prefix(format!("{from} {to}")), limit);
            assert!(there.decide(&1, 10).await.is_granted());
            assert!(!there.decide(&1, 1).await.is_granted());
            there.set_limit("user", changed).expect("it can be kept");
            let fresh = there.decide(&1, 7).await;
            assert!(
                fresh.is_granted() && !fresh.is_degraded(),
                "{name} to {other}: {fresh:?}"
            );
            assert_eq!(left(&fresh), [3], "{name} to {other}");
            there.set_limit("user", limit).expect("it can be kept");
            assert!(!there.decide(&1, 1).await.is_granted(), "{other} to {name}");
            assert_eq!(left_there(&store, changed, 1).await, 3);
        }
    }
    assert_every_key_ends(&server);
}

#[tokio::test]
async fn a_limit_that_cannot_be_kept_is_refused_and_nothing_is_changed() {
    let server = Server::start();
    let limit = Rate::per_second(10).burst(10);
    let (_, there) = built(limits(&server), limit.into());
    let wrong: [Limit; 3] = [
        Rate::per_second(1_000_000).burst(10).into(),
        SlidingLog::new(1 << 21, DAY).expect("valid").into(),
        FixedWindow::new(5, Duration::from_nanos(1_500))
            .expect("valid")
            .into(),
    ];
    for limit in wrong {
        let error = there
            .set_limit("user", limit)
            .expect_err("it cannot be kept");
        assert!(error.to_string().contains("shared"), "{error}");
    }
    assert!(there.set_limit("nobody", limit).is_err());
    assert_eq!(there.levels()[0].1, Limit::from(limit));
    assert!(there.decide(&1, 10).await.is_granted());
}

#[tokio::test]
async fn a_refund_counts_for_the_instant_of_its_charge() {
    let server = Server::start();
    let minute = Duration::from_secs(60);
    for (name, limit) in five(10, minute) {
        // Within its window it frees what is still counted of it, as in this process.
        let (clock, store, there) = by_hand(&server, name, limit);
        let here = Hierarchy::<u64>::builder().level("user", limit, |user| *user);
        let here = here.clock(clock.clone()).build().expect("valid");
        let charged = (there.decide(&1, 6).await, here.check(&1, 6));
        assert!(charged.0.is_granted() && charged.1.is_granted(), "{name}");
        clock.advance(minute / 2);
        assert!(there.decide(&1, 4).await.is_granted(), "{name}");
        assert!(here.check(&1, 4).is_granted(), "{name}");
        there.refund(charged.0.charge());
        here.refund(charged.1.charge());
        let expected = left(&here.peek(&1, 0))[0];
        assert!(expected >= 6, "{name}: {expected}");
        wait_for_left(&store, limit, 1, expected).await;
        // Past its window a charge has worn off by itself: giving it back frees nothing of a later one.
        let (clock, store, there) = by_hand(&server, &format!("late {name}"), limit);
        let old = there.decide(&1, 5).await;
        assert!(old.is_granted(), "{name}");
        clock.advance(2 * minute + Duration::from_secs(1));
        assert!(there.decide(&1, 10).await.is_granted(), "{name}");
        let other = there.decide(&2, 5).await;
        there.refund(old.charge());
        // A refusal was charged nothing, and gives nothing back.
        there.refund(there.decide(&1, 1).await.charge());
        // Refunds take one connection, so once the last has arrived all have.
        there.refund(other.charge());
        wait_for_left(&store, limit, 2, 10).await;
        assert_eq!(left_there(&store, limit, 1).await, 0, "{name}");
        assert_eq!(store.counts().refunds, 2, "{name}");
    }
}

#[tokio::test]
async fn a_dropped_decision_gives_back_what_it_was_granted() {
    let server = Server::start();
    for (name, limit) in five(10, DAY) {
        let (store, there) = built(limits(&server).prefix(name), limit);
        assert!(there.decide(&1, 1).await.is_granted(), "{name}");
        for _ in 0..20 {
            let decision = there.decide(&1, 3);
            // Asked for, and dropped before the answer.
            let soon = tokio::time::timeout(Duration::ZERO, decision).await;
            if let Ok(ruling) = soon {
                assert!(ruling.is_granted(), "{name}: {ruling:?}");
                there.refund(ruling.charge());
            }
            wait_for_left(&store, limit, 1, 9).await;
        }
    }
}

#[tokio::test]
async fn a_sliding_counter_refunds_into_the_window_of_the_charge() {
    let server = Server::start();
    let minute = Duration::from_secs(60);
    let limit: Limit = SlidingCounter::new(100, minute).expect("valid").into();
    let (clock, store, there) = by_hand(&server, "counter", limit);
    let first = there.decide(&1, 80).await;
    clock.advance(minute + minute / 4);
    assert!(there.decide(&1, 30).await.is_granted());
    // 30 and three quarters of 80, as in the textbook.
    assert_eq!(left_there(&store, limit, 1).await, 10);
    there.refund(first.charge());
    wait_for_left(&store, limit, 1, 70).await;
}
