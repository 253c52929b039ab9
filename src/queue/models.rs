//! Models of hand-over: every interleaving of two or three threads within the queue's lock.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::{BoxFuture, pending, ready};
use loom::future::block_on;
use loom::thread;

use super::consumers::Consumers;
use super::core::{Core, Links, Parts};
use super::desk::Desk;
use super::receiver::Receiver;
use super::sender::Sender;
use super::ticket::Ending;
use super::{driver, port};
use crate::clock::Clock;
use crate::machine::{Preset, Spec};
use crate::sync::process::AtomicU64;
use crate::sync::{Arc, Ordering};
use crate::tick::Tick;
use crate::timer::Timer;

/// Time stands still until somebody sleeps: a short sleep is over at once, a long one never ends. So nothing but the
/// queue itself wakes anybody.
#[derive(Debug)]
struct Still(AtomicU64);

const SHORT: u64 = 1_000;

impl Clock for Still {
    fn now(&self) -> Tick {
        Tick::from_nanos(self.0.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, at: Tick) -> BoxFuture<'static, ()> {
        if at.as_nanos() > SHORT {
            return Box::pin(pending());
        }
        self.0.store(at.as_nanos(), Ordering::SeqCst);
        Box::pin(ready(()))
    }
}

/// A queue of one place, without a rate; `start` = what happens when a driver is needed.
fn queue(start: fn(&Arc<Core<u32>>)) -> (Sender<u32>, Receiver<u32>) {
    let mut spec = Spec::new(Preset::Unpaced, None, Timer::Runtime.grain());
    spec.max_depth = Some(1);
    let core = Core::new(Parts {
        settings: spec.resolve().expect("the settings are sound"),
        spec,
        clock: Arc::new(Still(AtomicU64::new(1))),
        timer: Timer::Runtime,
        dead_letters: Some(1),
        desk: Desk::Consumers(Consumers::default()),
        runtime: None,
        links: Links {
            start,
            port: port::open,
        },
    });
    (Sender::new(Arc::clone(&core)), Receiver::new(core))
}

fn undriven(_: &Arc<Core<u32>>) {}

/// Models of three threads switch at most so often where they need not; more finds nothing new and takes minutes.
fn model(most: Option<usize>, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = most;
    let body = Arc::new(body);
    builder.check(move || {
        let body = Arc::clone(&body);
        spawn(move || body()).join().expect("no panic");
    });
}

/// A thread on whose stack a queue can be made: loom's own are too small to move one about.
fn spawn<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> thread::JoinHandle<R> {
    let builder = thread::Builder::new().stack_size(STACK);
    builder
        .spawn(body)
        .expect("the model has room for a thread")
}

/// In words.
const STACK: usize = 0x1_0000;

#[test]
fn loom_a_job_reaches_the_consumer_that_waits() {
    model(None, || {
        let (tx, rx) = queue(undriven);
        let consumer = spawn(move || {
            let job = block_on(rx.recv()).expect("a job comes");
            job.into_inner()
        });
        tx.try_send(7).expect("there is room");
        assert_eq!(consumer.join().expect("no panic"), 7);
        assert_eq!(tx.snapshot().ledger.acked, 1);
    });
}

#[test]
fn loom_of_two_consumers_one_gets_the_job_and_both_the_end() {
    model(Some(3), || {
        let (tx, rx) = queue(undriven);
        let consumers = [rx.clone(), rx]
            .map(|rx| spawn(move || block_on(rx.recv()).map(|job| job.into_inner())));
        tx.try_send(7).expect("there is room");
        drop(tx);
        let got = consumers.map(|consumer| consumer.join().expect("no panic"));
        assert!(got == [Some(7), None] || got == [None, Some(7)], "{got:?}");
    });
}

#[test]
fn loom_a_freed_place_reaches_the_sender_that_waits() {
    model(None, || {
        let (tx, rx) = queue(undriven);
        tx.try_send(1).expect("there is room");
        let waiting = tx.clone();
        let sender = spawn(move || block_on(waiting.send(2)).map(|_| ()).is_ok());
        rx.try_recv().expect("a job is queued").ack();
        assert!(sender.join().expect("no panic"));
        assert_eq!(rx.try_recv().expect("it was sent").into_inner(), 2);
        assert!(tx.snapshot().ledger.is_balanced());
    });
}

/// Netflix/concurrency-limits#179: a grant in the same instant as the waiter gives up.
#[test]
fn loom_a_place_granted_to_a_waiter_that_gives_up_is_not_lost() {
    model(None, || {
        let (tx, rx) = queue(undriven);
        tx.try_send(1).expect("there is room");
        let leaving = tx.clone();
        let sender = spawn(move || {
            let mut send = pin!(leaving.reserve());
            let polled = send.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            matches!(polled, Poll::Ready(_))
        });
        rx.try_recv().expect("a job is queued").ack();
        sender.join().expect("no panic");
        let snapshot = tx.snapshot();
        assert!(snapshot.ledger.is_balanced(), "{snapshot:?}");
        assert_eq!((snapshot.depth, snapshot.waiting), (0, 0));
        tx.try_send(2).expect("the place is free");
    });
}

#[test]
fn loom_a_consumer_that_gives_up_passes_its_wake_on() {
    model(Some(3), || {
        let (tx, rx) = queue(undriven);
        let other = rx.clone();
        let stays = spawn(move || block_on(other.recv()).is_some());
        let leaves = spawn(move || {
            let mut recv = pin!(rx.recv());
            match recv.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(job) => job.is_some(),
                Poll::Pending => false,
            }
        });
        tx.try_send(7).expect("there is room");
        if leaves.join().expect("no panic") {
            tx.try_send(8).expect("there is room");
        }
        assert!(stays.join().expect("no panic"));
    });
}

/// The driver goes to sleep while somebody gives it a reason not to, and ends while the last handle goes.
#[test]
fn loom_the_driver_is_woken_for_what_comes_and_ends_with_the_queue() {
    thread_local! {
        static DRIVERS: std::cell::RefCell<Vec<thread::JoinHandle<()>>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    fn driven(core: &Arc<Core<u32>>) {
        let driver = driver::of(core);
        let thread = spawn(move || block_on(driver));
        DRIVERS.with_borrow_mut(|drivers| drivers.push(thread));
    }
    model(Some(3), || {
        let (tx, rx) = queue(driven);
        // Starts the driver, and gives it a long sleep.
        tx.offer(7)
            .expires_in(Duration::from_secs(1))
            .try_send()
            .expect("there is room");
        rx.try_recv().expect("a job is queued").ack();
        // A short one: if the driver misses it, nobody tells the end.
        let offer = tx.offer(8).expires_in(Duration::from_nanos(SHORT / 2));
        let ticket = block_on(offer.track()).expect("there is room");
        assert_eq!(block_on(ticket), Ending::Expired);
        drop((tx, rx));
        for driver in DRIVERS.take() {
            driver.join().expect("no panic");
        }
    });
}
