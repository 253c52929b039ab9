//! Waiting for a future on a thread that is not asynchronous.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::sync::Arc;

/// Runs `future` to its end on the calling thread, which sleeps meanwhile. Needs no runtime.
///
/// Within a runtime it would block one of its threads: for callers that are documented to block.
pub(crate) fn block_on<R>(future: impl Future<Output = R>) -> R {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(result) => return result,
            // Woken between the poll and here, the thread does not park at all.
            Poll::Pending => thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_during_the_poll_or_from_another_thread_is_not_lost() {
        block_on(async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        });
        let (tx, rx) = tokio::sync::oneshot::channel();
        let sender = thread::spawn(move || tx.send(7));
        assert_eq!(block_on(rx), Ok(7));
        assert!(sender.join().is_ok());
    }
}
