//! Handlers and clocks that do not play by the rules.

use std::time::Duration;

use sluicegate::queue::{Builder, Exit, Health, TryRecvError};
use sluicegate::{ManualClock, Rate, Tick};
use tokio::time::Instant;

use super::SECOND;

/// Nobody can end a handler but whoever runs it: the queue says so, and does not wait for it at its end.
#[tokio::test(start_paused = true)]
async fn a_handler_that_never_ends_turns_health_red_and_does_not_hold_a_drain() {
    let builder = Builder::new(Rate::per_second(100)).max_in_flight(1);
    let (tx, rx) = builder.build().unwrap();
    for n in 0..3 {
        tx.try_send(n).unwrap();
    }
    let stuck = rx.recv().await.unwrap();
    assert_eq!(tx.control().health(), Health::Green);
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(tx.control().health(), Health::Red);
    assert_eq!(rx.try_recv().unwrap_err(), TryRecvError::Held);
    let report = rx.drain(SECOND).await;
    assert_eq!((report.in_flight, report.returned.len()), (1, 2));
    stuck.ack();
    assert_eq!(tx.snapshot().ledger.acked, 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_retried_for_ever_ends_at_its_expiry_and_others_go_on() {
    let (tx, rx) = Builder::new(Rate::per_second(100)).build().unwrap();
    let end = Instant::now() + 5 * SECOND;
    tx.offer("for ever").expires_at(end).try_send().unwrap();
    let mut starts = 0;
    for n in 0.. {
        if n % 10 == 0 {
            tx.try_send("fresh").unwrap();
        }
        let Ok(job) = tokio::time::timeout(SECOND, rx.recv()).await else {
            break;
        };
        let job = job.unwrap();
        if *job == "fresh" {
            job.ack();
        } else {
            starts += 1;
            job.retry_because("still ill", Duration::ZERO);
        }
        if Instant::now() > end + SECOND {
            break;
        }
    }
    let letter = rx.dead_letters().try_recv().unwrap();
    assert_eq!((letter.exit, letter.attempts), (Exit::Expired, starts));
    assert_eq!(letter.cause.unwrap().to_string(), "still ill");
    assert!(tx.snapshot().ledger.acked > 10, "{:?}", tx.snapshot());
}

/// 0 is the least: only what passes in any case.
#[tokio::test(start_paused = true)]
async fn a_budget_of_nothing_lets_the_least_pass_and_loses_nobody() {
    let builder = Builder::new(Rate::per_second(1000)).max_depth(1000);
    let (tx, rx) = builder
        .retry_budget(0.0, Rate::per_second(2))
        .build()
        .unwrap();
    let mut jobs = Vec::new();
    for n in 0..20 {
        tx.try_send(n).unwrap();
        jobs.push(rx.recv().await.unwrap());
    }
    jobs.into_iter().for_each(|job| job.retry(Duration::ZERO));
    let (start, mut again) = (Instant::now(), 0);
    while let Ok(Some(job)) = tokio::time::timeout_at(start + 5 * SECOND, rx.recv()).await {
        assert_eq!(job.attempt(), 2);
        job.ack();
        again += 1;
    }
    assert!((10..=11).contains(&again), "{again}: two a second");
    assert_eq!(tx.snapshot().ledger.queued, 20 - again);
    let error = Builder::unpaced()
        .retry_budget(-0.1, Rate::per_second(1))
        .build::<()>()
        .unwrap_err();
    assert!(
        error.to_string().contains("retry_budget is -0.1"),
        "{error}"
    );
}

/// A reading older than the last counts as the last; a jump ahead makes due what lies before it.
#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_during_a_back_off_brings_the_job_back_once() {
    let clock = ManualClock::new();
    clock.set(Tick::from_nanos(10_000_000_000));
    let (tx, rx) = Builder::unpaced().clock(clock.clone()).build().unwrap();
    tx.try_send("job").unwrap();
    rx.try_recv().unwrap().retry_because("busy", 60 * SECOND);
    // Back by an hour: nothing is due, nothing is lost, and the hour is not waited for again.
    clock.set(Tick::ZERO);
    assert_eq!(rx.try_recv().unwrap_err(), TryRecvError::Empty);
    clock.set(Tick::from_nanos(69_999_999_999));
    assert_eq!(rx.try_recv().unwrap_err(), TryRecvError::Empty);
    clock.set(Tick::from_nanos(70_000_000_000));
    rx.try_recv().unwrap().retry(60 * SECOND);
    // Ahead by a year.
    clock.advance(365 * 86_400 * SECOND);
    let job = rx.try_recv().unwrap();
    assert_eq!(
        (job.attempt(), job.waited() > 300 * 86_400 * SECOND),
        (3, true)
    );
    job.ack();
    assert_eq!(rx.try_recv().unwrap_err(), TryRecvError::Empty);
    let ledger = tx.snapshot().ledger;
    assert_eq!((ledger.acked, ledger.requeued), (1, 2));
    assert!(ledger.is_balanced());
}
