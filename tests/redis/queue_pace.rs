//! The schedule that the fleet shares, on the server's clock.

use std::time::Duration;

use sluicegate::redis::queue::{Builder, TryRecvError};
use sluicegate::{Rate, Tick};

use crate::kit::server_time;
use crate::queue::open;
use crate::server::Server;

const STATE: &str = "sluicegate:{q}:state";

fn field(server: &Server, name: &str) -> i64 {
    let reply = server.ask(&["HGET", STATE, name]);
    let text = reply.split("\r\n").nth(1).expect("it is there");
    text.parse().expect("a whole number without an exponent")
}

/// Steps the server's clock, as far as the queue can tell.
fn step_clock(server: &Server, micros: i64) {
    server.ask(&["HINCRBY", STATE, "skew", &micros.to_string()]);
}

#[tokio::test]
async fn the_schedule_advances_by_exact_fractions_of_a_microsecond() {
    for rate in [
        Rate::per_second(333),
        Rate::per_second(7_001),
        Rate::per_second(60_013),
    ] {
        let server = Server::start();
        // Nothing owed is ever forgiven, and nothing waits: what is left is the sum of the intervals.
        let builder = Builder::new("q", rate)
            .max_depth(2_000)
            .watermarks(0, 2_000)
            .catch_up(10_000_000)
            .catch_up_pace(1_000.0);
        let queue = open(&server, builder).await;
        let tx = queue.sender::<u32>();
        tx.try_send(0).await.expect("room");
        let first = field(&server, "next");
        for item in 1..1_000 {
            tx.try_send(item).await.expect("room");
        }
        let rx = queue.receiver::<u32>();
        let mut taken = 0;
        while taken < 1_000 {
            for job in rx.recv_many(64).await.expect("it answers") {
                taken += 1;
                let due =
                    first as u128 * 1_000 + (taken - 1) * 1_000_000_000 / u128::from(rate.count());
                assert!(
                    u128::from(job.departed_at().as_nanos()) + 1_000 > due,
                    "never early"
                );
                job.ack().await.expect("ours");
            }
        }
        let advanced = 1_000 * 1_000_000 / i64::try_from(rate.count()).expect("small");
        assert_eq!(field(&server, "next") - first, advanced, "{rate}");
    }
}

#[tokio::test]
async fn an_idle_queue_earns_nothing() {
    let server = Server::start();
    let builder = Builder::new("q", Rate::per_second(20))
        .max_depth(10)
        .catch_up(5);
    let queue = open(&server, builder).await;
    let rx = queue.receiver::<u32>();
    tokio::time::sleep(Duration::from_millis(400)).await;
    let tx = queue.sender::<u32>();
    let begun = server_time(&server);
    for item in 0..5 {
        tx.try_send(item).await.expect("room");
    }
    let mut stamps = Vec::new();
    for _ in 0..5 {
        let job = rx.recv().await.expect("it answers").expect("there");
        stamps.push(job.departed_at());
        job.ack().await.expect("ours");
    }
    assert_never_early(begun, &stamps);
}

/// Whoever departs late may be followed sooner than after 50 ms, but nobody departs before his turn, counted from the
/// first of them: the schedule owes nothing from before.
fn assert_never_early(begun: u64, stamps: &[Tick]) {
    for (stamp, turn) in stamps.iter().zip(0_u64..) {
        let due = begun + turn * 50_000;
        assert!(
            stamp.as_nanos() / 1_000 >= due,
            "{turn} at {begun}: {stamps:?}"
        );
    }
}

#[tokio::test]
async fn a_delayed_job_that_comes_due_earns_nothing_for_its_delay() {
    let server = Server::start();
    let builder = Builder::new("q", Rate::per_second(20))
        .max_depth(10)
        .catch_up(5);
    let queue = open(&server, builder).await;
    let (tx, rx) = (queue.sender::<u32>(), queue.receiver::<u32>());
    for item in 0..3 {
        tx.try_send(item).await.expect("room");
    }
    let begun = server_time(&server) + 600_000;
    for _ in 0..3 {
        let job = rx.recv().await.expect("it answers").expect("there");
        job.retry(Duration::from_millis(600)).await.expect("ours");
    }
    let mut stamps = Vec::new();
    for _ in 0..3 {
        let job = rx.recv().await.expect("it answers").expect("there");
        stamps.push(job.departed_at());
        job.ack().await.expect("ours");
    }
    assert_never_early(begun, &stamps);
}

#[tokio::test]
async fn what_is_owed_is_bounded_and_repaid_without_a_salvo() {
    let server = Server::start();
    let builder = Builder::new("q", Rate::per_second(100))
        .max_depth(400)
        .catch_up(10);
    let queue = open(&server, builder).await;
    let tx = queue.sender::<u32>();
    for item in 0..200 {
        tx.try_send(item).await.expect("room");
    }
    // Nobody takes for a second: a hundred fell due, ten are owed.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(queue.snapshot().await.expect("it answers").owed, 11);
    let rx = queue.receiver::<u32>();
    let mut stamps = Vec::new();
    while stamps.len() < 200 {
        for job in rx.recv_many(200).await.expect("it answers") {
            stamps.push(job.departed_at());
            job.ack().await.expect("ours");
        }
    }
    for (first, from) in stamps.iter().enumerate() {
        for (last, to) in stamps.iter().enumerate().skip(first) {
            let span = (*to - *from).as_secs_f64();
            let most = ((span * 100.0 + 10.0).floor() + 1.0)
                .min(((span + 0.0025) * 110.0 + 1e-3).floor() + 1.0);
            let count = (last - first + 1) as f64;
            assert!(count <= most, "{count} in {span} s, at most {most}");
        }
    }
}

#[tokio::test]
async fn a_clock_set_back_shifts_the_schedule_and_stalls_nothing() {
    let server = Server::start();
    let builder = Builder::new("q", Rate::per_second(50))
        .max_depth(100)
        .claim_after(Duration::from_secs(60));
    let queue = open(&server, builder).await;
    let (tx, rx) = (queue.sender::<u32>(), queue.receiver::<u32>());
    for item in 0..20 {
        tx.try_send(item).await.expect("room");
    }
    let job = rx.recv().await.expect("it answers").expect("there");
    job.retry(Duration::from_millis(300)).await.expect("ours");
    step_clock(&server, -3_600_000_000);
    let mut stamps = Vec::new();
    for _ in 0..20 {
        // An hour is not waited for, by the schedule or by the delayed job.
        let job = tokio::time::timeout(Duration::from_secs(60), rx.recv()).await;
        let job = job.expect("it goes on").expect("it answers");
        let job = job.expect("there");
        stamps.push(job.departed_at());
        job.ack().await.expect("ours");
    }
    for pair in stamps.windows(6) {
        assert!(
            pair[5] - pair[0] >= Duration::from_millis(80),
            "no salvo: {pair:?}"
        );
    }
}

#[tokio::test]
async fn a_clock_set_forward_makes_no_salvo() {
    let server = Server::start();
    let builder = Builder::new("q", Rate::per_second(50))
        .max_depth(100)
        .catch_up(5);
    let queue = open(&server, builder).await;
    let (tx, rx) = (queue.sender::<u32>(), queue.receiver::<u32>());
    for item in 0..20 {
        tx.try_send(item).await.expect("room");
    }
    step_clock(&server, 3_600_000_000);
    let mut stamps = Vec::new();
    while stamps.len() < 20 {
        for job in rx.recv_many(20).await.expect("it answers") {
            stamps.push(job.departed_at());
            job.ack().await.expect("ours");
        }
    }
    for pair in stamps.windows(11) {
        // Ten more than one: at 1.1 times the rate 182 ms, less the grain and what may be owed is in the other bound.
        assert!(pair[10] - pair[0] >= Duration::from_millis(175), "{pair:?}");
    }
}

#[tokio::test]
async fn a_new_rate_holds_from_the_next_departure_and_keeps_what_is_owed_in_jobs() {
    let server = Server::start();
    let builder = Builder::new("q", Rate::per_hour(60)).max_depth(100);
    let queue = open(&server, builder).await;
    let (tx, rx) = (queue.sender::<u32>(), queue.receiver::<u32>());
    for item in 0..10 {
        tx.try_send(item).await.expect("room");
    }
    let first = rx
        .recv()
        .await
        .expect("it answers")
        .expect("the first is due");
    let Err(TryRecvError::NotDue { after }) = rx.try_recv().await else {
        panic!("the second is due in a minute");
    };
    assert!(after > Duration::from_secs(50), "{after:?}");
    // Somebody waits already, for the minute that it was.
    let waiting = tokio::spawn(async move { rx.recv().await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    queue
        .set_rate(Rate::per_second(2))
        .await
        .expect("it answers");
    let second = waiting.await.expect("no panic");
    let second = second.expect("it answers").expect("there");
    let gap = second.departed_at() - first.departed_at();
    // Nearly a whole interval was ahead, and is of the new length.
    assert!(
        gap >= Duration::from_millis(300) && gap < Duration::from_secs(30),
        "{gap:?}"
    );
}

#[tokio::test]
async fn resume_forgives_what_was_owed_and_shortens_no_gap() {
    let server = Server::start();
    let builder = Builder::new("q", Rate::per_second(10))
        .max_depth(100)
        .catch_up(50);
    let queue = open(&server, builder).await;
    let (tx, rx) = (queue.sender::<u32>(), queue.receiver::<u32>());
    for item in 0..10 {
        tx.try_send(item).await.expect("room");
    }
    queue.pause("maintenance").await.expect("it answers");
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    queue.resume().await.expect("it answers");
    // Fifteen fell due in the pause.
    let owed = queue.snapshot().await.expect("it answers").owed;
    assert!(owed <= 5, "{owed} are owed");
    let mut stamps = Vec::new();
    for _ in 0..4 {
        let job = rx.recv().await.expect("it answers").expect("there");
        stamps.push(job.departed_at());
        job.ack().await.expect("ours");
    }
    assert!(
        stamps[3] - stamps[0] >= Duration::from_millis(270),
        "{stamps:?}"
    );
}
