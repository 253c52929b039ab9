//! Any stream at a rate.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use sluicegate::{ManualClock, PacedExt, Rate, paced};
use tokio::time::{Instant, sleep};

use crate::queue::{MILLI, SECOND};

#[tokio::test(start_paused = true)]
async fn items_come_on_an_absolute_schedule() {
    let start = Instant::now();
    let mut items = paced(stream::iter(0..3_001), Rate::per_second(300));
    for n in 0..3_001_u32 {
        assert_eq!(items.next().await, Some(n));
        let due = Duration::from_nanos(u64::from(n) * 1_000_000_000 / 300);
        let late = start.elapsed().saturating_sub(due);
        assert!(
            start.elapsed() >= due && late < 2 * MILLI,
            "item {n}: {late:?} late"
        );
    }
    assert_eq!(items.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_fetched_ahead() {
    let mut pulled = 0;
    let source = stream::iter(0..10).inspect(|_| pulled += 1);
    let mut items = source.paced(Rate::per_second(1));
    assert_eq!(items.next().await, Some(0));
    assert!(
        items.next().now_or_never().is_none(),
        "the next is due in a second"
    );
    drop(items);
    assert_eq!(pulled, 1);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_stream_earns_nothing() {
    let (tx, rx) = tokio::sync::mpsc::unbounded_channel();
    let source = stream::unfold(rx, async |mut rx| rx.recv().await.map(|n: u32| (n, rx)));
    let mut items = source.paced(Rate::per_second(10));
    assert!(items.next().now_or_never().is_none());
    sleep(60 * SECOND).await;
    for n in 0..5 {
        tx.send(n).expect("it is read");
    }
    let start = Instant::now();
    for _ in 0..5 {
        items.next().await;
    }
    assert_eq!(start.elapsed(), 400 * MILLI);
}

#[tokio::test(start_paused = true)]
async fn a_late_consumer_is_made_up_for_with_no_salvo() {
    let mut items = stream::iter(0..).paced(Rate::per_second(1_000));
    items.next().await;
    sleep(10 * SECOND).await;
    let start = Instant::now();
    let (mut first, mut all) = (0, 0);
    while start.elapsed() <= SECOND {
        items.next().await;
        all += 1;
        first += u32::from(start.elapsed() < 2 * MILLI);
    }
    assert!(first <= 6, "{first} at once");
    // A second's worth, and the tenth of one that may be owed.
    assert!((1_090..=1_102).contains(&all), "{all}");
}

#[tokio::test(start_paused = true)]
async fn without_catch_up_the_spacing_is_strict() {
    let mut items = stream::iter(0..).paced(Rate::per_second(100)).catch_up(0);
    items.next().await;
    sleep(95 * MILLI).await;
    items.next().await;
    let start = Instant::now();
    items.next().await;
    assert_eq!(start.elapsed(), 10 * MILLI);
}

#[test]
fn it_obeys_the_clock_it_is_given_and_a_new_rate() {
    let clock = ManualClock::new();
    let mut items = stream::iter(0..)
        .paced(Rate::per_second(1))
        .clock(clock.clone());
    assert_eq!(items.next().now_or_never(), Some(Some(0)));
    clock.advance(SECOND / 2);
    assert_eq!(items.next().now_or_never(), None);
    // What is left of the gap shrinks with the interval.
    items.set_rate(Rate::per_second(100));
    assert_eq!(items.rate(), Rate::per_second(100));
    clock.advance(4 * MILLI);
    assert_eq!(items.next().now_or_never(), None);
    clock.advance(MILLI);
    assert_eq!(items.next().now_or_never(), Some(Some(1)));
    let rest: Vec<i32> = items
        .into_inner()
        .take(2)
        .collect::<Vec<_>>()
        .now_or_never()
        .expect("it never waits");
    assert_eq!(rest, [2, 3]);
}
