//! Rates that move: ramps, slow starts, and a downstream that is followed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sluicegate::Rate;
use sluicegate::queue::{Aimd, Builder, Receiver, Sender};
use tokio::time::{Instant, timeout_at};

use super::{MILLI, SECOND};

fn backlog(builder: Builder) -> (Sender<()>, Receiver<()>) {
    let builder = builder.max_depth(100_000).watermarks(90_000, 100_000);
    let (tx, rx) = builder.build().unwrap();
    for _ in 0..5_000 {
        tx.try_send(()).unwrap();
    }
    (tx, rx)
}

fn per_second(rate: Rate) -> f64 {
    rate.count() as f64 / rate.period().as_secs_f64()
}

/// Jobs that leave in a time.
async fn count(rx: &Receiver<()>, time: Duration) -> u64 {
    let (end, mut left) = (Instant::now() + time, 0);
    while let Ok(Some(job)) = timeout_at(end, rx.recv()).await {
        left += 1;
        job.ack();
    }
    left
}

#[tokio::test(start_paused = true)]
async fn of_rates_and_ramps_the_last_word_wins() {
    let (tx, rx) = backlog(Builder::new(Rate::per_second(10)));
    let control = tx.control();
    assert_eq!(control.rate_changes(), 0);
    control.ramp(Rate::per_second(110), 10 * SECOND).unwrap();
    let first = count(&rx, 5 * SECOND).await;
    assert!((150..=190).contains(&first), "{first}: half way up");
    // A new ramp starts from where the rate is, a new rate ends it.
    control.ramp(Rate::per_second(10), 5 * SECOND).unwrap();
    let down = count(&rx, 5 * SECOND).await;
    assert!((155..=185).contains(&down), "{down}");
    control.ramp(Rate::per_second(1000), 60 * SECOND).unwrap();
    control.set_rate(Rate::per_second(20)).unwrap();
    assert_eq!(tx.snapshot().rate, Some(Rate::per_second(20)));
    let steady = count(&rx, 10 * SECOND).await;
    assert!((199..=201).contains(&steady), "{steady}");
    assert!(
        control.rate_changes() > 100,
        "every step is counted: {}",
        control.rate_changes()
    );
    let changes = control.rate_changes();
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(
        control.rate_changes(),
        changes,
        "and nothing moves it any more"
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_start_longer_than_the_run_still_moves_and_never_overshoots() {
    let (tx, rx) = backlog(Builder::new(Rate::per_second(100)).slow_start(3600 * SECOND));
    assert!(
        (100..=102).contains(&count(&rx, SECOND).await),
        "a fresh queue is not slow"
    );
    tx.control().pause("failover");
    tokio::time::sleep(SECOND).await;
    tx.control().resume();
    let left = count(&rx, 60 * SECOND).await;
    // A tenth of the rate, and a sixtieth of the way up.
    assert!((600..=700).contains(&left), "{left}");
}

#[tokio::test(start_paused = true)]
async fn an_adaptation_that_breaks_a_rule_is_refused_by_name_and_changes_nothing() {
    let (tx, _rx) = Builder::new(Rate::per_second(50)).build::<()>().unwrap();
    let upside = Aimd::between(Rate::per_second(100), Rate::per_second(10));
    let error = tx.control().adapt(upside).unwrap_err().to_string();
    assert!(error.contains("floor is 100/s"), "{error}");
    let never = Aimd {
        cut: f64::NAN,
        ..Aimd::between(Rate::per_second(1), Rate::per_second(10))
    };
    assert!(
        tx.control()
            .adapt(never)
            .unwrap_err()
            .to_string()
            .contains("cut")
    );
    assert_eq!(
        (tx.snapshot().rate, tx.control().rate_changes()),
        (Some(Rate::per_second(50)), 0)
    );
    let (tx, _rx) = Builder::unpaced().build::<()>().unwrap();
    let fair = Aimd::between(Rate::per_second(1), Rate::per_second(10));
    assert!(
        tx.control()
            .adapt(fair)
            .unwrap_err()
            .to_string()
            .contains("paced")
    );
}

/// Stated: back at nine tenths within 25 good intervals from half of the ceiling.
#[tokio::test(start_paused = true)]
async fn the_rate_follows_a_downstream_that_says_it_is_strained_and_comes_back() {
    let (tx, rx) = backlog(Builder::new(Rate::per_second(200)));
    let strained = Arc::new(AtomicBool::new(false));
    let vitals = Arc::clone(&strained);
    let follow = Aimd::between(Rate::per_second(20), Rate::per_second(100));
    let control = tx.control();
    control
        .adapt_with(follow, move || vitals.load(Ordering::SeqCst))
        .unwrap();
    let rate = || per_second(tx.snapshot().rate.unwrap());
    count(&rx, 3 * SECOND).await;
    assert!((rate() - 100.0).abs() < 1e-9, "{}", rate());
    strained.store(true, Ordering::SeqCst);
    count(&rx, 4 * SECOND).await;
    assert!((20.0..60.0).contains(&rate()), "{}", rate());
    count(&rx, 20 * SECOND).await;
    assert!(
        (rate() - 20.0).abs() < 1e-9,
        "never below the floor: {}",
        rate()
    );
    strained.store(false, Ordering::SeqCst);
    let mut seconds = 0;
    while rate() < 90.0 {
        count(&rx, SECOND).await;
        seconds += 1;
    }
    assert!(seconds <= 60, "{seconds} s from the floor");
    assert!(control.rate_changes() >= 10);
    control.hold_rate();
    assert!((rate() - 200.0).abs() < 1e-9, "the one that was set");
}

#[tokio::test(start_paused = true)]
async fn outcomes_after_the_close_are_counted_and_harm_nothing() {
    let (tx, rx) = backlog(Builder::new(Rate::per_second(100)));
    let follow = Aimd::between(Rate::per_second(10), Rate::per_second(100));
    let control = tx.control();
    control.adapt(follow).unwrap();
    let mut jobs = Vec::new();
    for _ in 0..30 {
        jobs.push(rx.recv().await.unwrap());
    }
    tx.close();
    drop((tx, rx));
    for (n, mut job) in jobs.into_iter().enumerate() {
        tokio::time::sleep(100 * MILLI).await;
        job.settle_cost(n as u64);
        match n % 3 {
            0 => job.ack(),
            1 => job.fail_because("late"),
            _ => job.retry_because("late", SECOND),
        }
    }
    let ledger = control.snapshot().ledger;
    assert_eq!((ledger.acked, ledger.failed, ledger.in_flight), (10, 10, 0));
    assert_eq!(ledger.returned, 5_000 - 20);
    assert!(ledger.is_balanced());
    assert!(per_second(control.snapshot().rate.unwrap()) >= 10.0);
}
