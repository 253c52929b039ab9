//! Deadlines, hints when to come back, and what a queue does under more than it can do.

use std::collections::VecDeque;
use std::time::Duration;

use sluicegate::Rate;
use sluicegate::queue::{Builder, Exit, Pressure, Reason};
use tokio::time::{Instant, interval, sleep, timeout};

use super::{MILLI, SECOND, assert_balanced, settle};

/// OmniRoute#9533: a limit on the wait that began to count when the wait was over.
#[tokio::test(start_paused = true)]
async fn the_wait_is_bounded_while_nothing_leaves_at_all() {
    let builder = Builder::new(Rate::per_second(10))
        .max_depth(2)
        .expire_after(5 * SECOND);
    let (tx, rx) = builder.max_wait(5 * SECOND).build().unwrap();
    tx.control().pause("maintenance");
    let start = Instant::now();
    tx.try_send(0).unwrap();
    tx.try_send(1).unwrap();
    let (waiting, letter) = tokio::join!(tx.send(2), async {
        let letter = rx.dead_letters().recv().await.unwrap();
        (letter.item, letter.exit, start.elapsed())
    });
    let (item, exit, after) = letter;
    assert_eq!((item, exit), (0, Exit::Expired));
    assert!(
        after >= 5 * SECOND && after <= 5 * SECOND + 2 * MILLI,
        "{after:?}"
    );
    // Both deadlines are the same instant; whichever the queue sees first, the waiter is told in time.
    if let Err(refused) = waiting {
        assert_eq!(
            (refused.reason(), refused.into_inner()),
            (Reason::TimedOut, 2)
        );
    }
    assert!(start.elapsed() <= 5 * SECOND + 2 * MILLI);
    assert_balanced(&tx.snapshot());
}

/// p-throttle#32: under twice the rate the delay of a new call grew without limit.
#[tokio::test(start_paused = true)]
async fn under_twice_the_rate_for_two_minutes_no_started_job_waited_longer_than_promised() {
    let (tx, rx) = Builder::shedding(Rate::per_second(50), SECOND)
        .build()
        .unwrap();
    let offers = tokio::spawn(async move {
        let mut clock = interval(10 * MILLI);
        let mut refused = 0;
        for n in 0..12_000 {
            clock.tick().await;
            refused += u32::from(tx.try_send(n).is_err());
        }
        (refused, tx)
    });
    let mut done = 0;
    let mut longest = Duration::ZERO;
    while let Ok(Some(job)) = timeout(5 * SECOND, rx.recv()).await {
        longest = longest.max(job.waited());
        job.ack();
        done += 1;
    }
    let (refused, tx) = offers.await.unwrap();
    assert!(longest <= SECOND, "{longest:?}");
    assert_eq!(done + refused, 12_000);
    assert!(done >= 5_950, "{done} of 6000 that could leave");
    assert_balanced(&tx.snapshot());
}

/// resilience4j#1283: a wait known to be hopeless was waited for.
#[tokio::test(start_paused = true)]
async fn a_hopeless_wait_is_refused_at_once() {
    let (tx, _rx) = Builder::new(Rate::per_second(10))
        .max_depth(100)
        .build()
        .unwrap();
    for n in 0..70 {
        tx.try_send(n).unwrap();
    }
    let start = Instant::now();
    let refused = tx.offer(70).expires_in(SECOND).send().await.unwrap_err();
    assert_eq!(
        (refused.reason(), start.elapsed()),
        (Reason::TooLate, Duration::ZERO)
    );
    let after = refused.retry_after().unwrap();
    assert!(after >= 6 * SECOND && after <= 6_100 * MILLI, "{after:?}");
    tx.offer(70).expires_in(8 * SECOND).send().await.unwrap();
}

/// kubernetes#117734: one second, however deep the overload.
#[tokio::test(start_paused = true)]
async fn refused_callers_return_as_a_trickle_and_get_in() {
    let builder = Builder::new(Rate::per_second(50))
        .max_depth(1_000)
        .watermarks(400, 1_000);
    let (tx, rx) = builder.build().unwrap();
    for n in 0..1_000 {
        tx.try_send(n).unwrap();
    }
    let hints: Vec<_> = (0..100)
        .map(|n| tx.try_send(n).unwrap_err().retry_after().unwrap())
        .collect();
    assert!(
        hints[0] >= 11_900 * MILLI && hints[0] <= 12_100 * MILLI,
        "{:?}",
        hints[0]
    );
    for pair in hints.windows(2) {
        assert_eq!(pair[1] - pair[0], 20 * MILLI, "as many a second as leave");
    }
    tokio::spawn(async move {
        while let Some(job) = rx.recv().await {
            job.ack();
        }
    });
    let callers: Vec<_> = hints
        .into_iter()
        .map(|hint| {
            let tx = tx.clone();
            tokio::spawn(async move {
                sleep(hint).await;
                tx.try_send(0).is_ok()
            })
        })
        .collect();
    for caller in callers {
        assert!(caller.await.unwrap());
    }
}

/// haproxy#177, scylladb#6428: first in, first out with impatient clients does work for nobody.
#[tokio::test(start_paused = true)]
async fn under_sustained_overload_most_of_what_starts_is_still_wanted() {
    async fn wanted(builder: Builder) -> usize {
        let (tx, rx) = builder
            .max_depth(1_000)
            .watermarks(900, 1_000)
            .build()
            .unwrap();
        let offers = tokio::spawn(async move {
            let mut clock = interval(SECOND / 120);
            for _ in 0..120 * 60 {
                clock.tick().await;
                let _ = tx.try_send(Instant::now());
            }
        });
        let end = Instant::now() + 60 * SECOND;
        let mut wanted = 0;
        while let Ok(Some(job)) = tokio::time::timeout_at(end, rx.recv()).await {
            // Its client has given up after a second.
            wanted += usize::from(job.elapsed() <= SECOND);
            job.ack();
        }
        offers.abort();
        wanted
    }
    let rate = Rate::per_second(100);
    let plain = wanted(Builder::new(rate)).await;
    let stale = Builder::new(rate)
        .standing_delay(100 * MILLI, SECOND)
        .drop_stale(true);
    let managed = wanted(stale).await;
    assert!(plain < 1_500, "the control is no control: {plain} of 6000");
    assert!(managed >= 5_400, "{managed} of 6000");
}

#[tokio::test(start_paused = true)]
async fn standing_delay_is_overload_and_ends_with_it() {
    let builder = Builder::new(Rate::per_second(100)).max_depth(1_000);
    let builder = builder
        .watermarks(10, 1_000)
        .standing_delay(200 * MILLI, SECOND);
    let (tx, rx) = builder.build().unwrap();
    for n in 0..300 {
        tx.try_send(n).unwrap();
    }
    assert_eq!(tx.pressure(), Pressure::Healthy, "a spike is no overload");
    let mut watch = tx.watch_pressure();
    let consumer = tokio::spawn(async move {
        while let Some(job) = rx.recv().await {
            job.ack();
        }
    });
    let start = Instant::now();
    watch
        .wait_for(|pressure| *pressure == Pressure::Overloaded)
        .await
        .unwrap();
    assert!(start.elapsed() <= 2_100 * MILLI, "{:?}", start.elapsed());
    assert_eq!(tx.send(1).await.unwrap_err().reason(), Reason::Overloaded);
    watch
        .wait_for(|pressure| *pressure == Pressure::Healthy)
        .await
        .unwrap();
    assert!(start.elapsed() <= 3_100 * MILLI, "{:?}", start.elapsed());
    tx.send(1).await.unwrap();
    drop(tx);
    consumer.await.unwrap();
}

/// alibaba/sentinel-golang#593: after idling, a batch far above the burst passed, and cost nothing.
#[tokio::test(start_paused = true)]
async fn a_dear_job_delays_the_next_by_its_whole_cost() {
    let (tx, rx) = Builder::new(Rate::per_second(10)).build().unwrap();
    sleep(60 * SECOND).await;
    tx.offer(1).cost(20).send().await.unwrap();
    tx.send(2).await.unwrap();
    let start = Instant::now();
    rx.recv().await.unwrap().ack();
    assert_eq!(start.elapsed(), Duration::ZERO);
    rx.recv().await.unwrap().ack();
    let took = start.elapsed();
    assert!(
        took >= 2 * SECOND && took <= 2 * SECOND + 2 * MILLI,
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_corrected_cost_moves_what_comes_after() {
    let (tx, rx) = Builder::new(Rate::per_second(10)).build().unwrap();
    for n in 0..2 {
        tx.send(n).await.unwrap();
    }
    let start = Instant::now();
    let mut job = rx.recv().await.unwrap();
    job.settle_cost(30);
    job.ack();
    rx.recv().await.unwrap().ack();
    let took = start.elapsed();
    assert!(
        took >= 3 * SECOND && took <= 3 * SECOND + 2 * MILLI,
        "{took:?}"
    );
}

/// governor#16, SGrondin/bottleneck: the first second must not be special.
#[tokio::test(start_paused = true)]
async fn the_first_second_holds_no_more_than_any_other() {
    let (tx, rx) = Builder::new(Rate::per_second(20)).build().unwrap();
    sleep(3_600 * SECOND).await;
    for n in 0..60 {
        tx.try_send(n).unwrap();
    }
    let start = Instant::now();
    let mut starts = VecDeque::new();
    for _ in 0..60 {
        rx.recv().await.unwrap().ack();
        starts.push_back(start.elapsed());
        while starts.back().unwrap().checked_sub(SECOND) >= starts.front().copied() {
            starts.pop_front();
        }
        assert!(starts.len() <= 20, "{} within a second", starts.len());
    }
}

/// tokio-rs/tokio#2642: what producers may see of the queue, and that it agrees with the ledger.
#[tokio::test(start_paused = true)]
async fn numbers_of_a_busy_queue_agree() {
    let (tx, rx) = Builder::new(Rate::per_second(100))
        .max_depth(20)
        .build()
        .unwrap();
    for producer in 0..10 {
        let tx = tx.clone();
        tokio::spawn(async move { while tx.send(producer).await.is_ok() {} });
    }
    for n in 0..200 {
        let job = rx.recv().await.unwrap();
        let snapshot = tx.snapshot();
        assert_eq!(snapshot.depth, tx.depth());
        assert_eq!(snapshot.pressure, tx.pressure());
        // A granted place counts in depth, and its offer as waiting until it is collected.
        let held = snapshot.ledger.queued + snapshot.ledger.reserved;
        assert!(
            (held..=held + snapshot.waiting).contains(&snapshot.depth),
            "{snapshot:?}"
        );
        assert_eq!(snapshot.in_flight, 1);
        assert_balanced(&snapshot);
        if n % 7 == 0 {
            job.retry(MILLI);
        } else {
            job.ack();
        }
        settle().await;
    }
}
