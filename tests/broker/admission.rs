//! Admission in front of a broker, on paused time.

use std::time::Duration;

use sluicegate::broker::{
    Admission, Broker, BrokerErrorKind, Capability, Memory, Message, RejectedBy,
};
use sluicegate::queue::{Pressure, Reason};
use sluicegate::{BuildError, Rate, RateLimiter};
use tokio::time::Instant;

fn edge() -> RateLimiter {
    RateLimiter::new(Rate::per_second(1_000_000).burst(1_000_000))
}

fn payload(n: u64) -> Message {
    Message::new(n.to_string())
}

/// Takes and acks `rate` messages a second, one at a time.
async fn drain(broker: Memory, rate: u64) {
    let start = Instant::now();
    for n in 1.. {
        tokio::time::sleep_until(start + Duration::from_secs(n) / u32::try_from(rate).unwrap())
            .await;
        for delivery in broker.take(1, Duration::ZERO).await.expect("it is up") {
            broker.ack(&delivery.receipt).await.expect("it is held");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_gives_the_message_back_with_a_reason_and_a_time() {
    let door = Admission::builder(edge(), Memory::new("orders"))
        .max_depth(2)
        .build()
        .expect("it is sound");
    for n in 1..=2 {
        let accepted = door.publish(&(), payload(n)).await.expect("there is room");
        assert_eq!(accepted.depth, n);
    }
    let rejected = door
        .publish(&(), payload(3).id("three").header("tenant", "acme"))
        .await
        .expect_err("the bound is two");
    let RejectedBy::Depth(refusal) = rejected.by() else {
        panic!("{rejected:?}");
    };
    assert_eq!((refusal.reason(), refusal.depth()), (Reason::Full, 2));
    assert_eq!(refusal.queue(), Some("orders"));
    assert!(rejected.retry_after().is_some_and(|after| !after.is_zero()));
    let message = rejected.into_inner();
    assert_eq!(message, payload(3).id("three").header("tenant", "acme"));
    assert_eq!(door.broker().depth().await.unwrap().total(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_edge_refuses_first_and_is_not_charged_for_a_full_broker() {
    let limit = RateLimiter::new(Rate::per_minute(1).burst(2));
    let door = Admission::builder(limit.clone(), Memory::new("orders"))
        .max_depth(1)
        .build()
        .expect("it is sound");
    door.publish(&(), payload(1)).await.expect("there is room");
    let full = door.publish(&(), payload(2)).await.expect_err("it is full");
    assert!(matches!(full.by(), RejectedBy::Depth(_)));
    assert_eq!(limit.peek(0).remaining, 1, "a full broker costs no quota");
    for delivery in door.broker().take(1, Duration::ZERO).await.unwrap() {
        door.broker().ack(&delivery.receipt).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    door.publish(&(), payload(3))
        .await
        .expect("there is room again");
    for delivery in door.broker().take(1, Duration::ZERO).await.unwrap() {
        door.broker().ack(&delivery.receipt).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let limited = door
        .publish(&(), payload(4))
        .await
        .expect_err("two a minute");
    assert!(matches!(limited.by(), RejectedBy::Edge(_)), "{limited:?}");
    assert!(limited.retry_after() > Some(Duration::from_secs(50)));
}

#[tokio::test(start_paused = true)]
async fn producers_at_ten_times_the_drain_never_pass_the_bound_and_all_surplus_is_told_when_to_come()
 {
    let broker = Memory::new("orders");
    let door = Admission::builder(edge(), broker.clone())
        .max_depth(500)
        .max_unconfirmed(16)
        .build()
        .expect("it is sound");
    let draining = tokio::spawn(drain(broker.clone(), 100));
    let (mut accepted, mut refused, mut most) = (0, 0, 0);
    let start = Instant::now();
    for n in 0..20_000 {
        tokio::time::sleep_until(start + Duration::from_millis(1) * n).await;
        match door.publish(&(), payload(n.into())).await {
            Ok(_) => accepted += 1,
            Err(rejected) => {
                assert!(
                    matches!(rejected.by(), RejectedBy::Depth(_)),
                    "{rejected:?}"
                );
                assert!(rejected.retry_after().is_some(), "{rejected:?}");
                refused += 1;
            }
        }
        most = most.max(broker.depth().await.unwrap().total());
    }
    draining.abort();
    assert_eq!(accepted + refused, 20_000);
    assert!(most <= 500, "{most} of 500");
    // What leaves in 20 s at 100/s, and what is left in the broker.
    let left = broker.depth().await.unwrap().total();
    assert!(
        (1_990..=2_001).contains(&(accepted - left)),
        "{accepted} - {left}"
    );
}

#[tokio::test(start_paused = true)]
async fn several_processes_overshoot_by_less_than_their_shares() {
    let broker = Memory::new("orders");
    let doors: Vec<_> = (0..4)
        .map(|_| {
            let door = Admission::builder(edge(), broker.clone());
            door.max_depth(400)
                .processes(4)
                .build()
                .expect("it is sound")
        })
        .collect();
    let mut most = 0;
    for n in 0..4_000 {
        let door = &doors[n as usize % 4];
        if n % 8 == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let _ = door.publish(&(), payload(n)).await;
        most = most.max(broker.depth().await.unwrap().total());
    }
    assert!(most >= 400 - 4, "the bound is used: {most}");
    assert!(most <= 400 + 300, "{most} of 400 and three shares of 100");
}

#[tokio::test(start_paused = true)]
async fn a_blocked_broker_is_pressure_and_not_a_hang() {
    let broker = Memory::new("orders");
    let door = Admission::builder(edge(), broker.clone())
        .max_unconfirmed(4)
        .confirm_within(Duration::from_secs(2))
        .build()
        .expect("it is sound");
    door.publish(&(), payload(0)).await.expect("it takes");
    broker.set_blocked(true);
    // The poll has not seen it yet: four go out and are not confirmed.
    let waiting: Vec<_> = (1..=4)
        .map(|n| {
            let door = door.clone();
            tokio::spawn(async move { door.publish(&(), payload(n)).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(
        (door.unconfirmed(), door.pressure()),
        (4, Pressure::Overloaded)
    );
    let asked = Instant::now();
    let rejected = door
        .publish(&(), payload(5))
        .await
        .expect_err("the window is used up");
    assert!(
        asked.elapsed() < Duration::from_millis(10),
        "it is told at once"
    );
    assert!(
        matches!(rejected.by(), RejectedBy::Depth(refusal) if refusal.reason() == Reason::Overloaded)
    );
    for publish in waiting {
        let rejected = publish.await.unwrap().expect_err("no confirm came");
        assert!(
            matches!(rejected.by(), RejectedBy::Broker(error) if error.kind() == BrokerErrorKind::Unconfirmed)
        );
    }
    assert_eq!(door.unconfirmed(), 0);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let rejected = door
        .publish(&(), payload(6))
        .await
        .expect_err("the poll says blocked");
    assert!(
        matches!(rejected.by(), RejectedBy::Depth(_)),
        "{rejected:?}"
    );
    broker.set_blocked(false);
    tokio::time::sleep(Duration::from_secs(1)).await;
    door.publish(&(), payload(7)).await.expect("it takes again");
    assert_eq!(door.pressure(), Pressure::Healthy);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_down_is_an_error_and_comes_back_by_itself() {
    let broker = Memory::new("orders");
    let door = Admission::builder(edge(), broker.clone())
        .build()
        .expect("it is sound");
    broker.set_down(true);
    let rejected = door.publish(&(), payload(1)).await.expect_err("it is down");
    assert!(
        matches!(rejected.by(), RejectedBy::Broker(error) if error.kind() == BrokerErrorKind::Disconnected)
    );
    assert!(rejected.retry_after().is_some());
    let coming = door.publish_within(&(), rejected.into_inner(), Duration::from_secs(60));
    let up = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        broker.set_down(false);
    };
    let (accepted, ()) = futures_util::future::join(coming, up).await;
    accepted.expect("it came again when told to");
}

#[tokio::test(start_paused = true)]
async fn patient_publishers_are_slowed_down_to_the_drain() {
    let broker = Memory::new("orders");
    let door = Admission::builder(edge(), broker.clone())
        .max_depth(10)
        .drains_at(Rate::per_second(50))
        .build()
        .expect("it is sound");
    let draining = tokio::spawn(drain(broker.clone(), 50));
    let start = Instant::now();
    for n in 0..500 {
        let patience = Duration::from_secs(30);
        door.publish_within(&(), payload(n), patience)
            .await
            .expect("its turn comes");
    }
    draining.abort();
    let took = start.elapsed();
    assert!(
        took > Duration::from_millis(9_700),
        "500 at 50/s, less the 10 in the broker: {took:?}"
    );
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_full_by_its_own_bound_is_a_refusal_and_no_error() {
    let broker = Memory::new("orders").with_max_depth(1);
    let limit = RateLimiter::new(Rate::per_minute(1).burst(10));
    let door = Admission::builder(limit.clone(), broker.clone())
        .build()
        .expect("it is sound");
    door.publish(&(), payload(1)).await.expect("there is room");
    let rejected = door
        .publish(&(), payload(2))
        .await
        .expect_err("the broker's bound is one");
    assert!(
        matches!(rejected.by(), RejectedBy::Depth(refusal) if refusal.reason() == Reason::Full)
    );
    assert_eq!(limit.peek(0).remaining, 9, "its charge came back");
    for delivery in broker.take(1, Duration::ZERO).await.unwrap() {
        broker.ack(&delivery.receipt).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    door.publish(&(), payload(3))
        .await
        .expect("the gate is not shut for ever");
}

#[tokio::test(start_paused = true)]
async fn an_oversized_payload_is_an_error_that_no_patience_helps() {
    let broker = Memory::new("orders").with_max_payload(10);
    let door = Admission::builder(edge(), broker)
        .build()
        .expect("it is sound");
    let start = Instant::now();
    let big = Message::new("x".repeat(11));
    let rejected = door.publish_within(&(), big, Duration::from_secs(60)).await;
    let rejected = rejected.expect_err("eleven of ten bytes");
    assert!(
        matches!(rejected.by(), RejectedBy::Broker(error) if error.kind() == BrokerErrorKind::TooLarge)
    );
    assert_eq!(rejected.retry_after(), None);
    assert!(start.elapsed() < Duration::from_secs(1));
    door.publish(&(), payload(1))
        .await
        .expect("the next one is taken");
}

#[tokio::test(start_paused = true)]
async fn a_publish_dropped_halfway_frees_its_window() {
    let broker = Memory::new("orders");
    let door = Admission::builder(edge(), broker.clone())
        .max_unconfirmed(1)
        .build()
        .expect("it is sound");
    door.publish(&(), payload(1)).await.expect("there is room");
    broker.set_blocked(true);
    let dropped = tokio::time::timeout(Duration::from_millis(10), door.publish(&(), payload(2)));
    assert!(dropped.await.is_err());
    assert_eq!(door.unconfirmed(), 0);
    assert_eq!(
        door.depth(),
        2,
        "it may be stored, so it counts until the next poll"
    );
}

#[test]
fn a_policy_that_the_broker_cannot_keep_is_refused_by_name() {
    let wrong = |build: Result<Admission<RateLimiter, Memory>, BuildError>| {
        build.expect_err("it is wrong").to_string()
    };
    let begin = || Admission::builder(edge(), Memory::new("orders")).max_depth(10);
    assert_eq!(
        wrong(begin().require(Capability::HardDepthBound).build()),
        "require is hard_depth_bound: broker orders does not keep it"
    );
    assert_eq!(
        wrong(begin().watermarks(9, 9).build()),
        "watermarks is 9, 9: low < high <= max_depth, which is 10"
    );
    assert_eq!(
        wrong(begin().max_depth(0).build()),
        "max_depth is 0: it is at least 1"
    );
    assert_eq!(
        wrong(begin().max_unconfirmed(0).build()),
        "max_unconfirmed is 0: it is at least 1"
    );
    assert_eq!(
        wrong(begin().processes(4).build()),
        "processes is 4: each has a share of at least 1 in the room above the low mark, which is 3"
    );
    assert_eq!(
        wrong(begin().poll_every(Duration::ZERO).build()),
        "poll_every is 0ns: it is above zero"
    );
}
