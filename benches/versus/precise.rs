//! What the precise timer costs, and how even its departures are, beside a bare thread that sleeps.

use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use sluicegate::Rate;
use sluicegate::queue::{Builder, Timer};

use crate::gauge::{Row, Work};

pub(crate) fn rows() -> Vec<Row> {
    let row = |name, unit, target, ours: Work, bare: Work| Row {
        name,
        unit,
        more_is_better: false,
        target,
        ours,
        peers: vec![("a bare thread", bare)],
    };
    vec![
        row(
            "precise timer at 10k/s: processor time",
            "% of a core",
            1.0 / 1.7,
            Box::new(|length| queue(length).cpu()),
            Box::new(|length| bare(length).cpu()),
        ),
        row(
            "precise timer at 10k/s: p99 gap between departures",
            "us",
            1.0 / 1.2,
            Box::new(|length| queue(length).p99_gap()),
            Box::new(|length| bare(length).p99_gap()),
        ),
    ]
}

const RATE: u64 = 10_000;
const RUN: Duration = Duration::from_secs(5);

struct Run {
    /// Nanoseconds, ascending.
    left: Vec<u64>,
    took: Duration,
    worked: Duration,
}

impl Run {
    fn cpu(&self) -> f64 {
        100.0 * self.worked.as_secs_f64() / self.took.as_secs_f64()
    }

    fn p99_gap(&self) -> f64 {
        let mut gaps: Vec<u64> = self.left.windows(2).map(|two| two[1] - two[0]).collect();
        gaps.sort_unstable();
        gaps[gaps.len() * 99 / 100] as f64 / 1e3
    }
}

/// A backlog that leaves at the rate, taken by one consumer.
fn queue(length: f64) -> Run {
    let jobs = departures(length);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime starts");
    runtime.block_on(async move {
        let (tx, rx) = Builder::new(Rate::per_second(RATE))
            .timer(Timer::Precise)
            .max_depth(jobs + 1)
            .watermarks(jobs - 1, jobs + 1)
            .build()
            .expect("the settings are valid");
        // What falls due while it is filled would be owed, and made up for in the run.
        let control = tx.control();
        control.pause("filling");
        for job in 0..jobs {
            tx.try_send(job).expect("it holds them all");
        }
        drop(tx);
        control.resume();
        // On a worker: the thread that blocks would be woken through another.
        let consumer = tokio::spawn(async move {
            let (start, cpu) = (Instant::now(), ProcessTime::now());
            let mut left = Vec::with_capacity(jobs as usize);
            while let Some(job) = rx.recv().await {
                left.push(job.departed_at().as_nanos());
                job.ack();
            }
            Run {
                left,
                took: start.elapsed(),
                worked: cpu.elapsed(),
            }
        });
        consumer.await.expect("no panic")
    })
}

/// A thread that sleeps to absolute instants and does nothing else.
fn bare(length: f64) -> Run {
    let jobs = departures(length);
    let (start, cpu) = (Instant::now(), ProcessTime::now());
    let mut left = Vec::with_capacity(jobs as usize);
    for job in 0..jobs {
        let due = start + Duration::from_nanos(job * 1_000_000_000 / RATE);
        let now = Instant::now();
        if due > now {
            std::thread::sleep(due - now);
        }
        left.push(start.elapsed().as_nanos() as u64);
    }
    Run {
        left,
        took: start.elapsed(),
        worked: cpu.elapsed(),
    }
}

fn departures(length: f64) -> u64 {
    (RATE as f64 * RUN.as_secs_f64() * length) as u64 + 1
}
