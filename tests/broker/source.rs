//! The drain behind a broker, on paused time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate::broker::{
    Broker, Capability, DEAD_DELIVERIES, DEAD_REASON, Memory, Message, Received, Source,
    SourceReport, Verdict,
};
use sluicegate::queue::{Backoff, Health};
use sluicegate::{Rate, Tick};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

async fn publish(broker: &Memory, n: usize) {
    for n in 0..n {
        let message = Message::new(n.to_string());
        broker.publish(&message).await.expect("there is room");
    }
}

async fn empty(broker: &Memory) {
    let waiting = async {
        while broker.depth().await.map_or(true, |depth| depth.total() > 0) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(600), waiting)
        .await
        .expect("it is drained");
}

/// Runs a source until the broker is empty.
async fn drain<H, F>(broker: &Memory, source: Source<Memory>, handler: H) -> SourceReport
where
    H: Fn(Received) -> F + Send + Sync + 'static,
    F: Future + Send + 'static,
    F::Output: Into<Verdict>,
{
    let stop = CancellationToken::new();
    let running = tokio::spawn(source.run(handler, stop.clone()));
    empty(broker).await;
    stop.cancel();
    running.await.expect("it does not panic")
}

#[tokio::test(start_paused = true)]
async fn a_burst_leaves_at_the_rate_and_is_acked() {
    let broker = Memory::new("orders");
    publish(&broker, 1_000).await;
    let source = Source::builder(broker.clone()).rate(Rate::per_second(200));
    let source = source.build().expect("it is sound");
    let control = source.control();
    let seen: Arc<Mutex<Vec<Tick>>> = Arc::default();
    let log = Arc::clone(&seen);
    let report = drain(&broker, source, move |received: Received| {
        log.lock().unwrap().push(received.departed_at);
        async { sleep(Duration::from_millis(20)).await }
    })
    .await;
    assert_eq!(report.acked, 1_000);
    assert_eq!(
        (report.redelivered, report.lost, report.given_back),
        (0, 0, 0)
    );
    let seen = seen.lock().unwrap();
    let span = seen[999] - seen[0];
    let exact = Duration::from_millis(4_995);
    assert!(span.abs_diff(exact) < Duration::from_millis(50), "{span:?}");
    let ledger = control.snapshot().ledger;
    assert!(ledger.is_balanced());
    assert_eq!((ledger.acked, ledger.failed), (1_000, 0));
}

#[tokio::test(start_paused = true)]
async fn it_takes_only_what_can_start_soon() {
    let broker = Memory::new("orders");
    publish(&broker, 100).await;
    let source = Source::builder(broker.clone())
        .rate(Rate::per_second(20))
        .max_in_flight(3);
    let stop = CancellationToken::new();
    let handler = |_| sleep(Duration::from_secs(3_600));
    let running = tokio::spawn(source.build().unwrap().run(handler, stop.clone()));
    sleep(Duration::from_secs(10)).await;
    let depth = broker.depth().await.unwrap();
    assert_eq!(
        depth.in_flight,
        3 + 2,
        "three run, and two start within 100 ms"
    );
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_long_job_is_kept_alive_by_heartbeats() {
    let broker = Memory::new("orders").with_hold(Duration::from_secs(2));
    publish(&broker, 3).await;
    let source = Source::builder(broker.clone()).build().unwrap();
    let report = drain(&broker, source, |_| sleep(Duration::from_secs(120))).await;
    assert_eq!((report.acked, report.redelivered), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_always_fails_is_dead_lettered_after_exactly_the_bound() {
    for bound in [1, 2, 5] {
        let broker = Memory::new("orders");
        publish(&broker, 3).await;
        let runs: Arc<Mutex<BTreeMap<Vec<u8>, Vec<u32>>>> = Arc::default();
        let log = Arc::clone(&runs);
        let source = Source::builder(broker.clone())
            .max_deliveries(bound)
            .backoff(Duration::from_secs(1));
        let report = drain(
            &broker,
            source.build().unwrap(),
            move |received: Received| {
                let mut log = log.lock().unwrap();
                let (attempt, message) = (received.attempt, received.message);
                log.entry(message.into_payload()).or_default().push(attempt);
                async { Err::<(), _>("no such tenant") }
            },
        )
        .await;
        assert_eq!(report.dead_lettered, 3);
        assert_eq!(report.retried, 3 * u64::from(bound - 1));
        let expected: Vec<_> = (1..=bound).collect();
        assert!(
            runs.lock()
                .unwrap()
                .values()
                .all(|attempts| *attempts == expected)
        );
        let dead = broker.dead_letters();
        let letters = dead.take(10, Duration::ZERO).await.unwrap();
        assert_eq!(letters.len(), 3);
        for letter in letters {
            assert_eq!(
                letter.message.header_value(DEAD_REASON),
                Some("no such tenant")
            );
            let deliveries = bound.to_string();
            assert_eq!(
                letter.message.header_value(DEAD_DELIVERIES),
                Some(&*deliveries)
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_poison_payload_is_dead_lettered_at_once_with_its_reason() {
    let broker = Memory::new("orders");
    for payload in [&b"7"[..], b"\xff\xfe", b"seven", b"8"] {
        broker.publish(&Message::new(payload)).await.unwrap();
    }
    let source = Source::builder(broker.clone()).build().unwrap();
    let report = drain(&broker, source, |received: Received| async move {
        let number = std::str::from_utf8(received.message.payload()).ok();
        match number.and_then(|text| text.parse::<u32>().ok()) {
            Some(_) => Verdict::Ack,
            None => Verdict::DeadLetter("not a number".into()),
        }
    })
    .await;
    assert_eq!(
        (report.acked, report.dead_lettered, report.retried),
        (2, 2, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_fails_like_one_that_errs() {
    let broker = Memory::new("orders");
    publish(&broker, 1).await;
    let source = Source::builder(broker.clone())
        .max_deliveries(2)
        .build()
        .unwrap();
    async fn handler(received: Received) {
        assert!(received.attempt > 9, "of an order that makes no sense");
    }
    let report = drain(&broker, source, handler).await;
    assert_eq!((report.retried, report.dead_lettered), (1, 1));
    let letter = broker
        .dead_letters()
        .take(1, Duration::ZERO)
        .await
        .unwrap()
        .remove(0);
    let why = letter.message.header_value(DEAD_REASON).unwrap_or_default();
    assert!(why.contains("makes no sense"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn deliveries_of_consumers_that_died_count() {
    let broker = Memory::new("orders").with_hold(Duration::from_secs(1));
    publish(&broker, 1).await;
    for _ in 0..3 {
        // A consumer that takes it and dies.
        assert_eq!(
            broker.take(1, Duration::from_secs(2)).await.unwrap().len(),
            1
        );
    }
    let ran = Arc::new(Mutex::new(0));
    let runs = Arc::clone(&ran);
    let source = Source::builder(broker.clone())
        .max_deliveries(3)
        .build()
        .unwrap();
    let report = drain(&broker, source, move |_| {
        *runs.lock().unwrap() += 1;
        async {}
    })
    .await;
    assert_eq!((report.dead_lettered, *ran.lock().unwrap()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_for_its_back_off_here_or_there_while_others_go_on() {
    for here in [false, true] {
        let broker = Memory::new("orders");
        publish(&broker, 20).await;
        let source = Source::builder(broker.clone()).max_in_flight(1);
        let delay = Duration::from_secs(5);
        let source = match here {
            true => source.backoff_here(delay),
            false => source.backoff(delay),
        };
        let start = Instant::now();
        let seen: Arc<Mutex<Vec<(u32, Duration)>>> = Arc::default();
        let log = Arc::clone(&seen);
        let report = drain(
            &broker,
            source.build().unwrap(),
            move |received: Received| {
                log.lock()
                    .unwrap()
                    .push((received.attempt, start.elapsed()));
                let first = received.attempt == 1 && received.message.payload() == b"0";
                async move { if first { Err("not yet") } else { Ok(()) } }
            },
        )
        .await;
        assert_eq!((report.acked, report.retried), (20, 1), "here: {here}");
        let seen = seen.lock().unwrap();
        assert!(
            seen[..20]
                .iter()
                .all(|(attempt, at)| *attempt == 1 && *at < delay)
        );
        assert!(seen[20].0 == 2 && seen[20].1 >= delay, "{:?}", seen[20]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_nacks_ends_in_the_dead_letters_and_lets_the_good_ones_pass() {
    let broker = Memory::new("orders").with_max_depth(300);
    publish(&broker, 300).await;
    let source = Source::builder(broker.clone())
        .rate(Rate::per_second(100))
        .max_deliveries(3)
        .backoff(Backoff::exponential(
            Duration::from_millis(100),
            Duration::from_secs(1),
        ));
    let report = drain(
        &broker,
        source.build().unwrap(),
        |received: Received| async move {
            let number: u32 = String::from_utf8_lossy(received.message.payload()).parse()?;
            if number.is_multiple_of(3) {
                Ok(())
            } else {
                Err(Box::<dyn std::error::Error + Send + Sync>::from("no"))
            }
        },
    )
    .await;
    assert_eq!(
        (report.acked, report.dead_lettered, report.retried),
        (100, 200, 400)
    );
    broker
        .publish(&Message::new("next"))
        .await
        .expect("the gate is open");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_finishes_what_runs_and_gives_back_what_has_not_started() {
    let broker = Memory::new("orders");
    publish(&broker, 100).await;
    let source = Source::builder(broker.clone())
        .rate(Rate::per_second(10))
        .ahead(50)
        .finish_within(Duration::from_secs(2));
    let stop = CancellationToken::new();
    let handler = |_| sleep(Duration::from_millis(500));
    let running = tokio::spawn(source.build().unwrap().run(handler, stop.clone()));
    sleep(Duration::from_secs(3)).await;
    let told = Instant::now();
    stop.cancel();
    let report = running.await.unwrap();
    assert!(
        told.elapsed() <= Duration::from_millis(3_100),
        "{:?}",
        told.elapsed()
    );
    assert_eq!(report.lost, 0);
    assert!(report.given_back > 0);
    let depth = broker.depth().await.unwrap();
    assert_eq!(depth.in_flight, 0, "nothing is kept");
    assert_eq!(report.acked + depth.queued, 100);
    // What was given back untouched comes as if for the first time; only what was cut counts as delivered.
    let rest = broker.take(100, Duration::ZERO).await.unwrap();
    let again = rest.iter().filter(|delivery| delivery.attempt > 1).count() as u64;
    assert_eq!(again, report.retried);
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_seen_and_ends_by_itself_with_nothing_lost() {
    let broker = Memory::new("orders").with_hold(Duration::from_secs(5));
    publish(&broker, 200).await;
    let source = Source::builder(broker.clone())
        .rate(Rate::per_second(50))
        .build()
        .unwrap();
    let health = source.health();
    let stop = CancellationToken::new();
    let seen: Arc<Mutex<BTreeMap<Vec<u8>, u32>>> = Arc::default();
    let log = Arc::clone(&seen);
    let running = tokio::spawn(source.run(
        move |received: Received| {
            *log.lock()
                .unwrap()
                .entry(received.message.into_payload())
                .or_default() += 1;
            async {}
        },
        stop.clone(),
    ));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(health.health(), Health::Green);
    broker.set_down(true);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(health.health(), Health::Red);
    assert!(health.down_for() > Some(Duration::from_secs(15)));
    assert_eq!(
        health.last_error().as_deref(),
        Some("broker orders is down")
    );
    broker.set_down(false);
    empty(&broker).await;
    assert_eq!((health.health(), health.outages()), (Health::Green, 1));
    stop.cancel();
    let report = running.await.unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 200, "every message was handled");
    let handled: u32 = seen.values().sum();
    assert_eq!(
        u64::from(handled),
        200 + report.redelivered,
        "doubles are counted"
    );
}

#[tokio::test(start_paused = true)]
async fn a_handler_beyond_its_time_is_dropped_and_its_message_comes_again() {
    let broker = Memory::new("orders");
    publish(&broker, 1).await;
    let source = Source::builder(broker.clone())
        .handler_within(Duration::from_secs(3))
        .max_deliveries(2);
    let report = drain(
        &broker,
        source.build().unwrap(),
        |received: Received| async move {
            if received.attempt == 1 {
                sleep(Duration::from_secs(3_600)).await;
            }
        },
    )
    .await;
    assert_eq!((report.acked, report.retried), (1, 1));
}

#[tokio::test]
async fn a_policy_that_the_broker_cannot_keep_is_refused_by_name() {
    use crate::plain::Plain;
    let wrong = |source: sluicegate::broker::SourceBuilder<Plain>| {
        source.build().expect_err("it is wrong").to_string()
    };
    let begin = || Source::builder(Plain::new("old")).any_deliveries();
    assert_eq!(
        wrong(begin().max_deliveries(3)),
        "max_deliveries is 3: broker old does not keep delivery_count"
    );
    assert_eq!(
        wrong(begin().backoff(Duration::from_secs(1))),
        "backoff is 1s: broker old does not keep delayed_retry"
    );
    assert_eq!(
        wrong(begin().require(Capability::FleetRate)),
        "require is fleet_rate: broker old does not keep it"
    );
    assert_eq!(
        wrong(begin().max_in_flight(0)),
        "max_in_flight is 0: it is at least 1"
    );
    assert_eq!(
        wrong(begin().rate(Rate::per_second(1)).ahead(20)),
        "ahead is 20s: a message may wait here for a quarter of the 60s that broker old lets it be held"
    );
    assert_eq!(
        wrong(begin().backoff_here(Duration::from_secs(16))),
        "backoff_here is 16s: a message may wait here for a quarter of the 60s that broker old lets it be held"
    );
    assert_eq!(
        wrong(begin().handler_within(Duration::from_secs(46))),
        "handler_within is 46s: broker old lets a message be held for 60s, and cannot be told that it is worked on; at \
         most three quarters of it"
    );
    assert!(
        begin()
            .backoff_here(Duration::from_secs(15))
            .build()
            .is_ok()
    );
}
