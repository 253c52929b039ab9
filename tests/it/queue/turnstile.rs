//! The queue when there is nothing to hand over.

use std::task::Poll;
use std::time::Duration;

use sluicegate::Rate;
use sluicegate::queue::{Builder, Priority, Reason, Terms, Turnstile};
use tokio::time::{Instant, advance, sleep};
use tokio_util::sync::CancellationToken;

use super::{MILLI, SECOND, assert_balanced, poll, settle};

fn turnstile(rate: u64) -> Turnstile {
    Builder::new(Rate::per_second(rate)).turnstile().unwrap()
}

#[tokio::test(start_paused = true)]
async fn callers_pass_at_the_rate_in_the_order_in_which_they_came() {
    let gate = turnstile(100);
    let (sender, receiver) = async_channel::unbounded();
    let start = Instant::now();
    for n in 0..101 {
        let (gate, sender) = (gate.clone(), sender.clone());
        tokio::spawn(async move {
            gate.run(async { sender.try_send(n).unwrap() })
                .await
                .unwrap();
        });
    }
    drop(sender);
    for n in 0..101 {
        assert_eq!(receiver.recv().await.unwrap(), n);
    }
    let took = start.elapsed();
    assert!(took >= SECOND && took <= SECOND + 3 * MILLI, "{took:?}");
    settle().await;
    let snapshot = gate.snapshot();
    assert_eq!((snapshot.ledger.acked, snapshot.in_flight), (101, 0));
    assert_balanced(&snapshot);
}

#[tokio::test(start_paused = true)]
async fn no_more_hold_a_turn_than_may_be_in_flight() {
    let gate = Builder::unpaced().max_in_flight(2).turnstile().unwrap();
    let one = gate.enter().await.unwrap();
    let _two = gate.enter().await.unwrap();
    let mut three = Box::pin(gate.enter());
    assert!(poll(&mut three).is_pending());
    assert_eq!(gate.try_enter().unwrap_err().reason(), Reason::Overloaded);
    drop(one);
    settle().await;
    assert!(poll(&mut three).is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_late_caller_delays_the_next_by_a_grain_and_stays_first() {
    let gate = turnstile(10);
    drop(gate.enter().await.unwrap());
    let mut late = Box::pin(gate.enter());
    assert!(poll(&mut late).is_pending());
    let next = tokio::spawn({
        let gate = gate.clone();
        async move {
            let _turn = gate.enter().await.unwrap();
            Instant::now()
        }
    });
    let start = Instant::now();
    let passed = next.await.unwrap() - start;
    assert!(passed >= 100 * MILLI && passed <= 106 * MILLI, "{passed:?}");
    let mut after = Box::pin(gate.enter());
    assert!(poll(&mut after).is_pending());
    // It is polled again: the next departure is its own, before those who came later.
    assert!(poll(&mut late).is_pending());
    advance(100 * MILLI).await;
    settle().await;
    assert!(poll(&mut after).is_pending());
    assert!(poll(&mut late).is_ready());
    advance(100 * MILLI).await;
    settle().await;
    assert!(poll(&mut after).is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_hands_its_turn_to_the_next() {
    let gate = turnstile(10);
    drop(gate.enter().await.unwrap());
    let mut gives_up = Box::pin(gate.enter());
    assert!(poll(&mut gives_up).is_pending());
    let (count, waker) = super::Count::new();
    let mut next = Box::pin(gate.enter());
    assert!(
        next.as_mut()
            .poll(&mut std::task::Context::from_waker(&waker))
            .is_pending()
    );
    advance(101 * MILLI).await;
    settle().await;
    assert_eq!(count.get(), 0, "the first is called");
    drop(gives_up);
    assert_eq!(count.get(), 1);
    assert!(poll(&mut next).is_ready());
    drop(next);
    let ledger = gate.snapshot().ledger;
    assert_eq!((ledger.acked, ledger.cancelled), (2, 1));
    assert!(ledger.is_balanced());
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_too_long_or_are_cancelled_are_told() {
    let gate = turnstile(1);
    drop(gate.enter().await.unwrap());
    let start = Instant::now();
    let too_late = gate
        .enter_with(Terms::new().expires_in(500 * MILLI))
        .await
        .unwrap_err();
    assert_eq!(
        (too_late.reason(), start.elapsed()),
        (Reason::TooLate, Duration::ZERO)
    );
    let token = CancellationToken::new();
    let cancelled = tokio::spawn(gate.enter_with(Terms::new().cancelled_by(token.clone())));
    settle().await;
    token.cancel();
    assert_eq!(
        cancelled.await.unwrap().unwrap_err().reason(),
        Reason::Cancelled
    );
    // A more urgent one goes first, and the other expires.
    let expires = tokio::spawn(gate.enter_with(Terms::new().expires_in(1_100 * MILLI)));
    settle().await;
    let urgent = tokio::spawn(gate.enter_with(Terms::new().priority(Priority::High)));
    let refusal = expires.await.unwrap().unwrap_err();
    assert_eq!(refusal.reason(), Reason::TooLate);
    assert!(refusal.retry_after().is_some());
    assert!(urgent.await.unwrap().is_ok());
    assert_balanced(&gate.snapshot());
}

#[tokio::test(start_paused = true)]
async fn closing_refuses_the_line_and_lets_those_with_a_place_pass() {
    let gate = Builder::new(Rate::per_second(10))
        .max_depth(2)
        .turnstile()
        .unwrap();
    drop(gate.enter().await.unwrap());
    let mut callers: Vec<_> = (0..4).map(|_| Box::pin(gate.enter())).collect();
    for caller in &mut callers {
        assert!(poll(caller).is_pending());
    }
    assert!(gate.close());
    assert!(gate.is_closed());
    let mut passed = 0;
    for caller in callers {
        match caller.await {
            Ok(_turn) => passed += 1,
            Err(refusal) => assert_eq!(refusal.reason(), Reason::Closed),
        }
    }
    assert_eq!(passed, 2);
    assert_eq!(gate.enter().await.unwrap_err().reason(), Reason::Closed);
    assert_eq!(gate.try_enter().unwrap_err().reason(), Reason::Closed);
    assert_balanced(&gate.snapshot());
}

#[tokio::test(start_paused = true)]
async fn try_enter_takes_what_is_due_and_nothing_else() {
    let gate = turnstile(10);
    drop(gate.try_enter().unwrap());
    let refusal = gate.try_enter().unwrap_err();
    assert_eq!(refusal.reason(), Reason::Overloaded);
    let after = refusal.retry_after().unwrap();
    advance(after).await;
    drop(gate.try_enter().unwrap());
    advance(after).await;
    let mut waits = Box::pin(gate.enter());
    assert!(poll(&mut waits).is_ready());
    let mut waits = Box::pin(gate.enter());
    assert!(poll(&mut waits).is_pending());
    advance(after).await;
    assert!(gate.try_enter().is_err(), "somebody waits for this one");
    gate.control().pause("maintenance");
    let refusal = gate.try_enter().unwrap_err();
    assert_eq!(
        (refusal.reason(), refusal.retry_after()),
        (Reason::Paused, None)
    );
    let snapshot = gate.snapshot();
    assert_eq!(snapshot.dead_letters_lost, 0);
    assert_balanced(&snapshot);
}

#[tokio::test(start_paused = true)]
async fn entering_futures_are_cancelled_at_any_point() {
    for polls in 0..3 {
        for after in [0, 50, 101, 110, 2_000] {
            let gate = Builder::new(Rate::per_second(10))
                .max_depth(2)
                .turnstile()
                .unwrap();
            drop(gate.enter().await.unwrap());
            let mut callers: Vec<_> = (0..3).map(|_| Box::pin(gate.enter())).collect();
            for caller in &mut callers {
                for _ in 0..polls {
                    let _ = poll(caller);
                }
            }
            sleep(after * MILLI).await;
            callers.truncate(1);
            if polls == 2
                && let Poll::Ready(turn) = poll(&mut callers[0])
            {
                drop(turn.unwrap());
            } else {
                drop(callers);
            }
            settle().await;
            let snapshot = gate.snapshot();
            assert_balanced(&snapshot);
            assert_eq!(
                (snapshot.depth, snapshot.waiting, snapshot.in_flight),
                (0, 0, 0)
            );
            sleep(SECOND).await;
            assert!(
                gate.try_enter().is_ok(),
                "{polls} polls, dropped after {after} ms"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn run_gives_the_turn_back_when_its_work_panics_or_is_dropped() {
    let gate = Builder::unpaced().max_in_flight(1).turnstile().unwrap();
    let dropped = tokio::spawn({
        let gate = gate.clone();
        async move { gate.run(std::future::pending::<()>()).await }
    });
    settle().await;
    assert_eq!(gate.snapshot().in_flight, 1);
    dropped.abort();
    settle().await;
    let panics = tokio::spawn({
        let gate = gate.clone();
        async move {
            gate.run(async { panic!("a bug of the caller, on purpose") })
                .await
        }
    });
    assert!(panics.await.unwrap_err().is_panic());
    assert_eq!(gate.run(async { 3 }).await.unwrap(), 3);
    assert_balanced(&gate.snapshot());
}
