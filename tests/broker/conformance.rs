//! What every broker keeps, whatever stands behind it: one function over anything that makes empty brokers.
//!
//! A promise that hangs on a [`Capability`] is tried where the broker claims it, and listed as skipped where not. Nothing
//! here depends on speed: waits are bounds for a machine under load, and are only waited out where a broker's own clock
//! has to pass.

use std::collections::BTreeSet;
use std::time::Duration;

use sluicegate::broker::{
    Broker, BrokerErrorKind, Capability, DEAD_DELIVERIES, DEAD_REASON, Delivery, Message,
};
use tokio::time::Instant;

/// Makes brokers for the suite.
pub(crate) trait Stand {
    type Broker: Broker;

    /// An empty queue or stream of this name, set up as wished where the broker can.
    async fn fresh(&self, name: &str, wish: Wish) -> Self::Broker;

    /// Another handle to the same queue or stream, as another process would have: with a connection of its own.
    async fn again(&self, broker: &Self::Broker) -> Self::Broker;

    /// Largest payload that the server takes, in bytes.
    fn max_payload(&self) -> usize;
}

/// How a queue or stream is to be set up.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) max_depth: Option<u64>,
    pub(crate) max_in_flight: Option<u64>,
    /// Time after which what nobody settles comes again, where the broker goes by time.
    pub(crate) hold: Duration,
}

pub(crate) const PLAIN: Wish = Wish {
    max_depth: None,
    max_in_flight: None,
    hold: Duration::from_secs(30),
};

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) passed: Vec<&'static str>,
    pub(crate) skipped: Vec<&'static str>,
}

/// Tries every promise.
pub(crate) async fn all<S: Stand>(stand: &S) -> Kept {
    let mut kept = Kept::default();
    macro_rules! promises {
        ($($promise:ident $(if $capability:ident with $wish:expr)?;)*) => {$(
            let name = stringify!($promise);
            #[allow(unused_mut, unused_assignments)]
            let (mut wish, mut claimed) = (PLAIN, true);
            $(
                wish = $wish;
                let probe = stand.fresh(&format!("{name}_probe"), wish).await;
                claimed = probe.capabilities().has(Capability::$capability);
            )?
            if claimed {
                let broker = stand.fresh(name, wish).await;
                eprintln!("{}: {name}", std::any::type_name::<S>());
                $promise(stand, broker).await;
                kept.passed.push(name);
            } else {
                kept.skipped.push(name);
            }
        )*};
    }
    promises! {
        an_empty_one_says_so;
        what_is_published_is_taken_once_with_all_it_has;
        oldest_first;
        no_more_is_taken_than_asked_for;
        take_waits_for_the_first;
        another_handle_sees_the_same;
        acked_is_gone;
        a_retry_comes_again;
        given_back_comes_again_at_once;
        a_dead_letter_says_why_and_frees_its_place;
        dead_letters_can_be_published_again;
        a_settled_delivery_is_not_settled_twice;
        an_oversized_payload_is_refused_and_harms_nothing;
        any_bytes_pass_unchanged;
        deliveries_are_counted if DeliveryCount with PLAIN;
        a_return_is_not_counted if UncountedReturn with PLAIN;
        a_retry_stays_away_for_its_delay if DelayedRetry with PLAIN;
        depth_has_in_it_what_anybody_holds if ExactDepth with PLAIN;
        a_double_is_stored_once if Deduplication with PLAIN;
        the_bound_is_hard_and_opens_again if HardDepthBound with Wish { max_depth: Some(3), ..PLAIN };
        all_consumers_together_hold_no_more if FleetInFlightBound with Wish { max_in_flight: Some(2), ..PLAIN };
        unsettled_comes_again_and_a_heartbeat_prevents_it if Heartbeat with Wish { hold: Duration::from_secs(2), ..PLAIN };
    }
    kept
}

/// Takes exactly `n`, over as many calls as it needs.
pub(crate) async fn take_all<B: Broker>(broker: &B, n: usize) -> Vec<Delivery<B::Receipt>> {
    let mut taken = Vec::new();
    let patience = Instant::now();
    while taken.len() < n {
        let more = broker.take(n - taken.len(), WAIT).await;
        taken.extend(more.expect("it hands out"));
        assert!(patience.elapsed() < 6 * WAIT, "{} of {n} came", taken.len());
    }
    taken
}

pub(crate) async fn publish_all<B: Broker>(broker: &B, payloads: &[&str]) {
    for payload in payloads {
        let message = Message::new(*payload);
        broker.publish(&message).await.expect("there is room");
    }
}

/// Waits until the depth is this: some brokers count a little later than they confirm.
pub(crate) async fn settles_at<B: Broker>(broker: &B, queued: u64, in_flight: u64) {
    let patience = Instant::now();
    loop {
        let depth = broker.depth().await.expect("it tells its depth");
        if (depth.queued, depth.in_flight) == (queued, in_flight) {
            return;
        }
        assert!(
            patience.elapsed() < WAIT,
            "{depth:?}, wanted {queued} queued and {in_flight} in flight"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// As [`settles_at`], wherever the messages are.
async fn totals<B: Broker>(broker: &B, total: u64) {
    let patience = Instant::now();
    loop {
        let depth = broker.depth().await.expect("it tells its depth");
        if depth.total() == total {
            return;
        }
        assert!(patience.elapsed() < WAIT, "{depth:?}, wanted {total}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn takes_nothing<B: Broker>(broker: &B) {
    let more = broker.take(10, SHORT).await.expect("it answers");
    assert!(more.is_empty(), "{more:?} came");
}

fn text<R>(delivery: &Delivery<R>) -> &str {
    std::str::from_utf8(delivery.message.payload()).expect("the suite publishes text")
}

async fn an_empty_one_says_so<S: Stand>(_: &S, broker: S::Broker) {
    assert_eq!(broker.depth().await.expect("it answers").total(), 0);
    takes_nothing(&broker).await;
    let none = broker.take(0, WAIT).await.expect("it answers");
    assert!(none.is_empty());
}

async fn what_is_published_is_taken_once_with_all_it_has<S: Stand>(_: &S, broker: S::Broker) {
    let message = Message::new("order 7")
        .id("order-7")
        .header("tenant", "acme")
        .header("trace", "a-b-c");
    broker.publish(&message).await.expect("there is room");
    let taken = take_all(&broker, 1).await;
    assert_eq!(taken[0].message, message);
    assert_eq!(taken[0].attempt, 1);
    takes_nothing(&broker).await;
    broker.ack(&taken[0].receipt).await.expect("it is held");
}

async fn oldest_first<S: Stand>(_: &S, broker: S::Broker) {
    publish_all(&broker, &["1", "2", "3", "4", "5"]).await;
    let taken = take_all(&broker, 5).await;
    let order: Vec<_> = taken.iter().map(text).collect();
    assert_eq!(order, ["1", "2", "3", "4", "5"]);
}

async fn no_more_is_taken_than_asked_for<S: Stand>(_: &S, broker: S::Broker) {
    publish_all(&broker, &["1", "2", "3"]).await;
    let first = broker.take(2, WAIT).await.expect("it answers");
    assert!((1..=2).contains(&first.len()), "{first:?}");
}

async fn take_waits_for_the_first<S: Stand>(_: &S, broker: S::Broker) {
    let later = broker.clone();
    let publishing = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        publish_all(&later, &["late"]).await;
    };
    let (taken, ()) = futures_util::future::join(take_all(&broker, 1), publishing).await;
    assert_eq!(text(&taken[0]), "late");
}

async fn another_handle_sees_the_same<S: Stand>(stand: &S, broker: S::Broker) {
    publish_all(&broker, &["1"]).await;
    let other = stand.again(&broker).await;
    settles_at(&other, 1, 0).await;
    let taken = take_all(&other, 1).await;
    takes_nothing(&broker).await;
    other.ack(&taken[0].receipt).await.expect("it is held");
    settles_at(&broker, 0, 0).await;
}

async fn acked_is_gone<S: Stand>(_: &S, broker: S::Broker) {
    publish_all(&broker, &["1", "2"]).await;
    for delivery in take_all(&broker, 2).await {
        broker.ack(&delivery.receipt).await.expect("it is held");
    }
    settles_at(&broker, 0, 0).await;
    takes_nothing(&broker).await;
    assert_eq!(
        broker
            .dead_letters()
            .depth()
            .await
            .expect("it answers")
            .total(),
        0
    );
}

async fn a_retry_comes_again<S: Stand>(_: &S, broker: S::Broker) {
    publish_all(&broker, &["1"]).await;
    let first = take_all(&broker, 1).await;
    let put_back = broker.retry(&first[0].receipt, Duration::ZERO).await;
    put_back.expect("it is held");
    let second = take_all(&broker, 1).await;
    assert_eq!(second[0].message, first[0].message);
    assert!(second[0].attempt >= 2, "it is not the first any more");
    broker.ack(&second[0].receipt).await.expect("it is held");
    settles_at(&broker, 0, 0).await;
}

async fn given_back_comes_again_at_once<S: Stand>(_: &S, broker: S::Broker) {
    publish_all(&broker, &["1", "2"]).await;
    for delivery in take_all(&broker, 2).await {
        let given = broker.give_back(&delivery.receipt).await;
        given.expect("it is held");
    }
    totals(&broker, 2).await;
    let again: BTreeSet<_> = take_all(&broker, 2)
        .await
        .iter()
        .map(|d| text(d).to_owned())
        .collect();
    assert_eq!(again, BTreeSet::from(["1".into(), "2".into()]));
}

async fn a_dead_letter_says_why_and_frees_its_place<S: Stand>(_: &S, broker: S::Broker) {
    let poison = Message::new("poison").id("p-1").header("tenant", "acme");
    broker.publish(&poison).await.expect("there is room");
    let taken = take_all(&broker, 1).await;
    let moved = broker.dead_letter(&taken[0], "no number:\nline 2").await;
    moved.expect("it is held");
    settles_at(&broker, 0, 0).await;
    let dead = broker.dead_letters();
    settles_at(&dead, 1, 0).await;
    let letter = take_all(&dead, 1).await.remove(0);
    assert_eq!(letter.message.payload(), b"poison");
    let header = |name| letter.message.header_value(name);
    assert_eq!(header("tenant"), Some("acme"));
    assert_eq!(header(DEAD_REASON), Some("no number: line 2"));
    assert_eq!(header(DEAD_DELIVERIES), Some("1"));
    dead.ack(&letter.receipt).await.expect("it is held");
    settles_at(&dead, 0, 0).await;
}

async fn dead_letters_can_be_published_again<S: Stand>(_: &S, broker: S::Broker) {
    broker
        .publish(&Message::new("mended").id("m-1"))
        .await
        .expect("there is room");
    let taken = take_all(&broker, 1).await;
    broker
        .dead_letter(&taken[0], "downstream was wrong")
        .await
        .expect("it is held");
    let dead = broker.dead_letters();
    let letter = take_all(&dead, 1).await.remove(0);
    broker
        .publish(&letter.message)
        .await
        .expect("there is room");
    dead.ack(&letter.receipt).await.expect("it is held");
    let again = take_all(&broker, 1).await.remove(0);
    assert_eq!((text(&again), again.attempt), ("mended", 1));
    assert_eq!(again.message.name(), Some("m-1"), "and it is no double");
}

async fn a_settled_delivery_is_not_settled_twice<S: Stand>(_: &S, broker: S::Broker) {
    publish_all(&broker, &["1", "2"]).await;
    let taken = take_all(&broker, 2).await;
    broker.ack(&taken[0].receipt).await.expect("it is held");
    // The second verb is refused or does nothing; either way the other message is untouched and nothing comes twice.
    for second in [
        broker.ack(&taken[0].receipt).await,
        broker.retry(&taken[0].receipt, Duration::ZERO).await,
    ] {
        if let Err(error) = second {
            assert_eq!(error.kind(), BrokerErrorKind::Stale, "{error}");
        }
    }
    takes_nothing(&broker).await;
    broker
        .ack(&taken[1].receipt)
        .await
        .expect("it is held still");
    settles_at(&broker, 0, 0).await;
}

async fn an_oversized_payload_is_refused_and_harms_nothing<S: Stand>(stand: &S, broker: S::Broker) {
    let big = Message::new(vec![b'x'; stand.max_payload() + 1]);
    let error = broker
        .publish(&big)
        .await
        .expect_err("it is above the bound");
    assert_eq!(error.kind(), BrokerErrorKind::TooLarge, "{error}");
    publish_all(&broker, &["small"]).await;
    assert_eq!(text(&take_all(&broker, 1).await[0]), "small");
}

async fn any_bytes_pass_unchanged<S: Stand>(_: &S, broker: S::Broker) {
    let payloads = [
        vec![],
        vec![0],
        (0..=255).collect::<Vec<u8>>(),
        b"\r\n\xff\xfe".to_vec(),
    ];
    for payload in &payloads {
        broker
            .publish(&Message::new(payload.clone()))
            .await
            .expect("there is room");
    }
    let taken = take_all(&broker, payloads.len()).await;
    for (delivery, payload) in taken.iter().zip(&payloads) {
        assert_eq!(delivery.message.payload(), payload);
    }
}

async fn deliveries_are_counted<S: Stand>(stand: &S, broker: S::Broker) {
    publish_all(&broker, &["1"]).await;
    // By whichever handle: the count is the broker's.
    let other = stand.again(&broker).await;
    for (round, handle) in [&broker, &other, &broker, &other].into_iter().enumerate() {
        let taken = take_all(handle, 1).await;
        assert_eq!(taken[0].attempt as usize, round + 1);
        handle
            .retry(&taken[0].receipt, Duration::ZERO)
            .await
            .expect("it is held");
    }
}

async fn a_return_is_not_counted<S: Stand>(_: &S, broker: S::Broker) {
    publish_all(&broker, &["1"]).await;
    for _ in 0..3 {
        let taken = take_all(&broker, 1).await;
        assert_eq!(taken[0].attempt, 1);
        broker
            .give_back(&taken[0].receipt)
            .await
            .expect("it is held");
    }
}

async fn a_retry_stays_away_for_its_delay<S: Stand>(_: &S, broker: S::Broker) {
    publish_all(&broker, &["later", "now"]).await;
    let first = take_all(&broker, 1).await;
    let put_back = Instant::now();
    let delay = Duration::from_secs(1);
    broker
        .retry(&first[0].receipt, delay)
        .await
        .expect("it is held");
    let now = take_all(&broker, 1).await;
    assert_eq!(text(&now[0]), "now", "others go on meanwhile");
    let later = take_all(&broker, 1).await;
    assert_eq!(text(&later[0]), "later");
    // The server's clock may tick in milliseconds.
    assert!(put_back.elapsed() + Duration::from_millis(20) >= delay);
}

async fn depth_has_in_it_what_anybody_holds<S: Stand>(stand: &S, broker: S::Broker) {
    publish_all(&broker, &["1", "2", "3", "4"]).await;
    let other = stand.again(&broker).await;
    let held = take_all(&other, 3).await;
    settles_at(&broker, 1, 3).await;
    other.ack(&held[0].receipt).await.expect("it is held");
    settles_at(&broker, 1, 2).await;
    // Some count what was put back as in flight until it is handed out again.
    other.give_back(&held[1].receipt).await.expect("it is held");
    totals(&broker, 3).await;
}

async fn a_double_is_stored_once<S: Stand>(_: &S, broker: S::Broker) {
    let message = Message::new("1").id("one");
    for _ in 0..3 {
        broker
            .publish(&message)
            .await
            .expect("a double is no error");
    }
    broker
        .publish(&Message::new("2").id("two"))
        .await
        .expect("there is room");
    settles_at(&broker, 2, 0).await;
}

async fn the_bound_is_hard_and_opens_again<S: Stand>(_: &S, broker: S::Broker) {
    publish_all(&broker, &["1", "2", "3"]).await;
    let fourth = Message::new("4");
    let error = broker
        .publish(&fourth)
        .await
        .expect_err("the bound is three");
    assert_eq!(error.kind(), BrokerErrorKind::Full, "{error}");
    let held = take_all(&broker, 3).await;
    let error = broker
        .publish(&fourth)
        .await
        .expect_err("what is held counts");
    assert_eq!(error.kind(), BrokerErrorKind::Full, "{error}");
    broker.ack(&held[0].receipt).await.expect("it is held");
    broker.publish(&fourth).await.expect("an ack frees a place");
    settles_at(&broker, 1, 2).await;
}

async fn all_consumers_together_hold_no_more<S: Stand>(stand: &S, broker: S::Broker) {
    publish_all(&broker, &["1", "2", "3", "4"]).await;
    let other = stand.again(&broker).await;
    let one = take_all(&broker, 1).await;
    let two = take_all(&other, 1).await;
    takes_nothing(&broker).await;
    takes_nothing(&other).await;
    broker.ack(&one[0].receipt).await.expect("it is held");
    let three = take_all(&other, 1).await;
    other.ack(&two[0].receipt).await.expect("it is held");
    other.ack(&three[0].receipt).await.expect("it is held");
    assert_eq!(take_all(&broker, 1).await.len(), 1);
}

async fn unsettled_comes_again_and_a_heartbeat_prevents_it<S: Stand>(_: &S, broker: S::Broker) {
    publish_all(&broker, &["kept", "let go"]).await;
    let taken = take_all(&broker, 2).await;
    let held = Instant::now();
    let mut again = Vec::new();
    while held.elapsed() < Duration::from_secs(5) {
        broker
            .heartbeat(&taken[0].receipt)
            .await
            .expect("it is held");
        again.extend(
            broker
                .take(10, Duration::from_millis(300))
                .await
                .expect("it answers"),
        );
    }
    let texts: BTreeSet<_> = again.iter().map(text).collect();
    assert_eq!(texts, BTreeSet::from(["let go"]), "only what nobody kept");
    broker.ack(&taken[0].receipt).await.expect("it was kept");
}

const WAIT: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(300);
