//! No runtime, one without timers, one that ends: time passes all the same. These run in real time, without sleeping:
//! they wait for what the queue does by itself.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use sluicegate::Rate;
use sluicegate::queue::{Builder, Ending, Exit, Timer};

use super::MILLI;

/// Any executor but tokio.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

fn runtime() -> tokio::runtime::Builder {
    tokio::runtime::Builder::new_current_thread()
}

#[test]
fn a_queue_needs_no_runtime() {
    for timer in [Timer::Runtime, Timer::Precise] {
        let builder = Builder::new(Rate::per_second(500)).timer(timer);
        let (tx, rx) = builder.build().unwrap();
        for n in 0..5 {
            tx.try_send(n).unwrap();
        }
        block_on(async {
            for n in 0..5 {
                assert_eq!(rx.recv().await.unwrap().into_inner(), n);
            }
        });
        let (tx, _rx) = Builder::unpaced().timer(timer).build().unwrap();
        let ticket = block_on(tx.offer(9).expires_in(3 * MILLI).track()).unwrap();
        assert_eq!(block_on(ticket), Ending::Expired);
    }
}

#[test]
fn a_runtime_without_timers_is_enough() {
    let runtime = runtime().build().unwrap();
    runtime.block_on(async {
        let (tx, rx) = Builder::new(Rate::per_second(500)).build().unwrap();
        for n in 0..5 {
            tx.send(n).await.unwrap();
        }
        for n in 0..5 {
            assert_eq!(rx.recv().await.unwrap().into_inner(), n);
        }
    });
}

/// Its driver moves on; whoever waits on another runtime, or on none, is served.
#[test]
fn a_queue_outlives_the_runtime_it_was_built_on() {
    let first = runtime().enable_time().build().unwrap();
    let (tx, rx) = first.block_on(async {
        let (tx, rx) = Builder::new(Rate::per_second(200)).build().unwrap();
        for n in 0..6 {
            tx.send(n).await.unwrap();
        }
        for n in 0..2 {
            assert_eq!(rx.recv().await.unwrap().into_inner(), n);
        }
        (tx, rx)
    });
    drop(first);
    assert_eq!(block_on(rx.recv()).unwrap().into_inner(), 2);
    assert_eq!(block_on(rx.recv()).unwrap().into_inner(), 3);
    let second = runtime().enable_time().build().unwrap();
    assert_eq!(second.block_on(rx.recv()).unwrap().into_inner(), 4);
    let ticket = block_on(tx.offer(9).expires_in(40 * MILLI).track()).unwrap();
    assert_eq!(block_on(ticket), Ending::Expired);
}

/// The first cause for the driver may come when its runtime is gone already.
#[test]
fn a_runtime_that_ended_before_the_first_need_is_no_obstacle() {
    let gone = runtime().enable_time().build().unwrap();
    let (tx, rx) = gone.block_on(async { Builder::unpaced().build().unwrap() });
    drop(gone);
    tx.offer(1).expires_in(3 * MILLI).try_send().unwrap();
    let letter = block_on(rx.dead_letters().recv()).unwrap();
    assert_eq!((letter.item, letter.exit), (1, Exit::Expired));
}

/// While it is blocked the driver cannot run; it must not be waited for under a lock.
#[test]
fn a_blocked_runtime_blocks_nobody_else() {
    let runtime = runtime().enable_time().build().unwrap();
    let (tx, rx) = runtime.block_on(async { Builder::unpaced().build().unwrap() });
    tx.control().pause("maintenance");
    tx.offer(2).expires_in(3 * MILLI).try_send().unwrap();
    // Nothing runs on that runtime now: whoever comes by finds what time has brought.
    while tx.snapshot().ledger.expired == 0 {
        let _ = rx.try_recv().unwrap_err();
        thread::yield_now();
    }
}

#[test]
fn consumers_on_many_threads_share_one_schedule() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (tx, rx) = Builder::unpaced().max_depth(64).build().unwrap();
        let producers: Vec<_> = (0..4)
            .map(|_| {
                let tx = tx.clone();
                tokio::spawn(async move {
                    for _ in 0..2_500 {
                        tx.send(()).await.unwrap();
                    }
                })
            })
            .collect();
        let consumers: Vec<_> = (0..4)
            .map(|_| {
                let rx = rx.clone();
                tokio::spawn(async move {
                    let mut taken = 0;
                    while let Some(job) = rx.recv().await {
                        job.ack();
                        taken += 1;
                    }
                    taken
                })
            })
            .collect();
        for producer in producers {
            producer.await.unwrap();
        }
        let control = tx.control();
        drop(tx);
        let mut taken = 0;
        for consumer in consumers {
            taken += consumer.await.unwrap();
        }
        assert_eq!(taken, 10_000);
        let ledger = control.snapshot().ledger;
        assert!(ledger.is_balanced());
        assert_eq!(ledger.acked, 10_000);
    });
}

/// Nothing keeps the background task once every handle is gone.
#[tokio::test(start_paused = true)]
async fn the_driver_ends_with_the_queue() {
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    let (tx, rx) = Builder::new(Rate::per_hour(1)).build().unwrap();
    tx.offer(1)
        .expires_in(Duration::from_secs(3_600))
        .try_send()
        .unwrap();
    super::settle().await;
    assert_eq!(metrics.num_alive_tasks(), before + 1, "one task drives it");
    drop((tx, rx));
    super::settle().await;
    assert_eq!(metrics.num_alive_tasks(), before);
}
