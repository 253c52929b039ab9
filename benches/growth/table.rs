//! Measuring and printing one line of a table.

use std::time::{Duration, Instant};

use stats_alloc::Region;

use crate::HEAP;

/// Nanoseconds of one operation, and allocations of one: the best of a few rounds.
pub(crate) fn each(operations: u64, mut run: impl FnMut(u64)) -> (f64, f64) {
    // Once for the caches and for memory that is kept.
    run(operations.min(1_000));
    let rounds = (0..ROUNDS).map(|_| {
        let region = Region::new(HEAP);
        let start = Instant::now();
        run(operations);
        let took = start.elapsed();
        let asked = region.change();
        let asked = asked.allocations + asked.reallocations;
        (per(took, operations), asked as f64 / operations as f64)
    });
    rounds.fold((f64::INFINITY, f64::INFINITY), |best, round| {
        (best.0.min(round.0), best.1.min(round.1))
    })
}

/// Bytes that are held after `make` and were not before, beside what it returns.
pub(crate) fn held<R>(make: impl FnOnce() -> R) -> (R, usize) {
    let region = Region::new(HEAP);
    let made = make();
    let change = region.change();
    let held = change
        .bytes_allocated
        .saturating_sub(change.bytes_deallocated);
    (made, held)
}

pub(crate) fn head(what: &str) {
    println!("| {what} | ns | allocations |");
    println!("|---|---|---|");
}

pub(crate) fn line(n: impl std::fmt::Display, (nanos, allocations): (f64, f64)) {
    println!("| {n} | {nanos:.0} | {allocations:.3} |");
}

fn per(took: Duration, operations: u64) -> f64 {
    took.as_nanos() as f64 / operations as f64
}

const ROUNDS: usize = 5;
