//! The same crowd before each of the five limits, all set to 100 per 10 seconds.
//!
//! Look at the seam at second 10: the fixed window lets 200 through within two seconds, no other limit does. Look at
//! what follows: the token bucket passes 100 at once and then 10 a second, the leaky bucket 10 a second from the start,
//! the log nothing until the first of its hundred has left. Below, the guide chooses a limit for what one needs.

use std::time::Duration;

use sluicegate::{Limit, ManualClock, Rate, RateLimiter, Requirements};

/// Quarter seconds that the chart covers.
const COLUMNS: usize = 96;
const COLUMN: Duration = Duration::from_millis(250);
/// Requests that arrive in each quarter second: silence, then 100 a second around the seam, then a steady 40 a second.
fn arrivals(column: usize) -> u64 {
    match column {
        0..36 => 0,
        36..44 => 25,
        _ => 10,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "Passed in each quarter second. Offered: nothing for 9 s, 100/s for 2 s, then 40/s.\n"
    );
    row("offered", &(0..COLUMNS).map(arrivals).collect::<Vec<_>>());
    for text in [
        "fixed_window 100 per 10s aligned 0s",
        "sliding_counter 100 per 10s",
        "sliding_log 100 per 10s",
        "token_bucket 10/s burst 100",
        "leaky_bucket 10/s depth 1",
    ] {
        row(text, &passed(text.parse()?));
    }
    let mut seconds = vec![b' '; COLUMNS];
    for second in (0..COLUMNS / 4).step_by(2) {
        let label = second.to_string();
        seconds[second * 4..][..label.len()].copy_from_slice(label.as_bytes());
    }
    println!("{:37}{} s", "", String::from_utf8(seconds)?);

    println!("\nWhat the guide says, for 100 a minute:\n");
    let asked = Requirements::new(Rate::per_minute(100));
    for (need, asked) in [
        ("nothing more", asked),
        ("bursts of 50", asked.burst(50)),
        ("steady for a database", asked.steady(true)),
        ("bursts in, steady out", asked.burst(50).steady(true)),
        ("exact, for 1,000 users", asked.exact(true).keys(1_000)),
        (
            "exact, for 1,000,000 users",
            asked.exact(true).keys(1_000_000),
        ),
        ("bursts of 50, 3 processes", asked.burst(50).processes(3)),
    ] {
        let answer = asked.recommend();
        println!(
            "{need:27} {:31} {}",
            answer.limit.to_string(),
            answer.implementation
        );
        println!("{:27} {}; bound: {}", "", answer.why, answer.bound);
    }
    Ok(())
}

/// How many of the arrivals pass in each column.
fn passed(limit: Limit) -> Vec<u64> {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(limit, clock.clone());
    let mut passed = Vec::new();
    for column in 0..COLUMNS {
        let arrivals = arrivals(column);
        let gap = COLUMN / arrivals.max(1) as u32;
        let mut granted = 0;
        for _ in 0..arrivals {
            granted += u64::from(limiter.check(1).is_granted());
            clock.advance(gap);
        }
        // Whatever the division left over, so that every column begins on its quarter second.
        clock.advance(COLUMN - gap * arrivals as u32);
        passed.push(granted);
    }
    passed
}

/// A line of bars, and the most that passed in any two and any ten seconds.
fn row(name: &str, columns: &[u64]) {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let bar = |count: &u64| BARS[(*count as usize).div_ceil(3).min(8)];
    let bars: String = columns.iter().map(bar).collect();
    let most = |columns_in: usize| {
        let windows = columns.windows(columns_in);
        windows
            .map(|window| window.iter().sum::<u64>())
            .max()
            .unwrap_or(0)
    };
    println!(
        "{name:36}|{bars}| most in 2 s {:3}, in 10 s {:3}",
        most(8),
        most(40)
    );
}
