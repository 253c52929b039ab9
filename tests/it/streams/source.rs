//! A receiver as a stream.

use futures_util::{FutureExt, StreamExt};
use sluicegate::queue::Builder;

use crate::queue::{assert_balanced, settle};

#[tokio::test(start_paused = true)]
async fn a_stream_dropped_half_read_leaves_the_rest_to_the_others() {
    let (tx, mut rx) = Builder::unpaced().build().expect("valid settings");
    let other = rx.clone();
    for n in 0..10 {
        tx.try_send(n).expect("there is room");
    }
    let read: Vec<i32> = rx
        .by_ref()
        .take(4)
        .map(|job| job.into_inner())
        .collect()
        .await;
    assert_eq!(read, [0, 1, 2, 3]);
    drop(rx);
    drop(tx);
    let rest: Vec<i32> = other.map(|job| job.into_inner()).collect().await;
    assert_eq!(rest, (4..10).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_stream_between_two_polls_holds_nothing() {
    let (tx, mut rx) = Builder::unpaced().build::<i32>().expect("valid settings");
    let other = rx.clone();
    // Polled once, it stands in line; then it is left alone.
    assert!(rx.next().now_or_never().is_none());
    let waiting = tokio::spawn(async move { other.recv().await.map(|job| job.into_inner()) });
    settle().await;
    tx.try_send(1).expect("there is room");
    let got = waiting.await.expect("the consumer does not panic");
    assert_eq!(
        got,
        Some(1),
        "the shelved stream was called first, and held nobody up"
    );
    let snapshot = tx.snapshot();
    assert_balanced(&snapshot);
    assert_eq!((snapshot.ledger.in_flight, snapshot.ledger.queued), (0, 0));
    tx.try_send(2).expect("there is room");
    assert_eq!(rx.next().await.map(|job| job.into_inner()), Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_the_queue() {
    let (tx, mut rx) = Builder::unpaced().build::<u8>().expect("valid settings");
    let reader = tokio::spawn(async move { rx.next().await.is_none() });
    settle().await;
    drop(tx);
    assert!(reader.await.expect("the reader does not panic"));
}
