//! Pacing on the real clock: the rate that is held, clumps, fairness among waiters.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use governor::Quota;
use sluicegate::queue::{Builder, Timer};
use sluicegate::{Rate, RateLimiter};

use crate::gauge::{Row, Work};

pub(crate) fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = HELD.into_iter().map(Held::row).collect();
    rows.push(Row {
        name: "most departures in any 10 ms at 10k/s (ideal 100)",
        unit: "departures",
        more_is_better: false,
        target: 1.0,
        ours: Box::new(|length| clump(&departures(10_000, Timer::Precise, 1, length))),
        peers: vec![(
            "tokio interval",
            Box::new(|length| clump(&ticks(10_000, length))),
        )],
    });
    for (name, waiters) in [
        ("16 waiters: largest share", 16),
        ("256 waiters: largest share", 256),
    ] {
        rows.push(Row {
            name,
            unit: "shares",
            more_is_better: false,
            target: 1.0,
            ours: shares(waiters),
            peers: vec![("leaky-bucket", shares_leaky(waiters))],
        });
    }
    rows
}

/// A rate that is to be held for [`RUN`].
struct Held {
    name: &'static str,
    rate: u64,
    timer: Timer,
    consumers: usize,
}

const HELD: [Held; 12] = [
    Held::by_runtime("rate held at 1/s", 1, 1),
    Held::by_runtime("rate held at 100/s", 100, 1),
    Held::by_runtime("rate held at 100/s, 4 consumers", 100, 4),
    Held::by_runtime("rate held at 1k/s", 1_000, 1),
    Held::by_runtime("rate held at 1k/s, 4 consumers", 1_000, 4),
    Held::by_runtime("rate held at 10k/s", 10_000, 1),
    Held::by_runtime("rate held at 100k/s", 100_000, 1),
    Held::precisely("rate held at 1/s, precise timer", 1),
    Held::precisely("rate held at 100/s, precise timer", 100),
    Held::precisely("rate held at 1k/s, precise timer", 1_000),
    Held::precisely("rate held at 10k/s, precise timer", 10_000),
    Held::precisely("rate held at 100k/s, precise timer", 100_000),
];
const RUN: Duration = Duration::from_secs(10);
/// Part of a run that peers get, who are off by percents: only at 1/s a whole one is needed to see anything.
const PEERS_PART: f64 = 0.3;

impl Held {
    const fn by_runtime(name: &'static str, rate: u64, consumers: usize) -> Self {
        Self {
            name,
            rate,
            timer: Timer::Runtime,
            consumers,
        }
    }

    const fn precisely(name: &'static str, rate: u64) -> Self {
        Self {
            name,
            rate,
            timer: Timer::Precise,
            consumers: 1,
        }
    }

    fn row(self) -> Row {
        let Self {
            name,
            rate,
            timer,
            consumers,
        } = self;
        let part = if rate == 1 { 1.0 } else { PEERS_PART };
        let shorter = |work: Work| -> Work { Box::new(move |length| work(length * part)) };
        Row {
            name,
            unit: "deviation",
            more_is_better: false,
            target: 1.0,
            ours: held(rate, timer, consumers),
            peers: vec![
                ("governor", shorter(held_governor(rate))),
                ("leaky-bucket", shorter(held_leaky(rate))),
                ("tokio interval", shorter(held_interval(rate))),
            ],
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime starts")
}

/// How far a run is from its rate: |held / set - 1|; what is within a thousandth counts as that, and as held.
fn deviation(left: u64, rate: u64, took: Duration) -> f64 {
    let held = left as f64 / took.as_secs_f64();
    (held / rate as f64 - 1.0).abs().max(1e-3)
}

/// Instants at which a backlog departs, in nanoseconds of the queue's clock.
fn departures(rate: u64, timer: Timer, consumers: usize, length: f64) -> Vec<u64> {
    let run = RUN.mul_f64(length);
    let jobs = (rate as f64 * run.as_secs_f64()) as u64 + 1;
    runtime().block_on(async move {
        let builder = Builder::new(Rate::per_second(rate))
            .timer(timer)
            .max_depth(jobs + 1);
        let (tx, rx) = builder
            .watermarks(jobs - 1, jobs + 1)
            .build()
            .expect("valid");
        // What falls due while it is filled would be owed, and made up for in the run.
        let control = tx.control();
        control.pause("filling");
        for job in 0..jobs {
            tx.try_send(job).expect("it holds them all");
        }
        drop(tx);
        let consumers: Vec<_> = (0..consumers)
            .map(|_| {
                let rx = rx.clone();
                tokio::spawn(async move {
                    let mut left = Vec::new();
                    while let Some(job) = rx.recv().await {
                        left.push(job.departed_at().as_nanos());
                        job.ack();
                    }
                    left
                })
            })
            .collect();
        control.resume();
        let mut left = Vec::new();
        for consumer in consumers {
            left.extend(consumer.await.expect("no panic"));
        }
        left.sort_unstable();
        left
    })
}

fn held(rate: u64, timer: Timer, consumers: usize) -> Work {
    Box::new(move |length| {
        let left = departures(rate, timer, consumers, length);
        let took = Duration::from_nanos(left[left.len() - 1] - left[0]);
        deviation(left.len() as u64 - 1, rate, took)
    })
}

fn held_governor(rate: u64) -> Work {
    Box::new(move |length| {
        let run = RUN.mul_f64(length);
        runtime().block_on(async move {
            let burst = NonZeroU32::new(1).expect("above zero");
            let period = Duration::from_secs_f64(1.0 / rate as f64);
            let quota = Quota::with_period(period)
                .expect("above zero")
                .allow_burst(burst);
            let limiter = governor::RateLimiter::direct(quota);
            let (start, mut left) = (Instant::now(), 0);
            while start.elapsed() < run {
                limiter.until_ready().await;
                left += 1;
            }
            deviation(left - 1, rate, start.elapsed())
        })
    })
}

fn held_leaky(rate: u64) -> Work {
    Box::new(move |length| {
        let run = RUN.mul_f64(length);
        runtime().block_on(async move {
            // One token an interval up to 1,000/s; beyond it the interval would be below a millisecond.
            let refill = (rate / 1000).max(1) as usize;
            let interval = Duration::from_secs_f64(refill as f64 / rate as f64);
            let limiter = leaky_bucket::RateLimiter::builder()
                .initial(0)
                .max(refill)
                .refill(refill)
                .interval(interval)
                .build();
            let (start, mut left) = (Instant::now(), 0);
            while start.elapsed() < run {
                limiter.acquire_one().await;
                left += 1;
            }
            deviation(left, rate, start.elapsed())
        })
    })
}

fn ticks(rate: u64, length: f64) -> Vec<u64> {
    let run = RUN.mul_f64(length);
    runtime().block_on(async move {
        let mut interval = tokio::time::interval(Duration::from_secs_f64(1.0 / rate as f64));
        let (start, mut left) = (Instant::now(), Vec::new());
        while start.elapsed() < run {
            interval.tick().await;
            left.push(start.elapsed().as_nanos() as u64);
        }
        left
    })
}

fn held_interval(rate: u64) -> Work {
    Box::new(move |length| {
        let left = ticks(rate, length);
        let took = Duration::from_nanos(left[left.len() - 1] - left[0]);
        deviation(left.len() as u64 - 1, rate, took)
    })
}

/// Most instants within any 10 ms.
fn clump(left: &[u64]) -> f64 {
    let mut from = 0;
    let most = left.iter().enumerate().map(|(to, at)| {
        while at - left[from] > 10_000_000 {
            from += 1;
        }
        to - from + 1
    });
    most.max().unwrap_or(0) as f64
}

/// Largest number of grants among so many waiters that ask all the time, over the fair number.
fn shares(waiters: usize) -> Work {
    Box::new(move |length| {
        let limiter = RateLimiter::new(Rate::per_second(1000).burst(1));
        share(waiters, length, move || {
            let limiter = limiter.clone();
            async move { limiter.acquire(1).await.expect("one always fits") }
        })
    })
}

fn shares_leaky(waiters: usize) -> Work {
    Box::new(move |length| {
        let limiter = leaky_bucket::RateLimiter::builder()
            .initial(0)
            .max(1)
            .refill(1)
            .interval(Duration::from_millis(1))
            .build();
        let limiter = Arc::new(limiter);
        share(waiters, length, move || {
            let limiter = Arc::clone(&limiter);
            async move { limiter.acquire_one().await }
        })
    })
}

fn share<F>(
    waiters: usize,
    length: f64,
    acquire: impl Fn() -> F + Clone + Send + Sync + 'static,
) -> f64
where
    F: Future<Output = ()> + Send,
{
    let grants: Arc<Vec<AtomicU64>> = Arc::new((0..waiters).map(|_| AtomicU64::new(0)).collect());
    let counted = Arc::clone(&grants);
    runtime().block_on(async move {
        let tasks: Vec<_> = (0..waiters)
            .map(|waiter| {
                let (acquire, counted) = (acquire.clone(), Arc::clone(&counted));
                tokio::spawn(async move {
                    loop {
                        acquire().await;
                        // Relaxed: single counts, read after the tasks are gone.
                        counted[waiter].fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_secs(3).mul_f64(length)).await;
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
    });
    let grants: Vec<u64> = grants
        .iter()
        .map(|grants| grants.load(Ordering::Relaxed))
        .collect();
    let fair = grants.iter().sum::<u64>() as f64 / waiters as f64;
    grants
        .iter()
        .max()
        .map_or(f64::NAN, |most| *most as f64 / fair.max(1.0))
}
