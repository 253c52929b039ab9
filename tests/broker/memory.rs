//! The in-memory broker passes the suite that the real ones pass.

use std::time::Duration;

use sluicegate::broker::Memory;

use crate::conformance::{self, Stand, Wish};

struct InMemory;

impl Stand for InMemory {
    type Broker = Memory;

    async fn fresh(&self, name: &str, wish: Wish) -> Memory {
        let mut broker = Memory::new(name).with_hold(wish.hold);
        if let Some(most) = wish.max_depth {
            broker = broker.with_max_depth(most);
        }
        if let Some(most) = wish.max_in_flight {
            broker = broker.with_max_in_flight(most);
        }
        broker
    }

    async fn again(&self, broker: &Memory) -> Memory {
        broker.clone()
    }

    fn max_payload(&self) -> usize {
        1 << 20
    }
}

#[tokio::test(start_paused = true)]
async fn the_memory_broker_keeps_every_promise_of_the_suite() {
    let kept = conformance::all(&InMemory).await;
    assert_eq!(kept.skipped, Vec::<&str>::new(), "it can do all of it");
}

#[tokio::test(start_paused = true)]
async fn a_blocked_broker_confirms_nothing_and_goes_on_afterwards() {
    use sluicegate::broker::{Broker, Message};
    let broker = Memory::new("orders");
    broker.set_blocked(true);
    assert!(broker.depth().await.expect("it answers").blocked);
    let message = Message::new("x");
    let publish = tokio::time::timeout(Duration::from_secs(5), broker.publish(&message));
    assert!(publish.await.is_err(), "no confirm while it is blocked");
    broker.set_blocked(false);
    broker.publish(&message).await.expect("it takes again");
    assert_eq!(broker.depth().await.expect("it answers").total(), 1);
}
