//! Waiting for a limit: in order, on one's own timer, and without leaving a trace when it is given up.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sluicegate::{AcquireError, Limit, ManualClock, Rate, RateLimiter, SlidingLog};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn poll<F: Future + ?Sized>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Windows of one unit behave as a line at a rate of one unit each.
fn paced() -> [Limit; 4] {
    [
        "token_bucket 10/s burst 1",
        "leaky_bucket 10/s depth 1",
        "fixed_window 1 per 100ms",
        "sliding_log 1 per 100ms",
    ]
    .map(|text| text.parse().expect("it is a limit"))
}

#[tokio::test(start_paused = true)]
async fn of_256_waiters_each_is_granted_as_often_as_any_other() {
    let limiter = RateLimiter::new(Rate::per_second(1000).burst(1));
    // Nobody has a start: the one unit is gone, and all are in line before the next.
    assert!(limiter.check(1).is_granted());
    let grants: Vec<Arc<AtomicU64>> = (0..256).map(|_| Arc::default()).collect();
    let waiters: Vec<_> = grants
        .iter()
        .map(|grants| {
            let (limiter, grants) = (limiter.clone(), Arc::clone(grants));
            tokio::spawn(async move {
                loop {
                    limiter.acquire(1).await.expect("one fits");
                    grants.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(10_100)).await;
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    let grants: Vec<u64> = grants
        .iter()
        .map(|grants| grants.load(Ordering::Relaxed))
        .collect();
    let (least, most) = (grants.iter().min(), grants.iter().max());
    assert!(
        most.zip(least)
            .is_some_and(|(most, least)| most - least <= 1),
        "{grants:?}"
    );
    let sum: u64 = grants.iter().sum();
    assert!((10_000..=10_101).contains(&sum), "granted {sum}");
}

#[tokio::test(start_paused = true)]
async fn a_costly_request_among_singles_is_served_in_its_turn() {
    let limiter = RateLimiter::new(Rate::per_second(10).burst(20));
    assert!(limiter.check(20).is_granted());
    let start = Instant::now();
    let (done, mut order) = tokio::sync::mpsc::unbounded_channel();
    for (name, cost) in [(0, 1), (1, 20), (2, 1), (3, 1)] {
        let (limiter, done) = (limiter.clone(), done.clone());
        tokio::spawn(async move {
            limiter.acquire(cost).await.expect("it fits");
            done.send((name, start.elapsed().as_millis() / 10))
                .expect("it is read");
        });
        tokio::task::yield_now().await;
    }
    for expected in [(0, 10), (1, 210), (2, 220), (3, 230)] {
        assert_eq!(order.recv().await, Some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn cancelling_a_costly_request_lets_those_behind_through_at_once() {
    let limiter = RateLimiter::new(Rate::per_second(10).burst(20));
    assert!(limiter.check(19).is_granted());
    let start = Instant::now();
    let costly = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(20).await }
    });
    tokio::task::yield_now().await;
    let behind: Vec<_> = (0..3)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.acquire(1).await })
        })
        .collect();
    tokio::time::sleep(ms(50)).await;
    assert!(!behind[0].is_finished());
    costly.abort();
    let mut times = Vec::new();
    for waiter in behind {
        waiter.await.expect("it does not panic").expect("one fits");
        times.push(start.elapsed().as_millis() / 10);
    }
    // One was left before the costly one came; the others come at the rate.
    assert_eq!(times, [5, 10, 20]);
}

#[tokio::test(start_paused = true)]
async fn a_higher_rate_wakes_everybody_who_sleeps() {
    let limiter = RateLimiter::new(Rate::per_day(1).burst(1));
    assert!(limiter.check(1).is_granted());
    let waiters: Vec<_> = (0..100)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.acquire(1).await })
        })
        .collect();
    tokio::time::sleep(SECOND).await;
    let start = Instant::now();
    limiter.set_limit(Rate::per_second(1000).burst(1));
    for waiter in waiters {
        waiter.await.expect("it does not panic").expect("one fits");
    }
    assert!(start.elapsed() <= ms(103), "took {:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_new_limit_refuses_those_whose_cost_no_longer_fits() {
    let limiter = RateLimiter::new(Rate::per_second(1).burst(5));
    assert!(limiter.check(5).is_granted());
    let costly = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(4).await }
    });
    let cheap = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(1).await }
    });
    tokio::time::sleep(ms(10)).await;
    limiter.set_limit(Rate::per_second(1).burst(3));
    let costly = costly.await.expect("it does not panic");
    assert_eq!(costly, Err(AcquireError::Never { max_cost: 3 }));
    assert_eq!(cheap.await.expect("it does not panic"), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn what_can_never_or_not_in_time_be_granted_is_refused_at_once() {
    let limiter = RateLimiter::new(Rate::per_second(1).burst(3));
    let start = Instant::now();
    assert_eq!(
        limiter.acquire(4).await,
        Err(AcquireError::Never { max_cost: 3 })
    );
    assert!(limiter.reserve(4).is_err());
    // Three at once, five may wait five seconds, the last two of ten are told at once that they cannot be in time.
    let mut results = Vec::new();
    for _ in 0..10 {
        let limiter = limiter.clone();
        results.push(tokio::spawn(async move {
            limiter
                .acquire_within(1, 5 * SECOND)
                .await
                .map_err(|_| start.elapsed())
        }));
    }
    let mut refused = Vec::new();
    for result in results {
        refused.extend(result.await.expect("it does not panic").err());
    }
    assert_eq!(refused, [Duration::ZERO; 2]);
    assert_eq!(limiter.acquire(0).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_does_not_come_in_time_leaves_no_trace() {
    for limit in paced() {
        let limiter = RateLimiter::new(limit);
        limiter.acquire(1).await.expect("one fits");
        let late = limiter.acquire_within(1, ms(50)).await;
        assert!(
            matches!(late, Err(AcquireError::TooLate { .. })),
            "{limit}: {late:?}"
        );
        let start = Instant::now();
        limiter.acquire(1).await.expect("one fits");
        assert!(start.elapsed() <= ms(102), "{limit}: {:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_limit_serves_its_line_in_order() {
    for limit in paced() {
        let limiter = RateLimiter::new(limit);
        assert!(limiter.check(1).is_granted());
        let start = Instant::now();
        let (done, mut order) = tokio::sync::mpsc::unbounded_channel();
        for name in 0..20 {
            let (limiter, done) = (limiter.clone(), done.clone());
            tokio::spawn(async move {
                limiter.acquire(1).await.expect("one fits");
                done.send(name).expect("it is read");
            });
        }
        for expected in 0..20 {
            assert_eq!(order.recv().await, Some(expected), "{limit}");
            let due = ms(100 * (expected + 1));
            let late = start.elapsed().saturating_sub(due);
            assert!(
                start.elapsed() >= due && late <= ms(3 * (expected + 1)),
                "{limit}: late by {late:?}"
            );
            assert!(
                !limiter.check(1).is_granted(),
                "{limit}: nobody overtakes the line"
            );
        }
    }
}

#[test]
fn a_check_behind_a_line_is_refused_with_the_time_after_it() {
    for limit in paced() {
        let clock = ManualClock::new();
        let limiter = RateLimiter::with_clock(limit, clock.clone());
        assert!(limiter.check(1).is_granted());
        let mut waiters: Vec<_> = (0..5).map(|_| Box::pin(limiter.acquire(1))).collect();
        for waiter in &mut waiters {
            assert!(poll(waiter.as_mut()).is_pending());
        }
        assert_eq!(limiter.check(1).retry_after(), Some(ms(600)), "{limit}");
        drop(waiters);
        assert_eq!(
            limiter.check(1).retry_after(),
            Some(ms(100)),
            "{limit}: given up"
        );
    }
}

#[test]
fn a_shelved_future_holds_nobody_up() {
    for limit in paced() {
        let clock = ManualClock::new();
        let limiter = RateLimiter::with_clock(limit, clock.clone());
        assert!(limiter.check(1).is_granted());
        let mut shelved = Box::pin(limiter.acquire(1));
        let mut polled = Box::pin(limiter.acquire(1));
        assert!(poll(shelved.as_mut()).is_pending());
        assert!(poll(polled.as_mut()).is_pending());
        clock.advance(ms(100));
        assert!(
            poll(polled.as_mut()).is_pending(),
            "{limit}: not before its turn"
        );
        clock.advance(ms(100));
        assert_eq!(poll(polled.as_mut()), Poll::Ready(Ok(())), "{limit}");
        assert_eq!(poll(shelved.as_mut()), Poll::Ready(Ok(())), "{limit}");
    }
}

#[test]
fn a_grant_that_is_not_collected_is_given_back() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(Rate::per_second(10).burst(1), clock.clone());
    assert!(limiter.check(1).is_granted());
    let mut first = Box::pin(limiter.acquire(1));
    let mut second = Box::pin(limiter.acquire(1));
    assert!(poll(first.as_mut()).is_pending());
    assert!(poll(second.as_mut()).is_pending());
    clock.advance(ms(100));
    assert!(poll(second.as_mut()).is_pending());
    drop(first);
    assert_eq!(poll(second.as_mut()), Poll::Ready(Ok(())));
    assert_eq!(limiter.check(1).retry_after(), Some(ms(100)));
}

#[test]
fn a_reservation_dropped_unused_is_given_back_and_a_taken_one_is_not() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(Rate::per_second(10).burst(2), clock.clone());
    let now = limiter.reserve(2).expect("two fit");
    assert_eq!(now.delay(), Duration::ZERO);
    drop(now);
    limiter.reserve(2).expect("two fit").take();
    let later = limiter.reserve(1).expect("one fits");
    assert_eq!(later.delay(), ms(100));
    let last = limiter.reserve(1).expect("one fits");
    assert_eq!(last.delay(), ms(200));
    later.take();
    drop(last);
    clock.advance(ms(200));
    assert!(limiter.check(1).is_granted());
    assert!(!limiter.check(1).is_granted());
}

#[tokio::test(start_paused = true)]
async fn a_reservation_can_be_waited_for_again() {
    let limiter = RateLimiter::new(Rate::per_second(10).burst(1));
    limiter
        .reserve(1)
        .expect("one fits")
        .wait()
        .await
        .expect("it is due");
    let reservation = limiter.reserve(1).expect("one fits");
    let first = tokio::time::timeout(ms(10), reservation.wait()).await;
    assert!(first.is_err(), "not due yet");
    assert_eq!(reservation.wait().await, Ok(()));
    assert_eq!(reservation.delay(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_window_with_room_for_several_serves_them_together() {
    let log = SlidingLog::new(10, SECOND).expect("it is a limit");
    let limiter = RateLimiter::new(log);
    let start = Instant::now();
    let waiters: Vec<_> = (0..35)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                limiter.acquire(1).await.expect("one fits");
                start.elapsed().as_millis() / 1000
            })
        })
        .collect();
    let mut seconds = Vec::new();
    for waiter in waiters {
        seconds.push(waiter.await.expect("it does not panic"));
    }
    let in_second = |second| seconds.iter().filter(|seen| **seen == second).count();
    assert_eq!([0, 1, 2, 3].map(in_second), [10, 10, 10, 5]);
}
