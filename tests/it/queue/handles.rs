//! What handles are and what their ends mean.

use std::time::Duration;

use sluicegate::queue::{
    Accepted, Builder, Control, DeadLetters, Enter, Exit, Job, OwnedPermit, Permit, Reason,
    Receiver, Refused, ReserveOwned, Sender, Ticket, TryRecvError, Turn, Turnstile, WeakSender,
};
use sluicegate::{ManualClock, Rate};

use super::{SECOND, assert_balanced};

/// Pins what handles and futures are; `Cell` is `Send` and not `Sync`.
#[test]
fn handles_and_futures_are_send_for_every_item_that_is() {
    type Item = std::cell::Cell<u8>;
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    fn unpin<T: Unpin>() {}
    fn fixed<T: 'static>() {}
    send::<Sender<Item>>();
    sync::<Sender<Item>>();
    send::<Receiver<Item>>();
    sync::<Receiver<Item>>();
    unpin::<Receiver<Item>>();
    send::<WeakSender<Item>>();
    send::<Permit<'_, Item>>();
    send::<OwnedPermit<Item>>();
    send::<ReserveOwned<Item>>();
    unpin::<ReserveOwned<std::marker::PhantomPinned>>();
    fixed::<ReserveOwned<Item>>();
    send::<Job<Item>>();
    send::<DeadLetters<Item>>();
    sync::<DeadLetters<Item>>();
    unpin::<DeadLetters<std::marker::PhantomPinned>>();
    send::<Refused<Item>>();
    sync::<Refused<Item>>();
    send::<Control>();
    sync::<Control>();
    send::<Ticket>();
    unpin::<Ticket>();
    send::<Turnstile>();
    sync::<Turnstile>();
    send::<Turn>();
    send::<Enter>();
    unpin::<Enter>();
    fixed::<Enter>();

    fn future<T: Send>(_: &T) {}
    let (tx, rx) = Builder::unpaced().build::<Item>().unwrap();
    future(&tx.send(Item::new(1)));
    future(&tx.send_within(Item::new(1), SECOND));
    future(&tx.offer(Item::new(1)).send());
    future(&tx.offer(Item::new(1)).track());
    future(&tx.reserve());
    future(&tx.closed());
    future(&rx.recv());
    future(&rx.drain(SECOND));
    future(&rx.dead_letters().recv());
}

#[tokio::test(start_paused = true)]
async fn a_job_goes_through_and_the_ledger_tells_where_it_is() {
    let (tx, rx) = Builder::new(Rate::per_second(10)).build().unwrap();
    let Accepted { depth, .. } = tx.send("job").await.unwrap();
    assert_eq!(depth, 1);
    assert_eq!(tx.snapshot().ledger.queued, 1);
    let job = rx.recv().await.unwrap();
    assert_eq!(*job, "job");
    assert_eq!((job.attempt(), job.cost()), (1, 1));
    assert_eq!(tx.snapshot().ledger.in_flight, 1);
    assert_eq!(tx.snapshot().depth, 0);
    job.ack();
    let snapshot = tx.snapshot();
    assert_eq!((snapshot.ledger.acked, snapshot.in_flight), (1, 0));
    assert_balanced(&snapshot);
}

#[tokio::test(start_paused = true)]
async fn the_last_sender_gone_closes_and_what_is_queued_still_leaves() {
    let (tx, rx) = Builder::new(Rate::per_second(10)).build().unwrap();
    for n in 0..3 {
        tx.try_send(n).unwrap();
    }
    let other = tx.clone();
    let weak = tx.downgrade();
    drop(tx);
    assert!(!other.is_closed());
    assert!(weak.upgrade().is_some());
    drop(other);
    assert!(weak.upgrade().is_none());
    for n in 0..3 {
        assert_eq!(rx.recv().await.unwrap().into_inner(), n);
    }
    assert!(rx.recv().await.is_none());
    assert_eq!(rx.try_recv().unwrap_err(), TryRecvError::Closed);
}

#[tokio::test(start_paused = true)]
async fn consumers_that_wait_are_told_of_the_end() {
    let (tx, rx) = Builder::new(Rate::per_second(10)).build::<()>().unwrap();
    let consumers: Vec<_> = (0..3)
        .map(|_| {
            let rx = rx.clone();
            tokio::spawn(async move { rx.recv().await.is_none() })
        })
        .collect();
    super::settle().await;
    drop(tx);
    for consumer in consumers {
        assert!(consumer.await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_outlives_close_and_receivers_wait_for_its_item() {
    let (tx, rx) = Builder::new(Rate::per_second(10)).build::<i32>().unwrap();
    let permit = tx.reserve_owned().await.unwrap();
    let unused = tx.reserve_owned().await.unwrap();
    assert!(tx.close());
    assert!(!tx.close());
    let recv = tokio::spawn(async move {
        let job = rx.recv().await.unwrap().into_inner();
        (job, rx.recv().await.is_none())
    });
    super::settle().await;
    assert!(!recv.is_finished());
    permit.send(7);
    tokio::time::sleep(SECOND).await;
    assert!(!recv.is_finished(), "the other permit may still send");
    drop(unused);
    assert_eq!(recv.await.unwrap(), (7, true));
    assert_balanced(&tx.snapshot());
}

#[tokio::test(start_paused = true)]
async fn the_last_receiver_gone_ends_the_queue() {
    let (tx, rx) = Builder::new(Rate::per_second(10))
        .max_depth(2)
        .build()
        .unwrap();
    let letters = rx.dead_letters();
    let permit = tx.reserve().await.unwrap();
    tx.try_send(1).unwrap();
    let waiting = tokio::spawn({
        let tx = tx.clone();
        async move { tx.send(2).await.unwrap_err() }
    });
    super::settle().await;
    let job = rx.clone();
    drop(rx);
    assert!(!tx.is_closed());
    drop(job);
    assert!(tx.is_closed());
    assert_eq!(waiting.await.unwrap().reason(), Reason::Closed);
    let letter = letters.recv().await.unwrap();
    assert_eq!((letter.item, letter.exit), (1, Exit::Returned));
    permit.send(3);
    let letter = letters.recv().await.unwrap();
    assert_eq!((letter.item, letter.exit), (3, Exit::Returned));
    assert!(
        letters.recv().await.is_none(),
        "nothing is left that could fail"
    );
    assert_balanced(&tx.snapshot());
}

#[tokio::test(start_paused = true)]
async fn a_job_outlives_every_handle() {
    let (tx, rx) = Builder::new(Rate::per_second(10)).build().unwrap();
    tx.try_send(1).unwrap();
    let control = tx.control();
    let letters = rx.dead_letters();
    let job = rx.recv().await.unwrap();
    drop((tx, rx));
    assert_eq!(control.snapshot().in_flight, 1);
    job.fail();
    assert_eq!(control.snapshot().ledger.failed, 1);
    assert_eq!(letters.recv().await.unwrap().exit, Exit::Failed);
    assert!(letters.recv().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn closed_is_awaited_by_many_and_after_the_fact() {
    let (tx, _rx) = Builder::new(Rate::per_second(10)).build::<()>().unwrap();
    let waiting = tokio::spawn({
        let tx = tx.clone();
        async move { tx.closed().await }
    });
    super::settle().await;
    assert!(!waiting.is_finished());
    tx.close();
    waiting.await.unwrap();
    tx.closed().await;
}

#[tokio::test(start_paused = true)]
async fn try_recv_says_why_there_is_no_job() {
    let clock = ManualClock::new();
    let builder = Builder::new(Rate::per_second(10))
        .clock(clock.clone())
        .max_in_flight(1);
    let (tx, rx) = builder.build().unwrap();
    assert_eq!(rx.try_recv().unwrap_err(), TryRecvError::Empty);
    for n in 0..3 {
        tx.try_send(n).unwrap();
    }
    let job = rx.try_recv().unwrap();
    assert_eq!(rx.try_recv().unwrap_err(), TryRecvError::Held);
    job.ack();
    let after = Duration::from_millis(100);
    assert_eq!(rx.try_recv().unwrap_err(), TryRecvError::NotDue { after });
    clock.advance(after);
    tx.control().pause("maintenance");
    assert_eq!(rx.try_recv().unwrap_err(), TryRecvError::Held);
    tx.control().resume();
    clock.advance(after);
    let job = rx.try_recv().unwrap();
    rx.close();
    drop(job);
    clock.advance(after);
    drop(rx.try_recv().unwrap());
    assert_eq!(rx.try_recv().unwrap_err(), TryRecvError::Closed);
}
