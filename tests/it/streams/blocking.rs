//! Threads that block.

use std::panic::{self, AssertUnwindSafe, Location, catch_unwind};
use std::sync::Mutex;
use std::thread;

use sluicegate::queue::{Builder, Reason};

#[test]
fn the_blocking_forms_need_no_runtime() {
    let (tx, rx) = Builder::unpaced()
        .max_depth(4)
        .build()
        .expect("valid settings");
    let producer = thread::spawn(move || {
        for n in 0..1_000 {
            tx.blocking_send(n).expect("the receiver is there");
        }
        tx
    });
    for n in 0..1_000 {
        assert_eq!(
            rx.blocking_recv().expect("they are all sent").into_inner(),
            n
        );
    }
    let tx = producer.join().expect("it does not panic");
    rx.close();
    assert!(rx.blocking_recv().is_none());
    let refused = tx.blocking_send(7).expect_err("closed");
    assert_eq!(
        (refused.reason(), refused.into_inner()),
        (Reason::Closed, 7)
    );

    let turnstile = Builder::unpaced()
        .max_in_flight(1)
        .turnstile()
        .expect("valid settings");
    let first = turnstile.blocking_enter().expect("nobody is inside");
    let other = turnstile.clone();
    let waiting = thread::spawn(move || other.blocking_enter().map(drop));
    while turnstile.snapshot().depth == 0 {
        thread::yield_now();
    }
    drop(first);
    waiting
        .join()
        .expect("it does not panic")
        .expect("its turn came");
}

#[tokio::test]
async fn they_work_on_the_threads_of_spawn_blocking() {
    let (tx, rx) = Builder::unpaced().build::<&str>().expect("valid settings");
    let echo = tokio::task::spawn_blocking(move || rx.blocking_recv().map(|job| job.into_inner()));
    tx.send("row").await.expect("there is room");
    assert_eq!(echo.await.expect("it may block"), Some("row"));
}

/// Where the last panic of this thread was said to be.
static PLACE: Mutex<Option<(thread::ThreadId, String, u32)>> = Mutex::new(None);

#[track_caller]
fn panics_here(block: impl FnOnce()) {
    let caught = catch_unwind(AssertUnwindSafe(block)).expect_err("it would hold up other tasks");
    let text = caught.downcast_ref::<String>().expect("a message");
    assert!(text.contains("Cannot block the current thread"), "{text}");
    let (_, file, line) = PLACE
        .lock()
        .expect("held briefly")
        .take()
        .expect("the hook has run");
    let here = Location::caller();
    assert_eq!((file.as_str(), line), (here.file(), here.line()));
}

#[tokio::test]
async fn inside_the_runtime_they_panic_at_the_place_of_the_caller() {
    let (tx, rx) = Builder::unpaced().build().expect("valid settings");
    let turnstile = Builder::unpaced().turnstile().expect("valid settings");
    let here = thread::current().id();
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if thread::current().id() != here {
            return usual(info);
        }
        let place = info.location().expect("panics have one");
        let place = (here, place.file().to_owned(), place.line());
        *PLACE.lock().expect("held briefly") = Some(place);
    }));
    panics_here(|| drop(tx.blocking_send(1)));
    panics_here(|| drop(rx.blocking_recv()));
    panics_here(|| drop(turnstile.blocking_enter()));
    drop(panic::take_hook());
    assert_eq!(tx.snapshot().ledger.offered, 0, "nothing has happened");
}
