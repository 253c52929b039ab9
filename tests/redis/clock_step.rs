//! The server's clock set back and forward under limits in use: nobody waits longer than the limit itself may ask for,
//! and no more is let through than was allowed.
//!
//! What a clock that was set back leaves behind is state of the future. It is made here by limits whose clock is ahead, or
//! by a clock that is moved by hand in both directions.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sluicegate::redis::Limits;
use sluicegate::{Limit, ManualClock, Tick};

use crate::kit::{
    DAY, Single, assert_every_key_ends, built, charge, five, left, left_there, server_time,
    wait_for_left,
};
use crate::limits::limits;
use crate::server::Server;

/// Limits whose clock differs from the server's by so much, and that clock.
fn ahead(
    server: &Server,
    prefix: &str,
    limit: Limit,
    by: Duration,
) -> (ManualClock, Limits, Single) {
    let clock = ManualClock::new();
    clock.set(Tick::from_nanos(server_time(server) * 1_000) + by);
    let store = limits(server).prefix(prefix).clock(clock.clone());
    let (store, there) = built(store, limit);
    (clock, store, there)
}

/// The longest that a limit may ask anybody to wait.
fn longest(name: &str, span: Duration) -> Duration {
    match name {
        // What fills a window weighs in the next one, too.
        "sliding counter" => 2 * span,
        _ => span,
    }
}

#[tokio::test]
async fn after_the_clock_was_set_back_nobody_waits_longer_than_a_full_wait() {
    let server = Server::start();
    let hour = Duration::from_secs(3600);
    for by in [Duration::from_secs(1), hour / 2, hour, 30 * DAY] {
        for (name, limit) in five(10, hour) {
            let prefix = format!("{name} {by:?}");
            let (_, _, before) = ahead(&server, &prefix, limit, by);
            assert!(before.decide(&1, 10).await.is_granted(), "{prefix}");
            // From here on by the server's own clock, which is that much behind.
            let (store, there) = built(limits(&server).prefix(&prefix).forget_refusals(), limit);
            let mut told = Vec::new();
            for cost in [1, 10, 1] {
                let refused = there.decide(&1, cost).await;
                assert!(
                    !refused.is_granted() && !refused.is_degraded(),
                    "{prefix}: {refused:?}"
                );
                assert_eq!(left(&refused), [0], "{prefix}");
                let wait = refused.retry_after().expect("it fits by and by");
                assert!(wait <= longest(name, hour), "{prefix}: {wait:?}");
                told.push(wait);
            }
            // Each refusal counts down from the first: it does not begin anew with each of them.
            assert!(told[2] <= told[0], "{prefix}: {told:?}");
            // A look is no more than that.
            assert_eq!(left_there(&store, limit, 1).await, 0, "{prefix}");
        }
    }
    assert_every_key_ends(&server);
}

#[tokio::test]
async fn what_was_told_after_the_clock_was_set_back_is_kept() {
    let server = Server::start();
    let span = Duration::from_millis(800);
    for (name, limit) in five(4, span) {
        let (_, _, before) = ahead(&server, name, limit, Duration::from_secs(7200));
        assert!(before.decide(&1, 4).await.is_granted(), "{name}");
        let (_, there) = built(limits(&server).prefix(name).forget_refusals(), limit);
        let refused = there.decide(&1, 4).await;
        let wait = refused.retry_after().expect("it fits by and by");
        assert!(wait <= longest(name, span), "{name}: {wait:?}");
        tokio::time::sleep(wait).await;
        let ruling = there.decide(&1, 4).await;
        assert!(ruling.is_granted(), "{name} after {wait:?}: {ruling:?}");
    }
}

#[tokio::test]
async fn what_was_charged_before_the_clock_was_set_back_can_be_given_back() {
    let server = Server::start();
    for (name, limit) in five(10, DAY) {
        let (clock, store, there) = ahead(&server, name, limit, Duration::from_secs(7200));
        let charged = there.decide(&1, 10).await;
        assert!(charged.is_granted(), "{name}");
        clock.set(Tick::from_nanos(server_time(&server) * 1_000));
        assert!(!there.decide(&1, 1).await.is_granted(), "{name}");
        there.refund(charged.charge());
        // It frees what it had charged at most, and never takes anything.
        let other = there.decide(&2, 10).await;
        there.refund(other.charge());
        wait_for_left(&store, limit, 2, 10).await;
        let free = left_there(&store, limit, 1).await;
        assert!(free <= 10, "{name}: {free}");
        let ruling = there.decide(&1, free).await;
        assert!(ruling.is_granted(), "{name}: {ruling:?}");
    }
}

/// One step of a schedule: the clock moves by so many thousandths of the span, and then so much is asked for.
type Step = (i64, u64);

/// What is granted is at most a full limit for each span that the clock has gone through, and one for each time that
/// it was set back.
async fn bounded(
    server: &Server,
    prefix: String,
    name: &str,
    limit: Limit,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let span = Duration::from_secs(1000);
    let (clock, store, there) = ahead(server, &prefix, limit, Duration::ZERO);
    let (mut now, mut forward, mut backward) = (0_i64, 0_u64, 0_u64);
    let mut granted = 0;
    let begun = server_time(server) as i64 * 1_000;
    for (thousandths, cost) in steps {
        now += thousandths * 1_000_000_000;
        clock.set(Tick::from_nanos((begun + now) as u64));
        match thousandths {
            0.. => forward += *thousandths as u64,
            _ => backward += 1,
        }
        let ruling = there.decide(&1, *cost).await;
        prop_assert!(!ruling.is_degraded(), "{ruling:?}");
        match ruling.retry_after() {
            None => granted += cost,
            Some(wait) => prop_assert!(wait <= longest(name, span), "{name}: {wait:?}"),
        }
        let free = left_there(&store, limit, 1).await;
        prop_assert!(free <= 10, "{name}: {free}");
    }
    // A fixed window, or the rate and its burst: at most twice the quota in any one span.
    let spans = forward / 1_000 + 2;
    prop_assert!(
        granted <= 10 * (spans + backward),
        "{name}: {granted} in {spans} spans, {backward} times back"
    );
    Ok(())
}

#[test]
fn counts_stay_bounded_however_the_clock_is_moved() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().expect("a runtime");
    let number = std::cell::Cell::new(0);
    let moves = prop_oneof![4 => 0..300_i64, 1 => -3_000..0_i64, 1 => 300..3_000_i64];
    let steps = prop::collection::vec((moves, 1..=10_u64), 10..40);
    let mut runner = TestRunner::new(Config {
        cases: 100,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(&(0..5_usize, steps), |(kind, steps)| {
        number.set(number.get() + 1);
        let (name, limit) = five(10, Duration::from_secs(1000))[kind];
        let prefix = format!("case {}", number.get());
        runtime.block_on(bounded(&server, prefix, name, limit, &steps))
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    assert_every_key_ends(&server);
}

#[tokio::test]
async fn a_clock_set_forward_forgets_no_more_than_time_passed_would() {
    let server = Server::start();
    let hour = Duration::from_secs(3600);
    for (name, limit) in five(10, hour) {
        // Stored now, and looked at by a clock that has moved on.
        let (_, there) = built(limits(&server).prefix(name), limit);
        assert!(there.decide(&1, 10).await.is_granted(), "{name}");
        let (_, store, later) = ahead(&server, name, limit, hour / 2);
        let free = left_there(&store, limit, 1).await;
        let expected = if matches!(name, "token bucket" | "leaky bucket") {
            5
        } else {
            0
        };
        // The test itself takes a while: no bucket gets two units in it.
        assert!((expected..=expected + 1).contains(&free), "{name}: {free}");
        let (_, _, after) = ahead(&server, name, limit, 3 * hour);
        assert!(after.decide(&1, 10).await.is_granted(), "{name}");
        assert!(!later.decide(&1, 10).await.is_granted(), "{name}");
        // What it finds now lies ahead of it.
        let refused = later.decide(&1, 1).await;
        let wait = refused.retry_after().expect("it fits by and by");
        assert!(wait <= longest(name, hour), "{name}: {wait:?}");
        assert_eq!(left_there(&store, limit, 2).await, 10);
        let looked = store.peek(charge(limit, 1, 1)).await;
        assert!(!looked.expect("it answers").is_granted(), "{name}");
    }
    assert_every_key_ends(&server);
}
