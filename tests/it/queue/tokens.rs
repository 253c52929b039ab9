//! Cancellation tokens, from the door to the departure.

use sluicegate::Rate;
use sluicegate::queue::{Builder, Ending, Exit, Reason, Terms};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{MILLI, SECOND, assert_balanced, settle};

#[tokio::test(start_paused = true)]
async fn a_token_that_has_fired_is_refused_at_the_door() {
    let (tx, _rx) = Builder::new(Rate::per_second(10)).build().unwrap();
    let token = CancellationToken::new();
    token.cancel();
    let refused = tx
        .offer(1)
        .cancelled_by(token.clone())
        .send()
        .await
        .unwrap_err();
    assert_eq!(
        (refused.reason(), refused.into_inner()),
        (Reason::Cancelled, 1)
    );
    let refused = tx
        .offer(1)
        .cancelled_by(token.clone())
        .try_send()
        .unwrap_err();
    assert_eq!(refused.reason(), Reason::Cancelled);
    let terms = Terms::new().cancelled_by(token);
    assert_eq!(
        tx.reserve_with(terms).await.unwrap_err().reason(),
        Reason::Cancelled
    );
    let ledger = tx.snapshot().ledger;
    assert_eq!((ledger.offered, ledger.refused), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn a_token_takes_its_offer_out_of_the_line() {
    let (tx, _rx) = Builder::new(Rate::per_second(1))
        .max_depth(1)
        .build()
        .unwrap();
    tx.try_send(0).unwrap();
    let token = CancellationToken::new();
    let waiting = tokio::spawn({
        let (tx, token) = (tx.clone(), token.clone());
        async move {
            tx.offer(1)
                .cancelled_by(token)
                .send()
                .await
                .unwrap_err()
                .reason()
        }
    });
    settle().await;
    assert_eq!(tx.snapshot().waiting, 1);
    token.cancel();
    assert_eq!(waiting.await.unwrap(), Reason::Cancelled);
    assert_eq!(tx.snapshot().waiting, 0);
    assert_balanced(&tx.snapshot());
}

/// With no consumer and no traffic: somebody has to watch the token.
#[tokio::test(start_paused = true)]
async fn a_token_takes_its_job_out_of_the_queue() {
    let (tx, rx) = Builder::new(Rate::per_second(1)).build().unwrap();
    let token = CancellationToken::new();
    let ticket = tx
        .offer(1)
        .cancelled_by(token.child_token())
        .track()
        .await
        .unwrap();
    tx.send(2).await.unwrap();
    token.cancel();
    assert_eq!(ticket.await, Ending::Cancelled);
    let letter = rx.dead_letters().recv().await.unwrap();
    assert_eq!((letter.item, letter.exit), (1, Exit::Cancelled));
    assert_eq!(rx.recv().await.unwrap().into_inner(), 2);
    assert_balanced(&tx.snapshot());
}

#[tokio::test(start_paused = true)]
async fn a_token_fired_a_moment_ago_never_starts_its_job() {
    let (tx, rx) = Builder::unpaced().build().unwrap();
    let token = CancellationToken::new();
    tx.offer(1).cancelled_by(token.clone()).try_send().unwrap();
    tx.try_send(2).unwrap();
    // Nobody runs between these two lines.
    token.cancel();
    assert_eq!(rx.try_recv().unwrap().into_inner(), 2);
    assert_eq!(tx.snapshot().ledger.cancelled, 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_watched_through_a_retry_and_not_in_flight() {
    let (tx, rx) = Builder::unpaced().build().unwrap();
    let token = CancellationToken::new();
    let ticket = tx
        .offer(1)
        .cancelled_by(token.clone())
        .track()
        .await
        .unwrap();
    let job = rx.recv().await.unwrap();
    job.retry(10 * SECOND);
    let job = rx.recv().await.unwrap();
    job.retry(10 * SECOND);
    sleep(SECOND).await;
    token.cancel();
    assert_eq!(ticket.await, Ending::Cancelled);

    let token = CancellationToken::new();
    let ticket = tx
        .offer(2)
        .cancelled_by(token.clone())
        .track()
        .await
        .unwrap();
    let job = rx.recv().await.unwrap();
    token.cancel();
    sleep(SECOND).await;
    job.ack();
    assert_eq!(ticket.await, Ending::Acked);
}

#[tokio::test(start_paused = true)]
async fn a_permit_whose_token_fired_sends_into_the_dead_letters() {
    let (tx, rx) = Builder::unpaced().build().unwrap();
    let token = CancellationToken::new();
    let permit = tx
        .reserve_with(Terms::new().cancelled_by(token.clone()))
        .await
        .unwrap();
    token.cancel();
    permit.send(1);
    let letter = rx.dead_letters().recv().await.unwrap();
    assert_eq!((letter.item, letter.exit), (1, Exit::Cancelled));
    assert_balanced(&tx.snapshot());
}

/// A token that outlives its jobs must not remember them.
#[tokio::test(start_paused = true)]
async fn a_long_lived_token_holds_no_job_that_has_left() {
    use std::sync::{Arc, Weak};

    let (tx, rx) = Builder::unpaced().build().unwrap();
    let token = CancellationToken::new();
    let mut gone: Vec<Weak<()>> = Vec::new();
    for _ in 0..1_000 {
        let item = Arc::new(());
        gone.push(Arc::downgrade(&item));
        tx.offer(item)
            .cancelled_by(token.clone())
            .try_send()
            .unwrap();
        if gone.len().is_multiple_of(10) {
            sleep(MILLI).await;
        }
        rx.try_recv().unwrap().ack();
    }
    settle().await;
    assert!(gone.iter().all(|item| item.upgrade().is_none()));
    token.cancel();
    settle().await;
    assert_eq!(tx.snapshot().ledger.acked, 1_000);
}
