//! Checks of limiters: direct, shared by threads, keyed.

use std::cell::LazyCell;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::Barrier;
use std::time::Instant;

use governor::clock::MonotonicClock;
use governor::{DefaultKeyedRateLimiter, Quota};
use sluicegate::{FastClock, KeyedLimiter, Rate, RateLimiter, TokioClock};

use crate::gauge::{Row, Work};

pub(crate) fn rows() -> Vec<Row> {
    let row = |name, target, ours: Work, peers| Row {
        name,
        unit: "ns/check",
        more_is_better: false,
        target,
        ours,
        peers,
    };
    // A cost of at most 1.05 times the peer's is a ratio of at least 0.95.
    let near = 1.0 / 1.05;
    vec![
        row(
            "check granted, 1 thread, TSC clock",
            near,
            ours(1, fast(GRANTED)),
            vec![("governor", governor(1, GRANTED))],
        ),
        row(
            "check refused, 1 thread, TSC clock",
            near,
            ours(1, fast(REFUSED)),
            vec![("governor", governor(1, REFUSED))],
        ),
        row(
            "check granted, 1 thread, OS clock",
            near,
            ours(1, os(GRANTED)),
            vec![
                ("governor", governor_os(1, GRANTED)),
                ("ratelimit", ratelimit(GRANTED)),
            ],
        ),
        row(
            "check refused, 1 thread, OS clock",
            near,
            ours(1, os(REFUSED)),
            vec![
                ("governor", governor_os(1, REFUSED)),
                ("ratelimit", ratelimit(REFUSED)),
            ],
        ),
        row(
            "check granted, 2 threads, TSC clock",
            near,
            ours(2, fast(GRANTED)),
            vec![("governor", governor(2, GRANTED))],
        ),
        row(
            "check refused, 2 threads, TSC clock",
            near,
            ours(2, fast(REFUSED)),
            vec![("governor", governor(2, REFUSED))],
        ),
        row(
            "keyed check, 1k keys",
            1.0,
            keyed(1_000),
            vec![("governor", keyed_governor(1_000))],
        ),
        row(
            "keyed check, 1M keys",
            1.0,
            keyed(1_000_000),
            vec![("governor", keyed_governor(1_000_000))],
        ),
    ]
}

/// So much that all pass.
const GRANTED: (u64, u64) = (1_000_000_000, 1_000_000_000);
/// One an hour, used up.
const REFUSED: (u64, u64) = (0, 1);
const CALLS: f64 = 4e6;

fn rate((per_second, burst): (u64, u64)) -> sluicegate::TokenBucket {
    match per_second {
        0 => Rate::per_hour(1).burst(burst),
        per_second => Rate::per_second(per_second).burst(burst),
    }
}

fn fast(quota: (u64, u64)) -> RateLimiter {
    RateLimiter::with_clock(rate(quota), FastClock::new())
}

fn os(quota: (u64, u64)) -> RateLimiter {
    RateLimiter::with_clock(rate(quota), TokioClock)
}

fn quota((per_second, burst): (u64, u64)) -> Quota {
    let burst = NonZeroU32::new(burst as u32).expect("above zero");
    match per_second {
        0 => Quota::per_hour(burst),
        _ => Quota::per_second(burst),
    }
}

/// Nanoseconds that one call takes a thread, with so many calling at once.
fn time(threads: usize, length: f64, call: impl Fn() + Send + Sync + 'static) -> f64 {
    let calls = (CALLS * length) as u64;
    let (call, barrier) = (Arc::new(call), Arc::new(Barrier::new(threads)));
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (call, barrier) = (Arc::clone(&call), Arc::clone(&barrier));
            std::thread::spawn(move || {
                barrier.wait();
                let start = Instant::now();
                (0..calls).for_each(|_| call());
                start.elapsed().as_nanos() as f64 / calls as f64
            })
        })
        .collect();
    let times = workers
        .into_iter()
        .map(|worker| worker.join().expect("calls do not panic"));
    times.sum::<f64>() / threads as f64
}

fn ours(threads: usize, limiter: RateLimiter) -> Work {
    let _ = limiter.check(1);
    Box::new(move |length| {
        let limiter = limiter.clone();
        time(threads, length, move || {
            black_box(limiter.check(1).is_granted());
        })
    })
}

fn governor(threads: usize, of: (u64, u64)) -> Work {
    let limiter = Arc::new(governor::RateLimiter::direct(quota(of)));
    let _ = limiter.check();
    Box::new(move |length| {
        let limiter = Arc::clone(&limiter);
        time(threads, length, move || {
            black_box(limiter.check().is_ok());
        })
    })
}

fn governor_os(threads: usize, of: (u64, u64)) -> Work {
    let limiter = Arc::new(governor::RateLimiter::direct_with_clock(
        quota(of),
        MonotonicClock,
    ));
    let _ = limiter.check();
    Box::new(move |length| {
        let limiter = Arc::clone(&limiter);
        time(threads, length, move || {
            black_box(limiter.check().is_ok());
        })
    })
}

fn ratelimit((per_second, burst): (u64, u64)) -> Work {
    let limiter = ratelimit::Ratelimiter::builder(per_second.max(1))
        .max_tokens(burst)
        .initial_available(if per_second == 0 { 0 } else { burst })
        .build();
    let Ok(limiter) = limiter else {
        return Box::new(|_| f64::INFINITY);
    };
    let limiter = Arc::new(limiter);
    Box::new(move |length| {
        let limiter = Arc::clone(&limiter);
        time(1, length, move || {
            black_box(limiter.try_wait().is_ok());
        })
    })
}

/// A walk over all keys in an order that no cache foresees.
fn walk(keys: u64, step: u64) -> u64 {
    step.wrapping_mul(0x9E37_79B9_7F4A_7C15) % keys
}

fn keyed(keys: u64) -> Work {
    let limiter = LazyCell::new(move || {
        let limiter = KeyedLimiter::<u64>::builder(rate(GRANTED))
            .max_keys(2 * keys)
            .clock(FastClock::new())
            .build()
            .expect("the settings are valid");
        (0..keys).for_each(|key| {
            let _ = limiter.check(&key, 1);
        });
        limiter
    });
    Box::new(move |length| {
        let calls = (CALLS * length) as u64;
        let limiter = &*limiter;
        let start = Instant::now();
        for step in 0..calls {
            black_box(limiter.check(&walk(keys, step), 1).is_granted());
        }
        start.elapsed().as_nanos() as f64 / calls as f64
    })
}

fn keyed_governor(keys: u64) -> Work {
    let limiter = LazyCell::new(move || {
        let limiter: DefaultKeyedRateLimiter<u64> = governor::RateLimiter::keyed(quota(GRANTED));
        (0..keys).for_each(|key| {
            let _ = limiter.check_key(&key);
        });
        limiter
    });
    Box::new(move |length| {
        let calls = (CALLS * length) as u64;
        let limiter = &*limiter;
        let start = Instant::now();
        for step in 0..calls {
            black_box(limiter.check_key(&walk(keys, step)).is_ok());
        }
        start.elapsed().as_nanos() as f64 / calls as f64
    })
}
