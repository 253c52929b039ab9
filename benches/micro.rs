//! Single steps, each by itself and without a peer: what a change has made slower shows here first.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use sluicegate::queue::{Builder, Receiver, Sender};
use sluicegate::{FastClock, Hierarchy, KeyedLimiter, Rate, RateLimiter};

fn checks(c: &mut Criterion) {
    let mut group = c.benchmark_group("check");
    let granting = RateLimiter::with_clock(
        Rate::per_second(1_000_000_000).burst(1_000_000_000),
        FastClock::new(),
    );
    group.bench_function("granted", |b| {
        b.iter(|| black_box(granting.check(1).is_granted()))
    });
    let refusing = RateLimiter::with_clock(Rate::per_hour(1).burst(1), FastClock::new());
    let _ = refusing.check(1);
    group.bench_function("refused", |b| {
        b.iter(|| black_box(refusing.check(1).is_granted()))
    });
    let keyed = KeyedLimiter::<u64>::builder(Rate::per_second(1_000_000).burst(1_000_000))
        .clock(FastClock::new())
        .build()
        .expect("the settings are valid");
    let mut key = 0;
    group.bench_function("keyed, 10k keys", |b| {
        b.iter(|| {
            key = (key + 7919) % 10_000;
            black_box(keyed.check(&key, 1).is_granted())
        })
    });
    group.finish();
}

fn levels(c: &mut Criterion) {
    let mut group = c.benchmark_group("hierarchy");
    let generous = || Rate::per_second(1_000_000_000).burst(1_000_000_000);
    let three = Hierarchy::<(&str, u64)>::builder()
        .level("global", generous(), |_| ())
        .level("tenant", generous(), |caller| caller.0)
        .level("user", generous(), |caller| caller.1)
        .clock(FastClock::new())
        .build()
        .expect("the settings are valid");
    group.bench_function("3 levels granted", |b| {
        b.iter(|| black_box(three.check(&("acme", 7), 1).is_granted()))
    });
    group.finish();
}

fn queue() -> (Sender<u64>, Receiver<u64>) {
    Builder::unpaced()
        .max_depth(1024)
        .watermarks(512, 1024)
        .build()
        .expect("the settings are valid")
}

fn jobs(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue");
    let (tx, rx) = queue();
    group.bench_function("try_send + try_recv + ack", |b| {
        b.iter(|| {
            let _ = tx.try_send(black_box(1));
            rx.try_recv().expect("one is there").ack();
        })
    });
    let (full, _rx) = queue();
    while full.try_send(1).is_ok() {}
    group.bench_function("try_send refused", |b| {
        b.iter(|| black_box(full.try_send(1).is_err()))
    });
    group.bench_function("build, 64 jobs, drop", |b| {
        b.iter_batched(
            queue,
            |(tx, rx)| {
                (0..64).for_each(|job| drop(tx.try_send(job)));
                drop((tx, rx));
            },
            BatchSize::SmallInput,
        )
    });
    group.finish();
}

criterion_group!(benches, checks, levels, jobs);
criterion_main!(benches);
