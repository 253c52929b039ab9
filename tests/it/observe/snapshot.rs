//! One call tells everything, and changes nothing.

use std::time::Duration;

use sluicegate::observe::{Keys, QueueView, Snapshot, key_tag, sample, snapshot, snapshot_with};
use sluicegate::queue::{Builder, Health, Pressure, Priority};
use sluicegate::{Key, Rate};
use tokio::time::advance;

#[track_caller]
fn queue(name: &str) -> QueueView {
    find(snapshot(), name).expect("the queue lives")
}

fn find(snapshot: Snapshot, name: &str) -> Option<QueueView> {
    let mut queues = snapshot.queues.into_iter();
    queues.find(|queue| queue.name == name)
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_tells_of_a_queue_all_that_there_is() {
    let builder = Builder::new(Rate::per_second(10))
        .name("seen")
        .max_depth(10)
        .watermarks(3, 6)
        .max_waiters(2)
        .max_in_flight(4)
        .dead_letters(1);
    let (tx, rx) = builder.build::<u32>().expect("it is valid");
    for n in 0..7 {
        let offer = tx.offer(n).tenant("ada").priority(Priority::High);
        let _ = offer.try_send();
    }
    advance(Duration::from_secs(2)).await;
    rx.recv().await.expect("six are queued").fail();
    rx.recv().await.expect("five are queued").fail();
    let held = rx.recv().await.expect("four are queued");
    tx.control().pause("maintenance\n<b>");

    let seen = queue("seen");
    let control = tx.control().snapshot();
    assert_eq!(seen.ledger, control.ledger);
    assert!(seen.ledger.is_balanced());
    assert_eq!(
        (seen.depth, seen.low, seen.high, seen.max_depth),
        (3, 3, 6, 10)
    );
    assert_eq!((seen.waiting, seen.max_waiters), (0, 2));
    assert_eq!((seen.in_flight, seen.max_in_flight), (1, Some(4)));
    assert_eq!(seen.rate, Some(Rate::per_second(10)));
    assert_eq!(seen.pressure, Pressure::Healthy);
    assert!(
        seen.pressure_for < Duration::from_secs(1),
        "it was elevated"
    );
    assert_eq!(seen.health, Health::Green);
    assert_eq!(seen.paused.as_deref(), Some("maintenance\n<b>"));
    assert!(seen.oldest_wait >= Some(Duration::from_secs(2)));
    assert_eq!(seen.refused_by_reason.get("overloaded"), Some(&1));
    assert_eq!((seen.departed, seen.dead_letters), (3, 2));
    assert_eq!(seen.waits.count, 3);
    let p99 = seen.waits.p99.expect("three have waited");
    assert!(p99 > Duration::from_secs(2) && p99 <= Duration::from_secs(5));
    assert_eq!(seen.lanes[2].ledger, seen.ledger);
    assert_eq!(seen.tenants[0].ledger, seen.ledger);
    assert_eq!(seen.tenants[0].key, key_tag("ada"));
    assert_eq!(seen.other_tenants.offered, 0);

    let shown = find(snapshot_with(Keys::Cut), "seen").expect("it lives");
    assert_eq!(shown.tenants[0].key, "ada");
    assert_eq!(tx.control().snapshot().ledger, control.ledger, "read-only");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn the_trend_has_a_point_for_every_second() {
    let builder = Builder::new(Rate::per_second(5)).name("trend").max_depth(8);
    let (tx, rx) = builder.build::<u32>().expect("it is valid");
    sample();
    for second in 0..70 {
        for n in 0..second % 10 {
            let _ = tx.try_send(n);
        }
        while let Ok(job) = rx.try_recv() {
            job.ack();
        }
        advance(Duration::from_secs(1)).await;
        sample();
    }
    let seen = queue("trend");
    assert_eq!(seen.trend.len(), 70);
    let offered: u64 = seen.trend.iter().map(|point| point.offered).sum();
    let refused: u64 = seen.trend.iter().map(|point| point.refused).sum();
    let departed: u64 = seen.trend.iter().map(|point| point.departed).sum();
    let ledger = seen.ledger;
    assert_eq!(
        (offered, refused, departed),
        (ledger.offered, ledger.refused, seen.departed)
    );
    assert!(refused > 0 && departed > 0);
    for pair in seen.trend.windows(2) {
        assert_eq!(pair[1].at - pair[0].at, Duration::from_secs(1));
    }
    assert_eq!(seen.trend[9].offered, 9);
    let spans: Vec<u64> = seen.flows.iter().map(|flow| flow.over.as_secs()).collect();
    assert_eq!(spans, [1, 10, 60]);
    assert_eq!(seen.flows[0].offered, 9.0);
    assert_eq!(seen.flows[1].offered, 4.5);
}

#[tokio::test]
async fn a_closed_queue_is_told_of_until_its_last_handle_is_gone() {
    let builder = Builder::new(Rate::per_second(5)).name("closed");
    let (tx, rx) = builder.build::<u32>().expect("it is valid");
    tx.try_send(1).expect("there is room");
    tx.close();
    let seen = queue("closed");
    assert!(seen.closed);
    assert_eq!((seen.depth, seen.ledger.queued), (1, 1));
    drop(rx);
    let control = tx.control();
    drop(tx);
    assert_eq!(queue("closed").ledger.returned, 1);
    drop(control);
    assert_eq!(find(snapshot(), "closed"), None);
}

#[test]
fn keys_are_told_apart_without_being_told() {
    let tag = key_tag("203.0.113.7");
    assert_eq!(tag.len(), 13);
    assert_eq!(tag, key_tag(Key::from("203.0.113.7")));
    assert_ne!(tag, key_tag("203.0.113.8"));
    assert!(!tag.contains("203"));
}

#[cfg(feature = "json")]
#[tokio::test(start_paused = true)]
async fn a_snapshot_survives_its_json() {
    let builder = Builder::new(Rate::per_minute(7)).name("json \"<script>\"");
    let (tx, _rx) = builder.build::<u32>().expect("it is valid");
    let offer = tx.offer(1).tenant("<b>\u{0}\u{202e}".repeat(16_000));
    offer.try_send().expect("there is room");
    sample();
    advance(Duration::from_millis(1_500)).await;
    sample();
    let before = snapshot_with(Keys::Cut);
    let json = before.to_json();
    assert_eq!(
        Snapshot::from_json(&json).expect("it was just written"),
        before
    );
    assert!(!json.contains('\n') && !json.contains('\u{202e}') && json.len() < 1 << 20);

    let value: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    let queues = value["queues"].as_array().expect("it is a list");
    let mine = queues
        .iter()
        .find(|queue| queue["name"] == "json \"<script>\"");
    let mine = mine.expect("it lives");
    assert_eq!(mine["rate"], "7/min");
    assert_eq!(mine["pressure"], "elevated"); // a depth of one is full
    assert_eq!(mine["lanes"][3]["priority"], "critical");
    assert_eq!(mine["oldest_wait_seconds"], 1.5);
    assert_eq!(mine["trend"].as_array().map(Vec::len), Some(1));
}

#[cfg(feature = "json")]
#[test]
fn a_snapshot_of_another_version_is_read_as_far_as_it_is_understood() {
    let json = r#"{"version":"9.0","queues":[{"name":"a","depth":3,"colour":"red"}],"weather":{}}"#;
    let snapshot = Snapshot::from_json(json).expect("it is understood");
    assert_eq!(snapshot.queues[0].depth, 3);
    assert!(Snapshot::from_json("[").is_err());
}
