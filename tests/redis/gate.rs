//! A gate whose edge is shared: what queue and edge know of each other, with the edge on a server.

use std::time::Duration;

use sluicegate::queue::{Builder, Pressure, Reason, Receiver, Sender};
use sluicegate::redis::Limits;
use sluicegate::{Cause, Gate, Hierarchy, Limit};

use crate::kit::{DAY, Single, built, five, left_there, wait_for_left};
use crate::limits::limits;
use crate::server::Server;

type Door = Gate<Hierarchy<u64, Limits>, u32>;

fn queue(max: u64, low: u64, high: u64, waiters: u64) -> (Sender<u32>, Receiver<u32>) {
    let builder = Builder::unpaced()
        .max_depth(max)
        .watermarks(low, high)
        .max_waiters(waiters);
    builder.build().expect("the settings are valid")
}

fn edge(server: &Server, prefix: &str, limit: Limit) -> (Limits, Single) {
    built(limits(server).prefix(prefix), limit)
}

#[tokio::test]
async fn under_pressure_buckets_on_a_server_keep_half_of_their_burst_and_windows_do_not() {
    let server = Server::start();
    for (name, limit) in five(10, DAY) {
        let (store, there) = edge(&server, name, limit);
        let (tx, rx) = queue(40, 2, 5, 40);
        let gate: Door = Gate::new(there, tx.clone());
        for item in 0..5 {
            gate.send(&1, item)
                .await
                .expect("healthy until the high mark");
        }
        assert_eq!(tx.pressure(), Pressure::Elevated);
        let (user, free) = if matches!(name, "token bucket" | "leaky bucket") {
            let denied = gate.send(&1, 5).await;
            let denied = denied.expect_err("the other half is kept");
            assert!(matches!(denied.cause(), Cause::Edge(_)), "{name}: {denied}");
            assert_eq!(left_there(&store, limit, 1).await, 5, "{name}");
            // Somebody else's bucket has a half of its own.
            (2, 9)
        } else {
            // A window has no burst to cut.
            (1, 4)
        };
        // It is paid at once, and stands in line until a job has left.
        let mut next = std::pin::pin!(gate.send(&user, 6));
        tokio::select! {
            _ = next.as_mut() => panic!("{name}: there was no place"),
            () = wait_for_left(&store, limit, user, free) => {}
        }
        rx.recv().await.expect("jobs are queued").ack();
        next.await.expect("there is a place");
        // Once the queue is healthy again the whole burst is there.
        while tx.pressure() != Pressure::Healthy {
            rx.recv().await.expect("jobs are queued").ack();
        }
        gate.send(&1, 7).await.expect("the burst is whole again");
    }
}

#[tokio::test]
async fn a_charge_on_a_server_comes_back_when_the_queue_refuses_or_the_caller_leaves() {
    let server = Server::start();
    for (name, limit) in five(10, DAY) {
        let (store, there) = edge(&server, name, limit);
        let (tx, _rx) = queue(1, 0, 1, 1);
        let gate: Door = Gate::new(there, tx.clone());
        gate.send(&1, 0).await.expect("one fits");
        assert_eq!(left_there(&store, limit, 1).await, 9, "{name}");
        let stay = Duration::from_millis(50);
        let late = gate.offer(&1, 1).send_within(stay).await;
        let denied = late.expect_err("nobody takes the first one out");
        let Cause::Queue(refusal) = denied.cause() else {
            panic!("{name}: the edge refused: {denied}");
        };
        assert_eq!(refusal.reason(), Reason::TimedOut, "{name}");
        wait_for_left(&store, limit, 1, 9).await;
        let gone = tokio::time::timeout(Duration::from_millis(300), gate.send(&1, 2)).await;
        assert!(gone.is_err(), "{name}: it still stood in line");
        wait_for_left(&store, limit, 1, 9).await;
    }
}
