//! The operator's handle, and the pressure that producers feel.

use std::time::Duration;

use sluicegate::Rate;
use sluicegate::queue::{Builder, Pressure, Priority, Reason, Terms};
use tokio::time::{Instant, advance, sleep};

use super::{MILLI, SECOND, assert_balanced, settle};

#[tokio::test(start_paused = true)]
async fn apply_changes_everything_at_once_or_nothing() {
    let builder = Builder::new(Rate::per_second(10))
        .name("jobs")
        .max_attempts(3);
    let (tx, _rx) = builder.clone().build::<u32>().unwrap();
    let control = tx.control();
    let before = control.snapshot();
    let error = control
        .apply(builder.clone().max_depth(10).watermarks(8, 20))
        .unwrap_err();
    assert!(
        error.to_string().starts_with("watermarks is (8, 20)"),
        "{error}"
    );
    assert_eq!(control.snapshot(), before);
    control
        .apply(
            Builder::new(Rate::per_second(20))
                .max_depth(7)
                .max_waiters(0),
        )
        .unwrap();
    let after = control.snapshot();
    assert_eq!(
        (after.rate, after.max_depth),
        (Some(Rate::per_second(20)), 7)
    );
    for n in 0..5 {
        tx.try_send(n).unwrap();
    }
    let refused = tx.send(6).await.unwrap_err();
    assert_eq!(
        (refused.reason(), refused.queue()),
        (Reason::Full, Some("jobs"))
    );
}

#[tokio::test(start_paused = true)]
async fn settings_derived_from_the_rate_move_with_it_and_others_stay() {
    let (tx, _rx) = Builder::new(Rate::per_second(10)).build::<u32>().unwrap();
    assert_eq!(tx.snapshot().max_depth, 50);
    tx.control().set_rate(Rate::per_second(100)).unwrap();
    assert_eq!(tx.snapshot().max_depth, 500);
    tx.control().set_max_depth(30).unwrap();
    tx.control().set_rate(Rate::per_second(200)).unwrap();
    assert_eq!(tx.snapshot().max_depth, 30);
    let (tx, _rx) = Builder::unpaced().build::<u32>().unwrap();
    assert_eq!(tx.snapshot().rate, None);
    tx.control().set_rate(Rate::per_second(1)).unwrap();
    assert_eq!(tx.snapshot().rate, Some(Rate::per_second(1)));
}

/// resilience4j#981: a change of settings stood in the same line as the jobs.
#[tokio::test(start_paused = true)]
async fn a_change_waits_in_no_line() {
    let (tx, _rx) = Builder::new(Rate::per_hour(1))
        .max_depth(1)
        .build()
        .unwrap();
    let waiters: Vec<_> = (0..11)
        .map(|n| {
            let tx = tx.clone();
            tokio::spawn(async move { tx.send(n).await.is_ok() })
        })
        .collect();
    settle().await;
    assert_eq!(tx.snapshot().waiting, 10);
    let start = Instant::now();
    tx.control().set_max_depth(100).unwrap();
    for waiter in waiters {
        assert!(waiter.await.unwrap());
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn watchers_are_told_of_every_lasting_state_of_pressure() {
    let (tx, rx) = Builder::new(Rate::per_second(1_000))
        .max_depth(10)
        .build()
        .unwrap();
    let mut watch = tx.watch_pressure();
    assert_eq!(*watch.borrow(), Pressure::Healthy);
    for n in 0..8 {
        tx.try_send(n).unwrap();
    }
    assert_eq!(tx.pressure(), Pressure::Elevated);
    watch.changed().await.unwrap();
    assert_eq!(*watch.borrow_and_update(), Pressure::Elevated);
    let relieved = tokio::spawn(async move {
        watch.changed().await.unwrap();
        let pressure = *watch.borrow_and_update();
        (pressure, watch)
    });
    for _ in 0..3 {
        rx.recv().await.unwrap().ack();
    }
    let (pressure, mut watch) = relieved.await.unwrap();
    assert_eq!(
        (pressure, tx.pressure()),
        (Pressure::Healthy, Pressure::Healthy)
    );
    drop((tx, rx));
    assert!(watch.changed().await.is_err(), "the queue is gone");
}

/// With threads: whatever order they publish in, the last state is the one that is seen.
#[test]
fn the_last_state_published_is_the_last_state_there_was() {
    let (tx, rx) = Builder::unpaced().max_depth(10).build().unwrap();
    let watch = tx.watch_pressure();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..2_000 {
                    let _ = tx.try_send(n);
                    let _ = tx.try_send(n);
                    if let Ok(job) = rx.try_recv() {
                        job.ack();
                    }
                }
            });
        }
    });
    assert_eq!(*watch.borrow(), tx.pressure());
    assert_eq!(tx.snapshot().pressure, tx.pressure());
    while let Ok(job) = rx.try_recv() {
        job.ack();
    }
    assert_eq!((*watch.borrow(), tx.depth()), (Pressure::Healthy, 0));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_while_paused_says_so_and_names_no_time() {
    let (tx, rx) = Builder::new(Rate::per_second(10))
        .max_depth(2)
        .build()
        .unwrap();
    tx.control().pause("migration");
    tx.try_send(0).unwrap();
    tx.try_send(1).unwrap();
    let refused = tx.try_send(2).unwrap_err();
    assert_eq!(
        (refused.reason(), refused.retry_after()),
        (Reason::Paused, None)
    );
    sleep(SECOND).await;
    tx.control().resume();
    rx.recv().await.unwrap().ack();
    tx.try_send(3).unwrap();
    assert_balanced(&tx.snapshot());
}

#[tokio::test(start_paused = true)]
async fn ledgers_are_told_apart_by_lane() {
    let (tx, rx) = Builder::new(Rate::per_second(10)).build().unwrap();
    for priority in Priority::ALL {
        tx.offer(priority).priority(priority).send().await.unwrap();
    }
    rx.recv().await.unwrap().ack();
    let ledgers = tx.control().ledgers();
    assert_eq!(ledgers.lanes[&Priority::Critical].acked, 1);
    assert_eq!(ledgers.lanes[&Priority::Low].queued, 1);
    assert!(
        ledgers
            .lanes
            .values()
            .all(sluicegate::queue::Ledger::is_balanced)
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_tells_its_terms() {
    let (tx, rx) = Builder::unpaced().build().unwrap();
    let at = Instant::now() + SECOND;
    let terms = Terms::new()
        .cost(3)
        .priority(Priority::High)
        .tenant("acme")
        .expires_at(at);
    tx.offer(1).terms(terms.clone()).send().await.unwrap();
    let job = rx.recv().await.unwrap();
    assert_eq!(format!("{:?}", job.terms()), format!("{terms:?}"));
    tx.offer(2).terms(job.terms()).send().await.unwrap();
    advance(SECOND + MILLI).await;
    assert_eq!(rx.dead_letters().recv().await.unwrap().item, 2);
}
