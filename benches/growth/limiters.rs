//! Limiters: checks by the number of keys and of levels, and memory per key, beside governor's.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Instant;

use governor::{DefaultKeyedRateLimiter, Quota};
use sluicegate::{FastClock, Hierarchy, KeyedLimiter, Limit, Rate};

use crate::table::{each, head, held, line};

pub(crate) const TABLES: [(&str, fn()); 3] = [
    ("limiter: keyed check of a known key, by keys", keys),
    ("limiter: keyed check by kind of limit, 10,000 keys", kinds),
    ("limiter: check of a hierarchy, by levels", levels),
];

const CALLS: u64 = 400_000;

/// A rate that lets everything pass.
fn plenty() -> Limit {
    Rate::per_second(1_000_000_000).burst(1_000_000_000).into()
}

/// One of the keys, in an order that no cache foresees.
fn walk(keys: u64, step: u64) -> u64 {
    step.wrapping_mul(0x9E37_79B9_7F4A_7C15) % keys
}

fn filled(limit: impl Into<Limit>, keys: u64) -> KeyedLimiter<u64> {
    let limiter = KeyedLimiter::builder(limit)
        .max_keys(keys)
        .clock(FastClock::new())
        .build()
        .expect("the settings are valid");
    for key in 0..keys {
        let _ = limiter.check(&key, 1);
    }
    limiter
}

fn filled_peer(keys: u64) -> DefaultKeyedRateLimiter<u64> {
    let limiter = governor::RateLimiter::keyed(Quota::per_second(NonZeroU32::MAX));
    for key in 0..keys {
        let _ = limiter.check_key(&key);
    }
    limiter
}

fn keys() {
    println!(
        "| keys | ns | allocations | ns per new key | bytes per key | governor: ns | ns per new key | bytes per key |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for exponent in 3..=7 {
        let keys = 10_u64.pow(exponent);
        let per_key = |nanos: u128| nanos as f64 / keys as f64;
        // A day's burst of one, so that no key becomes idle while the table is filled.
        let start = Instant::now();
        let (limiter, bytes) = held(|| filled(Rate::per_day(2).burst(2), keys));
        let new = per_key(start.elapsed().as_nanos());
        let remembered = limiter.len();
        limiter.set_limit(plenty()).expect("it starts full");
        let ours = each(CALLS, |calls| {
            for step in 0..calls {
                black_box(limiter.check(&walk(keys, step), 1).is_granted());
            }
        });
        drop(limiter);
        let start = Instant::now();
        let (limiter, peer_bytes) = held(|| filled_peer(keys));
        let peer_new = per_key(start.elapsed().as_nanos());
        let peer = each(CALLS, |calls| {
            for step in 0..calls {
                black_box(limiter.check_key(&walk(keys, step)).is_ok());
            }
        });
        println!(
            "| {remembered} | {:.0} | {:.3} | {new:.0} | {:.1} | {:.0} | {peer_new:.0} | {:.1} |",
            ours.0,
            ours.1,
            bytes as f64 / remembered as f64,
            peer.0,
            peer_bytes as f64 / keys as f64,
        );
    }
}

fn kinds() {
    head("limit");
    for text in [
        "token_bucket 1000000000/s burst 1000000000",
        "leaky_bucket 1000000000/s depth 1000000000",
        "fixed_window 1000000000 per 1h",
        "sliding_counter 1000000000 per 1h",
        "sliding_log 100 per 1h",
    ] {
        let limit: Limit = text.parse().expect("it is a limit");
        let limiter = filled(limit, 10_000);
        let figures = each(CALLS, |calls| {
            for step in 0..calls {
                black_box(limiter.check(&walk(10_000, step), 1).is_granted());
            }
        });
        line(text, figures);
    }
}

fn levels() {
    println!("| levels | ns granted | allocations | ns refused by the last | allocations |");
    println!("|---|---|---|---|---|");
    for count in 1..=6_usize {
        let build = |last: Limit| {
            let mut builder = Hierarchy::<u64>::builder().clock(FastClock::new());
            for level in 1..=count {
                let limit = if level == count { last } else { plenty() };
                // From everybody at once to one in a thousand, as levels are.
                let share = 10_u64.pow(3 * (level as u32 - 1) / 5);
                builder = builder.level(format!("level {level}"), limit, move |user: &u64| {
                    user % share
                });
            }
            builder.build().expect("the levels are valid")
        };
        let open = build(plenty());
        let granted = each(CALLS, |calls| {
            for step in 0..calls {
                black_box(open.check(&walk(10_000, step), 1).is_granted());
            }
        });
        let shut = build(Rate::per_day(1).burst(1).into());
        for user in 0..10_000 {
            let _ = shut.check(&user, 1);
        }
        let refused = each(CALLS, |calls| {
            for step in 0..calls {
                black_box(shut.check(&walk(10_000, step), 1).is_granted());
            }
        });
        println!(
            "| {count} | {:.0} | {:.3} | {:.0} | {:.3} |",
            granted.0, granted.1, refused.0, refused.1
        );
    }
}
