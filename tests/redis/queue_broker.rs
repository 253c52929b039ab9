//! The fleet's queue passes the suite that all brokers pass.

use sluicegate::Rate;
use sluicegate::broker::{Broker, BrokerErrorKind, Message};
use sluicegate::redis::Queue;
use sluicegate::redis::queue::{Builder, Existing};

use crate::conformance::{self, Stand, Wish};
use crate::queue::open;
use crate::server::Server;

struct OnRedis(Server);

impl OnRedis {
    fn builder(name: &str) -> Builder {
        Builder::new(name, Rate::per_second(10_000))
            .max_depth(1_000)
            .max_attempts(0)
            .catch_up(1_000)
            .catch_up_pace(1_000.0)
    }
}

impl Stand for OnRedis {
    type Broker = Queue;

    async fn fresh(&self, name: &str, wish: Wish) -> Queue {
        let mut builder = Self::builder(name).claim_after(wish.hold);
        if let Some(most) = wish.max_depth {
            builder = builder.max_depth(most).watermarks(most - 1, most);
        }
        if let Some(most) = wish.max_in_flight {
            builder = builder.max_in_flight(most);
        }
        open(&self.0, builder).await
    }

    async fn again(&self, broker: &Queue) -> Queue {
        let builder = Self::builder(broker.name()).existing(Existing::Adopt);
        open(&self.0, builder).await
    }

    fn max_payload(&self) -> usize {
        1 << 20
    }
}

#[tokio::test]
async fn the_queue_on_redis_keeps_every_promise_of_the_suite_but_the_bound_on_both() {
    let kept = conformance::all(&OnRedis(Server::start())).await;
    assert_eq!(kept.skipped, ["the_bound_is_hard_and_opens_again"]);
}

#[tokio::test]
async fn a_letter_published_again_under_its_name_is_no_double() {
    let server = Server::start();
    let queue = open(&server, OnRedis::builder("q")).await;
    let message = Message::new("x").id("order-1");
    queue.publish(&message).await.expect("room");
    let taken = conformance::take_all(&queue, 1).await.remove(0);
    queue.dead_letter(&taken, "no").await.expect("held");
    let letters = Broker::dead_letters(&queue);
    let letter = conformance::take_all(&letters, 1).await.remove(0);
    queue.publish(&letter.message).await.expect("room");
    letters.ack(&letter.receipt).await.expect("held");
    let again = conformance::take_all(&queue, 1).await.remove(0);
    assert_eq!(again.message.name(), Some("order-1"));
}

#[tokio::test]
async fn a_closed_queue_is_blocked_for_publishers() {
    let server = Server::start();
    let queue = open(&server, OnRedis::builder("q")).await;
    queue.close().await.expect("it answers");
    let error = queue.publish(&Message::new("x")).await.expect_err("closed");
    assert_eq!(error.kind(), BrokerErrorKind::Blocked);
}
