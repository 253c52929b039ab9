//! The gate: edge and queue know of each other.

use std::time::Duration;

use sluicegate::queue::{Builder, Pressure, Reason, Receiver, Sender};
use sluicegate::{Cause, Denied, Gate, Hierarchy, ManualClock, Rate, RateLimiter, TokenBucket};

fn edge(burst: u64) -> RateLimiter {
    // So slow that nothing comes back during a test.
    RateLimiter::with_clock(Rate::per_day(1).burst(burst), ManualClock::new())
}

fn queue(max: u64, low: u64, high: u64, waiters: u64) -> (Sender<u32>, Receiver<u32>) {
    let builder = Builder::unpaced()
        .max_depth(max)
        .watermarks(low, high)
        .max_waiters(waiters);
    builder.build().expect("the settings are valid")
}

fn left(edge: &RateLimiter) -> u64 {
    edge.peek(0).remaining
}

#[track_caller]
fn reason<T>(denied: Denied<T>) -> Reason {
    match denied.cause() {
        Cause::Queue(refusal) => refusal.reason(),
        Cause::Edge(ruling) => panic!("the edge refused: {ruling:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_queue_would_refuse_costs_nothing_at_the_edge() {
    let (tx, _rx) = queue(2, 0, 2, 0);
    let edge = edge(10);
    let gate = Gate::new(edge.clone(), tx.clone());
    for item in 0..2 {
        gate.try_send(&(), item).expect("two fit");
    }
    assert_eq!(left(&edge), 8);
    let denied = gate.try_send(&(), 7).expect_err("the queue is full");
    assert!(denied.retry_after().is_some());
    assert_eq!(denied.into_inner(), 7);
    assert_eq!(
        reason(gate.send(&(), 8).await.expect_err("nobody waits")),
        Reason::Full
    );
    let dear = gate
        .offer(&(), 9)
        .cost(3)
        .try_send()
        .expect_err("it never fits");
    assert_eq!(reason(dear), Reason::TooCostly);
    assert_eq!(left(&edge), 8);
    let ledger = tx.snapshot().ledger;
    assert_eq!(
        (ledger.offered, ledger.refused),
        (5, 3),
        "refused by the queue, counted by it"
    );
    assert!(ledger.is_balanced());
}

#[tokio::test(start_paused = true)]
async fn what_the_edge_refuses_never_reaches_the_queue() {
    let (tx, _rx) = queue(10, 4, 8, 4);
    let gate = Gate::new(edge(1), tx.clone());
    gate.send(&(), 1).await.expect("the burst is one");
    let denied = gate.send(&(), 2).await.expect_err("and is used up");
    assert!(matches!(denied.cause(), Cause::Edge(_)));
    assert!(
        denied
            .retry_after()
            .is_some_and(|after| after > Duration::from_secs(3600))
    );
    assert!(denied.to_string().contains("is used up"), "{denied}");
    assert_eq!(denied.into_inner(), 2);
    assert_eq!(tx.snapshot().ledger.offered, 1);
}

#[tokio::test(start_paused = true)]
async fn a_charge_comes_back_when_the_queue_times_out_or_the_caller_leaves() {
    let (tx, _rx) = queue(1, 0, 1, 4);
    let edge = edge(10);
    let gate = Gate::new(edge.clone(), tx);
    gate.send(&(), 0).await.expect("one fits");
    assert_eq!(left(&edge), 9);

    let door = gate.clone();
    let late = tokio::spawn(async move {
        let stay = Duration::from_millis(50);
        door.offer(&(), 1).send_within(stay).await.map_err(reason)
    });
    tokio::task::yield_now().await;
    assert_eq!(left(&edge), 8, "charged while it stands in line");
    assert_eq!(late.await.expect("no panic").unwrap_err(), Reason::TimedOut);
    assert_eq!(left(&edge), 9);

    let gone = tokio::time::timeout(Duration::from_millis(50), gate.send(&(), 2)).await;
    assert!(gone.is_err(), "it still stood in line");
    assert_eq!(left(&edge), 9);

    let gone = tokio::time::timeout(Duration::from_millis(50), gate.reserve(&())).await;
    assert!(gone.is_err());
    assert_eq!(left(&edge), 9);
}

#[tokio::test(start_paused = true)]
async fn cost_is_charged_to_both() {
    let (tx, _rx) = queue(10, 4, 8, 4);
    let edge = edge(10);
    let gate = Gate::new(edge.clone(), tx.clone());
    gate.offer(&(), 1)
        .cost(4)
        .send()
        .await
        .expect("both have room");
    assert_eq!((left(&edge), tx.snapshot().depth), (6, 4));
    let permit = gate.reserve(&()).await.expect("both have room");
    permit.send(2);
    assert_eq!((left(&edge), tx.snapshot().depth), (5, 5));
}

#[tokio::test(start_paused = true)]
async fn under_pressure_the_edge_keeps_half_of_its_burst() {
    let (tx, rx) = queue(20, 2, 5, 20);
    let edge = edge(10);
    let gate = Gate::new(edge.clone(), tx.clone());
    for item in 0..5 {
        gate.send(&(), item)
            .await
            .expect("healthy until the high mark");
    }
    assert_eq!((tx.pressure(), left(&edge)), (Pressure::Elevated, 5));
    let denied = gate.send(&(), 9).await.expect_err("the other half is kept");
    assert!(matches!(denied.cause(), Cause::Edge(_)));
    assert_eq!(left(&edge), 5, "a refusal changes nothing");
    for _ in 0..3 {
        rx.recv().await.expect("jobs are queued").ack();
    }
    assert_eq!(tx.pressure(), Pressure::Healthy);
    gate.send(&(), 9)
        .await
        .expect("calm again, the whole burst is there");
}

#[tokio::test(start_paused = true)]
async fn a_hierarchy_stands_at_the_edge_as_well() {
    let (tx, _rx) = queue(10, 4, 8, 4);
    let clock = ManualClock::new();
    let per_user = TokenBucket::new(Rate::per_day(1), 1).expect("valid");
    let all = TokenBucket::new(Rate::per_day(1), 100).expect("valid");
    let edge = Hierarchy::<&'static str>::builder()
        .level("global", all, |_: &&str| ())
        .level("user", per_user, |user: &&str| *user)
        .clock(clock)
        .build()
        .expect("valid");
    let gate = Gate::new(edge, tx);
    gate.send(&"ann", 1).await.expect("ann's first");
    gate.try_send(&"bob", 2).expect("bob's first");
    let denied = gate.send(&"ann", 3).await.expect_err("ann's second");
    let Cause::Edge(ruling) = denied.cause() else {
        panic!("the queue has room")
    };
    assert_eq!(ruling.binding(), Some("user"));
}

#[test]
fn denied_is_an_error_that_threads_share() {
    fn check<E: std::error::Error + Send + Sync + 'static>() {}
    check::<Denied<std::cell::Cell<u8>>>();
    fn futures_are_send<A: sluicegate::Admission<Context = ()>>(gate: &Gate<A, u8>) {
        fn send<F: Send>(_: F) {}
        send(gate.send(&(), 1));
        send(gate.offer(&(), 1).send());
        send(gate.reserve(&()));
    }
    let _ = futures_are_send::<RateLimiter>;
}
