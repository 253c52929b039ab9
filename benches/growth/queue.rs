//! The queue: an operation against what is queued, who waits, who takes, and whose the jobs are.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sluicegate::queue::{Builder, Job, Priority, Receiver, Sender, WhenFull};

use crate::table::{each, head, held, line};

pub(crate) const TABLES: [(&str, fn()); 7] = [
    ("queue: send + recv + ack, by depth", depth),
    (
        "queue: one departure and the next in line, by waiters",
        waiters,
    ),
    (
        "queue: send + wake + recv + ack, by waiting consumers",
        consumers,
    ),
    ("queue: send + recv + ack, by lanes in use", lanes),
    ("queue: send + recv + ack, by tenants with jobs", tenants),
    (
        "queue: a newcomer that evicts the oldest, by tenants with jobs",
        evictions,
    ),
    ("queue: memory of a queued job of 8 bytes", memory),
];

const OPERATIONS: u64 = 50_000;

fn queue(depth: u64) -> (Sender<u64>, Receiver<u64>) {
    let builder = Builder::unpaced().max_depth(depth + 2);
    let builder = builder.watermarks(depth, depth + 2);
    builder.build().expect("the settings are valid")
}

fn powers(from: u32, to: u32) -> impl Iterator<Item = u64> {
    (from..=to).map(|power| 10_u64.pow(power))
}

fn depth() {
    head("queued");
    for depth in powers(1, 6) {
        let (tx, rx) = queue(depth);
        for job in 0..depth {
            tx.try_send(job).expect("there is room");
        }
        line(
            depth,
            each(OPERATIONS, |operations| {
                for job in 0..operations {
                    tx.try_send(job).expect("there is room");
                    rx.try_recv().expect("a job is queued").ack();
                }
            }),
        );
    }
}

/// Polls a future once, with nobody to wake.
fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}

fn waiters() {
    head("waiters");
    for waiters in powers(0, 5) {
        let builder = Builder::unpaced().max_depth(2).watermarks(0, 1);
        let builder = builder.max_waiters(waiters + 2);
        let (tx, rx) = builder.build().expect("the settings are valid");
        tx.try_send(0).expect("there is room");
        let mut line_up = VecDeque::new();
        let join = |job| {
            let mut waiter = Box::pin(tx.send(job));
            assert!(poll(&mut waiter).is_pending(), "the queue is full");
            waiter
        };
        for job in 0..waiters {
            line_up.push_back(join(job));
        }
        let measured = each(OPERATIONS.min(20_000), |operations| {
            for job in 0..operations {
                rx.try_recv().expect("a job is queued").ack();
                let mut first = line_up.pop_front().expect("somebody waits");
                assert!(poll(&mut first).is_ready(), "it is its turn");
                line_up.push_back(join(job));
            }
        });
        line(waiters, measured);
    }
}

fn consumers() {
    head("consumers");
    for consumers in [1, 2, 4, 8, 16, 32, 64] {
        let (tx, rx) = queue(1_000);
        let wait = || {
            let mut consumer = Box::pin(rx.recv());
            assert!(poll(&mut consumer).is_pending(), "nothing is queued");
            consumer
        };
        let mut line_up: VecDeque<_> = (0..consumers).map(|_| wait()).collect();
        let measured = each(OPERATIONS, |operations| {
            for job in 0..operations {
                tx.try_send(job).expect("there is room");
                let mut first = line_up.pop_front().expect("somebody waits");
                let Poll::Ready(Some(job)) = poll(&mut first) else {
                    panic!("it was woken for a job");
                };
                job.ack();
                line_up.push_back(wait());
            }
        });
        line(consumers, measured);
    }
}

fn lanes() {
    head("lanes");
    for lanes in 1..=4_usize {
        let (tx, rx) = queue(1_000);
        let send = |job: u64| {
            let priority = Priority::ALL[job as usize % lanes];
            let offer = tx.offer(job).priority(priority);
            offer.try_send().expect("there is room");
        };
        (0..1_000).for_each(send);
        let measured = each(OPERATIONS, |operations| {
            for job in 0..operations {
                send(job);
                rx.try_recv().expect("a job is queued").ack();
            }
        });
        line(lanes, measured);
    }
}

fn tenants() {
    head("tenants");
    for tenants in powers(0, 5) {
        let depth = 4 * tenants;
        let builder = Builder::unpaced().max_depth(depth + 2);
        let builder = builder.watermarks(depth, depth + 2).max_tenants(tenants);
        let (tx, rx) = builder.build::<u64>().expect("the settings are valid");
        let send = |job: u64| {
            let offer = tx.offer(job).tenant(job % tenants);
            offer.try_send().expect("there is room");
        };
        (0..depth).for_each(send);
        let mut next = depth;
        let measured = each(OPERATIONS, |operations| {
            for _ in 0..operations {
                send(next);
                next += 1;
                rx.try_recv().expect("a job is queued").ack();
            }
        });
        line(tenants, measured);
    }
}

fn evictions() {
    head("tenants");
    for tenants in powers(0, 4) {
        let depth = 4 * tenants;
        let builder = Builder::unpaced().max_depth(depth).max_tenants(tenants);
        let builder = builder.when_full(WhenFull::EvictOldest).dead_letters(0);
        let (tx, _rx) = builder.build::<u64>().expect("the settings are valid");
        let send = |job: u64| {
            let offer = tx.offer(job).tenant(job % tenants);
            offer.try_send().expect("the oldest makes room");
        };
        (0..depth).for_each(send);
        let mut next = depth;
        let measured = each(OPERATIONS.min(5_000), |operations| {
            for _ in 0..operations {
                send(next);
                next += 1;
            }
        });
        line(tenants, measured);
    }
}

type Send = fn(&Sender<u64>, u64);

fn memory() {
    const JOBS: u64 = 100_000;
    println!("| job | bytes beyond the item | allocations of send + recv + ack |");
    println!("|---|---|---|");
    let kinds: [(&str, Send); 4] = [
        ("plain", |tx, job| {
            tx.try_send(job).expect("there is room");
        }),
        ("expiry", |tx, job| {
            let offer = tx.offer(job).expires_in(Duration::from_secs(3600));
            offer.try_send().expect("there is room");
        }),
        ("cost and tenant", |tx, job| {
            let offer = tx.offer(job).cost(2).tenant(job % 100);
            offer.try_send().expect("there is room");
        }),
        ("expiry, cost and tenant", |tx, job| {
            let offer = tx.offer(job).expires_in(Duration::from_secs(3600));
            let offer = offer.cost(2).tenant(job % 100);
            offer.try_send().expect("there is room");
        }),
    ];
    for (kind, send) in kinds {
        let (tx, rx) = queue(2 * JOBS + 2);
        // Tenants are known for good, whatever they have queued.
        (0..100).for_each(|job| send(&tx, job));
        while let Ok(job) = rx.try_recv() {
            job.ack();
        }
        let ((), bytes) = held(|| (0..JOBS).for_each(|job| send(&tx, job)));
        let (_, allocations) = each(OPERATIONS, |operations| {
            for job in 0..operations {
                send(&tx, job);
                rx.try_recv().expect("a job is queued").ack();
            }
        });
        let beyond = bytes as f64 / JOBS as f64 - size_of::<u64>() as f64;
        println!("| {kind} | {beyond:.1} | {allocations:.3} |");
    }
    let (tx, rx) = queue(128);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime starts");
    let (_, allocations) = each(OPERATIONS, |operations| {
        for from in 0..operations / 64 {
            for job in 0..64 {
                tx.try_send(64 * from + job).expect("there is room");
            }
            Job::ack_all(runtime.block_on(rx.recv_many(64)));
        }
    });
    println!("| plain, recv_many(64) | | {allocations:.3} |");
}
