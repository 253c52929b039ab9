//! What goes wrong around the queue: payloads, keys, clocks and servers.

use std::time::Duration;

use sluicegate::Rate;
use sluicegate::queue::Exit;
use sluicegate::redis::Endpoint;
use sluicegate::redis::queue::{Builder, Bytes, ErrorKind, TryRecvError};

use crate::queue::{assert_balanced, fast, open};
use crate::server::{Options, Server};

#[tokio::test]
async fn a_payload_that_cannot_be_read_is_dead_lettered_with_the_error() {
    let server = Server::start();
    let queue = open(&server, fast()).await;
    let raw = queue.sender_as::<Vec<u8>, _>(Bytes);
    raw.try_send(b"{not json".to_vec()).await.expect("room");
    raw.try_send(b"7".to_vec()).await.expect("room");
    let job = queue.receiver::<u32>().recv().await.expect("it answers");
    let job = job.expect("the good one is handed out");
    assert_eq!(*job, 7);
    job.ack().await.expect("ours");
    let letter = queue
        .dead_letters::<u32>()
        .list(2)
        .await
        .expect("it answers")
        .remove(0);
    assert_eq!((letter.item, &*letter.payload), (None, &b"{not json"[..]));
    assert_eq!(letter.death.exit, Some(Exit::Failed));
    let cause = letter.death.cause.expect("it says why");
    assert!(cause.starts_with("the payload cannot be read: "), "{cause}");
    assert_balanced(&queue.snapshot().await.expect("it answers"));
}

#[tokio::test]
async fn an_entry_of_somebody_else_is_dead_lettered_whole_and_harms_nothing() {
    let server = Server::start();
    let queue = open(&server, fast()).await;
    server.ask(&["XADD", "sluicegate:{q}:jobs", "*", "colour", "blue"]);
    let tx = queue.sender::<u32>();
    tx.try_send(1).await.expect("room");
    let rx = queue.receiver::<u32>();
    let job = rx.recv().await.expect("it answers").expect("there");
    assert_eq!(*job, 1);
    let letter = queue
        .dead_letters::<u32>()
        .list(2)
        .await
        .expect("it answers")
        .remove(0);
    let payload = String::from_utf8_lossy(&letter.payload).into_owned();
    assert!(
        payload.contains("colour") && payload.contains("blue"),
        "{payload}"
    );
    assert!(
        letter
            .death
            .cause
            .expect("it says why")
            .contains("no payload")
    );
}

#[tokio::test]
async fn sixteen_megabytes_are_refused_by_name_or_pass_if_they_may() {
    let server = Server::start();
    let item = "x".repeat(16 << 20);
    let queue = open(&server, fast()).await;
    let error = queue
        .sender::<String>()
        .try_send(item.clone())
        .await
        .expect_err("too large");
    let failed = error.error().expect("it is no refusal");
    let ErrorKind::TooLarge { bytes, most } = failed.kind() else {
        panic!("{failed:?}");
    };
    assert_eq!((*bytes, *most), ((16 << 20) + 2, 1 << 20));
    assert_eq!(error.into_inner().len(), 16 << 20);
    let builder = fast()
        .max_payload(20 << 20)
        .deadline(Duration::from_secs(20));
    let queue = open(&server, builder).await;
    let (tx, rx) = (queue.sender::<String>(), queue.receiver::<String>());
    tx.try_send(item.clone()).await.expect("it may");
    let job = rx.recv().await.expect("it answers").expect("there");
    job.retry(Duration::ZERO).await.expect("ours");
    let job = rx.recv().await.expect("it answers").expect("it is back");
    assert!(*job == item, "unchanged");
    job.ack().await.expect("ours");
}

#[tokio::test]
async fn a_group_deleted_under_us_is_made_anew_and_what_was_in_flight_comes_again() {
    let server = Server::start();
    let queue = open(&server, fast()).await;
    let (tx, rx) = (queue.sender::<u32>(), queue.receiver::<u32>());
    for item in 0..4 {
        tx.try_send(item).await.expect("room");
    }
    let held = rx.recv().await.expect("it answers").expect("there");
    server.ask(&["XGROUP", "DESTROY", "sluicegate:{q}:jobs", "fleet"]);
    let error = held.ack().await.expect_err("nobody knows of it any more");
    assert!(error.is_taken_over(), "{error:?}");
    let mut items = Vec::new();
    for _ in 0..4 {
        let job = rx
            .recv()
            .await
            .expect("it answers")
            .expect("the server kept it");
        items.push(job.into_inner().await.expect("ours"));
    }
    assert_eq!(items, [0, 1, 2, 3]);
    assert_eq!(queue.restored(), 1);
}

#[tokio::test]
async fn a_stream_deleted_under_us_is_empty_and_goes_on() {
    let server = Server::start();
    let queue = open(&server, fast()).await;
    let (tx, rx) = (queue.sender::<u32>(), queue.receiver::<u32>());
    tx.try_send(1).await.expect("room");
    let held = rx.recv().await.expect("it answers").expect("there");
    server.ask(&["DEL", "sluicegate:{q}:jobs"]);
    held.retry(Duration::ZERO).await.expect_err("it is gone");
    assert!(matches!(rx.try_recv().await, Err(TryRecvError::Empty)));
    tx.try_send(2).await.expect("room");
    let job = rx.recv().await.expect("it answers").expect("there");
    assert_eq!(*job, 2);
    job.ack().await.expect("ours");
}

#[tokio::test]
async fn an_entry_deleted_in_flight_is_counted_as_vanished() {
    let server = Server::start();
    let queue = open(&server, fast().claim_after(Duration::from_millis(100))).await;
    let (tx, rx) = (queue.sender::<u32>(), queue.receiver::<u32>());
    let first = tx.try_send(1).await.expect("room").id;
    let second = tx.try_send(2).await.expect("room").id;
    let held = rx.recv().await.expect("it answers").expect("there");
    // One whose consumer asks, one whose consumer is silent.
    drop(rx.recv().await.expect("it answers").expect("there"));
    server.ask(&["XDEL", "sluicegate:{q}:jobs", &first, &second]);
    held.ack().await.expect("there is nothing left to do");
    let none = tokio::time::timeout(Duration::from_secs(1), rx.recv()).await;
    assert!(none.is_err());
    let seen = queue.snapshot().await.expect("it answers");
    assert_eq!((seen.vanished, seen.in_flight, seen.depth), (2, 0, 0));
    assert_balanced(&seen);
}

#[tokio::test]
async fn a_server_restarted_empty_is_filled_again_by_whoever_comes_first() {
    let mut server = Server::start();
    let queue = open(&server, fast().max_depth(7).watermarks(1, 7)).await;
    let (tx, rx) = (queue.sender::<u32>(), queue.receiver::<u32>());
    tx.try_send(1).await.expect("room");
    let held = rx.recv().await.expect("it answers").expect("there");
    server.restart();
    let taken = loop {
        // Until the connection is back.
        match tx.try_send(2).await {
            Ok(taken) => break taken,
            Err(error) => assert!(
                error.error().is_some_and(|of| of.is_transient()),
                "{error:?}"
            ),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(taken.depth, 1);
    let error = held.ack().await.expect_err("the server has forgotten it");
    assert!(error.is_taken_over());
    let job = rx.recv().await.expect("it rides it out").expect("there");
    assert_eq!(*job, 2);
    let seen = queue.snapshot().await.expect("it answers");
    assert_eq!(
        (seen.max_depth, seen.rate),
        (7, Some(Rate::per_second(100_000)))
    );
}

#[tokio::test]
async fn something_else_under_a_key_is_an_error_that_changes_nothing_and_returns_in_no_hurry() {
    for key in ["state", "jobs", "later", "parked", "dead"] {
        let server = Server::start();
        let queue = open(&server, fast()).await;
        let key = format!("sluicegate:{{q}}:{key}");
        server.ask(&["DEL", &key]);
        server.ask(&["SET", &key, "mine"]);
        let before = server.ask(&["DEBUG", "DIGEST"]);
        let error = queue
            .sender::<u32>()
            .try_send(1)
            .await
            .expect_err("no stream");
        let error = error.error().expect("it is no refusal");
        let ErrorKind::Server(inner) = error.kind() else {
            panic!("{key}: {error:?}");
        };
        assert!(
            inner.is_wrong_type() && !error.is_transient(),
            "{key}: {error:?}"
        );
        let rx = queue.receiver::<u32>();
        let since = std::time::Instant::now();
        for _ in 0..3 {
            rx.recv().await.expect_err("the same for consumers");
        }
        // 50, 100 and 200 ms: a loop around it does not spin.
        assert!(since.elapsed() >= Duration::from_millis(350));
        assert_eq!(before, server.ask(&["DEBUG", "DIGEST"]), "{key}");
        let endpoint = Endpoint::new(server.url()).expect("an address");
        assert!(fast().open(endpoint).await.is_err(), "{key}");
    }
}

#[tokio::test]
async fn a_frozen_server_costs_a_deadline_and_no_job() {
    let server = Server::start();
    let builder = || fast().deadline(Duration::from_millis(300));
    let queue = open(&server, builder()).await;
    let (tx, rx) = (queue.sender::<u32>(), queue.receiver::<u32>());
    tx.try_send(1).await.expect("room");
    server.freeze();
    let offered = tx.try_send(2).await.expect_err("no answer");
    assert!(
        offered.error().is_some_and(|error| error.may_have_run()),
        "{offered:?}"
    );
    let waiting = tokio::spawn(async move { rx.recv().await });
    tokio::time::sleep(Duration::from_millis(700)).await;
    server.thaw();
    let job = waiting
        .await
        .expect("no panic")
        .expect("it rides it out")
        .expect("there");
    assert_eq!(*job, 1);
    job.ack().await.expect("ours");
}

#[tokio::test]
async fn an_offer_with_an_id_is_there_once_although_its_answer_was_lost() {
    let server = Server::start();
    let queue = open(&server, fast().deadline(Duration::from_millis(300))).await;
    let tx = queue.sender::<u32>();
    tx.try_send(0).await.expect("room");
    server.freeze();
    let offer = tokio::spawn(async move { tx.offer(1).id("order-1").try_send().await });
    tokio::time::sleep(Duration::from_millis(450)).await;
    server.thaw();
    // What was asked before the thaw is answered after it, and is asked again.
    offer.await.expect("no panic").expect("it is taken");
    let patience = std::time::Instant::now();
    while queue.snapshot().await.is_err() {
        assert!(patience.elapsed() < Duration::from_secs(20));
    }
    assert_eq!(queue.snapshot().await.expect("it answers").depth, 2);
}

#[tokio::test]
async fn scripts_flushed_all_the_time_are_no_error() {
    let server = Server::start();
    let queue = open(&server, fast()).await;
    let (tx, rx) = (queue.sender::<u32>(), queue.receiver::<u32>());
    for item in 0..50 {
        server.ask(&["SCRIPT", "FLUSH"]);
        tx.try_send(item).await.expect("room");
        let job = rx.recv().await.expect("it answers").expect("there");
        server.ask(&["SCRIPT", "FLUSH"]);
        job.ack().await.expect("ours");
    }
}

#[tokio::test]
async fn all_keys_lie_in_one_slot_of_a_cluster() {
    let server = Options::default().cluster().start();
    let endpoint = Endpoint::cluster([server.url()]).expect("an address");
    let queue = fast()
        .max_attempts(2)
        .open(endpoint)
        .await
        .expect("it answers");
    let (tx, rx) = (queue.sender::<u32>(), queue.receiver::<u32>());
    tx.offer(1).id("one").try_send().await.expect("room");
    for _ in 0..2 {
        let job = rx.recv().await.expect("it answers").expect("there");
        job.retry(Duration::from_millis(20)).await.expect("ours");
    }
    let letters = queue.dead_letters::<u32>();
    assert_eq!(letters.redrive_all().await.expect("room"), 1);
    let job = rx.recv().await.expect("it answers").expect("there");
    assert_eq!(job.history().len(), 1);
    job.ack().await.expect("ours");
    let slots: std::collections::BTreeSet<i64> = server
        .keys()
        .iter()
        .map(|key| server.number(&["CLUSTER", "KEYSLOT", key]))
        .collect();
    assert_eq!(slots.len(), 1, "{:?}", server.keys());
}

#[tokio::test]
async fn a_name_with_braces_or_none_is_refused() {
    let server = Server::start();
    for name in ["", "a{b}"] {
        let endpoint = Endpoint::new(server.url()).expect("an address");
        let builder = Builder::new(name, Rate::per_second(1));
        let error = builder.open(endpoint).await.expect_err("no name");
        assert!(error.to_string().contains("name"), "{error}");
    }
}
