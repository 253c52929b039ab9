//! Dead letters, drains, and what is told to whom at the end.

use std::time::Duration;

use sluicegate::Rate;
use sluicegate::queue::{Builder, Ending, Exit, Reason};
use tokio::time::{Instant, sleep};

use super::{MILLI, SECOND, assert_balanced, settle};

#[tokio::test(start_paused = true)]
async fn letters_that_nobody_reads_are_bounded_and_the_lost_ones_counted() {
    let (tx, rx) = Builder::unpaced().dead_letters(3).build().unwrap();
    for n in 0..5 {
        tx.send(n).await.unwrap();
        rx.recv().await.unwrap().fail();
    }
    assert_eq!(tx.snapshot().dead_letters_lost, 2);
    let letters = rx.dead_letters();
    for n in 0..3 {
        assert_eq!(letters.try_recv().unwrap().item, n, "the newest are lost");
    }
    assert!(letters.try_recv().is_none());
    tx.send(5).await.unwrap();
    rx.recv().await.unwrap().fail();
    assert_eq!(letters.recv().await.unwrap().item, 5, "there is room again");
}

#[tokio::test(start_paused = true)]
async fn an_outlet_of_none_counts_only() {
    let (tx, rx) = Builder::unpaced().dead_letters(0).build().unwrap();
    tx.send(1).await.unwrap();
    rx.recv().await.unwrap().fail();
    let snapshot = tx.snapshot();
    assert_eq!((snapshot.ledger.failed, snapshot.dead_letters_lost), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_letter_tells_the_cause() {
    let (tx, rx) = Builder::unpaced().build().unwrap();
    tx.send("row").await.unwrap();
    sleep(SECOND).await;
    rx.recv().await.unwrap().fail_because("duplicate key");
    let letter = rx.dead_letters().recv().await.unwrap();
    assert_eq!(
        (letter.item, letter.exit, letter.attempts),
        ("row", Exit::Failed, 1)
    );
    assert_eq!(letter.waited, SECOND);
    assert_eq!(letter.cause.unwrap().to_string(), "duplicate key");
}

/// bullmq#4163: close never resolved while a handler put its job back again and again.
#[tokio::test(start_paused = true)]
async fn a_drain_ends_at_its_deadline_and_returns_what_is_left_by_value() {
    let (tx, rx) = Builder::new(Rate::per_second(10)).build().unwrap();
    let mut tickets = Vec::new();
    for n in 0..30 {
        tickets.push(tx.offer(n).track().await.unwrap());
    }
    rx.recv().await.unwrap().retry(60 * SECOND);
    let consumer = tokio::spawn({
        let rx = rx.clone();
        async move {
            while let Some(job) = rx.recv().await {
                if *job == 5 {
                    std::mem::forget(job);
                } else {
                    job.ack();
                }
            }
        }
    });
    let start = Instant::now();
    let report = rx.drain(SECOND).await;
    let took = start.elapsed();
    assert!(took >= SECOND && took <= SECOND + 3 * MILLI, "{took:?}");
    assert!((8..=10).contains(&report.settled), "{report:?}");
    assert_eq!(report.in_flight, 1);
    let mut returned: Vec<_> = report.returned.iter().map(|letter| letter.item).collect();
    assert!(
        report
            .returned
            .iter()
            .all(|letter| letter.exit == Exit::Returned)
    );
    returned.sort_unstable();
    let first = 30 - returned.len() as u64 + 1;
    assert_eq!(
        returned,
        std::iter::once(0).chain(first..30).collect::<Vec<_>>()
    );
    consumer.await.unwrap();
    assert_eq!(tickets.remove(0).await, Ending::Returned);
    assert_balanced(&tx.snapshot());
    assert_eq!(tx.try_send(99).unwrap_err().reason(), Reason::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_drain_is_over_as_soon_as_everything_is_settled() {
    let (tx, rx) = Builder::new(Rate::per_second(10)).build().unwrap();
    for n in 0..5 {
        tx.send(n).await.unwrap();
    }
    let drain = tokio::spawn({
        let rx = rx.clone();
        async move { rx.drain(Duration::from_secs(3_600)).await }
    });
    let start = Instant::now();
    let mut last = None;
    while let Some(job) = rx.recv().await {
        last.replace(job)
            .into_iter()
            .for_each(|job: sluicegate::queue::Job<_>| job.ack());
    }
    settle().await;
    assert!(!drain.is_finished(), "one is in flight");
    last.unwrap().ack();
    let report = drain.await.unwrap();
    assert_eq!(
        (report.settled, report.in_flight, report.returned.len()),
        (5, 0, 0)
    );
    assert!(start.elapsed() < SECOND);
}

#[tokio::test(start_paused = true)]
async fn of_two_drains_the_sooner_deadline_holds_and_nothing_is_returned_twice() {
    let (tx, rx) = Builder::new(Rate::per_second(1))
        .max_depth(20)
        .build()
        .unwrap();
    for n in 0..10 {
        tx.try_send(n).unwrap();
    }
    let (first, second) = tokio::join!(rx.drain(2 * SECOND), rx.drain(60 * SECOND));
    assert_eq!(first.returned.len() + second.returned.len(), 10);
    let again = rx.drain(SECOND).await;
    assert_eq!(
        (again.settled, again.in_flight, again.returned.len()),
        (0, 0, 0)
    );
    assert_eq!(tx.snapshot().ledger.returned, 10);
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_is_dropped_leaves_its_deadline_and_dead_letters() {
    let (tx, rx) = Builder::new(Rate::per_second(1)).build().unwrap();
    for n in 0..3 {
        tx.try_send(n).unwrap();
    }
    let letters = rx.dead_letters();
    let mut drain = Box::pin(rx.drain(SECOND));
    assert!(super::poll(&mut drain).is_pending());
    drop(drain);
    assert!(tx.is_closed());
    for n in 0..3 {
        let letter = letters.recv().await.unwrap();
        assert_eq!((letter.item, letter.exit), (n, Exit::Returned));
    }
    assert!(letters.recv().await.is_none());
    assert!(rx.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_drained_report_that_nobody_fetches_becomes_dead_letters() {
    let (tx, rx) = Builder::new(Rate::per_second(1)).build().unwrap();
    tx.try_send(1).unwrap();
    let mut drain = Box::pin(rx.drain(SECOND));
    assert!(super::poll(&mut drain).is_pending());
    sleep(2 * SECOND).await;
    assert_eq!(tx.snapshot().ledger.returned, 1);
    assert!(
        rx.dead_letters().try_recv().is_none(),
        "it is kept for the report"
    );
    drop(drain);
    assert_eq!(rx.dead_letters().try_recv().unwrap().item, 1);
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_close_is_returned() {
    let (tx, rx) = Builder::unpaced().build().unwrap();
    tx.send(1).await.unwrap();
    tx.send(2).await.unwrap();
    let (one, two) = (rx.recv().await.unwrap(), rx.recv().await.unwrap());
    let letters = rx.dead_letters();
    tx.close();
    one.retry(SECOND);
    drop(rx);
    two.defer(SECOND);
    for n in 1..=2 {
        let letter = letters.recv().await.unwrap();
        assert_eq!((letter.item, letter.exit), (n, Exit::Returned));
    }
    assert_balanced(&tx.snapshot());
}

#[tokio::test(start_paused = true)]
async fn every_ticket_resolves_once_with_the_way_its_job_ended() {
    let (tx, rx) = Builder::unpaced().build().unwrap();
    let mut tickets = Vec::new();
    for n in 0..4 {
        tickets.push(tx.offer(n).track().await.unwrap());
    }
    rx.recv().await.unwrap().ack();
    rx.recv().await.unwrap().fail();
    drop(rx.recv().await.unwrap());
    drop(rx);
    let endings = [
        Ending::Acked,
        Ending::Failed,
        Ending::Abandoned,
        Ending::Returned,
    ];
    for (ticket, ending) in tickets.into_iter().zip(endings) {
        assert_eq!(ticket.await, ending);
    }
}

/// A permit that outlives the deadline of a drain must not keep the receivers waiting.
#[tokio::test(start_paused = true)]
async fn after_a_drain_nobody_waits_for_a_permit_any_more() {
    let (tx, rx) = Builder::new(Rate::per_second(1)).build().unwrap();
    let permit = tx.reserve().await.unwrap();
    let letters = rx.dead_letters();
    let (report, none) = tokio::join!(rx.drain(SECOND), rx.recv());
    assert!(none.is_none());
    assert_eq!((report.settled, report.returned.len()), (0, 0));
    permit.send(1);
    let letter = letters.recv().await.unwrap();
    assert_eq!((letter.item, letter.exit), (1, Exit::Returned));
    assert!(letters.recv().await.is_none());
    assert_balanced(&tx.snapshot());
}

#[tokio::test(start_paused = true)]
async fn a_job_settled_after_the_drain_still_counts_and_still_writes_its_letter() {
    let (tx, rx) = Builder::unpaced().build().unwrap();
    tx.send(1).await.unwrap();
    let job = rx.recv().await.unwrap();
    let report = rx.drain(SECOND).await;
    assert_eq!((report.settled, report.in_flight), (0, 1));
    let letters = rx.dead_letters();
    drop((tx, rx));
    job.fail();
    assert_eq!(letters.recv().await.unwrap().exit, Exit::Failed);
    assert!(letters.recv().await.is_none());
}
