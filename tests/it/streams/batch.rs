//! Several jobs at a time.

use std::time::Duration;

use futures_util::FutureExt;
use sluicegate::Rate;
use sluicegate::queue::{Builder, Ending, Job};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::queue::{MILLI, SECOND, assert_balanced, settle};

fn items(jobs: Vec<Job<u32>>) -> Vec<u32> {
    jobs.into_iter().map(Job::into_inner).collect()
}

#[tokio::test(start_paused = true)]
async fn recv_many_takes_what_is_due_and_charges_each() {
    let (tx, rx) = Builder::unpaced().build().expect("valid settings");
    for n in 0..10 {
        tx.try_send(n).expect("there is room");
    }
    assert_eq!(items(rx.recv_many(4).await), [0, 1, 2, 3]);
    assert_eq!(items(rx.recv_many(0).await), [4], "0 counts as 1");
    assert_eq!(items(rx.recv_many(usize::MAX).await), [5, 6, 7, 8, 9]);
    drop(tx);
    assert!(rx.recv_many(4).await.is_empty(), "closed");

    let (tx, rx) = Builder::new(Rate::per_second(100))
        .build()
        .expect("valid settings");
    for n in 0..100 {
        tx.try_send(n).expect("there is room");
    }
    let start = Instant::now();
    for _ in 0..10 {
        assert_eq!(rx.recv_many(50).await.into_iter().map(Job::ack).count(), 1);
    }
    assert_eq!(start.elapsed(), 90 * MILLI, "each is a departure");
    sleep(SECOND).await;
    let owed = rx.recv_many(50).await;
    assert!(
        owed.len() <= 2,
        "{} at once: a stall ends in no salvo",
        owed.len()
    );
    items(owed);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_one_departure() {
    let (tx, rx) = Builder::new(Rate::per_second(10))
        .build()
        .expect("valid settings");
    for n in 0..25 {
        tx.try_send(n).expect("there is room");
    }
    let start = Instant::now();
    let mut sizes = Vec::new();
    for at in [0, 100, 200] {
        let batch = rx.recv_batch(10).await;
        assert_eq!(start.elapsed(), at * MILLI);
        assert!(
            batch
                .iter()
                .all(|job| job.departed_at() == batch[0].departed_at())
        );
        sizes.push(items(batch).len());
    }
    assert_eq!(sizes, [10, 10, 5]);
    assert_eq!(tx.snapshot().ledger.acked, 25);
    drop(tx);
    assert!(rx.recv_batch(10).await.is_empty(), "closed");
}

#[tokio::test(start_paused = true)]
async fn a_batch_keeps_the_in_flight_bound_and_skips_what_was_cancelled() {
    let (tx, rx) = Builder::unpaced()
        .max_in_flight(4)
        .build()
        .expect("valid settings");
    let token = CancellationToken::new();
    for n in 0..10 {
        let offer = tx.offer(n);
        let offer = if n % 2 == 1 {
            offer.cancelled_by(token.clone())
        } else {
            offer
        };
        offer.send().await.expect("there is room");
    }
    token.cancel();
    let batch = rx.recv_batch(10).await;
    assert_eq!(tx.snapshot().in_flight, 4);
    assert!(
        rx.recv_batch(10).now_or_never().is_none(),
        "the bound is reached"
    );
    assert_eq!(items(batch), [0, 2, 4, 6]);
    assert_eq!(items(rx.recv_batch(10).await), [8]);
    let snapshot = tx.snapshot();
    assert_balanced(&snapshot);
    assert_eq!(snapshot.ledger.cancelled, 5);
}

#[tokio::test(start_paused = true)]
async fn a_linger_fills_the_batch_and_ends_when_it_is_full() {
    let (tx, rx) = Builder::unpaced().build().expect("valid settings");
    let producer = tokio::spawn(async move {
        for n in 0..6 {
            tx.send(n).await.expect("there is room");
            sleep(10 * MILLI).await;
        }
        sleep(SECOND).await;
    });
    let start = Instant::now();
    assert_eq!(items(rx.recv_batch_within(3, 50 * MILLI).await), [0, 1, 2]);
    assert_eq!(start.elapsed(), 20 * MILLI, "full");
    assert_eq!(items(rx.recv_batch_within(9, 25 * MILLI).await), [3, 4, 5]);
    assert_eq!(
        start.elapsed(),
        55 * MILLI,
        "bounded, from the first job on"
    );
    assert!(rx.recv_batch_within(9, Duration::MAX).await.is_empty());
    producer.await.expect("it does not panic");
}

#[tokio::test(start_paused = true)]
async fn the_close_of_the_queue_ends_a_linger() {
    let (tx, rx) = Builder::unpaced().build().expect("valid settings");
    tx.try_send(1).expect("there is room");
    let start = Instant::now();
    let closing = async {
        sleep(10 * MILLI).await;
        drop(tx);
    };
    let (batch, ()) = tokio::join!(rx.recv_batch_within(9, 3_600 * SECOND), closing);
    assert_eq!((items(batch), start.elapsed()), (vec![1], 10 * MILLI));
}

#[tokio::test(start_paused = true)]
async fn no_job_expires_for_being_lingered_with() {
    let (tx, rx) = Builder::unpaced()
        .expire_after(SECOND)
        .build()
        .expect("valid settings");
    tx.try_send(1).expect("there is room");
    let start = Instant::now();
    // A later job may be in a hurry, too.
    let hurry = async {
        sleep(100 * MILLI).await;
        tx.offer(2)
            .expires_in(200 * MILLI)
            .send()
            .await
            .expect("there is room");
    };
    let (batch, ()) = tokio::join!(rx.recv_batch_within(9, 60 * SECOND), hurry);
    assert_eq!(items(batch), [1, 2]);
    assert!(start.elapsed() < 300 * MILLI && start.elapsed() > 290 * MILLI);
    tx.try_send(3).expect("there is room");
    assert_eq!(items(rx.recv_batch_within(9, 60 * SECOND).await), [3]);
    assert_eq!(tx.snapshot().ledger.expired, 0);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_given_up_while_it_lingers_has_taken_nothing() {
    let (tx, rx) = Builder::unpaced().build().expect("valid settings");
    tx.try_send(1).expect("there is room");
    assert!(
        timeout(SECOND, rx.recv_batch_within(9, 60 * SECOND))
            .await
            .is_err()
    );
    let ledger = tx.snapshot().ledger;
    assert_eq!(
        (ledger.queued, ledger.in_flight, ledger.abandoned),
        (1, 0, 0)
    );
    assert_eq!(rx.try_recv().expect("it is still queued").into_inner(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_lingers_keeps_no_job_from_the_others() {
    let (tx, rx) = Builder::unpaced().build().expect("valid settings");
    let lingering = {
        let rx = rx.clone();
        tokio::spawn(async move { items(rx.recv_batch_within(9, 60 * SECOND).await) })
    };
    settle().await;
    let other = tokio::spawn(async move { rx.recv().await.map(Job::into_inner) });
    settle().await;
    let start = Instant::now();
    tx.try_send(1).expect("there is room");
    assert_eq!(other.await.expect("it does not panic"), Some(1));
    assert!(start.elapsed() < 5 * MILLI, "{:?}", start.elapsed());
    tx.try_send(2).expect("there is room");
    drop(tx);
    assert_eq!(lingering.await.expect("it does not panic"), [2]);
}

/// Drops of items are foreign code: one that panics keeps nobody's job from being done, once each.
#[tokio::test(start_paused = true)]
async fn ack_all_settles_every_job_once_whatever_its_queue_or_tenant() {
    struct Item(bool);
    impl Drop for Item {
        fn drop(&mut self) {
            assert!(!self.0, "an item that does not like to go");
        }
    }
    let queues: Vec<_> = (0..2)
        .map(|_| Builder::unpaced().build().expect("valid settings"))
        .collect();
    let mut jobs = Vec::new();
    let mut tickets = Vec::new();
    for n in 0..12 {
        let (tx, rx) = &queues[n / 3 % 2];
        let offer = tx.offer(Item(n == 4));
        let offer = if n % 4 == 0 {
            offer.tenant("mine")
        } else {
            offer
        };
        tickets.push(offer.track().await.expect("there is room"));
        jobs.push(rx.recv().await.expect("a job is queued"));
    }
    let acked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| Job::ack_all(jobs)));
    assert!(acked.is_err(), "the panic goes on");
    for ticket in tickets {
        assert!(matches!(
            timeout(SECOND, ticket).await,
            Ok(Ending::Acked | Ending::Abandoned)
        ));
    }
    let mut ended = 0;
    for (tx, _) in &queues {
        let ledger = tx.snapshot().ledger;
        assert!(ledger.is_balanced());
        assert_eq!(ledger.in_flight, 0);
        ended += ledger.acked + ledger.abandoned;
    }
    assert_eq!(ended, 12);
    Job::ack_all(Vec::<Job<u32>>::new());
}

#[tokio::test]
async fn a_job_that_is_done_is_seen_as_done_by_whoever_looks_next() {
    let (tx, rx) = Builder::unpaced().build().expect("valid settings");
    for n in 0..100 {
        tx.try_send(n).expect("there is room");
        let job = rx.recv().await.expect("a job is queued");
        assert_eq!(tx.snapshot().ledger.in_flight, 1);
        job.ack();
        let ledger = tx.snapshot().ledger;
        assert_eq!((ledger.in_flight, ledger.acked), (0, n + 1));
    }
    // A close in between changes nothing of it.
    for n in 0..3 {
        tx.try_send(n).expect("there is room");
    }
    let mut held = rx.recv_many(3).await.into_iter();
    held.next().expect("three were taken").ack();
    rx.close();
    assert_eq!(tx.snapshot().ledger.in_flight, 2);
    held.next().expect("three were taken").ack();
    assert_eq!(tx.snapshot().ledger.in_flight, 1);
    Job::ack_all(held);
    let report = rx.drain(SECOND).await;
    assert_eq!((report.settled, report.in_flight), (0, 0));
    assert_balanced(&tx.snapshot());
}
