//! A sender as a sink: slow where the queue is, never lossy.

use std::pin::Pin;
use std::time::Duration;

use futures_util::{FutureExt, Sink, SinkExt, StreamExt, future, stream};
use sluicegate::Rate;
use sluicegate::queue::{Builder, Exit, Reason, Receiver, Refusal, SenderSink, Terms};
use tokio::time::{Instant, advance, sleep};
use tokio_util::sync::CancellationToken;

use crate::queue::{MILLI, SECOND, assert_balanced, settle};

fn ready<T>(sink: &mut SenderSink<T>) -> impl Future<Output = Result<(), Refusal>> + '_ {
    future::poll_fn(|cx| Pin::new(&mut *sink).poll_ready(cx))
}

/// Checks that the numbers from 0 on arrive in order, and returns how many came.
async fn in_order(rx: Receiver<u32>) -> u32 {
    let mut next = 0;
    while let Some(job) = rx.recv().await {
        assert_eq!(*job, next, "out of order");
        next += 1;
        job.ack();
    }
    next
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_items_arrive_in_order_through_pressure_pauses_and_changes_of_rate() {
    let rate = Rate::per_second(20_000);
    let settings = [
        Builder::new(rate).max_depth(100),
        // No line at the door: every pressure is a refusal.
        Builder::new(rate).max_depth(100).max_waiters(0),
    ];
    for settings in settings {
        let (tx, rx) = settings.build().expect("valid settings");
        let control = tx.control();
        let consumer = tokio::spawn(in_order(rx));
        let operator = control.clone();
        let changes = tokio::spawn(async move {
            for rate in [10_000, 100_000, 1_000, 50_000] {
                sleep(500 * MILLI).await;
                operator.pause("a look at the downstream");
                sleep(700 * MILLI).await;
                operator
                    .set_rate(Rate::per_second(rate))
                    .expect("it is valid");
                operator.resume();
            }
        });
        let items = stream::iter(0..100_000).map(Ok);
        items
            .forward(tx.into_sink())
            .await
            .expect("nobody closes the queue");
        changes.await.expect("the operator does not panic");
        assert_eq!(consumer.await.expect("in order"), 100_000);
        let snapshot = control.snapshot();
        assert_balanced(&snapshot);
        assert_eq!(snapshot.ledger.acked, 100_000);
        assert_eq!(snapshot.ledger.cancelled, 0, "no place was taken in vain");
    }
}

#[tokio::test(start_paused = true)]
async fn terms_of_each_item_are_kept_under_pressure() {
    let (tx, rx) = Builder::new(Rate::per_second(1_000))
        .max_depth(20)
        .build()
        .expect("valid settings");
    let control = tx.control();
    let sink = tx.into_sink_with(|n| Terms::new().cost(u64::from(n % 5)));
    let producer = tokio::spawn(stream::iter(0..2_000_u32).map(Ok).forward(sink));
    let start = Instant::now();
    let mut next = 0;
    while let Some(job) = rx.recv().await {
        assert_eq!(*job, next);
        assert_eq!(job.cost(), u64::from(next % 5).max(1));
        next += 1;
        job.ack();
    }
    producer
        .await
        .expect("it does not panic")
        .expect("nobody closes the queue");
    assert_eq!(next, 2_000);
    // A fifth of them costs 1, 1, 2, 3 and 4: 4,400 units at 1,000 per second.
    let took = start.elapsed();
    assert!(took > 4_380 * MILLI && took < 4_410 * MILLI, "{took:?}");
    assert!(control.snapshot().ledger.is_balanced());
}

#[tokio::test(start_paused = true)]
async fn an_idle_sink_gives_its_place_to_the_next_after_a_second() {
    let (tx, rx) = Builder::unpaced()
        .max_depth(1)
        .build()
        .expect("valid settings");
    let mut sink = tx.clone().into_sink();
    ready(&mut sink).await.expect("there is room");
    let start = Instant::now();
    let sender = tx.clone();
    let other = tokio::spawn(async move { sender.send("other").await.map(drop) });
    settle().await;
    assert_eq!(tx.depth(), 1, "the place is the sink's");
    other
        .await
        .expect("it does not panic")
        .expect("the place has lapsed");
    assert_eq!(start.elapsed(), SECOND);

    // The sink still takes an item, and finds it a place.
    Pin::new(&mut sink).start_send("late").expect("it is held");
    assert!(sink.flush().now_or_never().is_none(), "the queue is full");
    assert_eq!(rx.recv().await.expect("the other's").into_inner(), "other");
    sink.flush().await.expect("there is room");
    assert_eq!(rx.recv().await.expect("the sink's").into_inner(), "late");
    assert_balanced(&tx.snapshot());
}

#[tokio::test(start_paused = true)]
async fn sinks_that_are_ready_and_idle_cannot_fill_the_queue_for_ever() {
    let (tx, rx) = Builder::unpaced()
        .max_depth(4)
        .watermarks(1, 4)
        .build()
        .expect("valid settings");
    let mut idle: Vec<_> = (0..4).map(|_| tx.clone().into_sink()).collect();
    for sink in &mut idle {
        ready(sink).await.expect("there is room");
    }
    let consumer = tokio::spawn(in_order(rx));
    for n in 0..20 {
        tx.send(n).await.expect("a place lapses");
    }
    let ledger = tx.snapshot().ledger;
    assert_eq!(
        (ledger.waiting, ledger.reserved),
        (4, 0),
        "they wait, and hold nothing"
    );
    drop(idle);
    let snapshot = tx.snapshot();
    assert_balanced(&snapshot);
    assert_eq!(
        (snapshot.ledger.waiting, snapshot.ledger.cancelled_waiting),
        (0, 4)
    );
    drop(tx);
    assert_eq!(consumer.await.expect("in order"), 20);
}

#[tokio::test(start_paused = true)]
async fn the_time_for_which_a_place_stood_ready_is_not_the_wait_of_its_item() {
    let (tx, rx) = Builder::new(Rate::per_second(1_000))
        .expire_after(200 * MILLI)
        .build()
        .expect("valid settings");
    let mut sink = tx.into_sink();
    ready(&mut sink).await.expect("there is room");
    advance(150 * MILLI).await;
    sink.start_send_unpin(1).expect("its place stands ready");
    advance(150 * MILLI).await;
    let job = rx.try_recv().expect("it is not 200 ms old");
    assert_eq!(job.waited(), 150 * MILLI);
    job.ack();
}

#[tokio::test(start_paused = true)]
async fn only_a_closed_queue_and_an_impossible_cost_are_errors_and_the_item_is_not_lost() {
    let (tx, rx) = Builder::unpaced()
        .max_depth(10)
        .build()
        .expect("valid settings");
    let mut sink = tx
        .clone()
        .into_sink_with(|cost: &u64| Terms::new().cost(*cost));
    let refusal = sink.send(11).await.expect_err("it can never fit");
    assert_eq!(refusal.reason(), Reason::TooCostly);
    assert_eq!(sink.take_held(), Some(11));
    sink.send(9).await.expect("the sink goes on");
    sink.feed(5).await.expect("it is held");
    assert!(sink.flush().now_or_never().is_none(), "it waits for room");
    rx.close();
    let refusal = sink.flush().await.expect_err("closed while it waited");
    assert_eq!(refusal.reason(), Reason::Closed);
    assert_eq!(sink.take_held(), Some(5));
    assert!(sink.take_held().is_none());

    let mut plain = tx.clone().into_sink();
    assert_eq!(
        plain.send(1).await.expect_err("closed").reason(),
        Reason::Closed
    );
    assert_balanced(&tx.snapshot());
}

#[tokio::test(start_paused = true)]
async fn a_place_that_the_close_takes_away_leaves_the_item_with_the_sink() {
    let (tx, rx) = Builder::unpaced().build().expect("valid settings");
    let mut sink = tx.clone().into_sink();
    ready(&mut sink).await.expect("there is room");
    rx.close();
    let refusal = sink.start_send_unpin("mine").expect_err("closed meanwhile");
    assert_eq!(refusal.reason(), Reason::Closed);
    assert_eq!(sink.take_held(), Some("mine"));
    assert_balanced(&tx.snapshot());
}

#[tokio::test(start_paused = true)]
async fn an_item_taken_back_leaves_the_line() {
    let (tx, rx) = Builder::unpaced()
        .max_depth(1)
        .build()
        .expect("valid settings");
    tx.try_send(0).expect("there is room");
    let mut sink = tx.clone().into_sink_with(|_| Terms::new());
    sink.feed(1).await.expect("it is held");
    assert!(sink.flush().now_or_never().is_none());
    assert_eq!(tx.snapshot().ledger.waiting, 1);
    assert_eq!(sink.take_held(), Some(1));
    let ledger = tx.snapshot().ledger;
    assert_eq!((ledger.waiting, ledger.cancelled_waiting), (0, 1));
    rx.recv().await.expect("the first").ack();
    sink.send(2).await.expect("the sink goes on");
    assert_eq!(rx.recv().await.expect("the third").into_inner(), 2);
}

/// A refusal without a time to come back must not stop the sink for ever.
#[tokio::test(start_paused = true)]
async fn a_sink_stays_pending_through_a_pause_with_a_full_line() {
    let (tx, rx) = Builder::unpaced()
        .max_depth(1)
        .max_waiters(0)
        .build()
        .expect("valid settings");
    let control = tx.control();
    control.pause("maintenance");
    let producer = tokio::spawn(stream::iter(0..10).map(Ok).forward(tx.into_sink()));
    sleep(60 * SECOND).await;
    assert!(!producer.is_finished());
    control.resume();
    assert_eq!(in_order(rx).await, 10);
    producer
        .await
        .expect("it does not panic")
        .expect("nobody closes the queue");
}

/// What can never be placed would stop everything behind it.
#[tokio::test(start_paused = true)]
async fn an_item_whose_terms_are_hopeless_is_dead_lettered_and_the_next_goes_on() {
    let (tx, rx) = Builder::new(Rate::per_second(100))
        .build()
        .expect("valid settings");
    let letters = rx.dead_letters();
    let token = CancellationToken::new();
    token.cancel();
    let soon = Instant::now() + SECOND;
    let mut sink = tx.into_sink_with(move |item: &&str| match *item {
        "cancelled" => Terms::new().cancelled_by(token.clone()),
        "past" => Terms::new().expires_at(soon),
        "instant" => Terms::new().expires_in(Duration::from_micros(1)),
        _ => Terms::new(),
    });
    sleep(2 * SECOND).await;
    for item in ["cancelled", "past", "instant", "fine"] {
        sink.feed(item).await.expect("it goes on");
    }
    sink.close().await.expect("it goes on");
    assert_eq!(rx.recv().await.expect("the last one").into_inner(), "fine");
    assert!(
        rx.recv().await.is_none(),
        "closing the sink let go of the queue"
    );
    for (item, exit) in [
        ("cancelled", Exit::Cancelled),
        ("past", Exit::Expired),
        ("instant", Exit::Expired),
    ] {
        let letter = letters.recv().await.expect("three letters");
        assert_eq!((letter.item, letter.exit), (item, exit));
        assert!(letter.cause.is_some());
    }
    let refusal = sink.feed("more").await.expect_err("it is closed");
    assert_eq!(refusal.reason(), Reason::Closed);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "not ready")]
async fn a_second_item_without_asking_is_a_bug_of_the_caller() {
    let (tx, _rx) = Builder::unpaced().build().expect("valid settings");
    let mut sink = tx.into_sink_with(|_| Terms::new());
    sink.start_send_unpin(1).expect("it is held");
    let _ = sink.start_send_unpin(2);
}
