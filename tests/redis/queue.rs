//! The fleet's queue, one process at a time: what goes in, what comes out, and what is said about it.

use std::time::Duration;

use sluicegate::Rate;
use sluicegate::queue::{Backoff, Exit, Pressure, Reason};
use sluicegate::redis::Endpoint;
use sluicegate::redis::queue::{Builder, Cbor, ErrorKind, Existing, Queue, Snapshot, TryRecvError};

use crate::server::Server;

/// Fast enough that no test waits for it.
pub(crate) fn fast() -> Builder {
    Builder::new("q", Rate::per_second(100_000)).max_depth(100)
}

pub(crate) async fn open(server: &Server, builder: Builder) -> Queue {
    let endpoint = Endpoint::new(server.url()).expect("an address");
    builder.open(endpoint).await.expect("the server is there")
}

/// Every job is somewhere.
#[track_caller]
pub(crate) fn assert_balanced(of: &Snapshot) {
    assert_eq!(
        of.admitted + of.redriven,
        of.depth + of.in_flight + of.acked + of.dead_letters_written + of.vanished,
        "{of:?}"
    );
}

#[tokio::test]
async fn what_is_sent_comes_out_in_order_and_is_gone_when_it_is_done() {
    let server = Server::start();
    let queue = open(&server, fast()).await;
    let (tx, rx) = (queue.sender::<u32>(), queue.receiver::<u32>());
    for item in 0..10 {
        let taken = tx.offer(item).header("tenant", "acme").try_send().await;
        assert_eq!(taken.expect("there is room").depth, u64::from(item) + 1);
    }
    for item in 0..10 {
        let job = rx.recv().await.expect("the server answers");
        let job = job.expect("ten were sent");
        assert_eq!((*job, job.attempt()), (item, 1));
        assert_eq!(job.headers()["tenant"], "acme");
        assert_eq!(queue.snapshot().await.expect("it answers").in_flight, 1);
        job.ack().await.expect("it is ours");
    }
    let end = queue.snapshot().await.expect("it answers");
    assert_eq!((end.depth, end.in_flight, end.acked), (0, 0, 10));
    assert_balanced(&end);
    assert_eq!(server.number(&["XLEN", "sluicegate:{q}:jobs"]), 0);
    assert!(matches!(rx.try_recv().await, Err(TryRecvError::Empty)));
}

#[tokio::test]
async fn a_full_queue_refuses_changes_nothing_and_says_when_to_come_back() {
    let server = Server::start();
    let builder = Builder::new("orders", Rate::per_second(50))
        .max_depth(10)
        .watermarks(4, 8);
    let queue = open(&server, builder).await;
    let tx = queue.sender::<u32>();
    for item in 0..8 {
        tx.try_send(item)
            .await
            .expect("there is room up to the high mark");
    }
    assert_eq!(tx.pressure(), Pressure::Overloaded);
    let digest = || server.ask(&["DEBUG", "DIGEST"]);
    let before = digest();
    let mut told = Vec::new();
    for item in 0..5 {
        let refused = tx.try_send(item).await.expect_err("it is overloaded");
        let refusal = refused.refusal().expect("it was refused").clone();
        assert_eq!(refusal.reason(), Reason::Overloaded);
        assert_eq!((refusal.depth(), refusal.queue()), (8, Some("orders")));
        told.push(refusal.retry_after().expect("it says when"));
        assert_eq!(refused.into_inner(), item);
    }
    assert_eq!(before, digest(), "a refusal writes nothing");
    // Four must leave, 20 ms apart; each of the refused is told a later time.
    assert!(told[0] >= Duration::from_millis(60), "{told:?}");
    assert!(told[4] <= Duration::from_millis(400), "{told:?}");
    for pair in told.windows(2) {
        assert!(pair[1] > pair[0], "{told:?}");
    }
    let seen = queue.snapshot().await.expect("it answers");
    assert_eq!((seen.refused, seen.depth), (5, 8));
    // Refused until it is down to the low mark.
    let rx = queue.receiver::<u32>();
    for left in (4..8).rev() {
        assert!(tx.try_send(9).await.is_err(), "{left}");
        let job = rx.recv().await.expect("it answers").expect("some are left");
        job.ack().await.expect("it is ours");
    }
    tx.try_send(9).await.expect("it is healthy again");
}

#[tokio::test]
async fn who_is_refused_and_obeys_gets_in() {
    let server = Server::start();
    let builder = Builder::new("q", Rate::per_second(100))
        .max_depth(10)
        .watermarks(2, 5);
    let queue = open(&server, builder).await;
    let tx = queue.sender::<u32>();
    for item in 0..5 {
        tx.try_send(item).await.expect("there is room");
    }
    let rx = queue.receiver::<u32>();
    let consumer = tokio::spawn(async move {
        while let Ok(Some(job)) = rx.recv().await {
            job.ack().await.expect("it is ours");
        }
    });
    let refused = tx.try_send(9).await.expect_err("it is full");
    let after = refused.refusal().and_then(|refusal| refusal.retry_after());
    // Generous: a busy machine delays the consumer too.
    tokio::time::sleep(after.expect("it says when") + Duration::from_millis(500)).await;
    tx.try_send(9).await.expect("there is room now");
    consumer.abort();
}

#[tokio::test]
async fn who_waits_gets_in_in_the_order_of_asking() {
    let server = Server::start();
    let builder = Builder::new("q", Rate::per_second(500))
        .max_depth(4)
        .watermarks(1, 3);
    let queue = open(&server, builder).await;
    let tx = queue.sender::<u32>();
    let mut offers = Vec::new();
    for item in 0..20 {
        let sender = tx.clone();
        offers.push(tokio::spawn(async move { sender.send(item).await }));
        tokio::task::yield_now().await;
    }
    let rx = queue.receiver::<u32>();
    let mut seen = Vec::new();
    for _ in 0..20 {
        let job = rx.recv().await.expect("it answers").expect("20 were sent");
        assert!(queue.snapshot().await.expect("it answers").depth <= 3);
        seen.push(job.into_inner().await.expect("it is ours"));
    }
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
    for offer in offers {
        assert!(offer.await.expect("no panic").is_ok());
    }
}

#[tokio::test]
async fn a_wait_has_an_end_and_a_line_has_a_bound() {
    let server = Server::start();
    let builder = Builder::new("q", Rate::per_hour(1))
        .max_depth(2)
        .watermarks(1, 2)
        .max_waiters(1);
    let queue = open(&server, builder).await;
    let tx = queue.sender::<u32>();
    tx.send(0).await.expect("there is room");
    tx.send(1).await.expect("there is room");
    let within = Duration::from_millis(300);
    let (first, second, third) = tokio::join!(
        tx.send_within(2, within),
        tx.send_within(3, within),
        tx.send_within(4, within)
    );
    let reason = |of: Result<_, sluicegate::redis::queue::OfferError<u32>>| {
        let refused = of.expect_err("there is no room");
        refused.refusal().expect("it was refused").reason()
    };
    assert_eq!(reason(first), Reason::TimedOut);
    assert_eq!(reason(second), Reason::TimedOut);
    assert_eq!(reason(third), Reason::WaitersFull);
}

#[tokio::test]
async fn the_same_offer_made_again_is_one_job_even_if_the_queue_is_full_by_then() {
    let server = Server::start();
    let queue = open(&server, fast().max_depth(2).watermarks(0, 2)).await;
    let tx = queue.sender::<u32>();
    let first = tx.offer(1).id("order-1").try_send().await.expect("room");
    tx.try_send(2).await.expect("room");
    let again = tx.offer(1).id("order-1").try_send().await.expect("known");
    assert!(again.is_duplicate && !first.is_duplicate);
    assert_eq!(again.id, first.id);
    // A refused offer is not remembered.
    assert!(tx.offer(3).id("order-3").try_send().await.is_err());
    let rx = queue.receiver::<u32>();
    let job = rx.recv().await.expect("it answers").expect("two are there");
    assert_eq!(job.offer_id(), Some("order-1"));
    job.ack().await.expect("ours");
    let job = rx.recv().await.expect("it answers").expect("one is there");
    job.ack().await.expect("ours");
    let late = tx.offer(3).id("order-3").try_send().await.expect("room");
    assert!(!late.is_duplicate);
    // Done does not mean forgotten: the answer may have been lost for as long.
    let again = tx.offer(1).id("order-1").try_send().await.expect("known");
    assert!(again.is_duplicate);
    assert_eq!(queue.snapshot().await.expect("it answers").depth, 1);
}

#[tokio::test]
async fn a_retry_waits_on_the_server_counts_and_ends_among_the_dead_letters() {
    let server = Server::start();
    let queue = open(&server, fast().max_attempts(3)).await;
    let (tx, rx) = (queue.sender::<String>(), queue.receiver::<String>());
    tx.try_send("insert".into()).await.expect("room");
    let delay = Duration::from_millis(150);
    let mut last = None;
    for attempt in 1..=3 {
        let job = rx.recv().await.expect("it answers").expect("it comes back");
        assert_eq!(job.attempt(), attempt);
        if let Some(last) = last {
            assert!(job.departed_at() - last >= delay, "never early");
            assert_eq!(job.last_cause(), Some("deadlock"));
        }
        last = Some(job.departed_at());
        job.retry_because("deadlock", delay).await.expect("ours");
        let seen = queue.snapshot().await.expect("it answers");
        assert_balanced(&seen);
        assert_eq!(seen.depth, u64::from(attempt < 3));
        assert_eq!(
            seen.delayed, seen.depth,
            "a delayed job keeps its place in depth"
        );
        assert_eq!(seen.in_flight, 0, "and is nobody's");
    }
    let letters = queue.dead_letters::<String>();
    let letter = letters.list(10).await.expect("it answers").remove(0);
    assert_eq!(letter.item.as_deref(), Some("insert"));
    assert_eq!(letter.death.exit, Some(Exit::Failed));
    assert_eq!(letter.death.attempts, 3);
    assert_eq!(letter.death.cause.as_deref(), Some("deadlock"));
}

#[tokio::test]
async fn a_deferral_counts_no_attempt() {
    let server = Server::start();
    let queue = open(&server, fast().max_attempts(2)).await;
    let (tx, rx) = (queue.sender::<u32>(), queue.receiver::<u32>());
    tx.try_send(1).await.expect("room");
    for _ in 0..100 {
        let job = rx.recv().await.expect("it answers").expect("it comes back");
        assert_eq!(job.attempt(), 1);
        job.defer(Duration::ZERO).await.expect("ours");
    }
    assert_eq!(queue.snapshot().await.expect("it answers").deferred, 100);
}

#[tokio::test]
async fn retries_have_room_in_a_full_queue() {
    let server = Server::start();
    let queue = open(&server, fast().max_depth(3).watermarks(1, 3)).await;
    let (tx, rx) = (queue.sender::<u32>(), queue.receiver::<u32>());
    let mut held = Vec::new();
    for item in 0..3 {
        tx.try_send(item).await.expect("room");
    }
    for _ in 0..3 {
        held.push(rx.recv().await.expect("it answers").expect("there"));
    }
    for item in 3..6 {
        tx.try_send(item)
            .await
            .expect("what is in flight is not in the depth");
    }
    for job in held {
        job.retry(Backoff::from(Duration::ZERO))
            .await
            .expect("ours");
    }
    let seen = queue.snapshot().await.expect("it answers");
    assert_eq!(
        seen.depth, 6,
        "only what is put back lifts it above the bound"
    );
    assert!(tx.try_send(9).await.is_err());
    let mut items = Vec::new();
    for _ in 0..6 {
        let job = rx.recv().await.expect("it answers").expect("there");
        items.push(job.into_inner().await.expect("ours"));
    }
    assert_eq!(items, [3, 4, 5, 0, 1, 2], "what comes back waits anew");
}

#[tokio::test]
async fn dead_letters_go_back_one_all_or_by_exit_and_keep_their_history() {
    let server = Server::start();
    let builder = fast()
        .max_attempts(1)
        .claim_after(Duration::from_millis(100));
    let queue = open(&server, builder).await;
    let (tx, rx) = (queue.sender::<u32>(), queue.receiver::<u32>());
    for item in 0..4 {
        tx.try_send(item).await.expect("room");
    }
    for item in 0..3 {
        let job = rx.recv().await.expect("it answers").expect("there");
        job.fail_because(format!("no {item}")).await.expect("ours");
    }
    // Its consumer gives up without a word.
    drop(rx.recv().await.expect("it answers").expect("there"));
    let letters = queue.dead_letters::<u32>();
    while letters.list(9).await.expect("it answers").len() < 4 {
        let none = tokio::time::timeout(Duration::from_millis(50), rx.recv()).await;
        assert!(none.is_err(), "nothing is left to start");
    }
    let all = letters.list(9).await.expect("it answers");
    assert_eq!(all[3].death.exit, Some(Exit::Abandoned));
    let page = letters
        .list_after(Some(&all[1].id), 1)
        .await
        .expect("it answers");
    assert_eq!(page[0].id, all[2].id);

    assert!(letters.redrive(&all[1].id).await.expect("there is room"));
    assert!(!letters.redrive(&all[1].id).await.expect("it is gone"));
    assert_eq!(
        letters.redrive_exit(Exit::Abandoned).await.expect("room"),
        1
    );
    assert_eq!(letters.redrive_all().await.expect("room"), 2);
    assert_eq!(letters.redrive_all().await.expect("none is left"), 0);
    assert_balanced(&queue.snapshot().await.expect("it answers"));

    let job = rx.recv().await.expect("it answers").expect("it is back");
    assert_eq!((*job, job.attempt()), (1, 1), "its attempts begin anew");
    assert_eq!(job.history().len(), 1);
    job.fail_because("again").await.expect("ours");
    let letter = letters.list(9).await.expect("it answers").remove(0);
    assert_eq!(letter.death.cause.as_deref(), Some("again"));
    assert_eq!(letter.history.len(), 1);
    assert_eq!(letter.history[0].exit, Some(Exit::Failed));
    assert_eq!(letter.history[0].cause.as_deref(), Some("no 1"));
    assert_eq!(letter.history[0].at, all[1].death.at);
    assert!(letters.remove(&letter.id).await.expect("it answers"));
}

#[tokio::test]
async fn putting_back_more_than_fits_says_how_many_went() {
    let server = Server::start();
    let queue = open(&server, fast().max_depth(3).watermarks(1, 3)).await;
    let (tx, rx) = (queue.sender::<u32>(), queue.receiver::<u32>());
    for item in 0..5 {
        tx.send(item).await.expect("room");
        let job = rx.recv().await.expect("it answers").expect("there");
        job.fail().await.expect("ours");
    }
    let letters = queue.dead_letters::<u32>();
    let error = letters.redrive_all().await.expect_err("three fit");
    assert!(
        matches!(error.kind(), ErrorKind::NoRoom { moved: 3 }),
        "{error:?}"
    );
    assert_eq!(letters.list(9).await.expect("it answers").len(), 2);
    assert_balanced(&queue.snapshot().await.expect("it answers"));
}

#[tokio::test]
async fn a_full_outlet_drops_the_newest_letter_and_counts_it() {
    let server = Server::start();
    let queue = open(&server, fast().dead_letters(1)).await;
    let (tx, rx) = (queue.sender::<u32>(), queue.receiver::<u32>());
    for item in 0..3 {
        tx.try_send(item).await.expect("room");
        let job = rx.recv().await.expect("it answers").expect("there");
        job.fail().await.expect("ours");
    }
    let kept = queue
        .dead_letters::<u32>()
        .list(9)
        .await
        .expect("it answers");
    assert_eq!(kept[0].item, Some(0));
    let seen = queue.snapshot().await.expect("it answers");
    assert_eq!((seen.dead_letters, seen.dead_letters_lost), (1, 2));
    assert_balanced(&seen);
}

#[tokio::test]
async fn what_is_late_expires_and_what_would_be_is_refused() {
    let server = Server::start();
    let builder = Builder::new("q", Rate::per_second(10))
        .max_depth(100)
        .max_wait(Duration::from_millis(500))
        .expire_after(Duration::from_millis(200));
    let queue = open(&server, builder).await;
    let tx = queue.sender::<u32>();
    let mut admitted = 0;
    let refusal = loop {
        match tx.try_send(admitted).await {
            Ok(_) => admitted += 1,
            Err(error) => break error.refusal().expect("refused").clone(),
        }
    };
    assert_eq!(refusal.reason(), Reason::TooLate);
    assert!((3..=8).contains(&admitted), "{admitted}");
    tokio::time::sleep(Duration::from_millis(250)).await;
    let rx = queue.receiver::<u32>();
    assert!(matches!(
        rx.try_recv().await,
        Err(TryRecvError::Empty | TryRecvError::NotDue { .. })
    ));
    let seen = queue.snapshot().await.expect("it answers");
    assert_eq!((seen.depth, seen.dead_letters), (0, u64::from(admitted)));
    assert_eq!(seen.started, 0, "an expired job uses up no departure");
}

#[tokio::test]
async fn a_pause_holds_for_all_and_a_closed_queue_empties_and_opens_again() {
    let server = Server::start();
    let queue = open(&server, fast()).await;
    let other = open(&server, fast()).await;
    let (tx, rx) = (queue.sender::<u32>(), other.receiver::<u32>());
    tx.try_send(1).await.expect("room");
    queue
        .pause("the database is down")
        .await
        .expect("it answers");
    assert!(matches!(rx.try_recv().await, Err(TryRecvError::Paused)));
    let seen = other.snapshot().await.expect("it answers");
    assert_eq!(seen.paused.as_deref(), Some("the database is down"));
    assert_eq!(
        server.number(&["PTTL", "sluicegate:{q}:state"]),
        -1,
        "it does not resume by itself"
    );
    tx.try_send(2)
        .await
        .expect("offers are taken while there is room");
    queue.resume().await.expect("it answers");
    let job = rx.recv().await.expect("it answers").expect("it goes on");
    queue.close().await.expect("it answers");
    let refused = tx.try_send(3).await.expect_err("it is closed");
    assert_eq!(
        refused.refusal().map(|of| of.reason()),
        Some(Reason::Closed)
    );
    assert_eq!(refused.refusal().and_then(|of| of.retry_after()), None);
    job.retry(Duration::ZERO)
        .await
        .expect("what is inside may come back");
    let work = tokio::spawn(async move {
        let mut done = 0;
        while let Some(job) = rx.recv().await.expect("it answers") {
            job.ack().await.expect("ours");
            done += 1;
        }
        done
    });
    let report = queue
        .drain(Duration::from_secs(20))
        .await
        .expect("it answers");
    assert_eq!((report.in_flight, report.left), (0, 0));
    // The worker may have begun before it.
    assert!(report.settled <= 2, "{report:?}");
    assert_eq!(work.await.expect("no panic"), 2, "then there are no more");
    queue.reopen().await.expect("it answers");
    tx.try_send(4).await.expect("it is open");
    let report = queue
        .drain(Duration::from_millis(50))
        .await
        .expect("it answers");
    assert_eq!((report.settled, report.left), (0, 1), "what is left stays");
}

#[tokio::test]
async fn two_rates_for_one_queue_are_a_conflict_that_is_named() {
    let server = Server::start();
    let at = |rate| Builder::new("q", Rate::per_second(rate)).max_depth(10);
    let queue = open(&server, at(100)).await;
    let endpoint = Endpoint::new(server.url()).expect("an address");
    let error = at(200).open(endpoint).await.expect_err("it is 100/s");
    let ErrorKind::Conflict {
        setting,
        stored,
        asked,
    } = error.kind()
    else {
        panic!("{error:?}");
    };
    assert_eq!(
        (&**setting, &**stored, &**asked),
        ("rate", "100/s", "200/s")
    );
    let rate = async |queue: &Queue| queue.snapshot().await.expect("it answers").rate;
    let adopted = open(&server, at(200).existing(Existing::Adopt)).await;
    assert_eq!(rate(&adopted).await, Some(Rate::per_second(100)));
    let _ = open(&server, at(300).existing(Existing::Replace)).await;
    assert_eq!(rate(&queue).await, Some(Rate::per_second(300)));
    adopted
        .set_rate(Rate::per_second(400))
        .await
        .expect("it answers");
    assert_eq!(rate(&queue).await, Some(Rate::per_second(400)));
    let error = queue
        .apply(&at(100).max_depth(0))
        .await
        .expect_err("no depth");
    assert!(matches!(error.kind(), ErrorKind::Setting { .. }));
}

#[tokio::test]
async fn a_binary_format_is_a_choice_of_the_fleet() {
    let server = Server::start();
    let queue = open(&server, fast()).await;
    let tx = queue.sender_as::<(u64, String), _>(Cbor);
    let rx = queue.receiver_as::<(u64, String), _>(Cbor);
    let item = (u64::MAX, "Grüße\0".to_owned());
    tx.try_send(item.clone()).await.expect("room");
    let job = rx.recv().await.expect("it answers").expect("there");
    assert_eq!(*job, item);
    job.ack().await.expect("ours");
}

#[tokio::test]
async fn a_receiver_dropped_in_the_middle_of_its_question_loses_nothing() {
    let server = Server::start();
    let queue = open(&server, fast()).await;
    let (tx, rx) = (queue.sender::<u32>(), queue.receiver::<u32>());
    for item in 0..50 {
        tx.try_send(item).await.expect("room");
    }
    // Polled once and dropped: the question is on its way.
    for _ in 0..30 {
        let asked = rx.recv();
        tokio::pin!(asked);
        let polled = futures_util::poll!(asked.as_mut());
        if let std::task::Poll::Ready(job) = polled {
            let job = job.expect("it answers").expect("there");
            job.retry(Duration::ZERO).await.expect("ours");
        }
        tokio::task::yield_now().await;
    }
    let mut items = Vec::new();
    for _ in 0..50 {
        let job = rx.recv().await.expect("it answers").expect("none is lost");
        assert!(job.attempt() <= 2);
        items.push(job.into_inner().await.expect("ours"));
    }
    items.sort_unstable();
    assert_eq!(items, (0..50).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_was_taken_for_nobody_goes_back_uncounted() {
    let server = Server::start();
    let queue = open(&server, fast()).await;
    let other = open(&server, fast()).await;
    queue.sender::<u32>().try_send(7).await.expect("room");
    let rx = queue.receiver::<u32>();
    {
        let asked = rx.recv();
        tokio::pin!(asked);
        assert!(futures_util::poll!(asked.as_mut()).is_pending());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    drop(rx);
    let job = other.receiver::<u32>().recv().await.expect("it answers");
    assert_eq!(job.expect("it was given back").attempt(), 1);
}
