//! Priorities: order, ageing, shares, and who is refused or evicted first.

use sluicegate::Rate;
use sluicegate::queue::{Builder, Ending, Exit, Priority, Reason, Terms, WhenFull};

use super::{MILLI, SECOND, assert_exact};

fn at(priority: Priority) -> Terms {
    Terms::new().priority(priority)
}

#[tokio::test(start_paused = true)]
async fn a_hundred_low_then_one_high_and_the_high_is_next() {
    let (tx, rx) = Builder::new(Rate::per_second(10))
        .max_depth(200)
        .build()
        .unwrap();
    for n in 0..100 {
        tx.offer(n).priority(Priority::Low).try_send().unwrap();
    }
    tx.offer(999).priority(Priority::High).try_send().unwrap();
    assert_eq!(*rx.recv().await.unwrap(), 999);
    let ledgers = assert_exact(&tx);
    assert_eq!(ledgers.lanes[&Priority::Low].queued, 100);
}

/// Stated: four times the time in which a full queue drains, and its own turn.
#[tokio::test(start_paused = true)]
async fn the_lowest_lane_waits_no_longer_than_stated_under_a_critical_flood() {
    let (tx, rx) = Builder::new(Rate::per_second(100))
        .max_depth(100)
        .build()
        .unwrap();
    tx.offer(Priority::Low)
        .priority(Priority::Low)
        .try_send()
        .unwrap();
    let waited = loop {
        while tx
            .offer(Priority::Critical)
            .terms(at(Priority::Critical))
            .try_send()
            .is_ok()
        {}
        let job = rx.recv().await.unwrap();
        if *job == Priority::Low {
            break job.waited();
        }
        job.ack();
    };
    assert!(
        waited >= 4 * SECOND && waited <= 5 * SECOND + 20 * MILLI,
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_reserved_share_moves_a_lane_through_the_same_flood() {
    let builder = Builder::new(Rate::per_second(100)).max_depth(100);
    let (tx, rx) = builder.lane_share(Priority::Low, 0.1).build().unwrap();
    for _ in 0..20 {
        tx.offer(Priority::Low)
            .priority(Priority::Low)
            .try_send()
            .unwrap();
    }
    let mut low = 0;
    for _ in 0..150 {
        while tx
            .offer(Priority::Critical)
            .terms(at(Priority::Critical))
            .try_send()
            .is_ok()
        {}
        let job = rx.recv().await.unwrap();
        low += u64::from(*job == Priority::Low);
        job.ack();
    }
    assert!((14..=15).contains(&low), "{low} of 150");
    let error = Builder::unpaced()
        .lane_share(Priority::Low, 0.7)
        .lane_share(Priority::High, 0.4)
        .build::<()>()
        .unwrap_err();
    assert!(error.to_string().contains("lane_share is 1.1"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn low_is_refused_first_at_a_bound_on_the_wait() {
    let builder = Builder::new(Rate::per_second(100))
        .max_depth(50)
        .max_wait(100 * MILLI);
    let (tx, _rx) = builder.build().unwrap();
    for n in 0..10 {
        tx.try_send(n).unwrap();
    }
    let refused = tx.offer(10).priority(Priority::Low).try_send().unwrap_err();
    assert_eq!(refused.reason(), Reason::TooLate);
    let refused = tx
        .offer(10)
        .priority(Priority::Low)
        .send()
        .await
        .unwrap_err();
    assert_eq!(refused.reason(), Reason::TooLate, "waiting forms too");
    tx.offer(10).priority(Priority::High).try_send().unwrap();
    let ledgers = assert_exact(&tx);
    assert_eq!(ledgers.lanes[&Priority::Low].refused, 2);
}

#[tokio::test(start_paused = true)]
async fn eviction_by_priority_is_equal_by_default_and_strict_by_choice() {
    for (rule, equal_pays) in [(WhenFull::EvictLowest, true), (WhenFull::EvictLower, false)] {
        let builder = Builder::unpaced().max_depth(2).when_full(rule);
        let (tx, rx) = builder.build().unwrap();
        let oldest = tx.offer(0).track().await.unwrap();
        tx.try_send(1).unwrap();
        match tx.try_send(2) {
            Ok(_) => {
                assert!(equal_pays);
                assert_eq!(oldest.await, Ending::Evicted);
                let letter = rx.dead_letters().try_recv().unwrap();
                assert_eq!((letter.item, letter.exit), (0, Exit::Evicted));
            }
            Err(refused) => {
                assert!(!equal_pays);
                assert_eq!((refused.reason(), refused.into_inner()), (Reason::Full, 2));
            }
        }
        let low = tx.offer(3).priority(Priority::Low).try_send();
        assert_eq!(low.unwrap_err().reason(), Reason::Full, "refused first");
        tx.offer(4).priority(Priority::High).try_send().unwrap();
        assert_eq!(
            assert_exact(&tx).lanes[&Priority::Normal].evicted,
            1 + u64::from(equal_pays)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn with_all_jobs_critical_the_bound_holds_and_order_is_that_of_arrival() {
    let (tx, rx) = Builder::new(Rate::per_second(1000))
        .max_depth(10)
        .build()
        .unwrap();
    let taken = (0..20).filter(|n| tx.offer(*n).priority(Priority::Critical).try_send().is_ok());
    assert_eq!(taken.count(), 10);
    let mut seen = Vec::new();
    for _ in 0..10 {
        seen.push(rx.recv().await.unwrap().into_inner());
    }
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
    assert_exact(&tx);
}

#[tokio::test(start_paused = true)]
async fn a_job_of_cost_c_takes_c_departures_and_is_corrected_afterwards() {
    let builder = Builder::new(Rate::per_second(10))
        .max_depth(100)
        .catch_up(0);
    let (tx, rx) = builder.build().unwrap();
    for cost in [5, 1, 1, 1] {
        tx.offer(()).cost(cost).try_send().unwrap();
    }
    let start = tokio::time::Instant::now();
    let mut dear = rx.recv().await.unwrap();
    assert_eq!(tx.snapshot().depth, 3);
    // It turns out to have cost one: the next leaves after one interval, not five.
    dear.settle_cost(1);
    let mut next = rx.recv().await.unwrap();
    assert_eq!(start.elapsed().as_millis() / 10, 10);
    // That one cost three, said twice.
    next.settle_cost(3);
    next.settle_cost(3);
    dear.ack();
    next.ack();
    rx.recv().await.unwrap().ack();
    assert_eq!(start.elapsed().as_millis() / 10, 40);
    let last = rx.recv().await.unwrap();
    assert_eq!(start.elapsed().as_millis() / 10, 50);
    last.ack();
    assert_exact(&tx);
}

#[tokio::test(start_paused = true)]
async fn a_cost_beyond_the_bound_is_refused_for_good() {
    let (tx, _rx) = Builder::unpaced().max_depth(100).build().unwrap();
    for cost in [101, u64::MAX] {
        let refused = tx.offer(()).cost(cost).try_send().unwrap_err();
        assert_eq!(
            (refused.reason(), refused.retry_after()),
            (Reason::TooCostly, None)
        );
    }
    assert_eq!(tx.snapshot().depth, 0);
}
