//! Alone in its process: samples are taken of everything that lives in it, by whatever clock the caller has.
#![cfg(feature = "metrics")]

use std::time::Duration;

use sluicegate::Rate;
use sluicegate::observe::{Setting, sample, snapshot};
use sluicegate::queue::Builder;
use tokio::time::advance;

#[tokio::test(start_paused = true)]
async fn a_queue_that_refuses_bursts_it_could_have_held_is_advised_a_bound() {
    for (name, bound, burst, is_advised) in [
        ("bursty", 20, 60, true),
        // 95 % of the rate and more: a deeper queue would only refuse later.
        ("overloaded", 20, 100, false),
        ("deep", 200, 60, false),
    ] {
        let builder = Builder::new(Rate::per_second(10))
            .name(name)
            .max_depth(bound);
        let (tx, rx) = builder.build::<u64>().expect("it is valid");
        let consumer = tokio::spawn(async move {
            while let Some(job) = rx.recv().await {
                job.ack();
            }
        });
        sample();
        for second in 0..240_u64 {
            if second % 10 == 0 {
                for n in 0..burst {
                    let _ = tx.try_send(n);
                }
            }
            for _ in 0..10 {
                advance(Duration::from_millis(100)).await;
                tokio::task::yield_now().await;
            }
            sample();
        }
        let mut advice = snapshot().advice;
        advice.retain(|advice| advice.name == name);
        assert_eq!(advice.len(), usize::from(is_advised), "{name}: {advice:?}");
        if let Some(advice) = advice.first() {
            assert_eq!(advice.setting, Setting::MaxDepth);
            let wanted: f64 = advice.suggested.parse().expect("a number");
            // Sixty at once, up to the high mark at 80 %.
            assert!((wanted / 75.0 - 1.0).abs() < 0.2, "{advice}");
        }
        drop(tx);
        consumer.await.expect("it ends with the queue");
    }
}
