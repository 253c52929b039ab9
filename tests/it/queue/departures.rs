//! When jobs leave: the rate, the spacing, stalls, changes.

use std::time::Duration;

use sluicegate::queue::{Builder, Exit, Receiver, Sender};
use sluicegate::{ManualClock, Rate, Tick};
use tokio::time::{Instant, advance, sleep, timeout};

use super::{MILLI, SECOND, assert_balanced, settle};

fn filled(builder: Builder, jobs: u64) -> (Sender<u64>, Receiver<u64>) {
    let (tx, rx) = builder
        .max_depth(jobs)
        .watermarks(jobs - 1, jobs)
        .build()
        .unwrap();
    for n in 0..jobs {
        tx.try_send(n).unwrap();
    }
    (tx, rx)
}

/// Departures of as many consumers as asked for.
async fn departures(rx: &Receiver<u64>, consumers: usize, jobs: usize) -> Vec<Tick> {
    let (sender, receiver) = async_channel::unbounded();
    let tasks: Vec<_> = (0..consumers)
        .map(|_| {
            let (rx, sender) = (rx.clone(), sender.clone());
            tokio::spawn(async move {
                while let Some(job) = rx.recv().await {
                    let _ = sender.send(job.departed_at()).await;
                    job.ack();
                }
            })
        })
        .collect();
    let mut ticks = Vec::new();
    while ticks.len() < jobs {
        ticks.push(receiver.recv().await.unwrap());
    }
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    ticks
}

/// The envelope of the contract for every window, not per aligned one (p-queue#126, bull#2777).
fn assert_envelope(ticks: &[Tick], rate: u64, catch_up: u64, pace: f64, grain: Duration) {
    for (i, first) in ticks.iter().enumerate() {
        for (j, last) in ticks.iter().enumerate().skip(i) {
            let window = (*last - *first).as_secs_f64();
            let sustained = (window * rate as f64 + catch_up as f64 + 1e-6).floor() + 1.0;
            let peak = (pace * rate as f64 * (window + grain.as_secs_f64()) + 1e-6).floor() + 1.0;
            let count = (j - i + 1) as f64;
            assert!(count <= sustained.min(peak), "{count} within {window} s");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_rate_is_held_whatever_the_number_of_consumers() {
    for consumers in [1, 4] {
        for rate in [1, 100, 1_000] {
            let jobs = 3 * rate + 1;
            let (tx, rx) = filled(Builder::new(Rate::per_second(rate)), jobs);
            let start = Instant::now();
            let ticks = departures(&rx, consumers, jobs as usize).await;
            let took = start.elapsed();
            assert!(
                took >= 3 * SECOND && took <= 3 * SECOND + 5 * MILLI,
                "{rate}/s took {took:?}"
            );
            let catch_up = (rate / 10).max(1);
            assert_envelope(&ticks, rate, catch_up, 1.1, Duration::from_micros(2_500));
            assert_balanced(&tx.snapshot());
        }
    }
}

/// nats-io/nats.rs#875, tokio-rs/tokio#3574: a stall is no reason for a salvo.
#[tokio::test(start_paused = true)]
async fn a_stall_gives_no_salvo() {
    let (_tx, rx) = filled(Builder::new(Rate::per_second(100)), 4_000);
    let mut ticks = departures(&rx, 1, 50).await;
    advance(10 * SECOND).await;
    ticks.extend(departures(&rx, 1, 200).await);
    assert_envelope(&ticks, 100, 10, 1.1, Duration::from_micros(2_500));
    let after = &ticks[50..];
    let first_second = after
        .iter()
        .filter(|tick| **tick < after[0] + SECOND)
        .count();
    assert!(
        (100..=111).contains(&first_second),
        "{first_second} in the second after the stall"
    );
}

/// elixir-broadway/broadway#300: a new rate counts at once.
#[tokio::test(start_paused = true)]
async fn a_raised_rate_wakes_who_sleeps_for_the_old_one() {
    let (tx, rx) = filled(Builder::new(Rate::per_hour(1)), 100);
    rx.recv().await.unwrap().ack();
    let consumer = tokio::spawn(async move {
        rx.recv().await.unwrap().ack();
        (Instant::now(), rx)
    });
    sleep(SECOND).await;
    let start = Instant::now();
    tx.control().set_rate(Rate::per_second(1_000)).unwrap();
    let (woken, _rx) = consumer.await.unwrap();
    assert!(woken - start <= 3 * MILLI, "{:?}", woken - start);
}

/// SGrondin/bottleneck: any change of settings stopped the drain for ever.
#[tokio::test(start_paused = true)]
async fn a_thousand_changes_of_settings_leave_the_rate_alone() {
    let (tx, rx) = filled(Builder::new(Rate::per_second(100)), 500);
    let control = tx.control();
    let changes = tokio::spawn(async move {
        for n in 0..1_000 {
            control.set_max_depth(500 + n % 2).unwrap();
            control.set_watermarks(400, 450 + n % 3).unwrap();
            sleep(3 * MILLI).await;
        }
    });
    let start = Instant::now();
    departures(&rx, 2, 301).await;
    let took = start.elapsed();
    assert!(
        took >= 3 * SECOND && took <= 3 * SECOND + 5 * MILLI,
        "{took:?}"
    );
    changes.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn expiry_is_on_time_with_no_traffic_and_no_consumer() {
    let (tx, rx) = Builder::new(Rate::per_second(1)).build().unwrap();
    let ticket = tx.offer("stale").expires_in(SECOND).track().await.unwrap();
    let start = Instant::now();
    assert_eq!(ticket.await, sluicegate::queue::Ending::Expired);
    let late = start.elapsed() - SECOND;
    assert!(late <= 2 * MILLI, "{late:?}");
    let letter = rx.dead_letters().recv().await.unwrap();
    assert_eq!((letter.item, letter.exit), ("stale", Exit::Expired));
}

#[tokio::test(start_paused = true)]
async fn a_pause_expires_nothing_in_the_lossless_queue() {
    let (tx, rx) = filled(Builder::new(Rate::per_second(10)), 20);
    rx.recv().await.unwrap().ack();
    tx.control().pause("maintenance");
    let consumer = tokio::spawn(async move {
        rx.recv().await.unwrap().ack();
        (Instant::now(), rx)
    });
    sleep(30 * SECOND).await;
    assert!(!consumer.is_finished());
    let resumed = Instant::now();
    tx.control().resume();
    let (woken, rx) = consumer.await.unwrap();
    assert!(woken - resumed <= 105 * MILLI);
    departures(&rx, 1, 18).await;
    let ledger = tx.snapshot().ledger;
    assert_eq!((ledger.acked, ledger.expired), (20, 0));
}

/// A machine that sleeps for an hour: the clock jumps, once, and everything goes on.
#[tokio::test(start_paused = true)]
async fn an_hour_of_suspension_forgives_and_goes_on() {
    let (tx, rx) = filled(Builder::new(Rate::per_second(10)), 200);
    let start = departures(&rx, 2, 5).await;
    advance(Duration::from_secs(3_600)).await;
    let after = departures(&rx, 2, 100).await;
    let ticks: Vec<_> = start.into_iter().chain(after).collect();
    assert_envelope(&ticks, 10, 1, 1.1, Duration::from_micros(2_500));
    assert_balanced(&tx.snapshot());
}

#[tokio::test(start_paused = true)]
async fn a_shelved_consumer_delays_a_job_by_no_more_than_a_grain() {
    let (tx, rx) = Builder::new(Rate::per_second(1_000))
        .build::<i32>()
        .unwrap();
    let mut shelved = Box::pin(rx.recv());
    assert!(super::poll(&mut shelved).is_pending());
    let other = tokio::spawn({
        let rx = rx.clone();
        async move {
            rx.recv().await.unwrap().ack();
            Instant::now()
        }
    });
    settle().await;
    let start = Instant::now();
    tx.try_send(1).unwrap();
    let late = other.await.unwrap() - start;
    assert!(late <= 5 * MILLI, "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn a_consumer_dropped_after_it_was_woken_passes_the_job_on() {
    let (tx, rx) = Builder::unpaced().build().unwrap();
    let mut woken = Box::pin(rx.recv());
    assert!(super::poll(&mut woken).is_pending());
    let mut other = Box::pin(rx.recv());
    let (count, waker) = super::Count::new();
    let mut cx = std::task::Context::from_waker(&waker);
    assert!(other.as_mut().poll(&mut cx).is_pending());
    tx.try_send(1).unwrap();
    assert_eq!(count.get(), 0, "one departure wakes one consumer");
    drop(woken);
    assert_eq!(count.get(), 1);
    assert!(other.as_mut().poll(&mut cx).is_ready());
}

#[tokio::test(start_paused = true)]
async fn consumers_take_turns() {
    let (_tx, rx) = filled(Builder::new(Rate::per_second(100)), 400);
    let counts: Vec<_> = (0..4)
        .map(|_| {
            let rx = rx.clone();
            tokio::spawn(async move {
                let mut count = 0;
                while let Ok(Some(job)) = timeout(SECOND, rx.recv()).await {
                    job.ack();
                    count += 1;
                }
                count
            })
        })
        .collect();
    for count in counts {
        assert!((99..=101).contains(&count.await.unwrap()));
    }
}

#[test]
fn a_clock_moved_by_hand_drives_the_queue() {
    let clock = ManualClock::new();
    let (tx, rx) = Builder::new(Rate::per_second(1))
        .clock(clock.clone())
        .build()
        .unwrap();
    for n in 0..3 {
        tx.try_send(n).unwrap();
    }
    for n in 0..3 {
        let job = rx.try_recv().unwrap();
        assert_eq!(
            (*job, job.departed_at()),
            (n, Tick::from_nanos(n * 1_000_000_000))
        );
        job.ack();
        assert!(rx.try_recv().is_err());
        clock.advance(SECOND);
    }
}
