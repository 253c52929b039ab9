//! Queue disciplines under overload: the bound on the right side of the deadline decides.

use std::time::Duration;

use sluicegate::queue::{Builder, WhenFull};
use sluicegate::sim::{Callers, Downstream, Form, Latency, Pattern, Report, Simulation};
use sluicegate::{Policy, Rate, SlidingCounter, Tick};

const DEADLINE: Duration = Duration::from_millis(100);

/// 20 s of so many arrivals per second into 1000/s, each job taking 1 ms once it has left.
fn overload(rate: u64, queue: Builder) -> Report {
    let pattern = Pattern::Poisson {
        rate: Rate::per_second(rate),
    };
    let end = Duration::from_secs(20);
    let arrivals = pattern
        .arrivals(rate)
        .take_while(|arrival| arrival.offset < end);
    let report = Simulation::new(queue)
        .expect("the settings are valid")
        .downstream(Downstream::new(Latency::Fixed(Duration::from_millis(1))))
        .callers(Callers::new(Form::Try).patience(DEADLINE))
        .run_all(arrivals);
    assert_eq!(report.outcomes.total(), report.offers);
    report
}

fn fifo(depth: u64) -> Builder {
    Builder::new(Rate::per_second(1000))
        .max_depth(depth)
        .watermarks(depth - 1, depth)
}

fn goodput(report: &Report) -> f64 {
    report.goodput() / 1000.0
}

#[test]
fn a_bound_below_rate_times_deadline_serves_everybody_it_admits() {
    for rate in [1500, 2000] {
        let report = overload(rate, fifo(99));
        assert!(goodput(&report) > 0.97, "{}", goodput(&report));
        assert_eq!(report.max_depth, 99);
        assert_eq!(report.outcomes.late, 0);
        let p50 = report.wait.quantile(0.5).as_secs_f64();
        assert!((0.0976..0.0996).contains(&p50), "{p50}");
    }
}

#[test]
fn a_bound_above_it_serves_nobody() {
    let report = overload(2000, fifo(200));
    assert!(goodput(&report) < 0.03, "{}", goodput(&report));
    assert!(report.outcomes.late > 15_000);
    let p50 = report.wait.quantile(0.5).as_secs_f64();
    assert!((0.198..0.2015).contains(&p50), "{p50}");
}

#[test]
fn expiry_rescues_any_bound() {
    let queue = fifo(1_000_000).expire_after(DEADLINE - Duration::from_millis(1));
    let report = overload(2000, queue);
    assert!(goodput(&report) > 0.97, "{}", goodput(&report));
    assert!(report.max_depth < 300, "{}", report.max_depth);
    // Most are refused as too late at the door, for the wait is known there.
    assert!(report.outcomes.refused() + report.outcomes.expired > 15_000);
}

#[test]
fn newest_first_serves_those_who_still_wait() {
    for (low, high) in [(0, 1), (120, 160)] {
        let newest = || {
            fifo(200)
                .watermarks(low, high)
                .max_waiters(0)
                .newest_first(true)
                .when_full(WhenFull::EvictOldest)
        };
        for (rate, published) in [(1500, 0.990), (2000, 0.994)] {
            let report = overload(rate, newest());
            let found = goodput(&report);
            assert!((found - published).abs() < 0.03, "{rate}/s: {found}");
            let p50 = report.wait.quantile(0.5);
            assert!(p50 < Duration::from_millis(2), "{p50:?}");
            assert_eq!(report.max_depth, 200);
        }
    }
}

#[test]
fn a_shedding_queue_needs_no_numbers_but_the_promise() {
    let queue = Builder::shedding(Rate::per_second(1000), DEADLINE - Duration::from_millis(1));
    let report = overload(2000, queue);
    assert!(goodput(&report) > 0.97, "{}", goodput(&report));
}

#[test]
fn standing_delay_rescues_a_queue_that_is_too_long() {
    let (target, interval) = (Duration::from_millis(5), Duration::from_millis(100));
    let queue = fifo(1_000_000)
        .standing_delay(target, interval)
        .drop_stale(true);
    let report = overload(2000, queue);
    assert!(goodput(&report) > 0.97, "{}", goodput(&report));
}

#[test]
fn below_the_rate_the_wait_is_short_and_nothing_is_lost() {
    let report = overload(900, fifo(200));
    let p99 = report.wait.quantile(0.99).as_secs_f64() * 1e3;
    assert!((15.0..27.0).contains(&p99), "{p99}");
    assert_eq!(report.outcomes.served, report.offers);
}

#[test]
fn a_sliding_counter_overshoots_by_known_shares() {
    for (limit, load, published) in [
        (100, 0.9, 1.16),
        (100, 1.0, 1.17),
        (100, 1.2, 1.15),
        (100, 2.0, 1.05),
        (1000, 0.9, 1.02),
        (1000, 1.0, 1.05),
        (1000, 1.2, 1.02),
        (1000, 2.0, 1.01),
    ] {
        let window = Duration::from_secs(1);
        let rule = SlidingCounter::new(limit, window).expect("a valid limit");
        let mut state = rule.start(Tick::ZERO);
        let mut trailing = std::collections::VecDeque::new();
        let mut most = 0;
        let rate = Rate::per_second((load * limit as f64) as u64);
        let arrivals = Pattern::Poisson { rate }.arrivals(limit);
        for arrival in arrivals.take(300 * limit as usize / 2) {
            let now = Tick::ZERO + arrival.offset;
            if rule.check(&mut state, now, 1).is_granted() {
                trailing.push_back(now);
                while trailing.front().is_some_and(|first| now - *first >= window) {
                    trailing.pop_front();
                }
                most = most.max(trailing.len());
            }
        }
        let overshoot = most as f64 / limit as f64;
        assert!(
            (overshoot - published).abs() < 0.06,
            "{limit} at {load}: {overshoot}"
        );
    }
}
