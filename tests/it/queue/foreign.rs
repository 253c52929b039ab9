//! Foreign code (drops of items, wakers, causes) may call back into the queue, and may panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use sluicegate::Rate;
use sluicegate::queue::{Builder, Priority, Receiver, Sender, WeakSender, WhenFull};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{MILLI, SECOND, assert_balanced, settle};

/// An item whose drop uses the queue it was in.
struct Meddler {
    queue: WeakSender<Meddler>,
    drops: Arc<AtomicUsize>,
}

impl Drop for Meddler {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
        if let Some(tx) = self.queue.upgrade() {
            assert!(tx.snapshot().ledger.is_balanced());
            let _ = tx.control().set_max_depth(tx.snapshot().max_depth);
            let _ = tx.try_reserve();
        }
    }
}

fn meddlers(builder: Builder) -> (Sender<Meddler>, Receiver<Meddler>, impl Fn() -> Meddler) {
    let (tx, rx) = builder.dead_letters(0).build().unwrap();
    let (queue, drops) = (tx.downgrade(), Arc::default());
    let item = move || Meddler {
        queue: queue.clone(),
        drops: Arc::clone(&drops),
    };
    (tx, rx, item)
}

#[tokio::test(start_paused = true)]
async fn a_drop_of_an_item_may_call_back_into_the_queue() {
    let builder = Builder::new(Rate::per_second(10))
        .max_depth(4)
        .when_full(WhenFull::EvictOldest);
    let (tx, rx, item) = meddlers(builder);
    let token = CancellationToken::new();
    // Evicted.
    for _ in 0..8 {
        tx.offer(item()).try_send().ok().unwrap();
    }
    // Acked, failed, abandoned.
    rx.recv().await.unwrap().ack();
    rx.recv().await.unwrap().fail();
    drop(rx.recv().await.unwrap());
    // Cancelled, expired, returned by a refusal, dropped in line.
    drop(tx.offer(item()).cancelled_by(token.clone()).try_send());
    token.cancel();
    settle().await;
    drop(tx.offer(item()).expires_in(20 * MILLI).try_send());
    sleep(SECOND).await;
    drop(tx.offer(item()).cost(1_000).try_send());
    drop(tx.offer(item()).cost(3).try_send());
    let mut waiting = Box::pin(tx.offer(item()).cost(4).send());
    assert!(super::poll(&mut waiting).is_pending());
    drop(waiting);
    assert_balanced(&tx.snapshot());
    // Given back at the end.
    drop(tx.offer(item()).priority(Priority::Critical).try_send());
    drop(rx);
    assert_balanced(&tx.snapshot());
    let probe = item();
    // 8 evicted or taken, 6 more, and nobody holds another.
    assert_eq!(probe.drops.load(Ordering::SeqCst), 14);
    assert_eq!(Arc::strong_count(&probe.drops), 2);
}

/// A waker that uses the queue when it is woken and when it is dropped.
struct NosyWaker {
    tx: WeakSender<u32>,
    woken: AtomicUsize,
}

impl NosyWaker {
    fn look(&self) {
        if let Some(tx) = self.tx.upgrade() {
            assert!(tx.snapshot().ledger.is_balanced());
            let _ = tx.try_reserve();
        }
    }
}

impl Wake for NosyWaker {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::SeqCst);
        self.look();
    }
}

impl Drop for NosyWaker {
    fn drop(&mut self) {
        self.look();
    }
}

/// dotnet/runtime#85523, tokio-rs/tokio#5429: wakers woken and dropped under the lock.
#[tokio::test(start_paused = true)]
async fn a_waker_may_call_back_when_it_is_woken_and_when_it_is_dropped() {
    let (tx, rx) = Builder::new(Rate::per_second(10))
        .max_depth(1)
        .build()
        .unwrap();
    let nosy = || {
        Arc::new(NosyWaker {
            tx: tx.downgrade(),
            woken: AtomicUsize::new(0),
        })
    };
    let (for_job, for_place) = (nosy(), nosy());
    let mut recv = Box::pin(rx.recv());
    {
        let waker = Waker::from(Arc::clone(&for_job));
        let mut cx = Context::from_waker(&waker);
        assert!(recv.as_mut().poll(&mut cx).is_pending());
        let other = Waker::from(nosy());
        // Replaced: the first one is dropped.
        assert!(
            recv.as_mut()
                .poll(&mut Context::from_waker(&other))
                .is_pending()
        );
        assert!(recv.as_mut().poll(&mut cx).is_pending());
    }
    tx.try_send(1).unwrap();
    assert_eq!(for_job.woken.load(Ordering::SeqCst), 1);
    drop(recv);
    let mut send = Box::pin(tx.send(2));
    {
        let waker = Waker::from(Arc::clone(&for_place));
        assert!(
            send.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        let other = Waker::from(nosy());
        assert!(
            send.as_mut()
                .poll(&mut Context::from_waker(&other))
                .is_pending()
        );
        assert!(
            send.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
    }
    rx.try_recv().unwrap().ack();
    assert_eq!(for_place.woken.load(Ordering::SeqCst), 1);
    drop(send);
    let mut last = Box::pin(tx.send(3));
    let waker = Waker::from(nosy());
    let _ = last.as_mut().poll(&mut Context::from_waker(&waker));
    drop(waker);
    drop(last);
    assert_balanced(&tx.snapshot());
}

/// An item whose drop panics, while told to.
struct Mine(Arc<AtomicBool>);

impl Drop for Mine {
    fn drop(&mut self) {
        assert!(!self.0.load(Ordering::SeqCst), "on purpose");
    }
}

/// One bad item must neither stop the driver nor keep the others from being told.
#[tokio::test(start_paused = true)]
async fn an_item_that_panics_when_dropped_harms_nobody_else() {
    let (tx, rx) = Builder::new(Rate::per_second(10))
        .dead_letters(0)
        .build()
        .unwrap();
    let armed = Arc::new(AtomicBool::new(true));
    let mut tickets = Vec::new();
    for _ in 0..3 {
        let offer = tx.offer(Mine(Arc::clone(&armed))).expires_in(SECOND);
        tickets.push(offer.track().await.unwrap());
    }
    for ticket in tickets {
        assert_eq!(ticket.await, sluicegate::queue::Ending::Expired);
    }
    // The driver lives: the next one expires on time too.
    let ticket = tx
        .offer(Mine(Arc::clone(&armed)))
        .expires_in(SECOND)
        .track()
        .await
        .unwrap();
    let start = tokio::time::Instant::now();
    ticket.await;
    assert!(start.elapsed() <= SECOND + 3 * MILLI);

    tx.offer(Mine(Arc::clone(&armed))).try_send().unwrap();
    let job = rx.recv().await.unwrap();
    assert!(
        catch_unwind(AssertUnwindSafe(|| job.fail())).is_err(),
        "its own caller is told"
    );
    assert_eq!(tx.snapshot().ledger.failed, 1);
    assert_balanced(&tx.snapshot());
    armed.store(false, Ordering::SeqCst);
}
