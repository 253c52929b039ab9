//! The numbers balance at every scrape, whatever goes on.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics_util::debugging::DebuggingRecorder;
use sluicegate::Rate;
use sluicegate::queue::{Builder, Pressure, WhenFull};
use tokio::time::{sleep, timeout};

use super::{Number, Series, number, sum, told};

/// What holds at every scrape; `seen` are the values that histograms were told before.
#[track_caller]
fn balance(series: &Series, seen: &mut BTreeMap<String, u64>) {
    let total = |name: &str| sum(series, &format!("sluicegate_queue_{name}"));
    assert_eq!(
        total("offered_total"),
        total("rejected_total")
            + total("withdrawn_total")
            + total("waiting")
            + total("enqueued_total")
    );
    assert_eq!(
        total("enqueued_total"),
        total("reserved")
            + total("queued")
            + total("in_flight")
            + total("acked_total")
            + total("failed_total")
            + total("dropped_total")
    );
    for (name, number) in series {
        match number {
            Number::Values(values) => *seen.entry(name.clone()).or_default() += values.len() as u64,
            Number::Count(count) => {
                let before = seen.insert(name.clone(), *count);
                assert!(before <= Some(*count), "{name} fell");
            }
            Number::Level(_) => {}
        }
    }
    let told = |part: &str| -> u64 {
        let matching = seen.iter().filter(|(name, _)| name.contains(part));
        matching.map(|(_, count)| count).sum()
    };
    let drained = total("drained_total");
    assert_eq!(drained, told("outcome=\"drained\""));
    assert_eq!(
        drained,
        total("in_flight") + told("sluicegate_queue_processing_seconds")
    );
}

#[tokio::test(start_paused = true)]
async fn the_numbers_balance_at_a_hundred_scrapes_under_load() {
    let builder = Builder::new(Rate::per_second(200))
        .name("load")
        .max_depth(20)
        .max_waiters(6)
        .expire_after(Duration::from_millis(150))
        .max_attempts(3)
        .when_full(WhenFull::EvictOldest)
        .max_in_flight(4);
    let (tx, rx) = builder.build::<u64>().expect("it is valid");
    for producer in 0..12_u64 {
        let tx = tx.clone();
        tokio::spawn(async move {
            for n in 0_u64.. {
                let _ = match (n + producer) % 4 {
                    0 => tx.try_send(n).map_err(drop),
                    1 => tx
                        .send_within(n, Duration::from_millis(9))
                        .await
                        .map_err(drop),
                    // Given up in line.
                    2 => timeout(Duration::from_millis(3), tx.send(n))
                        .await
                        .map_or(Err(()), |sent| sent.map_err(drop)),
                    // A place that is given back.
                    _ => tx.reserve().await.map(drop).map_err(drop).and(Err(())),
                };
                sleep(Duration::from_millis(7 + producer)).await;
            }
        });
    }
    for consumer in 0..4_u64 {
        let rx = rx.clone();
        tokio::spawn(async move {
            while let Some(job) = rx.recv().await {
                sleep(Duration::from_millis(10 + 5 * consumer)).await;
                match *job % 5 {
                    0 => job.fail(),
                    1 => drop(job),
                    2 => job.retry(Duration::from_millis(20)),
                    _ => job.ack(),
                }
            }
        });
    }
    let recorder = DebuggingRecorder::new();
    let mut seen = BTreeMap::new();
    for scrape in 0..100_u64 {
        sleep(Duration::from_millis(13 + scrape % 7)).await;
        balance(&told(&recorder, "load"), &mut seen);
    }
    tx.control().pause("maintenance");
    let paused = told(&recorder, "load");
    assert_eq!(
        number(&paused, "sluicegate_queue_paused{queue=\"load\"}"),
        1
    );
    balance(&paused, &mut seen);
    rx.close();
    let closed = told(&recorder, "load");
    balance(&closed, &mut seen);
    for busy in [
        "rejected_total",
        "withdrawn_total",
        "acked_total",
        "failed_total",
        "dropped_total",
        "requeued_total",
    ] {
        let count = sum(&closed, &format!("sluicegate_queue_{busy}"));
        assert!(count > 0, "the load had no {busy}");
    }
}

#[tokio::test(start_paused = true)]
async fn waits_are_told_in_their_buckets_with_their_sum() {
    let builder = Builder::new(Rate::per_second(10)).name("waits");
    let (tx, rx) = builder.build().expect("it is valid");
    for n in 0..20 {
        tx.try_send(n).expect("there is room");
    }
    let mut waited = Vec::new();
    for _ in 0..20 {
        let job = rx.recv().await.expect("twenty are queued");
        waited.push(job.waited().as_secs_f64());
        job.ack();
    }
    let series = told(&DebuggingRecorder::new(), "waits");
    let Number::Values(told) =
        &series["sluicegate_queue_wait_seconds{queue=\"waits\",outcome=\"drained\"}"]
    else {
        panic!("it is a histogram");
    };
    let off = told.iter().sum::<f64>() - waited.iter().sum::<f64>();
    assert!(off.abs() < 1e-9, "{off}");
    let wait = sluicegate::observe::catalogue()
        .iter()
        .find(|metric| metric.name == "sluicegate_queue_wait_seconds")
        .expect("it is in the catalogue");
    for bound in wait.buckets() {
        let below = |values: &[f64]| values.iter().filter(|value| **value <= bound).count();
        assert_eq!(below(told), below(&waited), "up to {bound} s");
    }
}

#[test]
fn pressure_and_head_are_told() {
    let builder = Builder::new(Rate::per_second(1))
        .name("pressed")
        .max_depth(10);
    let (tx, _rx) = builder.build().expect("it is valid");
    while tx.try_send(()).is_ok() {}
    assert_eq!(tx.pressure(), Pressure::Elevated);
    let series = told(&DebuggingRecorder::new(), "pressed");
    let told = |name: &str| {
        number(
            &series,
            &format!("sluicegate_queue_{name}{{queue=\"pressed\"}}"),
        )
    };
    assert_eq!(told("pressure"), 1);
    assert_eq!(told("depth"), tx.snapshot().depth);
    assert_eq!(told("capacity"), 10);
    assert_eq!(told("drain_items_per_second"), 1);
    assert!(told("head_enqueued_timestamp_seconds") > 1_577_836_800);
    assert_eq!(told("last_drain_timestamp_seconds"), 0);
}
