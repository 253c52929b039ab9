//! What queueing theory knows exactly, found again by the machine of production.
//!
//! Short runs, so that an unoptimised build takes seconds; the example `queueing_laws` holds the full table.

use std::time::Duration;

use sluicegate::Rate;
use sluicegate::queue::Builder;
use sluicegate::sim::{Callers, Downstream, Form, Latency, Pattern, Report, Simulation};

const RATE: u64 = 1000;

fn poisson(load: f64, seed: u64, count: usize, queue: Builder) -> Report {
    let rate = Rate::per_second((load * RATE as f64).round() as u64);
    let arrivals = Pattern::Poisson { rate }.arrivals(seed).take(count);
    let simulation = Simulation::new(queue).expect("the settings are valid");
    let report = simulation.run_all(arrivals);
    assert_eq!(report.outcomes.total(), count as u64, "seed {seed}");
    assert!(report.ledger.is_balanced());
    assert!(report.obeys_little(), "seed {seed}");
    report
}

fn endless() -> Builder {
    Builder::new(Rate::per_second(RATE)).max_depth(1_000_000)
}

#[track_caller]
fn check(found: f64, expected: f64, within: f64) {
    assert!(
        (found / expected - 1.0).abs() <= within,
        "{found} is not within {within} of {expected}"
    );
}

/// Mean and p99 of the wait in units of the interval, of runs with three seeds.
fn waits(load: f64) -> (f64, f64) {
    let (mut mean, mut p99) = (0.0, 0.0);
    for seed in 1..=3 {
        let report = poisson(load, seed, 30_000, endless());
        assert_eq!(report.outcomes.served, 30_000);
        mean += report.wait.mean().as_secs_f64() * RATE as f64 / 3.0;
        p99 += report.wait.quantile(0.99).as_secs_f64() * RATE as f64 / 3.0;
    }
    (mean, p99)
}

#[test]
fn waits_are_those_of_a_fixed_rate_under_independent_arrivals() {
    for (load, mean, p99) in [(0.5, 0.5, 3.336), (0.7, 1.167, 6.486), (0.8, 2.0, 10.36)] {
        let found = waits(load);
        check(found.0, mean, 0.05);
        check(found.1, p99, 0.10);
    }
}

#[test]
fn a_bounded_room_refuses_the_share_that_theory_says() {
    for (load, room, share) in [
        (0.9, 5, 0.047),
        (0.95, 10, 0.026),
        (1.0, 5, 0.086),
        (1.5, 10, 0.333),
    ] {
        // Marks so close to the bound that only a full room refuses.
        let queue = Builder::new(Rate::per_second(RATE))
            .max_depth(room)
            .watermarks(room - 1, room);
        let report = poisson(load, 5, 40_000, queue);
        check(report.outcomes.refused() as f64 / 40_000.0, share, 0.10);
    }
}

#[test]
fn batches_wait_as_their_formula_says() {
    let pattern = Pattern::Batch {
        rate: Rate::per_second(80),
        size: 10,
    };
    let simulation = Simulation::new(endless()).expect("the settings are valid");
    let mean: f64 = (1..=4)
        .map(|seed| {
            let report = simulation.run_all(pattern.arrivals(seed).take(40_000));
            assert!(report.obeys_little());
            report.wait.mean().as_secs_f64() * 1e3 / 4.0
        })
        .sum();
    // Wq = (m - 1 + load) / (2 (1 - load)) with m = 10 and load 0.8.
    check(mean, 24.5, 0.10);
}

#[test]
fn a_run_repeats_itself() {
    let once = |seed| {
        let patience = Duration::from_millis(50);
        let downstream = Downstream::new(Latency::Exponential(Duration::from_millis(20)));
        let simulation = Simulation::new(Builder::new(Rate::per_second(RATE)).max_depth(40))
            .expect("the settings are valid")
            .callers(Callers::new(Form::Wait).patience(patience).retries(2))
            .downstream(downstream)
            .seed(seed);
        let pattern = Pattern::Poisson {
            rate: Rate::per_second(1200),
        };
        let report = simulation.run_all(pattern.arrivals(seed).take(20_000));
        assert_eq!(report.outcomes.total(), 20_000);
        assert_eq!(report.outcomes.unfinished, 0);
        (
            report.outcomes,
            report.offers,
            report.wait.max(),
            report.total,
        )
    };
    assert_eq!(once(1), once(1));
    assert_ne!(once(1), once(2));
}
