//! The end of workers: in time, with an account of everything.

use std::future::pending;
use std::time::Duration;

use sluicegate::Rate;
use sluicegate::queue::workers::Workers;
use sluicegate::queue::{Builder, Exit, Job, Receiver, Sender};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::queue::{MILLI, SECOND, assert_balanced, settle};

fn queue(rate: u64, jobs: u32) -> (Sender<u32>, Receiver<u32>) {
    let (tx, rx) = Builder::new(Rate::per_second(rate))
        .max_depth(1_000)
        .build()
        .expect("valid settings");
    for n in 0..jobs {
        tx.try_send(n).expect("there is room");
    }
    (tx, rx)
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_keeps_the_rate_and_returns_the_rest_by_value() {
    let (tx, rx) = queue(10, 100);
    let token = CancellationToken::new();
    let start = Instant::now();
    let workers = Workers::new(rx).finish_within(2 * SECOND);
    let running = tokio::spawn(workers.run(async |_job: Job<u32>| {}, token.clone()));
    sleep(SECOND + 50 * MILLI).await;
    token.cancel();
    settle().await;
    assert!(tx.is_closed(), "no more offers after the shutdown");
    let report = running.await.expect("the workers end");
    assert_eq!(start.elapsed(), 3 * SECOND + 50 * MILLI);
    let returned: Vec<u32> = report
        .returned
        .into_iter()
        .map(|letter| letter.item)
        .collect();
    assert_eq!(returned, (31..100).collect::<Vec<_>>(), "oldest first");
    assert_eq!((report.settled, report.in_flight), (20, 0));
    let ledger = tx.snapshot().ledger;
    assert_eq!((ledger.acked, ledger.returned), (31, 69));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_as_soon_as_everything_is_done() {
    let (_tx, rx) = queue(1_000, 10);
    let token = CancellationToken::new();
    token.cancel();
    let start = Instant::now();
    let handler = async |_job: Job<u32>| sleep(SECOND).await;
    let workers = Workers::new(rx).concurrency(10).finish_within(60 * SECOND);
    let report = workers.run(handler, token).await;
    assert_eq!(
        (report.settled, report.in_flight, report.returned.len()),
        (10, 0, 0)
    );
    assert!(
        start.elapsed() < SECOND + 20 * MILLI,
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_is_cut_at_the_deadline_and_its_item_kept() {
    let (tx, rx) = queue(1_000, 3);
    let letters = rx.dead_letters();
    let token = CancellationToken::new();
    let handler = async |job: Job<u32>| {
        if *job == 1 {
            pending::<()>().await;
        }
    };
    let workers = Workers::new(rx).finish_within(SECOND);
    let running = tokio::spawn(workers.run(handler, token.clone()));
    sleep(SECOND).await;
    let start = Instant::now();
    token.cancel();
    let report = running.await.expect("the workers end");
    assert_eq!(start.elapsed(), SECOND);
    assert_eq!((report.in_flight, report.returned.len()), (1, 0));
    let letter = letters.recv().await.expect("it is given up");
    assert_eq!((letter.item, letter.exit), (1, Exit::Abandoned));
    assert!(letters.recv().await.is_none(), "that is all");
    assert_balanced(&tx.snapshot());
}

#[tokio::test(start_paused = true)]
async fn retries_that_are_delayed_run_if_they_are_due_in_time_and_are_returned_if_not() {
    let (tx, rx) = queue(1_000, 2);
    let token = CancellationToken::new();
    let handler = async |job: Job<u32>| {
        if job.attempt() == 1 {
            let after = if *job == 0 { SECOND } else { 60 * SECOND };
            job.retry(after);
        }
    };
    let workers = Workers::new(rx).finish_within(5 * SECOND);
    let running = tokio::spawn(workers.run(handler, token.clone()));
    sleep(10 * MILLI).await;
    assert_eq!(tx.snapshot().ledger.queued, 2, "both wait for their retry");
    token.cancel();
    let report = running.await.expect("the workers end");
    assert_eq!((report.settled, report.in_flight), (1, 0));
    let letter = &report.returned[0];
    assert_eq!(
        (letter.item, letter.exit, letter.attempts),
        (1, Exit::Returned, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn an_error_after_the_shutdown_is_returned_with_its_cause() {
    let (tx, rx) = queue(1_000, 1);
    let letters = rx.dead_letters();
    let token = CancellationToken::new();
    let handler = async |_job: Job<u32>| {
        sleep(SECOND).await;
        Err::<(), _>("the database is gone")
    };
    let running = tokio::spawn(Workers::new(rx).run(handler, token.clone()));
    sleep(10 * MILLI).await;
    token.cancel();
    let report = running.await.expect("the workers end");
    assert_eq!((report.in_flight, report.returned.len()), (0, 0));
    let letter = letters
        .recv()
        .await
        .expect("there is no queue to go back to");
    assert_eq!(letter.exit, Exit::Returned);
    assert_eq!(
        letter.cause.expect("the error").to_string(),
        "the database is gone"
    );
    assert_balanced(&tx.snapshot());
}

/// A handler may have something to do once its job is settled.
#[tokio::test(start_paused = true)]
async fn the_end_of_the_queue_ends_the_workers_after_the_last_handler() {
    let (tx, rx) = queue(10, 3);
    drop(tx);
    let start = Instant::now();
    let handler = async |job: Job<u32>| {
        job.ack();
        sleep(5 * SECOND).await;
    };
    let report = Workers::new(rx)
        .run(handler, CancellationToken::new())
        .await;
    assert_eq!((report.in_flight, report.returned.len()), (0, 0));
    assert_eq!(start.elapsed(), 200 * MILLI + 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_bounds_the_wait_for_the_last_handlers_too() {
    let (tx, rx) = queue(10, 1);
    drop(tx);
    let token = CancellationToken::new();
    let handler = async |_job: Job<u32>| pending::<()>().await;
    let running = tokio::spawn(
        Workers::new(rx)
            .finish_within(SECOND)
            .run(handler, token.clone()),
    );
    sleep(3_600 * SECOND).await;
    assert!(!running.is_finished(), "without a shutdown it waits");
    token.cancel();
    let start = Instant::now();
    let report = running.await.expect("the workers end");
    assert_eq!((start.elapsed(), report.in_flight), (SECOND, 1));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_takes_no_more_and_lets_its_handlers_end() {
    let (tx, rx) = queue(1_000, 2);
    let control = tx.control();
    let handler = async |_job: Job<u32>| sleep(SECOND).await;
    let workers = Workers::new(rx.clone()).concurrency(1);
    let running = tokio::spawn(workers.run(handler, CancellationToken::new()));
    sleep(10 * MILLI).await;
    running.abort();
    assert!(running.await.is_err());
    sleep(Duration::from_secs(2)).await;
    let ledger = control.snapshot().ledger;
    assert_eq!((ledger.acked, ledger.queued, ledger.in_flight), (1, 1, 0));
    assert!(!tx.is_closed());
}
