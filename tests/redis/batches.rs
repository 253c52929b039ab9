//! Many decisions in one call: callers merged into one that grants up to so many, and batches. Each is what it would
//! have been by itself.

use std::time::Duration;

use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sluicegate::redis::Limits;
use sluicegate::{Admission, Hierarchy, Limit, ManualClock, Ruling, Tick, Verdict};

use crate::kit::{
    DAY, PATIENCE, Single, assert_every_key_ends, built, charge, five, left, left_there,
    wait_for_left,
};
use crate::limits::limits;
use crate::server::Server;

/// The same limit on the server and in this process, by one clock.
struct Both {
    clock: ManualClock,
    store: Limits,
    there: Single,
    here: Hierarchy<u64>,
}

impl Both {
    fn new(server: &Server, prefix: &str, limit: Limit) -> Self {
        let clock = ManualClock::new();
        clock.set(Tick::from_nanos(1_764_550_000_123_456_000));
        let store = limits(server).prefix(prefix).clock(clock.clone());
        let (store, there) = built(store, limit);
        let here = Hierarchy::<u64>::builder().level("user", limit, |user| *user);
        let here = here.clock(clock.clone()).build();
        Self {
            here: here.expect("the level can be kept"),
            clock,
            store,
            there,
        }
    }
}

/// What a decision says, in microseconds: granted, left, and the waits.
type Numbers = (bool, u64, u128, u128, u128);

fn numbers(ruling: &Ruling) -> Numbers {
    let up = |wait: Duration| wait.as_nanos().div_ceil(1000);
    let decision = ruling.decisions().next().expect("there is a level").1;
    let wait = match decision.verdict {
        Verdict::Refused { retry_after } => retry_after,
        _ => Duration::ZERO,
    };
    (
        ruling.is_granted(),
        decision.remaining,
        up(wait),
        up(decision.next_unit_in),
        up(decision.reset_after),
    )
}

fn check<S: Strategy>(
    cases: u32,
    input: S,
    test: impl Fn(S::Value, String) -> Result<(), TestCaseError>,
) where
    S::Value: std::fmt::Debug,
{
    let number = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(&input, |input| {
        number.set(number.get() + 1);
        test(input, format!("case {}", number.get()))
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_current_thread();
    { runtime }.enable_all().build().expect("a runtime")
}

#[test]
fn merged_callers_are_told_what_they_would_have_been_told_one_by_one() {
    let (server, runtime) = (Server::start(), runtime());
    let merged = std::cell::Cell::new(0);
    // Rounds of: time passing in thousandths of the span, callers, the cost of each, and whether half is kept.
    let round = (
        0..1_500_u64,
        1..40_usize,
        1..5_u64,
        prop::bool::weighted(0.2),
    );
    let rounds = (0..5_usize, 1..60_u64, prop::collection::vec(round, 1..6));
    check(120, rounds, |(kind, units, rounds), prefix| {
        let span = Duration::from_micros(1_000_003);
        let (name, limit) = five(units, span)[kind];
        let both = Both::new(&server, &prefix, limit);
        for (passed, callers, cost, half) in rounds {
            both.clock.advance(Duration::from_micros(1_000 * passed));
            let keep = |charge: sluicegate::Charge| if half { charge.keep_half() } else { charge };
            let calls = (0..callers).map(|_| both.there.admit(keep(both.there.charge(&1, cost))));
            let there = runtime.block_on(join_all(calls));
            prop_assert!(there.iter().all(|ruling| !ruling.is_degraded()), "{}", name);
            let mut there: Vec<_> = there.iter().map(numbers).collect();
            let mut here: Vec<_> = Vec::new();
            for _ in 0..callers {
                let charge = keep(both.here.charge(&1, cost));
                here.push(numbers(&runtime.block_on(both.here.admit(charge))));
            }
            // Who of them came first is not told.
            there.sort_unstable();
            here.sort_unstable();
            prop_assert_eq!(there, here, "{}", name);
        }
        merged.set(merged.get() + both.store.counts().merged);
        Ok(())
    });
    assert!(merged.get() > 500, "{} were merged", merged.get());
    assert_every_key_ends(&server);
}

#[test]
fn a_batch_is_told_what_its_charges_would_have_been_told_one_by_one() {
    let (server, runtime) = (Server::start(), runtime());
    let batch = prop::collection::vec((0..3_u64, 0..14_u64), 1..30);
    let rounds = prop::collection::vec((0..1_500_u64, batch), 1..5);
    check(
        120,
        (0..5_usize, 1..12_u64, rounds),
        |(kind, units, rounds), prefix| {
            let span = Duration::from_micros(1_000_003);
            let (name, limit) = five(units, span)[kind];
            let both = Both::new(&server, &prefix, limit);
            for (passed, batch) in rounds {
                both.clock.advance(Duration::from_micros(1_000 * passed));
                let charges = batch
                    .iter()
                    .map(|(user, cost)| both.there.charge(user, *cost));
                let there = runtime.block_on(both.store.decide_many(charges));
                prop_assert_eq!(there.len(), batch.len());
                for (ruling, (user, cost)) in there.iter().zip(&batch) {
                    prop_assert!(!ruling.is_degraded(), "{}", name);
                    prop_assert_eq!(ruling.charge().cost(), *cost);
                    let here = both.here.check(user, *cost);
                    prop_assert_eq!(
                        ruling.is_granted(),
                        here.is_granted(),
                        "{} of {}",
                        cost,
                        name
                    );
                    prop_assert_eq!(ruling.charge().at().is_some(), here.is_granted());
                    // What costs nothing or can never fit is looked up once the others are done.
                    if (1..=units).contains(cost) {
                        prop_assert_eq!(numbers(ruling), numbers(&here), "{} of {}", cost, name);
                    }
                }
            }
            Ok(())
        },
    );
    assert_every_key_ends(&server);
}

#[tokio::test]
async fn a_batch_takes_one_write_and_gives_back_each_charge_by_itself() {
    let server = Server::start();
    for (name, limit) in five(100, DAY) {
        let (store, there) = built(limits(&server).prefix(name), limit);
        assert!(there.decide(&9, 1).await.is_granted());
        assert!(store.decide_many([]).await.is_empty());
        // What it is asked with is known from here on.
        let first = (10..12).map(|user| charge(limit, user, 1));
        assert_eq!(store.decide_many(first).await.len(), 2);
        let before = store.counts();
        let charges = (0..64).map(|index| charge(limit, index % 4, 1 + index % 3));
        let rulings = store.decide_many(charges).await;
        assert!(rulings.iter().all(Ruling::is_granted), "{name}");
        let after = store.counts();
        assert_eq!(after.sent - before.sent, 1, "{name}: {after:?}");
        assert_eq!(after.connects, before.connects, "{name}: {after:?}");
        assert_eq!(left_there(&store, limit, 0).await, 100 - 31, "{name}");
        for ruling in rulings {
            there.refund(ruling.charge());
        }
        for user in 0..4 {
            wait_for_left(&store, limit, user, 100).await;
        }
    }
}

#[tokio::test]
async fn a_dropped_batch_gives_back_what_it_was_granted() {
    let server = Server::start();
    for (name, limit) in five(100, DAY) {
        let (store, there) = built(limits(&server).prefix(name), limit);
        assert!(there.decide(&1, 1).await.is_granted());
        for _ in 0..10 {
            let batch = store.decide_many((0..30).map(|_| charge(limit, 1, 2)));
            // Asked for, and dropped before the answer.
            let soon = tokio::time::timeout(Duration::ZERO, batch).await;
            for ruling in soon.unwrap_or_default() {
                there.refund(ruling.charge());
            }
            wait_for_left(&store, limit, 1, 99).await;
        }
    }
}

#[tokio::test]
async fn a_batch_without_a_server_is_answered_in_time_by_the_policy_for_that() {
    let mut server = Server::start();
    let [(_, limit), ..] = five(100, DAY);
    let store = limits(&server).deadline(Duration::from_millis(200));
    let (store, there) = built(store, limit);
    let _ = crate::kit::recovered(&there, 1).await;
    server.freeze();
    let start = std::time::Instant::now();
    let batch = || (0..64).map(|index| charge(limit, index, index % 3));
    for ruling in store.decide_many(batch()).await {
        assert!(ruling.is_degraded(), "{ruling:?}");
    }
    assert!(start.elapsed() < PATIENCE);
    server.kill();
    for _ in 0..10 {
        let rulings = store.decide_many(batch()).await;
        assert_eq!(rulings.len(), 64);
        assert!(rulings.iter().all(Ruling::is_degraded));
    }
    assert!(start.elapsed() < PATIENCE);
    server.begin();
    let _ = crate::kit::recovered(&there, 1).await;
    let rulings = store.decide_many(batch()).await;
    assert!(
        rulings
            .iter()
            .all(|ruling| ruling.is_granted() && !ruling.is_degraded())
    );
    assert_eq!(left(&rulings[2]), [98]);
}
