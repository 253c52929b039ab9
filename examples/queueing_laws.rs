//! Known results of queueing theory, found again by the queue of production on virtual time.
//!
//! ```text
//! cargo run --release --features sim --example queueing_laws
//! ```
//! Five seeds of a million arrivals each (a tenth of that under SLUICEGATE_BRIEF=1). Ends with an error if a number is
//! further off than it may be.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use sluicegate::Rate;
use sluicegate::queue::{Builder, WhenFull};
use sluicegate::sim::{Callers, Downstream, Form, Latency, Pattern, Report, Simulation};

const RATE: u64 = 1000;
const SEEDS: u64 = 5;

fn main() -> ExitCode {
    let brief = std::env::var_os("SLUICEGATE_BRIEF").is_some_and(|value| value == "1");
    let count = if brief { 100_000 } else { 1_000_000 };
    // A short run scatters more: by the root of ten.
    let slack = if brief { 3.2 } else { 1.0 };
    let mut checks = Checks { slack, failed: 0 };
    waits(&mut checks, count);
    rooms(&mut checks, count);
    disciplines(&mut checks, if brief { 10 } else { 60 });
    speed(if brief { 1_000_000 } else { 10_000_000 });
    if checks.failed == 0 {
        println!("\nevery number is where theory has it");
        return ExitCode::SUCCESS;
    }
    println!("\n{} numbers are off", checks.failed);
    ExitCode::FAILURE
}

struct Checks {
    slack: f64,
    failed: u32,
}

impl Checks {
    /// `found` with a mark if it is further from `expected` than the share `within`.
    fn check(&mut self, found: f64, expected: f64, within: f64) -> String {
        let off = (found / expected - 1.0).abs() > within * self.slack;
        self.failed += u32::from(off);
        format!("{found:8.3}{}", if off { " !" } else { "  " })
    }
}

fn run(queue: Builder, load: f64, seed: u64, count: usize) -> Report {
    let rate = Rate::per_second((load * RATE as f64).round() as u64);
    let arrivals = Pattern::Poisson { rate }.arrivals(seed).take(count);
    let simulation = Simulation::new(queue).expect("the settings are valid");
    simulation.run_all(arrivals)
}

/// Queue that refuses only when it is full.
fn room(depth: u64) -> Builder {
    Builder::new(Rate::per_second(RATE))
        .max_depth(depth)
        .watermarks(depth - 1, depth)
}

/// Queue that works on what came last while it holds more than it should; the oldest makes room.
fn newest(low: u64, high: u64) -> Builder {
    room(200)
        .watermarks(low, high)
        .max_waiters(0)
        .newest_first(true)
        .when_full(WhenFull::EvictOldest)
}

fn waits(checks: &mut Checks, count: usize) {
    println!(
        "waits under independent arrivals, in intervals of the rate; seeds 1 to {SEEDS}, {count} arrivals each"
    );
    println!("load      mean  theory       p99  theory");
    for (load, mean, p99) in [
        (0.5, 0.5, 3.336),
        (0.7, 1.167, 6.486),
        (0.8, 2.0, 10.36),
        (0.9, 4.5, 21.90),
    ] {
        let (mut found_mean, mut found_p99) = (0.0, 0.0);
        for seed in 1..=SEEDS {
            let report = run(room(10_000_000), load, seed, count);
            let units = |time: Duration| time.as_secs_f64() * RATE as f64 / SEEDS as f64;
            found_mean += units(report.wait.mean());
            found_p99 += units(report.wait.quantile(0.99));
        }
        let within = if load > 0.8 { 0.05 } else { 0.03 };
        let found_mean = checks.check(found_mean, mean, within);
        let found_p99 = checks.check(found_p99, p99, 0.05);
        println!("{load:.2}  {found_mean} {mean:6.3}  {found_p99} {p99:6.3}");
    }
}

fn rooms(checks: &mut Checks, count: usize) {
    println!("\nshare refused by a bounded room, per cent");
    println!("load  room     found  theory");
    for (load, depth, share) in [
        (0.8, 5, 2.2),
        (0.8, 10, 0.24),
        (0.9, 5, 4.7),
        (0.9, 10, 1.3),
        (0.95, 10, 2.6),
        (0.95, 20, 0.72),
        (1.0, 5, 8.6),
        (1.0, 20, 2.4),
        (1.5, 5, 33.5),
        (1.5, 50, 33.3),
    ] {
        let mut refused = 0;
        for seed in 1..=SEEDS {
            refused += run(room(depth), load, seed, count / 2).outcomes.refused();
        }
        let total = SEEDS * (count as u64 / 2);
        let found = checks.check(refused as f64 / total as f64 * 100.0, share, 0.05);
        println!("{load:.2}  {depth:4}  {found} {share:6.2}");
    }
}

fn disciplines(checks: &mut Checks, seconds: u64) {
    println!("\ntwice the rate, deadline 100 ms: what is done in time, as a share of the rate");
    println!("                                goodput %  published   max depth   p50 wait ms");
    let (target, interval) = (Duration::from_millis(5), Duration::from_millis(100));
    let endless = || room(10_000_000);
    for (name, queue, published) in [
        ("no bound", endless(), 0.3),
        ("bound 200", room(200), 0.3),
        ("bound 99", room(99), 100.0),
        ("bound 50", room(50), 100.0),
        (
            "no bound, expiry at 99 ms",
            endless().expire_after(Duration::from_millis(99)),
            100.0,
        ),
        (
            "standing delay 5/100, drop stale",
            endless().standing_delay(target, interval).drop_stale(true),
            100.0,
        ),
        ("newest first, bound 200", newest(0, 1), 99.4),
        ("newest first from 160 to 120", newest(120, 160), 99.4),
    ] {
        let end = Duration::from_secs(seconds);
        let pattern = Pattern::Poisson {
            rate: Rate::per_second(2 * RATE),
        };
        let report = Simulation::new(queue)
            .expect("the settings are valid")
            .downstream(Downstream::new(Latency::Fixed(Duration::from_millis(1))))
            .callers(Callers::new(Form::Try).patience(Duration::from_millis(100)))
            .run_all(
                pattern
                    .arrivals(1)
                    .take_while(|arrival| arrival.offset < end),
            );
        let goodput = report.goodput() / RATE as f64 * 100.0;
        let off = (goodput - published).abs() > 3.0;
        checks.failed += u32::from(off);
        println!(
            "{name:32} {goodput:7.1} {} {published:7.1}   {:10}   {:10.1}",
            if off { "!" } else { " " },
            report.max_depth,
            report.wait.quantile(0.5).as_secs_f64() * 1e3
        );
    }
}

fn speed(most: usize) {
    println!("\ntime per arrival");
    let mut count = 100_000;
    while count <= most {
        let start = Instant::now();
        let report = run(room(200), 0.9, 1, count);
        let each = start.elapsed().as_nanos() / count as u128;
        println!(
            "{count:>10} arrivals: {each} ns each, {} served",
            report.outcomes.served
        );
        count *= 10;
    }
}
