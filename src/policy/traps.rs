//! The mistakes of others, each as a test named after the promise that it broke.

use std::time::Duration;

use super::*;
use crate::decision::Verdict;
use crate::error::LimitError;
use crate::rate::Rate;

const SECOND: u64 = 1_000_000_000;
const MINUTE: Duration = Duration::from_secs(60);
const YEAR: u64 = 365 * 86_400 * SECOND;

fn at(nanos: u64) -> Tick {
    Tick::from_nanos(nanos)
}

fn all() -> [Limit; 6] {
    [
        Rate::per_second(10).burst(50).into(),
        LeakyBucket::new(Rate::per_second(10), 50)
            .expect("it is valid")
            .into(),
        FixedWindow::new(50, MINUTE).expect("it is valid").into(),
        FixedWindow::new(50, MINUTE)
            .expect("it is valid")
            .aligned(Duration::from_secs(7))
            .into(),
        SlidingLog::new(50, MINUTE).expect("it is valid").into(),
        SlidingCounter::new(50, MINUTE).expect("it is valid").into(),
    ]
}

/// Units granted one by one at `now` until the first refusal.
fn drained(limit: &Limit, state: &mut LimitState, now: u64) -> u64 {
    let mut granted = 0;
    while limit.check(state, at(now), 1).is_granted() {
        granted += 1;
    }
    granted
}

#[test]
fn token_bucket_refills_continuously() {
    let limit = Limit::from(Rate::per_second(10).burst(50));
    let mut state = limit.start(at(0));
    assert_eq!(drained(&limit, &mut state, 0), 50);
    for tenth in 1..=50 {
        let now = tenth * SECOND / 10;
        assert!(!limit.peek(&state, at(now - 1), 1).is_granted());
        assert_eq!(drained(&limit, &mut state, now), 1, "at tenth {tenth}");
    }
}

#[test]
fn refused_calls_are_not_counted() {
    for limit in all() {
        let mut state = limit.start(at(0));
        drained(&limit, &mut state, 0);
        let before = state.clone();
        for now in 0..1000 {
            assert!(!limit.check(&mut state, at(now), 1).is_granted());
        }
        assert_eq!(state, before, "{limit}");
    }
    // At 2 a second against 100 a minute, as many pass in each later minute as in the first.
    let limit = Limit::from(SlidingLog::new(100, MINUTE).expect("it is valid"));
    let mut state = limit.start(at(0));
    for _minute in 0..5 {
        let mut granted = 0;
        for half in 0..120_u64 {
            let now = at((_minute * 120 + half) * SECOND / 2);
            granted += u64::from(limit.check(&mut state, now, 1).is_granted());
        }
        assert_eq!(granted, 100);
    }
}

#[test]
fn leaky_bucket_leaks() {
    // Polled far more often than a unit leaks, no fraction is lost.
    let limit = Limit::from(LeakyBucket::new(Rate::per_second(3), 1).expect("it is valid"));
    let mut state = limit.start(at(0));
    let mut granted = 0;
    for now in (0..10 * SECOND).step_by(777_777) {
        granted += u64::from(limit.check(&mut state, at(now), 1).is_granted());
    }
    assert!((29..=30).contains(&granted), "granted {granted}");
}

#[test]
fn cost_is_honoured_and_available_means_available() {
    for limit in all() {
        let mut state = limit.start(at(0));
        assert_eq!(limit.check(&mut state, at(0), 20).remaining, 30);
        assert_eq!(limit.check(&mut state, at(0), 31).remaining, 30);
        let never = limit.check(&mut state, at(0), 51);
        assert_eq!(never.verdict, Verdict::Never { max_cost: 50 }, "{limit}");
        assert!(limit.check(&mut state, at(0), 30).is_granted());
        assert_eq!(limit.peek(&state, at(0), 0).remaining, 0);
    }
}

#[test]
fn queries_do_not_write() {
    for limit in all() {
        let mut state = limit.start(at(0));
        limit
            .check(&mut state, at(0), 20)
            .into_result()
            .expect("20 of 50 fit");
        let before = state.clone();
        let peeks = [0, 1, SECOND, YEAR].map(|now| limit.peek(&state, at(now), 5).remaining);
        assert!(peeks[0] == 25 && peeks[3] == 45, "{limit}: {peeks:?}");
        assert_eq!(state, before);
    }
}

#[test]
fn a_year_idle_gives_exactly_the_quota() {
    for limit in all() {
        let mut state = limit.start(at(0));
        for year in 0..5 {
            assert_eq!(drained(&limit, &mut state, year * YEAR), 50, "{limit}");
        }
        assert!(limit.is_idle(&state, at(9 * YEAR)));
    }
}

#[test]
fn a_clock_that_goes_back_lets_no_more_through_and_delays_by_no_more() {
    for limit in all() {
        let mut state = limit.start(at(100 * SECOND));
        let granted = limit.check(&mut state, at(100 * SECOND), 45);
        assert!(granted.is_granted());
        // Counts as the last reading: what was left then is left now, and no more.
        assert_eq!(drained(&limit, &mut state, 99 * SECOND), 5, "{limit}");
        let refused = limit.check(&mut state, at(99 * SECOND), 1);
        let retry_at = refused.at + refused.retry_after().expect("it is refused");
        assert!(limit.peek(&state, retry_at, 1).is_granted());
    }
}

#[test]
fn a_clock_that_jumps_a_year_gives_one_quota_and_not_a_years_worth() {
    let limit = Limit::from(Rate::per_second(1000).burst(10));
    let mut state = limit.start(at(0));
    assert_eq!(drained(&limit, &mut state, 0), 10);
    assert_eq!(drained(&limit, &mut state, YEAR), 10);
}

#[test]
fn at_the_end_of_time_nothing_more_is_granted() {
    for limit in all() {
        let mut state = limit.start(at(0));
        let granted = drained(&limit, &mut state, u64::MAX);
        assert!(granted <= 50, "{limit}: {granted}");
        let granted = drained(&limit, &mut state, u64::MAX - 5);
        assert!(granted == 0 || granted <= 50);
    }
}

#[test]
fn exactly_the_burst_passes_and_the_next_unit_is_not_a_nanosecond_early() {
    let limit = Limit::from(Rate::per_second(7_000_000).burst(5));
    let mut state = limit.start(at(SECOND));
    assert_eq!(drained(&limit, &mut state, SECOND), 5);
    assert_eq!(drained(&limit, &mut state, SECOND + 142), 0);
    assert_eq!(drained(&limit, &mut state, SECOND + 143), 1);
    // After a step of the clock there is no spurious extra unit.
    assert_eq!(drained(&limit, &mut state, SECOND - 500), 0);
    assert_eq!(drained(&limit, &mut state, SECOND + 143), 0);
}

#[test]
fn awkward_rates_let_exactly_their_units_through_over_a_million_periods() {
    for (count, period) in [
        (3, SECOND),
        (7, 1000),
        (999_999_937, SECOND),
        (1, 86_400 * SECOND),
    ] {
        let rate = Rate::new(count, Duration::from_nanos(period)).expect("it is valid");
        let core = rate.burst(1).core();
        let units = count.min(1_000_000) * 1000;
        let due = core.interval().times(units).ceil().as_nanos();
        let exact = (u128::from(units) * u128::from(period)).div_ceil(u128::from(count));
        assert_eq!(u128::from(due), exact, "{rate}");
    }
}

#[test]
fn the_double_burst_at_the_seam_is_possible_in_the_fixed_window_only() {
    let two_seconds = |limit: &Limit| {
        let mut state = limit.start(at(0));
        let late = drained(limit, &mut state, 59 * SECOND);
        late + drained(limit, &mut state, 60 * SECOND)
    };
    let fixed = FixedWindow::new(100, MINUTE)
        .expect("it is valid")
        .aligned(Duration::ZERO);
    assert_eq!(two_seconds(&fixed.into()), 200);
    let log = SlidingLog::new(100, MINUTE).expect("it is valid");
    assert_eq!(two_seconds(&log.into()), 100);
    let counter = SlidingCounter::new(100, MINUTE).expect("it is valid");
    assert_eq!(two_seconds(&counter.into()), 100);
}

#[test]
fn counter_error_direction_is_documented() {
    let rule = SlidingCounter::new(100, MINUTE).expect("it is valid");
    let mut state = rule.start(at(0));
    // The worked example with the 80 at the very end of the previous window: the estimate is 90, the truth 110.
    let mut take = |now: u64, cost| rule.check(&mut state, at(now), cost);
    assert!(take(0, 1).is_granted());
    assert!(take(60 * SECOND - 1, 79).is_granted());
    assert!(take(70 * SECOND, 30).is_granted());
    let decision = rule.peek(&state, at(75 * SECOND), 0);
    assert_eq!(100 - decision.remaining, 90);
}

#[test]
fn the_counter_lets_almost_twice_the_limit_through_and_never_more() {
    let rule = SlidingCounter::new(100, MINUTE).expect("it is valid");
    let mut state = rule.start(at(0));
    let mut take = |now: u64, cost| rule.check(&mut state, at(now), cost).is_granted();
    assert!(take(0, 1));
    assert!(take(60 * SECOND - 1, 99));
    // Just before the late 99 leave the trailing minute, they weigh next to nothing.
    assert!(take(120 * SECOND - 2, 99));
    assert!(!take(120 * SECOND - 2, 1), "198 within the last minute");
}

#[test]
fn a_refund_past_its_window_changes_nothing() {
    for limit in all() {
        let mut state = limit.start(at(0));
        let old = limit.check(&mut state, at(0), 20);
        let later = 200 * SECOND;
        limit
            .check(&mut state, at(later), 30)
            .into_result()
            .expect("30 of 50 fit");
        limit.refund(&mut state, old.at, 20);
        assert_eq!(limit.peek(&state, at(later), 0).remaining, 20, "{limit}");
    }
}

#[test]
fn a_refund_never_gives_more_than_the_quota() {
    for limit in all() {
        let mut state = limit.start(at(SECOND));
        let decision = limit.check(&mut state, at(SECOND), 10);
        for _ in 0..3 {
            limit.refund(&mut state, decision.at, 10);
        }
        assert_eq!(drained(&limit, &mut state, SECOND), 50, "{limit}");
    }
}

#[test]
fn elevated_buckets_keep_half_and_windows_do_not() {
    for limit in all() {
        let mut state = limit.start(at(0));
        let mut granted = 0;
        while limit.peek_keeping_half(&state, at(0), 1).is_granted() {
            limit.charge(&mut state, at(0), 1);
            granted += 1;
        }
        let expected = if limit.bucket().is_some() { 25 } else { 50 };
        assert_eq!(granted, expected, "{limit}");
    }
    // A cost above the half is granted from a full bucket only, and told when.
    let limit = Limit::from(Rate::per_second(10).burst(50));
    let mut state = limit.start(at(0));
    assert!(limit.peek_keeping_half(&state, at(0), 40).is_granted());
    limit.charge(&mut state, at(0), 1);
    let refused = limit.peek_keeping_half(&state, at(0), 40);
    assert_eq!(refused.retry_after(), Some(Duration::from_millis(100)));
    assert!(
        limit
            .peek_keeping_half(&state, at(SECOND / 10), 40)
            .is_granted()
    );
}

#[test]
fn a_new_limit_of_the_same_kind_keeps_what_is_used() {
    for old in all() {
        let mut state = old.start(at(0));
        old.check(&mut state, at(0), 30)
            .into_result()
            .expect("30 of 50 fit");
        for text in [
            "token_bucket 1/min burst 100",
            "leaky_bucket 1000/s depth 100",
            "fixed_window 100 per 2min",
            "sliding_log 100 per 2min",
            "sliding_counter 100 per 2min",
        ] {
            let new: Limit = text.parse().expect("it is valid");
            let kept = std::mem::discriminant(&new) == std::mem::discriminant(&old);
            let state = new.adopt(&state, &old, at(0));
            let remaining = new.peek(&state, at(0), 0).remaining;
            assert_eq!(remaining, if kept { 70 } else { 100 }, "{old} to {new}");
        }
    }
}

#[test]
fn a_bucket_may_start_with_less_than_its_burst() {
    let limit = Limit::from(Rate::per_second(10).burst(50).initial(3));
    let mut state = limit.start(at(YEAR));
    assert_eq!(drained(&limit, &mut state, YEAR), 3);
    // It is not idle when it is full: a fresh one holds less.
    assert!(!limit.is_idle(&state, at(2 * YEAR)));
    assert_eq!(drained(&limit, &mut state, 2 * YEAR), 50);
}

#[test]
fn numbers_that_could_overflow_are_refused_by_name() {
    assert_eq!(
        TokenBucket::new(Rate::per_day(1), 200_000),
        Err(LimitError::TooSlow {
            rate: Rate::per_day(1),
            burst: 200_000
        })
    );
    let window = Duration::from_secs(u64::MAX);
    assert_eq!(
        FixedWindow::new(1, window),
        Err(LimitError::WindowTooLong { window })
    );
    assert_eq!(
        SlidingLog::new(0, MINUTE),
        Err(LimitError::Zero { field: "limit" })
    );
    assert!(TokenBucket::new(Rate::per_second(u64::MAX), u64::MAX).is_ok());
}
