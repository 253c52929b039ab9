//! Hand-over of items through a queue without a rate.

use std::future::Future;
use std::time::Instant;

use sluicegate::queue::{Builder, Receiver, Sender};

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
    vec![
        row("unpaced send + recv + ack, 1P1C", 0.5, jobs(1), channels(1)),
        row("unpaced send + recv + ack, 2P2C", 0.9, jobs(2), channels(2)),
        row(
            "unpaced send + recv_many(64) + ack, 1P1C",
            1.0,
            many(),
            channels(1),
        ),
    ]
}

const ITEMS: f64 = 1e6;
const DEPTH: usize = 1024;

fn channels(pairs: usize) -> Vec<(&'static str, Work)> {
    let mut peers: Vec<(&'static str, Work)> = vec![
        (
            "async-channel",
            Box::new(move |length| {
                let (tx, rx) = async_channel::bounded(DEPTH);
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
                        async move { while rx.recv().await.is_ok() {} }
                    },
                )
            }),
        ),
        (
            "flume",
            Box::new(move |length| {
                let (tx, rx) = flume::bounded(DEPTH);
                pump(
                    pairs,
                    length,
                    move |n| {
                        let tx = tx.clone();
                        async move {
                            for item in 0..n {
                                tx.send_async(item).await.expect("open");
                            }
                        }
                    },
                    move || {
                        let rx = rx.clone();
                        async move { while rx.recv_async().await.is_ok() {} }
                    },
                )
            }),
        ),
        (
            "kanal",
            Box::new(move |length| {
                let (tx, rx) = kanal::bounded_async(DEPTH);
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
                        async move { while rx.recv().await.is_ok() {} }
                    },
                )
            }),
        ),
        (
            "crossfire",
            Box::new(move |length| {
                let (tx, rx) = crossfire::mpmc::bounded_async::<u64>(DEPTH);
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
                        async move { while rx.recv().await.is_ok() {} }
                    },
                )
            }),
        ),
    ];
    if pairs == 1 {
        peers.push((
            "tokio mpsc",
            Box::new(move |length| {
                let (tx, rx) = tokio::sync::mpsc::channel(DEPTH);
                let rx = std::sync::Mutex::new(Some(rx));
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
                        let mut rx = rx
                            .lock()
                            .expect("not poisoned")
                            .take()
                            .expect("one consumer");
                        async move { while rx.recv().await.is_some() {} }
                    },
                )
            }),
        ));
    }
    peers
}

fn ours() -> (Sender<u64>, Receiver<u64>) {
    let depth = DEPTH as u64;
    let builder = Builder::unpaced()
        .max_depth(depth)
        .watermarks(depth / 2, depth);
    builder.build().expect("the settings are valid")
}

fn jobs(pairs: usize) -> Work {
    Box::new(move |length| {
        let (tx, rx) = ours();
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

fn many() -> Work {
    Box::new(|length| {
        let (tx, rx) = ours();
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
                        jobs.into_iter().for_each(|job| job.ack());
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
