//! The pacing thread knows real time only, so these tests sleep on it, for a millisecond or two. None of them asserts
//! that something was quick.

use std::sync::mpsc;

use super::*;
use crate::timer::block_on;

#[test]
fn a_sleep_ends_at_its_deadline_and_not_before() {
    let deadline = Instant::now() + Duration::from_millis(2);
    block_on(sleep_until(deadline));
    assert!(Instant::now() >= deadline);
}

#[test]
fn a_sooner_sleep_overtakes_a_later_one() {
    let start = Instant::now();
    let mut later = Box::pin(sleep_until(start + LONGEST));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(later.as_mut().poll(&mut cx).is_pending());
    block_on(sleep_until(start + Duration::from_millis(1)));
    assert!(later.as_mut().poll(&mut cx).is_pending());
}

#[test]
fn a_dropped_sleep_is_forgotten() {
    let mut sleep = Box::pin(sleep_until(Instant::now() + LONGEST));
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..3 {
        assert!(sleep.as_mut().poll(&mut cx).is_pending());
    }
    let key = (sleep.deadline, sleep.id.expect("it was polled"));
    assert!(SHARED.lock().timers.contains_key(&key));
    drop(sleep);
    assert!(!SHARED.lock().timers.contains_key(&key));
}

#[test]
fn tasks_run_to_their_end_through_many_wakes() {
    let (tx, rx) = mpsc::channel();
    for task in 0..8 {
        let tx = tx.clone();
        spawn(async move {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            sleep_until(Instant::now() + Duration::from_millis(1)).await;
            tx.send(task).expect("the test waits");
        });
    }
    drop(tx);
    let mut ended: Vec<u32> = rx.iter().collect();
    ended.sort_unstable();
    assert_eq!(ended, (0..8).collect::<Vec<_>>());
}

#[test]
fn a_panicking_task_is_dropped_and_the_others_go_on() {
    struct OnDrop(mpsc::Sender<&'static str>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.send("dropped").expect("the test waits");
        }
    }
    let (tx, rx) = mpsc::channel();
    let guard = OnDrop(tx.clone());
    spawn(async move {
        sleep_until(Instant::now() + Duration::from_millis(1)).await;
        let _guard = &guard;
        std::panic::resume_unwind(Box::new("a panic that no hook prints"));
    });
    assert_eq!(rx.recv(), Ok("dropped"));
    spawn(async move { tx.send("still running").expect("the test waits") });
    assert_eq!(rx.recv(), Ok("still running"));
}

#[test]
fn a_waker_may_be_called_by_any_thread_and_after_the_end_of_its_task() {
    let (tx, rx) = mpsc::channel();
    spawn(async move {
        let mut polls = 0;
        std::future::poll_fn(|cx| {
            polls += 1;
            tx.send((polls, cx.waker().clone()))
                .expect("the test waits");
            if polls == 2 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    });
    let (first, waker) = rx.recv().expect("the task is polled once by itself");
    assert_eq!(first, 1);
    waker.wake_by_ref();
    assert_eq!(rx.recv().map(|(polls, _)| polls), Ok(2));
    assert!(rx.recv().is_err(), "the task has ended and dropped its end");
    waker.wake();
}

/// What a queue's driver does: its task is dropped by the shutdown of the runtime, and its guard moves it here.
#[test]
fn a_task_may_be_spawned_from_a_drop_while_a_runtime_shuts_down() {
    struct Move(mpsc::Sender<()>);
    impl Drop for Move {
        fn drop(&mut self) {
            let tx = self.0.clone();
            spawn(async move {
                sleep_until(Instant::now() + Duration::from_millis(1)).await;
                tx.send(()).expect("the test waits");
            });
        }
    }
    let (tx, rx) = mpsc::channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime can be built");
    let guard = Move(tx);
    runtime.spawn(async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    runtime.block_on(tokio::task::yield_now());
    drop(runtime);
    assert_eq!(rx.recv(), Ok(()));
}
