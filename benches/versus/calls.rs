//! Whole calls of something that bears so many at once: the turnstile beside what else bounds them.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use sluicegate::queue::Builder;
use tokio::sync::Semaphore;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

use crate::gauge::{Row, Work};

pub(crate) fn rows() -> Vec<Row> {
    let row = |name, target, peers| Row {
        name,
        unit: "M calls/s",
        more_is_better: true,
        target,
        ours: turnstile(),
        peers,
    };
    vec![
        row(
            "64 callers, 16 at once, beside buffer + concurrency limit",
            1.0,
            vec![("tower", tower_limit())],
        ),
        row(
            "64 callers, 16 at once, beside a bare semaphore",
            0.5,
            vec![("tokio Semaphore", semaphore())],
        ),
    ]
}

const CALLERS: u64 = 64;
const AT_ONCE: usize = 16;
const CALLS: f64 = 1e6;

/// The work behind the limit: gives the others a turn once, as anything that waits does.
async fn work() {
    tokio::task::yield_now().await;
}

fn turnstile() -> Work {
    Box::new(|length| {
        let turnstile = Builder::unpaced()
            .max_in_flight(AT_ONCE as u64)
            .turnstile()
            .expect("the settings are valid");
        crowd(length, move || {
            let turnstile = turnstile.clone();
            async move { turnstile.run(work()).await.expect("open") }
        })
    })
}

fn semaphore() -> Work {
    Box::new(|length| {
        let semaphore = Arc::new(Semaphore::new(AT_ONCE));
        crowd(length, move || {
            let semaphore = Arc::clone(&semaphore);
            async move {
                let _permit = semaphore.acquire().await.expect("open");
                work().await;
            }
        })
    })
}

fn tower_limit() -> Work {
    Box::new(|length| {
        timed(length, |callers, each| {
            let service = ServiceBuilder::new()
                .buffer(1024)
                .concurrency_limit(AT_ONCE)
                .service(service_fn(|()| async {
                    work().await;
                    Ok::<_, std::convert::Infallible>(())
                }));
            (0..callers)
                .map(|_| {
                    let mut service = service.clone();
                    tokio::spawn(async move {
                        for _ in 0..each {
                            let ready = service.ready().await.expect("open");
                            ready.call(()).await.expect("open");
                        }
                    })
                })
                .collect()
        })
    })
}

fn crowd<F>(length: f64, call: impl Fn() -> F + Clone + Send + 'static) -> f64
where
    F: Future<Output = ()> + Send,
{
    timed(length, |callers, each| {
        (0..callers)
            .map(|_| {
                let call = call.clone();
                tokio::spawn(async move {
                    for _ in 0..each {
                        call().await;
                    }
                })
            })
            .collect()
    })
}

/// Millions of calls a second, where `spawn(callers, each)` starts so many tasks of so many calls.
fn timed(length: f64, spawn: impl FnOnce(u64, u64) -> Vec<tokio::task::JoinHandle<()>>) -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime starts");
    let each = (CALLS * length) as u64 / CALLERS;
    runtime.block_on(async {
        let start = Instant::now();
        for caller in spawn(CALLERS, each) {
            caller.await.expect("no panic");
        }
        (each * CALLERS) as f64 / start.elapsed().as_secs_f64() / 1e6
    })
}
