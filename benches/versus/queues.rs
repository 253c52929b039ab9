//! Hand-over of items through a queue without a rate.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use sluicegate::FastClock;
use sluicegate::queue::{Builder, Job, Receiver, Sender};

use crate::gauge::{Row, Work};

pub(crate) fn rows() -> Vec<Row> {
    let row = |name, target, ours: Work, peers| Row {
        name,
        unit: "M items/s",
        more_is_better: true,
        target,
        ours,
        peers,
    };
    let all_done = |jobs: Vec<Job<u64>>| Job::ack_all(jobs);
    let one_by_one = |jobs: Vec<Job<u64>>| jobs.into_iter().for_each(Job::ack);
    vec![
        // What is aimed at is aimed at beside async-channel, whose receivers can be given up without losing an item.
        row(
            "unpaced send + recv + ack, 1P1C",
            0.5,
            jobs(1, ours),
            vec![async_channel(1)],
        ),
        row(
            "unpaced send + recv + ack, 2P2C",
            0.9,
            jobs(2, ours),
            vec![async_channel(2)],
        ),
        row(
            "unpaced send + recv_many(64) + ack, 1P1C",
            1.0,
            many(one_by_one, ours),
            vec![async_channel(1)],
        ),
        row(
            "unpaced send + recv_many(64) + ack_all, 1P1C",
            1.0,
            many(all_done, ours),
            vec![async_channel(1)],
        ),
        // The same with the faster clock: a job has an instant of its offer, its departure and its end.
        row(
            "unpaced send + recv + ack, 1P1C, TSC clock",
            0.5,
            jobs(1, fast),
            vec![async_channel(1)],
        ),
        row(
            "unpaced send + recv + ack, 2P2C, TSC clock",
            0.9,
            jobs(2, fast),
            vec![async_channel(2)],
        ),
        row(
            "unpaced send + recv_many(64) + ack_all, 1P1C, TSC clock",
            1.0,
            many(all_done, fast),
            vec![async_channel(1)],
        ),
        row(
            "beside all channels: unpaced send + recv + ack, 1P1C",
            0.0,
            jobs(1, ours),
            {
                let mut peers = others(1);
                peers.push(tokio_mpsc());
                peers
            },
        ),
        row(
            "beside all channels: unpaced send + recv + ack, 2P2C",
            0.0,
            jobs(2, ours),
            others(2),
        ),
    ]
}

const ITEMS: f64 = 1e6;
const DEPTH: usize = 1024;

type Peer = (&'static str, Work);

/// A channel as a peer: how it is made, how an item is sent, and how the receiver is emptied.
macro_rules! channel {
    ($name:literal, $pairs:expr, $make:expr, $send:ident, |$rx:ident| $empty:expr) => {{
        let pairs = $pairs;
        let work: Work = Box::new(move |length| {
            let (tx, rx) = $make;
            let produce = move |n| {
                let tx = tx.clone();
                async move {
                    for item in 0..n {
                        tx.$send(item).await.expect("open");
                    }
                }
            };
            let consume = move || {
                let $rx = rx.clone();
                async move { $empty }
            };
            pump(pairs, length, produce, consume)
        });
        ($name, work)
    }};
}

fn async_channel(pairs: usize) -> Peer {
    channel!(
        "async-channel",
        pairs,
        async_channel::bounded(DEPTH),
        send,
        |rx| while rx.recv().await.is_ok() {}
    )
}

fn others(pairs: usize) -> Vec<Peer> {
    vec![
        async_channel(pairs),
        channel!("flume", pairs, flume::bounded(DEPTH), send_async, |rx| {
            while rx.recv_async().await.is_ok() {}
        }),
        channel!("kanal", pairs, kanal::bounded_async(DEPTH), send, |rx| {
            while rx.recv().await.is_ok() {}
        }),
        channel!(
            "crossfire",
            pairs,
            crossfire::mpmc::bounded_async::<u64>(DEPTH),
            send,
            |rx| while rx.recv().await.is_ok() {}
        ),
    ]
}

fn tokio_mpsc() -> Peer {
    let make = || {
        let (tx, rx) = tokio::sync::mpsc::channel(DEPTH);
        (tx, Arc::new(Mutex::new(Some(rx))))
    };
    channel!("tokio mpsc", 1, make(), send, |rx| {
        let rx = rx.lock().expect("not poisoned").take();
        let mut rx = rx.expect("one consumer");
        while rx.recv().await.is_some() {}
    })
}

type Ends = (Sender<u64>, Receiver<u64>);

fn settings() -> Builder {
    let depth = DEPTH as u64;
    Builder::unpaced()
        .max_depth(depth)
        .watermarks(depth / 2, depth)
}

fn ours() -> Ends {
    settings().build().expect("the settings are valid")
}

fn fast() -> Ends {
    let builder = settings().clock(FastClock::new());
    builder.build().expect("the settings are valid")
}

fn jobs(pairs: usize, make: fn() -> Ends) -> Work {
    Box::new(move |length| {
        let (tx, rx) = make();
        pump(
            pairs,
            length,
            move |n| {
                let tx = tx.clone();
                async move {
                    for item in 0..n {
                        tx.send(item).await.expect("open");
                    }
                }
            },
            move || {
                let rx = rx.clone();
                async move {
                    while let Some(job) = rx.recv().await {
                        job.ack();
                    }
                }
            },
        )
    })
}

fn many(settle: impl Fn(Vec<Job<u64>>) + Copy + Send + 'static, make: fn() -> Ends) -> Work {
    Box::new(move |length| {
        let (tx, rx) = make();
        pump(
            1,
            length,
            move |n| {
                let tx = tx.clone();
                async move {
                    for item in 0..n {
                        tx.send(item).await.expect("open");
                    }
                }
            },
            move || {
                let rx = rx.clone();
                async move {
                    loop {
                        let jobs = rx.recv_many(64).await;
                        if jobs.is_empty() {
                            break;
                        }
                        settle(jobs);
                    }
                }
            },
        )
    })
}

/// Millions of items a second through so many producers and consumers on two threads.
fn pump<P, C>(pairs: usize, length: f64, produce: impl Fn(u64) -> P, consume: impl Fn() -> C) -> f64
where
    P: Future<Output = ()> + Send + 'static,
    C: Future<Output = ()> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime starts");
    let each = (ITEMS * length) as u64 / pairs as u64;
    let start = Instant::now();
    let consumers: Vec<_> = (0..pairs).map(|_| runtime.spawn(consume())).collect();
    let producers: Vec<_> = (0..pairs).map(|_| runtime.spawn(produce(each))).collect();
    runtime.block_on(async {
        for task in producers {
            task.await.expect("no panic");
        }
        // The last sender goes, so the consumers end once they have everything.
        drop((produce, consume));
        for task in consumers {
            task.await.expect("no panic");
        }
    });
    (each * pairs as u64) as f64 / start.elapsed().as_secs_f64() / 1e6
}
