//! Jobs that fail, and what their letters say.

use std::time::Duration;

use sluicegate::queue::{Builder, DeadLetter, Ending, Exit};

use super::{MILLI, SECOND};

#[track_caller]
fn check<T>(letter: &DeadLetter<T>, exit: Exit, attempts: u32, cause: Option<&str>) {
    assert_eq!((letter.exit, letter.attempts), (exit, attempts));
    let told = letter.cause.as_ref().map(ToString::to_string);
    assert_eq!(told.as_deref(), cause);
}

#[tokio::test(start_paused = true)]
async fn a_poison_job_has_exactly_its_attempts_and_its_last_cause() {
    let (tx, rx) = Builder::unpaced().max_attempts(3).build().unwrap();
    let ticket = tx.offer("poison").track().await.unwrap();
    for attempt in 1..=3 {
        let job = rx.recv().await.unwrap();
        assert_eq!(job.attempt(), attempt);
        let before = job.last_cause().map(ToString::to_string);
        assert_eq!(
            before,
            (attempt > 1).then(|| format!("attempt {}", attempt - 1))
        );
        job.retry_because(format!("attempt {attempt}"), 10 * MILLI);
    }
    check(
        &rx.dead_letters().recv().await.unwrap(),
        Exit::Failed,
        3,
        Some("attempt 3"),
    );
    assert_eq!(ticket.await, Ending::Failed);
    assert!(rx.try_recv().is_err());
    assert_eq!(tx.snapshot().ledger.requeued, 2);
}

#[tokio::test(start_paused = true)]
async fn a_cause_stays_with_the_job_until_a_later_one_comes() {
    let (tx, rx) = Builder::unpaced().max_attempts(3).build().unwrap();
    let letters = rx.dead_letters();
    // A later retry without a cause keeps it; abandoning keeps it; a later failure replaces it.
    for end in 0..3 {
        tx.try_send(end).unwrap();
        rx.recv()
            .await
            .unwrap()
            .retry_because("locked", Duration::ZERO);
        rx.recv().await.unwrap().retry(Duration::ZERO);
        let job = rx.recv().await.unwrap();
        match end {
            0 => job.retry(Duration::ZERO),
            1 => drop(job),
            _ => job.fail_because("gone"),
        }
        let letter = letters.try_recv().unwrap();
        match end {
            0 => check(&letter, Exit::Failed, 3, Some("locked")),
            1 => check(&letter, Exit::Abandoned, 3, Some("locked")),
            _ => check(&letter, Exit::Failed, 3, Some("gone")),
        }
    }
    // One that is done in the end leaves nothing behind.
    tx.try_send(9).unwrap();
    rx.recv().await.unwrap().retry_because("locked", MILLI);
    rx.recv().await.unwrap().ack();
    assert!(letters.try_recv().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_expires_or_is_given_back_during_its_back_off_says_why_it_failed() {
    let (tx, rx) = Builder::unpaced().build().unwrap();
    let soon = tokio::time::Instant::now() + SECOND;
    tx.offer(0).expires_at(soon).try_send().unwrap();
    rx.recv()
        .await
        .unwrap()
        .retry_because("timeout", 10 * SECOND);
    check(
        &rx.dead_letters().recv().await.unwrap(),
        Exit::Expired,
        1,
        Some("timeout"),
    );
    tx.try_send(1).unwrap();
    rx.recv().await.unwrap().retry_because("busy", 10 * SECOND);
    tx.try_send(2).unwrap();
    let late = rx.recv().await.unwrap();
    let report = rx.drain(SECOND).await;
    check(&report.returned[0], Exit::Returned, 1, Some("busy"));
    late.retry_because("closed", MILLI);
    check(
        &rx.dead_letters().recv().await.unwrap(),
        Exit::Returned,
        1,
        Some("closed"),
    );
}

#[tokio::test(start_paused = true)]
async fn a_hundred_deferrals_are_no_attempt() {
    let (tx, rx) = Builder::unpaced().max_attempts(1).build().unwrap();
    tx.try_send(()).unwrap();
    for _ in 0..100 {
        rx.recv().await.unwrap().defer(MILLI);
    }
    let job = rx.recv().await.unwrap();
    assert_eq!(job.attempt(), 1);
    job.ack();
}

#[tokio::test(start_paused = true)]
async fn a_cause_changes_nothing_of_the_terms() {
    let (tx, rx) = Builder::unpaced().build().unwrap();
    let at = tokio::time::Instant::now() + 60 * SECOND;
    tx.offer(())
        .tenant("a")
        .expires_at(at)
        .cost(3)
        .try_send()
        .unwrap();
    for _ in 0..2 {
        let job = rx.recv().await.unwrap();
        let terms = format!("{:?}", job.terms());
        assert!(terms.contains('a') && job.cost() == 3, "{terms}");
        job.retry_because("busy", MILLI);
        let again = rx.recv().await.unwrap();
        assert_eq!(format!("{:?}", again.terms()), terms);
        again.retry(MILLI);
    }
}
