//! One limit per key: apart from each other, in bounded memory, and forgotten in small steps.

use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sluicegate::{
    AcquireError, BuildError, KeyedLimiter, Limit, ManualClock, Rate, Tick, WhenKeysFull,
};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn kinds() -> [Limit; 5] {
    [
        "token_bucket 10/s burst 5",
        "leaky_bucket 10/s depth 5",
        "fixed_window 5 per 500ms",
        "sliding_log 5 per 500ms",
        "sliding_counter 5 per 500ms",
    ]
    .map(|text| text.parse().expect("it is a limit"))
}

fn keyed(limit: impl Into<Limit>, max: u64) -> (KeyedLimiter<u64>, ManualClock) {
    let clock = ManualClock::new();
    let builder = KeyedLimiter::builder(limit)
        .max_keys(max)
        .clock(clock.clone());
    (builder.build().expect("it is valid"), clock)
}

fn poll<F: Future + ?Sized>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn keys_are_counted_apart_and_refusals_remember_nothing() {
    for limit in kinds() {
        let (limiter, clock) = keyed(limit, 100);
        for key in 0..10 {
            let granted = (0..9)
                .filter(|_| limiter.check(&key, 1).is_granted())
                .count();
            assert_eq!(granted, 5, "{limit}");
        }
        assert_eq!(limiter.len(), 10);
        assert!(!limiter.check(&10, 6).is_granted());
        assert!(limiter.check(&11, 0).is_granted());
        assert_eq!(limiter.peek(&12, 1).remaining, 4);
        assert_eq!(
            limiter.len(),
            10,
            "{limit}: a refusal, a cost of 0 and a peek add no key"
        );
        let wait = limiter.check(&3, 1).retry_after().expect("it is refused");
        clock.advance(wait - Duration::from_nanos(1));
        assert!(!limiter.check(&3, 1).is_granted(), "{limit}");
        clock.advance(Duration::from_nanos(1));
        assert!(limiter.check(&3, 1).is_granted(), "{limit}");
    }
}

#[test]
fn keys_are_asked_for_in_borrowed_form() {
    let limiter = KeyedLimiter::<String>::builder(Rate::per_second(1).burst(1)).build();
    let limiter = limiter.expect("it is valid");
    assert!(limiter.check("ada", 1).is_granted());
    assert!(!limiter.check(&String::from("ada"), 1).is_granted());
    let huge = "x".repeat(10_000);
    assert!(limiter.check(huge.as_str(), 1).is_granted());
    assert!(!limiter.check(huge.as_str(), 1).is_granted());
}

#[test]
fn memory_is_bounded_under_rotating_keys() {
    for limit in kinds() {
        let (limiter, clock) = keyed(limit, 10_000);
        let mut most = 0;
        for key in 0..100_000_u64 {
            assert!(limiter.check(&key, 1).is_granted() || limiter.len() == 10_000);
            most = most.max(limiter.len());
            // A key is idle again after at most a second; 20,000 come in one.
            clock.advance(Duration::from_micros(50));
        }
        assert!(most <= 10_000, "{limit}: {most} keys");
        // Time for all to become idle, and newcomers to visit them.
        clock.advance(Duration::from_secs(60));
        for key in 0..20_000_u64 {
            assert!(
                limiter.check(&(1_000_000 + key), 1).is_granted(),
                "{limit}: key {key}"
            );
            clock.advance(Duration::from_millis(10));
        }
        assert!(limiter.len() < 1000, "{limit}: {} keys", limiter.len());
    }
}

#[test]
fn known_keys_are_served_at_the_cap_and_newcomers_share_or_are_refused() {
    let bucket = Rate::per_second(10).burst(5);
    let (sharing, _) = keyed(bucket, 100);
    for key in 0..100 {
        assert!(sharing.check(&key, 1).is_granted());
    }
    let granted = (100..200)
        .filter(|key| sharing.check(key, 1).is_granted())
        .count();
    assert_eq!((granted, sharing.len()), (5, 100));
    assert!(sharing.check(&7, 4).is_granted());

    let clock = ManualClock::new();
    let refusing = KeyedLimiter::builder(bucket)
        .max_keys(100)
        .when_keys_full(WhenKeysFull::Refuse)
        .clock(clock.clone())
        .build()
        .expect("it is valid");
    for key in 0..100_u64 {
        assert!(refusing.check(&key, 1).is_granted());
    }
    assert_eq!(refusing.check(&100, 1).retry_after(), Some(ms(500)));
    let refused = poll(Box::pin(refusing.acquire(&100, 1)).as_mut());
    assert_eq!(
        refused,
        Poll::Ready(Err(AcquireError::TooLate {
            retry_after: ms(500)
        }))
    );
    // Idle keys make room.
    clock.advance(ms(100));
    let granted = (1000..1100)
        .filter(|key| refusing.check(key, 1).is_granted())
        .count();
    assert!(granted > 50, "granted {granted}");
    assert!(refusing.len() <= 100);
}

#[test]
fn a_start_below_the_burst_is_refused_by_name() {
    let error = KeyedLimiter::<u64>::builder(Rate::per_second(10).burst(5).initial(1)).build();
    let Err(BuildError::Setting { field, value, .. }) = error else {
        panic!("it is refused");
    };
    assert_eq!(
        (field, value.as_str()),
        ("limit", "token_bucket 10/s burst 5 initial 1")
    );
    let none = KeyedLimiter::<u64>::builder(Rate::per_second(10).burst(5))
        .max_keys(0)
        .build();
    assert!(none.is_err_and(|error| error.to_string().starts_with("max_keys is 0")));
}

#[test]
fn a_key_may_have_a_limit_of_its_own() {
    let clock = ManualClock::new();
    let limiter = KeyedLimiter::<String>::builder(Rate::per_second(10).burst(5))
        .limit_for(|key: &String| match key.as_str() {
            "gold" => Some("sliding_log 50 per 1s".parse().expect("it is a limit")),
            "fresh" => Some(Rate::per_second(1).burst(7).initial(0).into()),
            _ => None,
        })
        .clock(clock.clone())
        .build()
        .expect("it is valid");
    let drained = |key: &str| {
        (0..100)
            .filter(|_| limiter.check(key, 1).is_granted())
            .count()
    };
    assert_eq!(
        (drained("gold"), drained("fresh"), drained("other")),
        (50, 7, 5)
    );
    clock.advance(Duration::from_secs(1));
    assert_eq!(
        (drained("gold"), drained("fresh"), drained("other")),
        (50, 1, 5)
    );
}

#[test]
fn a_key_function_that_panics_leaves_the_limiter_whole() {
    let limiter = KeyedLimiter::<u64>::builder(Rate::per_second(10).burst(5))
        .limit_for(|key: &u64| if *key == 13 { panic!("unlucky") } else { None })
        .clock(ManualClock::new())
        .build()
        .expect("it is valid");
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| limiter.check(&13, 1)));
    assert!(panicked.is_err());
    assert!(limiter.check(&1, 5).is_granted());
    assert_eq!(limiter.len(), 1);
}

#[test]
fn a_new_limit_keeps_instants_and_clamps_them_to_its_burst() {
    let (limiter, clock) = keyed(Rate::per_second(10).burst(5), 100);
    assert!(limiter.check(&1, 5).is_granted());
    // Half a second ahead; at 100/s with a burst of 5 that is clamped to 50 ms.
    limiter
        .set_limit(Rate::per_second(100).burst(5))
        .expect("it is valid");
    assert_eq!(limiter.check(&1, 1).retry_after(), Some(ms(10)));
    let log: Limit = "sliding_log 3 per 1s".parse().expect("it is a limit");
    limiter.set_limit(log).expect("it is valid");
    assert_eq!(
        limiter.check(&1, 1).remaining,
        2,
        "another kind starts fresh"
    );
    let wrong = limiter.set_limit(Rate::per_second(1).burst(5).initial(0));
    assert!(wrong.is_err());
    assert_eq!(limiter.check(&1, 1).remaining, 1);
    clock.advance(ms(1));
}

#[test]
fn refunds_come_back_in_time_and_not_later() {
    for limit in kinds() {
        let (limiter, clock) = keyed(limit, 100);
        let charged = limiter.check(&1, 4);
        limiter.refund(&1, charged.at, 4);
        assert_eq!(limiter.peek(&1, 0).remaining, 5, "{limit}");
        let charged = limiter.check(&1, 4);
        clock.advance(Duration::from_secs(2));
        assert!(limiter.check(&1, 3).is_granted());
        limiter.refund(&1, charged.at, 4);
        assert_eq!(limiter.peek(&1, 0).remaining, 2, "{limit}");
        limiter.refund(&2, charged.at, 4);
        assert_eq!(limiter.len(), 1);
    }
}

#[test]
fn a_clock_that_goes_back_counts_as_standing_still() {
    for limit in kinds() {
        let (limiter, clock) = keyed(limit, 100);
        clock.set(Tick::from_nanos(5_000_000_000));
        assert!(limiter.check(&1, 3).is_granted());
        clock.set(Tick::from_nanos(4_000_000_000));
        assert!(limiter.check(&1, 2).is_granted(), "{limit}");
        assert!(!limiter.check(&1, 1).is_granted(), "{limit}");
    }
}

#[test]
fn each_key_has_a_line_of_its_own() {
    for limit in kinds() {
        if matches!(limit, Limit::SlidingCounter(_)) {
            continue;
        }
        let (limiter, clock) = keyed(limit, 100);
        assert!(limiter.check(&1, 5).is_granted());
        let mut first = Box::pin(limiter.acquire(&1, 5));
        let mut second = Box::pin(limiter.acquire(&1, 1));
        assert!(poll(first.as_mut()).is_pending());
        assert!(poll(second.as_mut()).is_pending());
        assert!(limiter.check(&2, 5).is_granted(), "{limit}: another key");
        assert!(!limiter.check(&1, 1).is_granted());
        clock.advance(ms(500));
        assert!(
            !limiter.check(&1, 1).is_granted(),
            "{limit}: nobody overtakes"
        );
        assert!(poll(second.as_mut()).is_pending(), "{limit}");
        assert_eq!(poll(first.as_mut()), Poll::Ready(Ok(())), "{limit}");
        drop(second);
        clock.advance(ms(500));
        assert_eq!(
            poll(Box::pin(limiter.acquire(&1, 5)).as_mut()),
            Poll::Ready(Ok(()))
        );
        assert!(matches!(
            poll(Box::pin(limiter.acquire(&1, 6)).as_mut()),
            Poll::Ready(Err(AcquireError::Never { max_cost: 5 }))
        ));
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_of_a_key_are_planned_anew_by_a_new_limit() {
    let limiter = KeyedLimiter::<String>::builder(Rate::per_day(1).burst(1)).build();
    let limiter = limiter.expect("it is valid");
    assert!(limiter.check("ada", 1).is_granted());
    let waiters: Vec<_> = (0..20)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.acquire("ada", 1).await })
        })
        .collect();
    tokio::time::sleep(ms(10)).await;
    let start = tokio::time::Instant::now();
    limiter
        .set_limit(Rate::per_second(1000).burst(1))
        .expect("it is valid");
    for waiter in waiters {
        assert_eq!(waiter.await.expect("it does not panic"), Ok(()));
    }
    assert!(start.elapsed() <= ms(25), "took {:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn newcomers_beyond_the_cap_wait_in_one_line() {
    let limiter = KeyedLimiter::<u64>::builder(Rate::per_second(10).burst(1))
        .max_keys(2)
        .build();
    let limiter = limiter.expect("it is valid");
    assert!(limiter.check(&1, 1).is_granted() && limiter.check(&2, 1).is_granted());
    let start = tokio::time::Instant::now();
    let waiters: Vec<_> = (10..13_u64)
        .map(|key| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.acquire(&key, 1).await })
        })
        .collect();
    for waiter in waiters {
        assert_eq!(waiter.await.expect("it does not panic"), Ok(()));
    }
    assert!(start.elapsed() >= ms(200), "took {:?}", start.elapsed());
}
