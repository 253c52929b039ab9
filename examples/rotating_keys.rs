//! Ten million callers who each come once, against a limiter that remembers a hundred thousand.
//!
//! Look at the columns: the number of keys stays at the cap and the memory of the process stays where it was when the
//! cap was reached. Every known key keeps its own limit meanwhile; newcomers at the cap share one.

use std::time::{Duration, Instant};

use sluicegate::{KeyedLimiter, ManualClock, Rate};

const CAP: u64 = 100_000;
const STEPS: u64 = 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let brief = std::env::var_os("SLUICEGATE_BRIEF").is_some();
    let keys: u64 = if brief { 1_000_000 } else { 10_000_000 };
    let clock = ManualClock::new();
    let limiter = KeyedLimiter::<u64>::builder(Rate::per_second(1).burst(5))
        .max_keys(CAP)
        .clock(clock.clone())
        .build()?;
    let regular = u64::MAX;
    let _ = limiter.check(&regular, 1);

    println!(
        "{:>10} {:>10} {:>10} {:>12} {:>12}",
        "asked", "granted", "keys", "memory", "per call"
    );
    let (mut granted, mut most) = (0, 0);
    for step in 1..=STEPS {
        let start = Instant::now();
        for key in (step - 1) * keys / STEPS..step * keys / STEPS {
            granted += u64::from(limiter.check(&key, 1).is_granted());
            // 150,000 new keys a second, each idle after one second: more than the cap allows.
            if key % 150 == 0 {
                clock.advance(Duration::from_millis(1));
                let _ = limiter.check(&regular, 1);
            }
        }
        most = most.max(limiter.len());
        println!(
            "{:>10} {granted:>10} {:>10} {:>12} {:>9} ns",
            step * keys / STEPS,
            limiter.len(),
            resident().map_or_else(
                || "unknown".to_owned(),
                |bytes| format!("{} KiB", bytes / 1024)
            ),
            start.elapsed().as_nanos() as u64 / (keys / STEPS),
        );
    }
    assert!(most <= CAP, "the cap is a cap");
    let decision = limiter.peek(&regular, 0);
    println!(
        "\nOne who came all the time has {} of {} left.",
        decision.remaining, decision.limit
    );
    Ok(())
}

/// Memory of this process that is really there, where the system tells.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
