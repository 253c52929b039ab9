//! Every future dropped at every await point, in every combination with grant, timeout and close: the ledger stays
//! exact, and the capacity whole.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use sluicegate::Rate;
use sluicegate::queue::{Builder, Receiver, Sender, Terms};
use tokio::time::advance;
use tokio_util::sync::CancellationToken;

use super::{MILLI, SECOND, poll, settle};

/// Which future is tried.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Send,
    SendWithin,
    Tracked,
    Reserve,
    ReserveOwned,
    Recv,
    Drain,
}

/// What happens between its first poll and its last.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Nothing,
    Grant,
    Timeout,
    Lapse,
    Close,
    End,
    Fire,
    GrantThenClose,
    GrantThenFire,
    TimeoutThenGrant,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    DroppedUnpolled,
    DroppedAtOnce,
    DroppedAfterwards,
    PolledThenDropped,
    PolledTwiceThenDropped,
}

const WAYS: [Way; 7] = [
    Way::Send,
    Way::SendWithin,
    Way::Tracked,
    Way::Reserve,
    Way::ReserveOwned,
    Way::Recv,
    Way::Drain,
];
const EVENTS: [Event; 10] = [
    Event::Nothing,
    Event::Grant,
    Event::Timeout,
    Event::Lapse,
    Event::Close,
    Event::End,
    Event::Fire,
    Event::GrantThenClose,
    Event::GrantThenFire,
    Event::TimeoutThenGrant,
];
const FATES: [Fate; 5] = [
    Fate::DroppedUnpolled,
    Fate::DroppedAtOnce,
    Fate::DroppedAfterwards,
    Fate::PolledThenDropped,
    Fate::PolledTwiceThenDropped,
];

type Tried<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

fn future<'a>(
    way: Way,
    tx: &'a Sender<u32>,
    rx: &'a Receiver<u32>,
    token: &CancellationToken,
) -> Tried<'a> {
    let terms = Terms::new().cancelled_by(token.clone());
    match way {
        Way::Send => Box::pin(async { drop(tx.offer(7).terms(terms).send().await) }),
        Way::SendWithin => {
            Box::pin(async { drop(tx.offer(7).terms(terms).send_within(SECOND).await) })
        }
        Way::Tracked => Box::pin(async { drop(tx.offer(7).terms(terms).track().await) }),
        Way::Reserve => Box::pin(async { drop(tx.reserve_with(terms).await) }),
        Way::ReserveOwned => Box::pin(async { drop(tx.reserve_owned_with(terms).await) }),
        Way::Recv => Box::pin(async { drop(rx.recv().await) }),
        Way::Drain => Box::pin(async { drop(rx.drain(SECOND).await) }),
    }
}

async fn happen(
    event: Event,
    tx: &Sender<u32>,
    rx: &mut Option<Receiver<u32>>,
    token: &CancellationToken,
) {
    let grant = |rx: &Option<Receiver<u32>>| {
        if let Some(Ok(job)) = rx.as_ref().map(Receiver::try_recv) {
            job.ack();
        }
    };
    match event {
        Event::Nothing => {}
        Event::Grant => grant(rx),
        Event::Timeout => advance(SECOND + 3 * MILLI).await,
        Event::Lapse => {
            grant(rx);
            advance(SECOND + 3 * MILLI).await;
        }
        Event::Close => drop(tx.close()),
        Event::End => drop(rx.take()),
        Event::Fire => token.cancel(),
        Event::GrantThenClose => {
            grant(rx);
            tx.close();
        }
        Event::GrantThenFire => {
            grant(rx);
            token.cancel();
        }
        Event::TimeoutThenGrant => {
            advance(SECOND + 3 * MILLI).await;
            grant(rx);
        }
    }
}

async fn try_out(way: Way, event: Event, fate: Fate, full: bool, driven: bool) {
    let what = (way, event, fate, full, driven);
    // The future borrows its own clones, so that the ends can be dropped under it.
    let (tx, rx) = Builder::new(Rate::per_second(1_000))
        .max_depth(2)
        .build()
        .unwrap();
    let (own_tx, own_rx) = (tx.clone(), rx.clone());
    let mut rx = Some(rx);
    let token = CancellationToken::new();
    if full {
        tx.try_send(1).unwrap();
        tx.offer(2)
            .terms(Terms::new().priority(sluicegate::queue::Priority::Critical))
            .try_send()
            .unwrap();
    }
    let mut tried = future(way, &own_tx, &own_rx, &token);
    let mut done = false;
    if fate != Fate::DroppedUnpolled {
        done = poll(&mut tried).is_ready();
    }
    if matches!(fate, Fate::DroppedAtOnce) {
        tried = Box::pin(async {});
        done = true;
    }
    happen(event, &tx, &mut rx, &token).await;
    if driven {
        settle().await;
    }
    if fate == Fate::PolledTwiceThenDropped && !done {
        done = poll(&mut tried).is_ready();
        if driven {
            settle().await;
        }
    }
    if matches!(fate, Fate::PolledThenDropped | Fate::PolledTwiceThenDropped) && !done {
        let _: Poll<()> = poll(&mut tried);
    }
    drop(tried);
    assert!(
        tx.snapshot().ledger.is_balanced(),
        "{what:?}: {:?}",
        tx.snapshot()
    );
    settle().await;

    let snapshot = tx.snapshot();
    let ledger = snapshot.ledger;
    assert!(ledger.is_balanced(), "{what:?}: {snapshot:?}");
    assert_eq!(ledger.waiting, 0, "{what:?}: {snapshot:?}");
    assert_eq!(ledger.reserved, 0, "{what:?}: {snapshot:?}");
    assert_eq!(ledger.in_flight, 0, "{what:?}: {snapshot:?}");
    assert_eq!(snapshot.depth, ledger.queued, "{what:?}: {snapshot:?}");
    // What is left can leave, and then the whole capacity is there.
    drop(rx);
    for _ in 0..3 {
        advance(SECOND).await;
        settle().await;
        if let Ok(job) = own_rx.try_recv() {
            job.ack();
        }
    }
    let snapshot = tx.snapshot();
    assert_eq!(snapshot.depth, 0, "{what:?}: {snapshot:?}");
    if !tx.is_closed() {
        let all = tx.reserve_cost(2);
        let mut all = Box::pin(all);
        assert!(poll(&mut all).is_ready(), "{what:?}: capacity is lost");
    }
}

#[tokio::test(start_paused = true)]
async fn every_future_may_be_dropped_at_every_point() {
    for way in WAYS {
        for event in EVENTS {
            for fate in FATES {
                for full in [false, true] {
                    for driven in [false, true] {
                        try_out(way, event, fate, full, driven).await;
                    }
                }
            }
        }
    }
}
