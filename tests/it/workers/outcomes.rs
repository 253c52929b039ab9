//! What becomes of a job, by what its handler does and returns.

use std::future::pending;
use std::io;
use std::time::Duration;

use sluicegate::Rate;
use sluicegate::queue::workers::{Outcome, Workers};
use sluicegate::queue::{Backoff, Builder, DeadLetter, Exit, Job, Ledger};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Inside, panic_quietly};
use crate::queue::{MILLI, SECOND, assert_balanced, settle};

/// Runs a handler on one job with one attempt, and returns the ledger and the letter.
async fn one<F>(
    handler: impl Fn(Job<u32>) -> F + Send + Sync + 'static,
) -> (Ledger, Option<DeadLetter<u32>>)
where
    F: Future<Output: Into<Outcome>> + Send + 'static,
{
    let (tx, rx) = Builder::unpaced()
        .max_attempts(1)
        .build()
        .expect("valid settings");
    tx.try_send(7).expect("there is room");
    let (control, letters) = (tx.control(), rx.dead_letters());
    drop(tx);
    let report = Workers::new(rx)
        .run(handler, CancellationToken::new())
        .await;
    assert_eq!((report.in_flight, report.returned.len()), (0, 0));
    let snapshot = control.snapshot();
    assert_balanced(&snapshot);
    (snapshot.ledger, letters.try_recv())
}

#[tokio::test(start_paused = true)]
async fn what_the_handler_returns_settles_the_job_that_it_dropped() {
    let (ledger, _) = one(async |_job| {}).await;
    assert_eq!(ledger.acked, 1, "()");
    let (ledger, _) = one(async |_job| io::Result::Ok(())).await;
    assert_eq!(ledger.acked, 1, "Ok");
    let (ledger, _) = one(async |_job| Outcome::Ack).await;
    assert_eq!(ledger.acked, 1, "Ack");
    let (ledger, letter) = one(async |_job| Outcome::Fail).await;
    assert_eq!(
        (ledger.failed, letter.map(|it| it.item)),
        (1, Some(7)),
        "Fail"
    );
    let (ledger, letter) = one(async |_job| Err::<(), _>("no such table")).await;
    let letter = letter.expect("it has one attempt");
    assert_eq!(
        (ledger.failed, letter.exit, letter.attempts),
        (1, Exit::Failed, 1),
        "Err"
    );
    assert_eq!(
        letter.cause.expect("the error").to_string(),
        "no such table"
    );
    let (ledger, letter) = one(async |_job| Outcome::Retry(Backoff::from(SECOND))).await;
    assert_eq!(ledger.failed, 1, "Retry at the last attempt");
    assert!(letter.expect("it has one attempt").cause.is_none());
}

#[tokio::test(start_paused = true)]
async fn what_the_handler_settled_itself_stands() {
    let (ledger, letter) = one(async |job: Job<u32>| {
        job.ack();
        Err::<(), _>("too late to say")
    })
    .await;
    assert_eq!(
        (ledger.acked, ledger.failed, letter.is_some()),
        (1, 0, false)
    );
    let (ledger, _) = one(async |job: Job<u32>| job.fail()).await;
    assert_eq!((ledger.acked, ledger.failed), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn an_error_is_retried_by_the_back_off_and_is_the_cause_in_the_end() {
    let (tx, rx) = Builder::unpaced()
        .max_attempts(3)
        .build()
        .expect("valid settings");
    tx.try_send(()).expect("there is room");
    let letters = rx.dead_letters();
    let start = Instant::now();
    let workers = Workers::new(rx).backoff(SECOND);
    let running = tokio::spawn(workers.run(
        async |job: Job<()>| Err::<(), _>(format!("attempt {}", job.attempt())),
        CancellationToken::new(),
    ));
    let letter = letters.recv().await.expect("it fails");
    assert_eq!(
        letter.cause.expect("the last error").to_string(),
        "attempt 3"
    );
    assert!(start.elapsed() >= 2 * SECOND && start.elapsed() < 2 * SECOND + 50 * MILLI);
    drop(tx);
    running.await.expect("the workers end");
}

#[tokio::test(start_paused = true)]
async fn a_panic_abandons_its_job_and_stops_nobody() {
    let (tx, rx) = Builder::unpaced().build().expect("valid settings");
    for n in 0..6 {
        tx.try_send(n).expect("there is room");
    }
    let (control, letters) = (tx.control(), rx.dead_letters());
    drop(tx);
    let handler = |job: Job<i32>| {
        if *job == 1 {
            panic_quietly("before the first await");
        }
        async move {
            sleep(MILLI).await;
            if *job == 2 {
                panic_quietly("after it");
            }
            if *job == 3 {
                job.ack();
                panic_quietly("its job is settled");
            }
        }
    };
    Workers::new(rx)
        .concurrency(2)
        .run(handler, CancellationToken::new())
        .await;
    let ledger = control.snapshot().ledger;
    assert_eq!(
        (ledger.acked, ledger.abandoned, ledger.in_flight),
        (4, 2, 0)
    );
    for (item, text) in [(1, "before the first await"), (2, "after it")] {
        let letter = letters.try_recv().expect("two were abandoned");
        assert_eq!((letter.item, letter.exit), (item, Exit::Abandoned));
        let cause = letter.cause.expect("the panic").to_string();
        assert_eq!(cause, format!("handler panicked: {text}"));
    }
}

/// A handler that spawns and returns has not said anything of the job that lives on.
#[tokio::test(start_paused = true)]
async fn a_job_that_was_moved_elsewhere_is_on_its_own() {
    let (ledger, _) = one(async |job: Job<u32>| {
        drop(tokio::spawn(async move {
            sleep(SECOND).await;
            job.ack();
        }));
        Outcome::Fail
    })
    .await;
    assert_eq!((ledger.acked, ledger.failed), (1, 0), "settled there");
    let (ledger, letter) = one(async |job: Job<u32>| {
        drop(tokio::spawn(async move {
            sleep(SECOND).await;
            drop(job);
        }));
    })
    .await;
    assert_eq!(
        (ledger.acked, ledger.abandoned),
        (0, 1),
        "nobody said that it was done"
    );
    assert_eq!(letter.map(|letter| letter.exit), Some(Exit::Abandoned));
}

#[tokio::test(start_paused = true)]
async fn no_more_handlers_run_than_asked_and_none_counts_as_one() {
    for (asked, most) in [(0, 1), (1, 1), (5, 5), (usize::MAX, 100)] {
        let (tx, rx) = Builder::unpaced().build().expect("valid settings");
        for n in 0..100 {
            tx.try_send(n).expect("there is room");
        }
        drop(tx);
        let inside = Inside::default();
        let count = inside.clone();
        let handler = move |job: Job<u32>| {
            let guard = count.enter();
            async move {
                sleep(MILLI).await;
                drop((guard, job));
            }
        };
        Workers::new(rx)
            .concurrency(asked)
            .run(handler, CancellationToken::new())
            .await;
        assert_eq!(inside.most(), most, "concurrency {asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn sixty_four_workers_stay_under_the_in_flight_bound() {
    let (tx, rx) = Builder::new(Rate::per_second(10_000))
        .max_in_flight(8)
        .build()
        .expect("valid settings");
    let inside = Inside::default();
    let workers = (0..8).map(|_| {
        let count = inside.clone();
        let handler = move |job: Job<u32>| {
            let guard = count.enter();
            async move {
                sleep(Duration::from_micros(u64::from(*job % 7) * 500)).await;
                drop((guard, job));
            }
        };
        let workers = Workers::new(rx.clone()).concurrency(8);
        tokio::spawn(workers.run(handler, CancellationToken::new()))
    });
    let workers: Vec<_> = workers.collect();
    drop(rx);
    for n in 0..5_000 {
        tx.send(n).await.expect("the workers are there");
        let snapshot = tx.snapshot();
        assert!(snapshot.in_flight <= 8, "{snapshot:?}");
    }
    let control = tx.control();
    drop(tx);
    for worker in workers {
        worker.await.expect("the workers end");
    }
    assert_eq!(inside.most(), 8, "the bound is used, and kept");
    assert_eq!(control.snapshot().ledger.acked, 5_000);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_fetched_ahead_of_a_free_handler() {
    let (tx, rx) = Builder::unpaced().build().expect("valid settings");
    for n in 0..10 {
        tx.try_send(n).expect("there is room");
    }
    let other = rx.clone();
    let workers = Workers::new(rx).concurrency(2);
    let handler = async |_job: Job<u32>| pending::<()>().await;
    let running = tokio::spawn(workers.run(handler, CancellationToken::new()));
    settle().await;
    let ledger = tx.snapshot().ledger;
    assert_eq!((ledger.in_flight, ledger.queued), (2, 8));
    for n in 2..10 {
        let job = other.try_recv().expect("the others are free");
        assert_eq!(job.into_inner(), n);
    }
    running.abort();
}
