//! The bound, who pays for it, and every way back in.

use std::sync::Arc;
use std::time::Duration;

use sluicegate::Rate;
use sluicegate::queue::{
    Backoff, Builder, Ending, Exit, Pressure, Priority, Reason, TryRecvError, WhenFull,
};
use tokio::time::{sleep, timeout};

use super::{MILLI, SECOND, assert_balanced, settle};

#[tokio::test(start_paused = true)]
async fn a_refusal_returns_the_item_and_names_queue_reason_and_time() {
    let builder = Builder::new(Rate::per_second(10))
        .max_depth(10)
        .name("orders-db");
    let (tx, _rx) = builder.build().unwrap();
    let refused = (0..11).find_map(|n| tx.try_send(n).err()).unwrap();
    assert_eq!(refused.reason(), Reason::Overloaded);
    assert_eq!(refused.queue(), Some("orders-db"));
    assert_eq!(
        (refused.depth(), refused.pressure()),
        (8, Pressure::Elevated)
    );
    // Three have to leave for the low mark, and the first of them leaves at once.
    let after = refused.retry_after().unwrap();
    assert!(after >= 200 * MILLI && after <= 205 * MILLI, "{after:?}");
    assert_eq!(refused.retry_after_secs(), Some(1));
    assert_eq!(
        refused.to_string(),
        format!(
            "queue orders-db is past its healthy depth: 8 of 10 in use, elevated, retry after {after:?}"
        )
    );
    assert_eq!(refused.into_inner(), 8);
    let too_costly = tx.offer(9).cost(11).try_send().unwrap_err();
    assert_eq!(
        (too_costly.reason(), too_costly.retry_after()),
        (Reason::TooCostly, None)
    );
    let full = tx
        .offer(9)
        .cost(3)
        .priority(Priority::Critical)
        .try_send()
        .unwrap_err();
    assert_eq!(full.reason(), Reason::Full);
}

/// rabbitmq-server#2313, #8495: ways in that the bound did not see.
#[tokio::test(start_paused = true)]
async fn only_what_was_in_flight_may_lift_depth_above_the_bound() {
    let builder = Builder::unpaced().max_depth(10).watermarks(9, 10);
    let (tx, rx) = builder.build().unwrap();
    for n in 0..10 {
        tx.try_send(n).unwrap();
    }
    let jobs: Vec<_> = (0..5).map(|_| rx.try_recv().unwrap()).collect();
    for n in 10..15 {
        tx.try_send(n).unwrap();
    }
    for job in jobs {
        job.defer(Duration::ZERO);
    }
    let snapshot = tx.snapshot();
    assert_eq!((snapshot.depth, snapshot.ledger.requeued), (15, 5));
    assert_eq!(tx.try_send(99).unwrap_err().reason(), Reason::Full);
    let mut seen: Vec<_> = std::iter::from_fn(|| rx.try_recv().ok())
        .map(|job| {
            assert_eq!(job.attempt(), 1, "a deferral is no attempt");
            job.into_inner()
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..15).collect::<Vec<_>>());
    assert_balanced(&tx.snapshot());
}

/// vectordotdev/vector#8209: what is evicted must be told, and handed on.
#[tokio::test(start_paused = true)]
async fn every_victims_ticket_resolves_and_its_item_is_dead_lettered() {
    let policies = [
        (WhenFull::EvictOldest, 0..5),
        (WhenFull::EvictNewest, 0..5),
        (WhenFull::EvictLowest, 0..5),
    ];
    for (policy, _) in policies {
        let builder = Builder::new(Rate::per_second(1))
            .max_depth(5)
            .when_full(policy);
        let (tx, rx) = builder.build().unwrap();
        let mut tickets = Vec::new();
        for n in 0..4 {
            tickets.push(tx.offer(n).track().await.unwrap());
        }
        for n in 10..14 {
            tx.offer(n).try_send().unwrap();
        }
        let snapshot = tx.snapshot();
        assert_eq!(
            (snapshot.depth, snapshot.ledger.evicted),
            (5, 3),
            "{policy:?}"
        );
        let letters = rx.dead_letters();
        let mut victims = Vec::new();
        while let Some(letter) = letters.try_recv() {
            assert_eq!(letter.exit, Exit::Evicted);
            victims.push(letter.item);
        }
        match policy {
            WhenFull::EvictNewest => assert_eq!(victims, [10, 11, 12]),
            _ => assert_eq!(victims, [0, 1, 2]),
        }
        for (n, ticket) in tickets.into_iter().enumerate() {
            let ended = timeout(MILLI, ticket).await.ok();
            assert_eq!(
                ended,
                victims.contains(&n).then_some(Ending::Evicted),
                "{policy:?}"
            );
        }
        assert_balanced(&tx.snapshot());
    }
}

#[tokio::test(start_paused = true)]
async fn critical_offers_use_the_room_above_the_high_mark() {
    let (tx, rx) = Builder::new(Rate::per_second(10))
        .max_depth(10)
        .build()
        .unwrap();
    for n in 0..8 {
        tx.try_send(n).unwrap();
    }
    assert_eq!(tx.try_send(8).unwrap_err().reason(), Reason::Overloaded);
    let waiting = tokio::spawn({
        let tx = tx.clone();
        async move { tx.send(9).await.is_ok() }
    });
    settle().await;
    tx.offer(100)
        .priority(Priority::Critical)
        .try_send()
        .unwrap();
    tx.offer(101)
        .priority(Priority::Critical)
        .send()
        .await
        .unwrap();
    assert_eq!(rx.recv().await.unwrap().into_inner(), 100);
    assert_eq!(rx.recv().await.unwrap().into_inner(), 101);
    assert_eq!(rx.recv().await.unwrap().into_inner(), 0);
    assert!(waiting.await.unwrap());
}

/// linkerd2#11055: a bound in items where a bound in time was meant.
#[test]
fn a_promise_in_time_proposes_the_depth() {
    let builder = Builder::shedding(Rate::per_second(500), 200 * MILLI);
    let (tx, _rx) = builder.clone().build::<()>().unwrap();
    assert_eq!(tx.snapshot().max_depth, 100);
    let error = builder.watermarks(10, 500).build::<()>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "watermarks is (10, 500): low < high <= max_depth must hold, and max_depth is 100"
    );
}

/// kubernetes#103788: many items in one.
#[tokio::test(start_paused = true)]
async fn the_bound_is_one_of_cost() {
    let (tx, rx) = Builder::unpaced()
        .max_depth(100)
        .watermarks(99, 100)
        .build()
        .unwrap();
    let mut held = 0;
    for cost in (1..=20).cycle().take(60) {
        if tx.offer(cost).cost(cost).try_send().is_ok() {
            held += cost;
        }
        assert!(held <= 100);
        assert_eq!(tx.snapshot().depth, held);
        if cost % 3 == 0 {
            held -= rx.try_recv().unwrap().into_inner();
        }
    }
}

/// apalis#302: one worker ran jobs without limit.
#[tokio::test(start_paused = true)]
async fn no_more_are_in_flight_than_may_be() {
    let builder = Builder::unpaced().max_in_flight(1);
    let (tx, rx) = builder.build().unwrap();
    for n in 0..100 {
        tx.send(n).await.unwrap();
    }
    drop(tx);
    let running = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let consumers: Vec<_> = (0..4)
        .map(|_| {
            let (rx, running) = (rx.clone(), Arc::clone(&running));
            tokio::spawn(async move {
                let mut done = 0;
                while let Some(job) = rx.recv().await {
                    assert_eq!(running.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    sleep(MILLI).await;
                    running.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    job.ack();
                    done += 1;
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for consumer in consumers {
        done += consumer.await.unwrap();
    }
    assert_eq!(done, 100);
}

/// bullmq#1571: "come back later" used up the attempts.
#[tokio::test(start_paused = true)]
async fn a_hundred_deferrals_leave_the_attempts_alone() {
    let (tx, rx) = Builder::new(Rate::per_second(1_000))
        .max_attempts(2)
        .build()
        .unwrap();
    let ticket = tx.offer("job").track().await.unwrap();
    for _ in 0..100 {
        let job = rx.recv().await.unwrap();
        assert_eq!(job.attempt(), 1);
        job.defer(MILLI);
    }
    rx.recv().await.unwrap().retry(MILLI);
    let job = rx.recv().await.unwrap();
    assert_eq!(job.attempt(), 2);
    job.retry(Backoff::exponential(MILLI, SECOND));
    assert_eq!(ticket.await, Ending::Failed);
    let letter = rx.dead_letters().recv().await.unwrap();
    assert_eq!((letter.exit, letter.attempts), (Exit::Failed, 2));
    assert_eq!(rx.try_recv().unwrap_err(), TryRecvError::Empty);
    assert_balanced(&tx.snapshot());
}

/// bullmq#613: a job that waits for its retry held up the others.
#[tokio::test(start_paused = true)]
async fn a_delayed_job_is_in_nobodys_way_and_leaves_on_time() {
    let (tx, rx) = Builder::new(Rate::per_second(100)).build().unwrap();
    tx.send(0).await.unwrap();
    rx.recv().await.unwrap().retry(10 * SECOND);
    let start = tokio::time::Instant::now();
    for n in 1..=100 {
        tx.send(n).await.unwrap();
        assert_eq!(rx.recv().await.unwrap().into_inner(), n);
    }
    assert!(start.elapsed() <= SECOND + 5 * MILLI);
    let job = rx.recv().await.unwrap();
    assert_eq!((*job, job.attempt()), (0, 2));
    let took = start.elapsed();
    assert!(took >= 9_990 * MILLI && took <= 10_003 * MILLI, "{took:?}");
    job.ack();
}

/// gen_stage#311: what a consumer took with it when it went away.
#[tokio::test(start_paused = true)]
async fn a_consumer_that_dies_loses_no_job() {
    let (tx, rx) = Builder::new(Rate::per_second(100)).build().unwrap();
    for n in 0..10 {
        tx.send(n).await.unwrap();
    }
    let letters = rx.dead_letters();
    let dying = tokio::spawn({
        let rx = rx.clone();
        async move {
            let _job = rx.recv().await.unwrap();
            std::future::pending::<()>().await;
        }
    });
    settle().await;
    dying.abort();
    assert!(dying.await.unwrap_err().is_cancelled());
    let letter = letters.recv().await.unwrap();
    assert_eq!((letter.item, letter.exit), (0, Exit::Abandoned));
    drop(tx);
    let mut seen = Vec::new();
    while let Some(job) = rx.recv().await {
        seen.push(job.into_inner());
    }
    assert_eq!(seen, (1..10).collect::<Vec<_>>());
}

/// SGrondin/bottleneck#152: a slot that leaked stood for ever.
#[tokio::test(start_paused = true)]
async fn a_consumer_that_panics_frees_its_place_in_flight() {
    let builder = Builder::new(Rate::per_second(100)).max_in_flight(1);
    let (tx, rx) = builder.build().unwrap();
    let ticket = tx.offer("poison").track().await.unwrap();
    tx.send("fine").await.unwrap();
    let consumer = tokio::spawn({
        let rx = rx.clone();
        async move {
            let _job = rx.recv().await.unwrap();
            panic!("a bug of the consumer, on purpose");
        }
    });
    assert!(consumer.await.unwrap_err().is_panic());
    assert_eq!(ticket.await, Ending::Abandoned);
    let letter = rx.dead_letters().recv().await.unwrap();
    assert_eq!(
        (letter.item, letter.exit, letter.attempts),
        ("poison", Exit::Abandoned, 1)
    );
    rx.recv().await.unwrap().ack();
    assert_balanced(&tx.snapshot());
}

#[tokio::test(start_paused = true)]
async fn health_is_red_while_nobody_takes_what_is_due() {
    use sluicegate::queue::Health;

    let (tx, rx) = Builder::new(Rate::per_second(100)).build().unwrap();
    let control = tx.control();
    assert_eq!(control.health(), Health::Green);
    tx.send(1).await.unwrap();
    sleep(60 * SECOND).await;
    assert_eq!(control.health(), Health::Red);
    rx.recv().await.unwrap().ack();
    assert_eq!(control.health(), Health::Green);
}
