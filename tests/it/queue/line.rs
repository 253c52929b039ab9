//! Permits, the line at the door, and what becomes of futures that are dropped or shelved.

use std::task::Poll;

use sluicegate::Rate;
use sluicegate::queue::{Builder, Reason, Terms};
use tokio::time::{Instant, advance, sleep, timeout};

use super::{MILLI, SECOND, assert_balanced, poll, settle};

/// tokio-rs/tokio#7709: a permit held for putting something back starved the other senders.
#[tokio::test(start_paused = true)]
async fn one_held_permit_does_not_stall_the_others() {
    let (tx, rx) = Builder::new(Rate::per_second(1_000))
        .max_depth(4)
        .build()
        .unwrap();
    let held = tx.reserve().await.unwrap();
    let sends = tokio::spawn({
        let tx = tx.clone();
        async move {
            for n in 0..100 {
                tx.send(n).await.unwrap();
            }
        }
    });
    for n in 0..100 {
        assert_eq!(rx.recv().await.unwrap().into_inner(), n);
    }
    sends.await.unwrap();
    held.send(100);
    assert_eq!(rx.recv().await.unwrap().into_inner(), 100);
}

/// tokio-rs/tokio#7709 again: what comes back never needs a place that producers could hold.
#[tokio::test(start_paused = true)]
async fn requeue_has_room_while_the_queue_is_full() {
    let (tx, rx) = Builder::new(Rate::per_second(1_000))
        .max_depth(4)
        .watermarks(3, 4)
        .build()
        .unwrap();
    for n in 0..4 {
        tx.send(n).await.unwrap();
    }
    let jobs = [rx.recv().await.unwrap(), rx.recv().await.unwrap()];
    for n in 4..6 {
        tx.send(n).await.unwrap();
    }
    for job in jobs {
        job.retry(MILLI);
    }
    let snapshot = tx.snapshot();
    assert_eq!((snapshot.depth, snapshot.ledger.requeued), (6, 2));
    let mut seen = Vec::new();
    for _ in 0..6 {
        seen.push(rx.recv().await.unwrap().into_inner());
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
    assert_balanced(&tx.snapshot());
}

/// tokio-rs/tokio#6450: a freed place was assigned to a future that nobody polled any more.
#[tokio::test(start_paused = true)]
async fn a_shelved_waiter_loses_its_place_to_the_next_within_a_second() {
    let (tx, rx) = Builder::new(Rate::per_second(100))
        .max_depth(1)
        .build()
        .unwrap();
    tx.send(0).await.unwrap();
    let mut shelved = Box::pin(tx.reserve());
    assert!(poll(&mut shelved).is_pending());
    let next = tokio::spawn({
        let tx = tx.clone();
        async move {
            tx.send(1).await.unwrap();
            Instant::now()
        }
    });
    settle().await;
    let start = Instant::now();
    rx.recv().await.unwrap().ack();
    let done = next.await.unwrap();
    assert!(done - start <= SECOND + 10 * MILLI, "{:?}", done - start);
    assert_eq!(tx.snapshot().waiting, 1, "the shelved one still waits");
    // It keeps the head: the next place is its own.
    assert!(poll(&mut shelved).is_pending());
    rx.recv().await.unwrap().ack();
    let Poll::Ready(permit) = poll(&mut shelved) else {
        panic!("a place is free and it is first")
    };
    permit.unwrap().send(2);
    assert_balanced(&tx.snapshot());
}

/// failsafe-lib/failsafe#393: waiters that timed out stayed enrolled and took what was released later.
#[tokio::test(start_paused = true)]
async fn waiters_that_time_out_take_no_capacity_with_them() {
    let (tx, rx) = Builder::unpaced()
        .max_depth(8)
        .watermarks(7, 8)
        .build()
        .unwrap();
    let permits: Vec<_> = (0..8).map(|_| tx.try_reserve().unwrap()).collect();
    let waiters: Vec<_> = (0..8)
        .map(|n| {
            let tx = tx.clone();
            tokio::spawn(async move { tx.send_within(n, SECOND).await.unwrap_err().reason() })
        })
        .collect();
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap(), Reason::TimedOut);
    }
    drop(permits);
    for n in 0..8 {
        tx.try_send(n).unwrap();
    }
    assert_balanced(&tx.snapshot());
    drop(rx);
}

/// dotnet/runtime#64078: a cancelled waiter still counted towards the length of the line.
#[tokio::test(start_paused = true)]
async fn a_dropped_waiter_frees_its_place_in_line_at_once() {
    let builder = Builder::new(Rate::per_second(1))
        .max_depth(1)
        .max_waiters(2);
    let (tx, _rx) = builder.build().unwrap();
    tx.try_send(0).unwrap();
    let mut line: Vec<_> = (0..2).map(|_| Box::pin(tx.reserve())).collect();
    for waiter in &mut line {
        assert!(poll(waiter).is_pending());
    }
    let mut refused = Box::pin(tx.reserve());
    let Poll::Ready(Err(refusal)) = poll(&mut refused) else {
        panic!("the line is full")
    };
    assert_eq!(refusal.reason(), Reason::WaitersFull);
    line.clear();
    let mut accepted = Box::pin(tx.reserve());
    assert!(poll(&mut accepted).is_pending());
    assert_eq!(tx.snapshot().ledger.cancelled_waiting, 2);
}

/// dotnet/runtime#77180: a large waiter that had left went on holding up the head.
#[tokio::test(start_paused = true)]
async fn a_large_waiter_that_leaves_lets_the_small_ones_in() {
    let (tx, _rx) = Builder::new(Rate::per_second(1))
        .max_depth(10)
        .build::<u32>()
        .unwrap();
    let _held = tx.reserve_cost(5).await.unwrap();
    let mut large = Box::pin(tx.reserve_cost(8));
    assert!(poll(&mut large).is_pending());
    let small = tokio::spawn({
        let tx = tx.clone();
        async move { tx.reserve_cost(2).await.map(|permit| permit.send(1)) }
    });
    settle().await;
    assert!(!small.is_finished(), "costs are not overtaken");
    drop(large);
    settle().await;
    assert!(small.await.unwrap().is_ok());
}

/// async-channel#87: a send that lost a race left doubt whether its item had gone.
#[tokio::test(start_paused = true)]
async fn a_send_that_is_dropped_sent_nothing() {
    let (tx, rx) = Builder::new(Rate::per_second(1_000))
        .max_depth(2)
        .build::<u64>()
        .unwrap();
    let consumer = tokio::spawn(async move {
        let mut seen = Vec::new();
        while let Some(job) = rx.recv().await {
            seen.push(job.into_inner());
        }
        seen
    });
    let mut sent = Vec::new();
    for n in 0..2_000_u64 {
        let patience = (n * 7_919 % 2_500) as u32 * MILLI / 1_000;
        if timeout(patience, tx.send(n))
            .await
            .is_ok_and(|sent| sent.is_ok())
        {
            sent.push(n);
        }
    }
    let snapshot = tx.snapshot();
    assert_balanced(&snapshot);
    assert!(
        snapshot.ledger.cancelled_waiting > 0,
        "the race was never lost"
    );
    drop(tx);
    assert_eq!(consumer.await.unwrap(), sent);
}

/// akka/akka-core#26508: with many producers one offer disturbed the other, and all woke for one place.
#[tokio::test(start_paused = true)]
async fn sixty_four_producers_share_one_place_evenly() {
    let (tx, rx) = Builder::new(Rate::per_second(1_000))
        .max_depth(1)
        .build()
        .unwrap();
    for producer in 0..64 {
        let tx = tx.clone();
        tokio::spawn(async move { while tx.send(producer).await.is_ok() {} });
    }
    settle().await;
    // The first place is free: whoever takes it stands in line for its second before the others came at all.
    rx.recv().await.unwrap().ack();
    let mut shares = [0_u32; 64];
    for _ in 0..64 * 20 {
        shares[rx.recv().await.unwrap().into_inner()] += 1;
    }
    let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
    assert!(most - least <= 1, "{shares:?}");
}

/// go-concurrency-limits#162: a waiter that spins.
#[tokio::test(start_paused = true)]
async fn a_hundred_parked_waiters_are_hardly_ever_polled() {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    let (tx, rx) = Builder::new(Rate::per_second(2))
        .max_depth(1)
        .build()
        .unwrap();
    tx.try_send(0).unwrap();
    let polls = Arc::new(AtomicU32::new(0));
    let waiters: Vec<_> = (0..100)
        .map(|n| {
            let (tx, polls) = (tx.clone(), Arc::clone(&polls));
            tokio::spawn(async move {
                let mut send = Box::pin(tx.send(n));
                poll_fn(|cx| {
                    polls.fetch_add(1, Ordering::Relaxed);
                    send.as_mut().poll(cx)
                })
                .await
                .unwrap();
            })
        })
        .collect();
    let consumer = tokio::spawn(async move {
        for _ in 0..101 {
            rx.recv().await.unwrap().ack();
        }
    });
    for waiter in waiters {
        waiter.await.unwrap();
    }
    consumer.await.unwrap();
    // Once to stand in line, once for the place; a grant that meets a newcomer's poll may cost one more.
    assert!(polls.load(Ordering::Relaxed) <= 201, "{polls:?}");
}

/// p-queue#87: a threshold that several waiters pass together.
#[tokio::test(start_paused = true)]
async fn the_bound_is_a_guarantee_and_no_hint() {
    let (tx, rx) = Builder::new(Rate::per_second(1_000))
        .max_depth(10)
        .build()
        .unwrap();
    for n in 0..100 {
        let tx = tx.clone();
        tokio::spawn(async move { tx.send(n).await.unwrap() });
    }
    for _ in 0..100 {
        settle().await;
        assert!(tx.snapshot().depth <= 10);
        rx.recv().await.unwrap().ack();
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_leaves_at_its_deadline_even_if_it_is_never_polled_again() {
    let (tx, _rx) = Builder::new(Rate::per_second(1))
        .max_depth(1)
        .build()
        .unwrap();
    tx.try_send(0).unwrap();
    let mut shelved = Box::pin(tx.send_within(1, SECOND));
    assert!(poll(&mut shelved).is_pending());
    assert_eq!(tx.snapshot().waiting, 1);
    advance(SECOND + 5 * MILLI).await;
    settle().await;
    let ledger = tx.snapshot().ledger;
    assert_eq!((ledger.waiting, ledger.refused), (0, 1));
    let Poll::Ready(Err(refused)) = poll(&mut shelved) else {
        panic!("its time is over")
    };
    assert_eq!(
        (refused.reason(), refused.into_inner()),
        (Reason::TimedOut, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_permit_dropped_unused_gives_its_room_to_the_next() {
    let (tx, _rx) = Builder::new(Rate::per_second(1))
        .max_depth(1)
        .build()
        .unwrap();
    let permit = tx.try_reserve().unwrap();
    let next = tokio::spawn({
        let tx = tx.clone();
        async move { tx.send(1).await.is_ok() }
    });
    settle().await;
    drop(permit);
    assert!(next.await.unwrap());
    assert_eq!(tx.snapshot().ledger.cancelled, 1);
}

/// The offer counts at its first poll, and nothing is sent by a poll that answers `Pending`.
#[tokio::test(start_paused = true)]
async fn a_task_out_of_budget_yields_and_keeps_its_rank() {
    let (tx, rx) = Builder::unpaced().max_depth(1_000).build().unwrap();
    let mut pending = 0;
    for n in 0..500 {
        let mut send = Box::pin(tx.send(n));
        std::future::poll_fn(|cx| {
            let poll = send.as_mut().poll(cx);
            if poll.is_pending() {
                pending += 1;
                let ledger = tx.snapshot().ledger;
                assert_eq!((ledger.offered, ledger.queued), (n + 1, n));
            }
            poll
        })
        .await
        .unwrap();
    }
    assert!(pending > 0, "it never yielded");
    for n in 0..500 {
        assert_eq!(rx.recv().await.unwrap().into_inner(), n);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_is_stored_keeps_the_queue_open() {
    let (tx, rx) = Builder::new(Rate::per_second(10))
        .max_depth(1)
        .build()
        .unwrap();
    tx.try_send(0).unwrap();
    let mut reserve = tx.reserve_owned_with(Terms::new().cost(0));
    let mut pinned = Box::pin(&mut reserve);
    assert!(poll(&mut pinned).is_pending());
    drop(tx);
    rx.recv().await.unwrap().ack();
    let accepted = reserve.await.unwrap().send(1);
    assert_eq!(accepted.depth, 1, "a cost of 0 is charged as 1");
    assert_eq!(rx.recv().await.unwrap().into_inner(), 1);
    sleep(SECOND).await;
    assert!(rx.recv().await.is_none());
}
