//! What a consumer leaves behind is another's, once and only once.

use std::time::Duration;

use sluicegate::broker::Broker;
use sluicegate::queue::Exit;
use sluicegate::redis::queue::{Builder, TryRecvError};

use crate::queue::{assert_balanced, fast, open};
use crate::server::Server;

const CLAIM: Duration = Duration::from_millis(300);

fn claiming() -> Builder {
    fast().claim_after(CLAIM)
}

#[tokio::test]
async fn who_was_taken_over_can_settle_nothing_and_is_told_so() {
    let server = Server::start();
    let (one, two) = (
        open(&server, claiming()).await,
        open(&server, claiming()).await,
    );
    one.sender::<u32>().try_send(7).await.expect("room");
    // The broker's face keeps nothing alive by itself: this is a consumer that fell silent.
    let silent = one
        .take(1, Duration::from_secs(5))
        .await
        .expect("it answers")
        .remove(0);
    let rx = two.receiver::<u32>();
    let job = rx.recv().await.expect("it answers").expect("it is claimed");
    assert_eq!((*job, job.attempt()), (7, 2));
    for verdict in [
        one.ack(&silent.receipt).await,
        one.retry(&silent.receipt, Duration::ZERO).await,
        one.give_back(&silent.receipt).await,
        one.dead_letter(&silent, "late").await,
        one.heartbeat(&silent.receipt).await,
    ] {
        let error = verdict.expect_err("it is another's");
        assert_eq!(error.kind(), sluicegate::broker::BrokerErrorKind::Stale);
    }
    let seen = one.snapshot().await.expect("it answers");
    assert_eq!((seen.fenced, seen.redelivered, seen.in_flight), (4, 1, 1));
    job.ack().await.expect("it is ours");
    assert_balanced(&one.snapshot().await.expect("it answers"));
}

#[tokio::test]
async fn one_name_for_two_consumers_keeps_their_deliveries_apart() {
    let server = Server::start();
    let builder = || claiming().consumer("worker");
    let (one, two) = (
        open(&server, builder()).await,
        open(&server, builder()).await,
    );
    one.sender::<u32>().try_send(7).await.expect("room");
    let silent = one
        .take(1, Duration::from_secs(5))
        .await
        .expect("it answers")
        .remove(0);
    let job = two
        .receiver::<u32>()
        .recv()
        .await
        .expect("it answers")
        .expect("claimed");
    one.ack(&silent.receipt)
        .await
        .expect_err("the same name, another delivery");
    job.ack().await.expect("it is ours");
}

#[tokio::test]
async fn a_job_that_takes_longer_than_the_claim_time_stays_with_whoever_is_alive() {
    let server = Server::start();
    // A machine at its limits may let a process be silent for a while; this one is given two seconds.
    let builder = || fast().claim_after(Duration::from_secs(2));
    let (one, two) = (
        open(&server, builder()).await,
        open(&server, builder()).await,
    );
    one.sender::<u32>().try_send(7).await.expect("room");
    let job = one
        .receiver::<u32>()
        .recv()
        .await
        .expect("it answers")
        .expect("there");
    let rx = two.receiver::<u32>();
    let stolen = tokio::time::timeout(Duration::from_secs(5), rx.recv()).await;
    assert!(stolen.is_err(), "it is being worked on");
    assert!(!job.is_taken_over());
    job.ack().await.expect("it is ours still");
}

#[tokio::test]
async fn a_job_dropped_unsettled_comes_again_and_the_start_counts() {
    let server = Server::start();
    let queue = open(&server, claiming().max_attempts(2)).await;
    queue.sender::<u32>().try_send(7).await.expect("room");
    let rx = queue.receiver::<u32>();
    let first = rx.recv().await.expect("it answers").expect("there");
    let departed = first.departed_at();
    drop(first);
    let second = rx
        .recv()
        .await
        .expect("it answers")
        .expect("it comes again");
    assert_eq!(second.attempt(), 2);
    assert!(
        second.departed_at() - departed >= CLAIM,
        "never before the claim time"
    );
    drop(second);
    let none = tokio::time::timeout(Duration::from_secs(3), rx.recv()).await;
    assert!(none.is_err(), "it has had its two starts");
    let letter = queue
        .dead_letters::<u32>()
        .list(2)
        .await
        .expect("it answers")
        .remove(0);
    assert_eq!(
        (letter.item, letter.death.exit),
        (Some(7), Some(Exit::Abandoned))
    );
    assert_eq!(letter.death.attempts, 2);
    assert_balanced(&queue.snapshot().await.expect("it answers"));
}

#[tokio::test]
async fn the_fleet_holds_no_more_than_it_may() {
    let server = Server::start();
    let builder = || fast().max_in_flight(2);
    let (one, two) = (
        open(&server, builder()).await,
        open(&server, builder()).await,
    );
    for item in 0..4 {
        one.sender::<u32>().try_send(item).await.expect("room");
    }
    let (a, b) = (one.receiver::<u32>(), two.receiver::<u32>());
    let first = a.recv().await.expect("it answers").expect("there");
    let second = b.recv().await.expect("it answers").expect("there");
    assert!(matches!(a.try_recv().await, Err(TryRecvError::Held)));
    assert!(matches!(b.try_recv().await, Err(TryRecvError::Held)));
    second.ack().await.expect("ours");
    let third = a
        .recv()
        .await
        .expect("it answers")
        .expect("there is room again");
    assert!(matches!(b.try_recv().await, Err(TryRecvError::Held)));
    first.ack().await.expect("ours");
    third.ack().await.expect("ours");
}
