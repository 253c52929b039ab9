//! No work that nobody waits for.

use sluicegate::Rate;
use sluicegate::queue::{Builder, Exit, Reason};
use tokio::time::{Instant, sleep_until};

use super::{MILLI, SECOND};

/// Offers at twice the rate, and callers who give up after 100 ms: share of the rate that was of use to somebody.
async fn goodput(builder: Builder, mut seed: u64) -> f64 {
    let (tx, rx) = builder.build::<()>().unwrap();
    let consumer = tokio::spawn(async move {
        let mut useful = 0;
        while let Some(job) = rx.recv().await {
            useful += u64::from(job.waited() <= 100 * MILLI);
            job.ack();
        }
        useful
    });
    let start = Instant::now();
    let mut at = 0.0;
    while at < 5.0 {
        // Poisson arrivals, by the inverse of the exponential distribution (xorshift64).
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        at -= ((seed >> 11) as f64 / (1_u64 << 53) as f64).max(1e-12).ln() / 2000.0;
        sleep_until(start + SECOND.mul_f64(at)).await;
        let _ = tx.try_send(());
    }
    drop(tx);
    consumer.await.unwrap() as f64 / 5000.0
}

#[tokio::test(start_paused = true)]
async fn at_twice_the_load_expiry_keeps_nearly_all_of_the_rate_of_use() {
    let rate = Rate::per_second(1000);
    let deep = || {
        Builder::new(rate)
            .max_depth(200)
            .watermarks(190, 200)
            .max_waiters(0)
    };
    for seed in [1, 77, 4242] {
        let expiring = goodput(deep().expire_after(100 * MILLI), seed).await;
        assert!(expiring >= 0.98, "expiry, seed {seed}: {expiring}");
        let promised = goodput(Builder::shedding(rate, 100 * MILLI), seed).await;
        assert!(promised >= 0.98, "promise, seed {seed}: {promised}");
        let stale = goodput(deep(), seed).await;
        assert!(stale < 0.1, "no expiry, seed {seed}: {stale}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_estimate_beyond_the_expiry_is_refused_in_every_form() {
    let (tx, rx) = Builder::unpaced().expire_after(SECOND).build().unwrap();
    let now = tx.offer(0).run_estimate(2 * SECOND).try_send().unwrap_err();
    let waiting = tx
        .offer(0)
        .run_estimate(2 * SECOND)
        .send()
        .await
        .unwrap_err();
    let absolute = tx
        .offer(0)
        .expires_at(Instant::now())
        .run_estimate(MILLI)
        .try_send()
        .unwrap_err();
    for refused in [now, waiting, absolute] {
        assert_eq!(refused.reason(), Reason::TooLate);
    }
    // What could just be done is admitted, and expires once it could not.
    tx.offer(1).run_estimate(900 * MILLI).try_send().unwrap();
    let letter = rx.dead_letters().recv().await.unwrap();
    assert_eq!((letter.item, letter.exit), (1, Exit::Expired));
    assert_eq!(letter.waited.as_millis(), 101);
}

#[tokio::test(start_paused = true)]
async fn newest_first_while_overloaded_and_oldest_first_when_calm() {
    let builder = Builder::unpaced()
        .max_depth(10)
        .watermarks(2, 8)
        .max_waiters(0);
    let (tx, rx) = builder.newest_first(true).build().unwrap();
    for n in 0..8 {
        tx.try_send(n).unwrap();
    }
    let mut order = Vec::new();
    for _ in 0..8 {
        order.push(rx.recv().await.unwrap().into_inner());
    }
    assert_eq!(order, [7, 6, 5, 4, 3, 2, 0, 1]);
}
