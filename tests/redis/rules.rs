//! The scripts against the pure rules: the same verdicts and, to the microsecond, the same waits.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sluicegate::redis::{Endpoint, Limits};
use sluicegate::{
    Admission, Charge, Decision, FixedWindow, Hierarchy, LeakyBucket, Limit, ManualClock, Rate,
    Ruling, SlidingCounter, SlidingLog, Tick, TokenBucket, Verdict,
};

use crate::server::Server;

/// What a request is charged to: one key for each level.
type Request = [u8; 6];

/// One step of a schedule.
#[derive(Clone, Debug)]
enum Step {
    Advance(u64),
    Ask {
        cost: u64,
        key: u8,
        half: bool,
    },
    GiveBack {
        which: usize,
    },
    /// Another limit of the same kind, and back again.
    Change {
        level: usize,
    },
}

fn rates() -> impl Strategy<Value = Rate> {
    prop_oneof![
        (1..=100_000_u64).prop_map(Rate::per_second),
        (1..=5_000_u64).prop_map(Rate::per_minute),
        (1..=50_u64).prop_map(Rate::per_day),
        (1..=7_u64, 1..=90_000_u64).prop_map(|(count, micros)| {
            Rate::new(count, Duration::from_nanos(count * 10_000 + micros * 1_001)).unwrap()
        }),
    ]
}

fn windows() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (1..=2_000_u64).prop_map(Duration::from_micros),
        (1..=90_000_u64).prop_map(Duration::from_millis),
        (1..=40_u64).prop_map(|days| Duration::from_secs(days * 86_400)),
    ]
}

fn quotas() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 1..=12_u64, 1 => 13..=2_000_u64]
}

fn limits(kind: u8) -> BoxedStrategy<Limit> {
    match kind % 5 {
        0 => (rates(), quotas())
            .prop_map(|(rate, burst)| TokenBucket::new(rate, burst).unwrap().into())
            .boxed(),
        1 => (rates(), quotas())
            .prop_map(|(rate, depth)| LeakyBucket::new(rate, depth).unwrap().into())
            .boxed(),
        2 => (quotas(), windows(), prop::option::of(0..5_000_000_u64))
            .prop_map(|(limit, window, offset)| {
                let rule = FixedWindow::new(limit, window).unwrap();
                match offset {
                    Some(offset) => rule.aligned(Duration::from_micros(offset)).into(),
                    None => rule.into(),
                }
            })
            .boxed(),
        3 => (quotas(), windows())
            .prop_map(|(limit, window)| SlidingLog::new(limit, window).unwrap().into())
            .boxed(),
        // Large counts over long windows, whose product takes more than 53 bits, too.
        _ => (prop_oneof![quotas(), (1_u64 << 30)..(1 << 40)], windows())
            .prop_map(|(limit, window)| SlidingCounter::new(limit, window).unwrap().into())
            .boxed(),
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Advances are chosen as parts of the limits' windows later on.
    let step = prop_oneof![
        8 => (0..=1_200_u64).prop_map(Step::Advance),
        12 => (any::<u64>(), 0..2_u8, prop::bool::weighted(0.2))
            .prop_map(|(cost, key, half)| Step::Ask { cost, key, half }),
        3 => (0..8_usize).prop_map(|which| Step::GiveBack { which }),
        1 => (0..6_usize).prop_map(|level| Step::Change { level }),
    ];
    prop::collection::vec(step, 20..60)
}

/// A limit and another of the same kind.
///
/// Buckets keep their rate, and so the fraction in which the server counts: under another the replay would be off by the
/// microsecond to which what is stored is then rounded up. Logs and counters keep their window: what has left one that
/// became longer later is forgotten by either sooner or later, as room needs it.
fn pairs(kind: u8) -> BoxedStrategy<(Limit, Limit)> {
    (limits(kind), limits(kind), quotas())
        .prop_map(|(limit, other, quota)| {
            let other = match limit {
                Limit::TokenBucket(rule) => rule.rate().burst(quota).into(),
                Limit::LeakyBucket(rule) => LeakyBucket::new(rule.rate(), quota).unwrap().into(),
                Limit::SlidingLog(rule) => SlidingLog::new(quota, rule.window()).unwrap().into(),
                Limit::SlidingCounter(rule) => {
                    SlidingCounter::new(quota, rule.window()).unwrap().into()
                }
                _ => other,
            };
            (limit, other)
        })
        .boxed()
}

/// For each level the limit that it starts with and the one that it changes to, and what happens.
fn schedules(levels: usize) -> impl Strategy<Value = (Vec<(Limit, Limit)>, Vec<Step>)> {
    prop::collection::vec(0..5_u8, levels).prop_flat_map(move |kinds| {
        let each: Vec<_> = kinds.iter().map(|kind| pairs(*kind)).collect();
        (each, steps())
    })
}

fn start() -> Tick {
    Tick::from_nanos(1_764_550_000_123_456_000)
}

fn build<F, H>(limits: &[Limit], finish: F) -> H
where
    F: FnOnce(sluicegate::HierarchyBuilder<Request>) -> H,
{
    let mut builder = Hierarchy::<Request>::builder();
    for (index, limit) in limits.iter().enumerate() {
        let key = move |request: &Request| u64::from(request[index]);
        builder = builder.level(format!("level{index}"), *limit, key);
    }
    finish(builder)
}

fn up(wait: Duration) -> u128 {
    wait.as_nanos().div_ceil(1000)
}

/// What is compared, in microseconds.
fn numbers(decision: &Decision) -> (u64, String, u64, u64, u128, u128) {
    let verdict = match &decision.verdict {
        Verdict::Refused { retry_after } => format!("refused for {} us", up(*retry_after)),
        other => format!("{other:?}"),
    };
    (
        decision.at.as_nanos(),
        verdict,
        decision.limit,
        decision.remaining,
        up(decision.next_unit_in),
        up(decision.reset_after),
    )
}

fn compare(remote: &Ruling, local: &Ruling) -> Result<(), TestCaseError> {
    prop_assert!(!remote.is_degraded(), "it was decided by the server");
    prop_assert_eq!(remote.decisions().len(), local.decisions().len());
    for ((name, remote), (other, local)) in remote.decisions().zip(local.decisions()) {
        prop_assert_eq!(name, other);
        prop_assert_eq!(numbers(remote), numbers(local), "at {}", name);
    }
    prop_assert_eq!(remote.is_granted(), local.is_granted());
    let waits = (remote.retry_after().map(up), local.retry_after().map(up));
    prop_assert_eq!(waits.0, waits.1);
    Ok(())
}

/// A cost that is often within reach of the smallest quota.
fn cost(random: u64, limits: &[Limit]) -> u64 {
    let least = limits.iter().map(Limit::quota).min().unwrap_or(1);
    match random % 10 {
        0 => 0,
        1 => least,
        2 => least + 1,
        3 => least.div_ceil(2),
        _ => 1 + random / 10 % least.div_ceil(4).max(2),
    }
}

/// Replays a schedule on both, and compares every ruling.
async fn replay(
    endpoint: &Endpoint,
    prefix: String,
    pairs: &[(Limit, Limit)],
    steps: &[Step],
) -> Result<u64, TestCaseError> {
    let (mut limits, mut others): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
    let clock = ManualClock::new();
    clock.set(start());
    let shared = Limits::builder(endpoint.clone())
        .prefix(prefix)
        .deadline(Duration::from_secs(10))
        .clock(clock.clone())
        .build()
        .unwrap();
    let remote = build(&limits, |builder| builder.build_on(shared.clone()).unwrap());
    let local = build(&limits, |builder| {
        builder.clock(clock.clone()).build().unwrap()
    });
    let mut granted: Vec<(Charge, Charge)> = Vec::new();
    let mut refused = 0;
    for step in steps {
        match step {
            Step::Advance(part) => {
                // A part of one of the windows, so that things are due at every level.
                let level = (*part as usize) % limits.len();
                let span = limits[level].window().as_micros() as u64;
                let micros = match part % 7 {
                    0 => *part,
                    1 => span / limits[level].quota().max(1),
                    2 => span,
                    _ => span / 1_000 * part,
                };
                clock.advance(Duration::from_micros(micros.min(1 << 45)));
            }
            Step::Ask {
                cost: random,
                key,
                half,
            } => {
                let mut request = [0; 6];
                request[limits.len() - 1] = *key;
                let cost = cost(*random, &limits);
                let charges = [remote.charge(&request, cost), local.charge(&request, cost)];
                let [one, two] = charges.map(|charge| match half {
                    true => charge.keep_half(),
                    false => charge,
                });
                let one = remote.admit(one).await;
                let two = local.admit(two).await;
                compare(&one, &two)?;
                match one.is_granted() {
                    true => granted.push((one.charge(), two.charge())),
                    false => refused += 1,
                }
                let charge = remote.charge(&request, cost);
                let peeked = shared.peek(charge).await.expect("the server answers");
                compare(&peeked, &local.peek(&request, cost))?;
            }
            Step::Change { level } => {
                let level = level % limits.len();
                std::mem::swap(&mut limits[level], &mut others[level]);
                let name = format!("level{level}");
                remote.set_limit(&name, limits[level]).unwrap();
                local.set_limit(&name, limits[level]).unwrap();
            }
            Step::GiveBack { which } => {
                if granted.is_empty() {
                    continue;
                }
                let which = granted.len() - 1 - which % granted.len();
                let (one, two) = granted.swap_remove(which);
                let back = one.clone();
                remote.refund(one);
                local.refund(two);
                let mut request = [0; 6];
                let keys: Vec<_> = back.levels().map(|(_, _, key)| key.clone()).collect();
                request[limits.len() - 1] =
                    u8::from(keys[limits.len() - 1] == sluicegate::Key::from(1_u64));
                // The server is told in the background.
                for left in (0..1000).rev() {
                    let there = shared.peek(remote.charge(&request, 0)).await.unwrap();
                    let here = local.peek(&request, 0);
                    match compare(&there, &here) {
                        Err(error) if left == 0 => return Err(error),
                        Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
                        Ok(()) => break,
                    }
                }
            }
        }
    }
    Ok(refused)
}

fn run(cases: u32, levels: std::ops::RangeInclusive<usize>) {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let endpoint = Endpoint::new(server.url()).unwrap();
    let number = std::cell::Cell::new(0);
    let refused = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    });
    let schedule = levels.prop_flat_map(schedules);
    let outcome = runner.run(&schedule, |(limits, steps)| {
        number.set(number.get() + 1);
        let prefix = format!("case{}", number.get());
        let replayed = runtime.block_on(replay(&endpoint, prefix, &limits, &steps))?;
        refused.set(refused.get() + replayed);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    assert!(refused.get() > u64::from(cases), "schedules refuse");
    assert_every_key_expires(&server);
}

fn assert_every_key_expires(server: &Server) {
    let keys = server.keys();
    assert!(!keys.is_empty(), "something was stored");
    for key in keys {
        let left = server.number(&["PTTL", &key]);
        assert!(left > 0 || left == -2, "{key} lives for ever: {left}");
    }
}

#[test]
fn each_rule_equals_the_pure_rule_on_random_schedules() {
    run(400, 1..=1);
}

#[test]
fn hierarchies_of_six_levels_equal_the_ones_of_this_process() {
    run(120, 2..=6);
}
