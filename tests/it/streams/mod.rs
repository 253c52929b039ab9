//! Streams and sinks, several jobs at a time, and threads that block.

mod batch;
mod blocking;
mod paced;
mod sink;
mod source;

use sluicegate::queue::workers::Workers;
use sluicegate::queue::{Job, Receiver, Sender, SenderSink, Turnstile};
use sluicegate::{Paced, Rate, paced};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

#[test]
fn every_future_goes_to_other_threads_with_its_items() {
    /// Send, and not Sync: the least that items are.
    type Item = std::cell::Cell<u8>;
    fn send<T: Send>(_: &T) {}
    #[allow(dead_code, reason = "compiling it is the test")]
    fn futures(tx: &Sender<Item>, rx: Receiver<Item>, turnstile: &Turnstile) {
        send(&rx.recv_many(1));
        send(&rx.recv_batch(1));
        send(&rx.recv_batch_within(1, Duration::ZERO));
        send(&tx.clone().into_sink());
        send(
            &tx.clone()
                .into_sink_with(|_| sluicegate::queue::Terms::new()),
        );
        send(turnstile);
        let workers = Workers::new(rx);
        send(&workers);
        send(&workers.run(
            |job: Job<Item>| async move { job.ack() },
            CancellationToken::new(),
        ));
        send(&paced(
            futures_util::stream::empty::<Item>(),
            Rate::per_second(1),
        ));
    }
    fn unpin<T: Unpin>() {}
    unpin::<Receiver<std::marker::PhantomPinned>>();
    unpin::<SenderSink<std::marker::PhantomPinned>>();
    unpin::<Paced<std::marker::PhantomPinned>>();
}
