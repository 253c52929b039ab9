//! Random runs on a real server by its own clock: whatever is done, no key stays for ever.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sluicegate::redis::{Endpoint, Limits};
use sluicegate::{Admission, Charge, Hierarchy, Limit};

use crate::kit::{PATIENCE, assert_every_key_ends, five};
use crate::server::{Options, Server};

type Caller = (u64, u64);

/// One step of a run.
#[derive(Clone, Debug)]
enum Step {
    Decide {
        caller: Caller,
        cost: u64,
        half: bool,
    },
    /// Asked by so many at once, and merged into few calls.
    Together {
        caller: Caller,
        cost: u64,
        callers: usize,
    },
    Batch {
        costs: Vec<u64>,
    },
    /// Asked for and dropped before the answer.
    Drop {
        caller: Caller,
        cost: u64,
    },
    GiveBack {
        which: usize,
    },
    Peek {
        caller: Caller,
        cost: u64,
    },
    Reset {
        caller: Caller,
    },
    /// Another limit for a level: of any kind, size and span.
    Change {
        level: usize,
        to: Limit,
    },
    FlushScripts,
    Wait {
        millis: u64,
    },
}

fn limits() -> impl Strategy<Value = Limit> {
    let limit = (0..5_usize, 1..40_u64, 20..600_u64);
    limit.prop_map(|(kind, units, millis)| five(units, Duration::from_millis(millis))[kind].1)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let caller = || (0..3_u64, 0..3_u64);
    let step = prop_oneof![
        8 => (caller(), 0..8_u64, prop::bool::weighted(0.2))
            .prop_map(|(caller, cost, half)| Step::Decide { caller, cost, half }),
        3 => (caller(), 1..4_u64, 2..12_usize)
            .prop_map(|(caller, cost, callers)| Step::Together { caller, cost, callers }),
        2 => prop::collection::vec(0..6_u64, 1..12).prop_map(|costs| Step::Batch { costs }),
        2 => (caller(), 1..4_u64).prop_map(|(caller, cost)| Step::Drop { caller, cost }),
        5 => (0..16_usize).prop_map(|which| Step::GiveBack { which }),
        2 => (caller(), 0..50_u64).prop_map(|(caller, cost)| Step::Peek { caller, cost }),
        1 => caller().prop_map(|caller| Step::Reset { caller }),
        2 => (0..6_usize, limits()).prop_map(|(level, to)| Step::Change { level, to }),
        1 => Just(Step::FlushScripts),
        3 => (0..60_u64).prop_map(|millis| Step::Wait { millis }),
    ];
    prop::collection::vec(step, 20..60)
}

/// A hierarchy of so many levels, by the one half of the caller and the other in turn.
fn hierarchy(store: &Limits, limits: &[Limit]) -> Hierarchy<Caller, Limits> {
    let mut hierarchy = Hierarchy::<Caller>::builder();
    for (index, limit) in limits.iter().enumerate() {
        let key = move |caller: &Caller| match index {
            0 => caller.0,
            1 => 0,
            _ if index % 2 == 0 => caller.0,
            _ => caller.1,
        };
        hierarchy = hierarchy.level(name(index), *limit, key);
    }
    let hierarchy = hierarchy.build_on(store.clone());
    hierarchy.expect("the levels can be kept")
}

/// The first is a tenant's, the second everybody's.
fn name(index: usize) -> String {
    format!("level {index}")
}

async fn run(server: &Server, store: &Limits, limits: &[Limit], steps: &[Step]) {
    let there = hierarchy(store, limits);
    let mut granted: Vec<Charge> = Vec::new();
    for step in steps {
        let rulings = match step {
            Step::Decide { caller, cost, half } => {
                let charge = there.charge(caller, *cost);
                let charge = if *half { charge.keep_half() } else { charge };
                vec![there.admit(charge).await]
            }
            Step::Together {
                caller,
                cost,
                callers,
            } => join_all((0..*callers).map(|_| there.decide(caller, *cost))).await,
            Step::Batch { costs } => {
                let charges = (0_u64..).zip(costs);
                let charges =
                    charges.map(|(index, cost)| there.charge(&(index % 3, index % 2), *cost));
                store.decide_many(charges).await
            }
            Step::Drop { caller, cost } => {
                let decision = there.decide(caller, *cost);
                let soon = tokio::time::timeout(Duration::ZERO, decision).await;
                soon.into_iter().collect()
            }
            Step::GiveBack { which } => {
                if !granted.is_empty() {
                    there.refund(granted.swap_remove(which % granted.len()));
                }
                Vec::new()
            }
            Step::Peek { caller, cost } => {
                let looked = store.peek(there.charge(caller, *cost)).await;
                vec![looked.expect("the server answers")]
            }
            Step::Reset { caller } => {
                let done = store.reset(&there.charge(caller, 0)).await;
                done.expect("the server answers");
                Vec::new()
            }
            Step::Change { level, to } => {
                let changed = there.set_limit(&name(level % limits.len()), *to);
                changed.expect("it can be kept");
                Vec::new()
            }
            Step::FlushScripts => {
                server.ask(&["SCRIPT", "FLUSH"]);
                Vec::new()
            }
            Step::Wait { millis } => {
                tokio::time::sleep(Duration::from_millis(*millis)).await;
                Vec::new()
            }
        };
        for ruling in rulings {
            assert!(!ruling.is_degraded(), "{ruling:?} {:?}", store.last_error());
            // What was only looked at is given back as well, some of it: that must not matter.
            if ruling.is_granted() {
                granted.push(ruling.charge());
            }
        }
    }
    assert_every_key_ends(server);
}

fn check(
    server: &Server,
    store: impl Fn(String) -> Limits,
    cases: u32,
    levels: std::ops::RangeInclusive<usize>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().expect("a runtime");
    let number = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config {
        cases,
        failure_persistence: None,
        // Time passes by itself here: a shorter schedule is another one.
        max_shrink_iters: 0,
        ..Config::default()
    });
    let stored = std::cell::Cell::new(0);
    let input = (prop::collection::vec(limits(), levels), steps());
    let outcome = runner.run(&input, |(limits, steps)| {
        number.set(number.get() + 1);
        let store = store(format!("run {}", number.get()));
        runtime.block_on(run(server, &store, &limits, &steps));
        stored.set(stored.get() + store.counts().granted);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    assert!(stored.get() > u64::from(cases), "runs store something");
    // Two windows of 600 ms later nothing is needed any more, so nothing is there.
    let start = Instant::now();
    loop {
        let keys = server.keys();
        assert_every_key_ends(server);
        if keys.is_empty() {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{keys:?} are still there");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn no_key_without_an_end_after_a_random_run_of_each_algorithm() {
    let server = Server::start();
    let store = |prefix| {
        let endpoint = Endpoint::new(server.url()).expect("the address is valid");
        let store = Limits::builder(endpoint).deadline(PATIENCE).prefix(prefix);
        store.build().expect("the settings are valid")
    };
    check(&server, store, 60, 1..=1);
}

#[test]
fn no_key_without_an_end_after_a_random_run_of_hierarchies() {
    let server = Server::start();
    let store = |prefix| {
        let endpoint = Endpoint::new(server.url()).expect("the address is valid");
        let store = Limits::builder(endpoint).deadline(PATIENCE).prefix(prefix);
        store.build().expect("the settings are valid")
    };
    check(&server, store, 40, 2..=6);
}

#[test]
fn no_key_without_an_end_after_a_random_run_of_levels_apart_on_a_cluster() {
    let server = Options::default().cluster().start();
    let store = |prefix| {
        let endpoint = Endpoint::cluster([server.url()]).expect("the address is valid");
        let store = Limits::builder(endpoint).deadline(PATIENCE).prefix(prefix);
        let store = store.tenant(name(0)).apart(name(1));
        store.build().expect("the settings are valid")
    };
    check(&server, store, 25, 3..=6);
}
