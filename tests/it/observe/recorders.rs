//! Recorders that come early, late, twice, or call back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_util::debugging::DebuggingRecorder;
use sluicegate::Rate;
use sluicegate::observe;
use sluicegate::queue::{Builder, Reason, Sender, Terms};

use super::limiters::busy_edge;
use super::{Number, expected, number, sum, told};

fn queue(name: &str) -> Builder {
    Builder::new(Rate::per_second(100)).name(name)
}

#[test]
fn every_series_is_there_at_zero_before_the_first_offer() {
    let (_tx, _rx) = queue("zero").build::<()>().expect("it is valid");
    let series = told(&DebuggingRecorder::new(), "zero");
    assert_eq!(series.keys().cloned().collect::<Vec<_>>(), expected("zero"));
    for (name, number) in series {
        match number {
            Number::Count(count) => assert_eq!(count, 0, "{name}"),
            Number::Values(values) => assert!(values.is_empty(), "{name}"),
            Number::Level(level) => {
                let set = name.contains("_capacity") || name.contains("_drain_items_per_second");
                assert_eq!(level > 0.0, set, "{name} is {level}");
            }
        }
    }
}

#[test]
fn what_the_catalogue_tells_of_a_metric_is_described_to_the_recorder() {
    let (_tx, _rx) = queue("described").build::<()>().expect("it is valid");
    let _edge = busy_edge("described");
    let recorder = DebuggingRecorder::new();
    metrics::with_local_recorder(&recorder, observe::publish);
    let series = recorder.snapshotter().snapshot().into_vec();
    for metric in observe::catalogue() {
        let told = series
            .iter()
            .find(|(key, ..)| key.key().name() == metric.name)
            .unwrap_or_else(|| panic!("{} is not published", metric.name));
        assert_eq!(told.2.as_deref(), Some(metric.meaning));
        assert_eq!(
            told.1 == Some(Unit::Seconds),
            metric.unit == "seconds",
            "{}",
            metric.name
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_recorder_that_comes_late_is_told_everything() {
    let builder = queue("late").max_depth(3).watermarks(1, 3);
    let (tx, rx) = builder.build().expect("it is valid");
    let refused = (0..10).filter(|n| tx.try_send(*n).is_err()).count() as u64;
    tokio::time::sleep(Duration::from_millis(40)).await;
    rx.recv().await.expect("three are queued").ack();
    drop(rx.recv().await);

    let recorders = [DebuggingRecorder::new(), DebuggingRecorder::new()];
    for recorder in &recorders {
        let series = told(recorder, "late");
        let count = |name: &str| number(&series, &format!("sluicegate_queue_{name}"));
        assert_eq!(count("offered_total{queue=\"late\"}"), 10);
        assert_eq!(
            count("rejected_total{queue=\"late\",reason=\"full\"}"),
            refused
        );
        assert_eq!(count("acked_total{queue=\"late\"}"), 1);
        assert_eq!(
            count("dropped_total{queue=\"late\",reason=\"abandoned\"}"),
            1
        );
        assert_eq!(count("depth{queue=\"late\"}"), 1);
        assert_eq!(
            count("wait_seconds{queue=\"late\",outcome=\"drained\"}"),
            2,
            "what happened before counts in histograms too"
        );
        assert!(count("head_enqueued_timestamp_seconds{queue=\"late\"}") > 1_577_836_800);
        assert!(count("last_drain_timestamp_seconds{queue=\"late\"}") > 1_577_836_800);
        // Only what is new is told the second time.
        let again = told(recorder, "late");
        assert_eq!(sum(&again, "sluicegate_queue_wait_seconds"), 0);
        assert_eq!(sum(&again, "sluicegate_queue_drained_total"), 2);
    }
}

#[test]
fn two_living_queues_of_one_name_are_told_apart() {
    let recorder = DebuggingRecorder::new();
    let (first, rx) = queue("twin").build().expect("it is valid");
    let (second, _rx) = queue("twin").build().expect("it is valid");
    (0..3).for_each(|n| drop(first.try_send(n)));
    (0..5).for_each(|n| drop(second.try_send(n)));
    let offered = |label: &str| sum(&told(&recorder, label), "sluicegate_queue_offered_total");
    assert_eq!((offered("twin"), offered("twin#2")), (3, 5));

    // The next of that name takes the free label, and no counter falls.
    drop((first, rx));
    assert_eq!(offered("twin"), 3, "the end of a queue is no reset");
    let (third, _rx) = queue("twin").build().expect("it is valid");
    third.try_send(0).expect("there is room");
    let series = told(&recorder, "twin");
    assert_eq!(sum(&series, "sluicegate_queue_offered_total"), 4);
    let returned = "sluicegate_queue_dropped_total{queue=\"twin\",reason=\"returned\"}";
    assert_eq!(number(&series, returned), 3);
    assert_eq!(sum(&series, "sluicegate_queue_depth"), 1);
}

#[test]
fn a_recorder_is_not_told_of_queues_that_ended_before_it_came() {
    let (tx, rx) = queue("gone").build().expect("it is valid");
    tx.try_send(()).expect("there is room");
    drop((tx, rx));
    let series = told(&DebuggingRecorder::new(), "gone");
    assert_eq!(sum(&series, "sluicegate_queue_offered_total"), 0);
}

#[test]
fn ten_thousand_tenants_leave_the_series_as_they_are() {
    let (tx, _rx) = queue("tenants").build().expect("it is valid");
    let recorder = DebuggingRecorder::new();
    let before = told(&recorder, "tenants");
    for tenant in 0..10_000_u64 {
        let key = format!(
            "tenant-key-{:x}",
            tenant.wrapping_mul(0x9E37_79B9_7F4A_7C15)
        );
        let _ = tx.offer(()).terms(Terms::new().tenant(key)).try_send();
    }
    let after = told(&recorder, "tenants");
    assert_eq!(sum(&after, "sluicegate_queue_offered_total"), 10_000);
    assert!(after.keys().eq(before.keys()));
    assert!(after.keys().all(|name| !name.contains("tenant-key")));
}

#[test]
fn a_turnstile_is_measured_too() {
    let turnstile = queue("turns").turnstile().expect("it is valid");
    let turn = turnstile.try_enter().expect("the first is due");
    let refused = turnstile.try_enter().expect_err("the second is not");
    assert_eq!(refused.reason(), Reason::Overloaded);
    drop(turn);
    let series = told(&DebuggingRecorder::new(), "turns");
    assert_eq!(sum(&series, "sluicegate_queue_acked_total"), 1);
    assert_eq!(sum(&series, "sluicegate_queue_processing_seconds"), 1);
    // It had its place, and gave it back as no turn was due.
    let given_back = "sluicegate_queue_dropped_total{queue=\"turns\",reason=\"cancelled\"}";
    assert_eq!(number(&series, given_back), 1);
}

/// Uses the queue, and publishes, while it is published to.
struct Meddler {
    queue: Sender<u64>,
    calls: AtomicU64,
}

impl Meddler {
    fn meddle(&self) {
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        let _ = self.queue.try_send(calls);
        let (_tx, _rx) = queue("meddler's own").build::<()>().expect("it is valid");
        observe::publish();
    }
}

impl Recorder for Meddler {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        self.meddle();
    }
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        self.meddle();
    }
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        self.meddle();
    }
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        self.meddle();
        Counter::noop()
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        self.meddle();
        Gauge::noop()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        self.meddle();
        Histogram::noop()
    }
}

#[test]
fn a_recorder_may_call_back_into_the_queue_and_into_the_publication() {
    let (tx, _rx) = queue("meddled").build().expect("it is valid");
    let meddler = Meddler {
        queue: tx.clone(),
        calls: AtomicU64::new(0),
    };
    metrics::with_local_recorder(&meddler, observe::publish);
    let calls = meddler.calls.load(Ordering::Relaxed);
    assert!(calls > 50, "{calls}");
    assert_eq!(tx.snapshot().ledger.offered, calls);
}

#[test]
fn a_recorder_that_panics_stops_no_later_publication() {
    struct Broken;
    impl Recorder for Broken {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            std::panic::resume_unwind(Box::new("no counters today"))
        }
        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }
        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }
    let (tx, _rx) = queue("unbroken").build().expect("it is valid");
    tx.try_send(()).expect("there is room");
    let broken = std::panic::catch_unwind(|| {
        metrics::with_local_recorder(&Broken, observe::publish);
    });
    assert!(broken.is_err());
    let series = told(&DebuggingRecorder::new(), "unbroken");
    assert_eq!(sum(&series, "sluicegate_queue_offered_total"), 1);
}
