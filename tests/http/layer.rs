//! The layer as a tower middleware.

use sluicegate::http::{AdmissionLayer, Callers};
use sluicegate::{Key, KeyedLimiter, ManualClock, Rate};

use crate::kit::{field, from, list, send, text};

#[tokio::test]
async fn smoke() {
    let limiter = KeyedLimiter::<Key>::builder(Rate::per_second(10).burst(2))
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let layer = AdmissionLayer::builder(limiter, Callers::by_peer().addresses())
        .build()
        .unwrap();
    let first = send(&layer, from("192.0.2.1")).await;
    assert_eq!(first.status(), 200);
    println!("{:?}", first.headers());
    println!("{:?}", list(first.headers(), "ratelimit"));
    let _ = send(&layer, from("192.0.2.1")).await;
    let third = send(&layer, from("192.0.2.1")).await;
    assert_eq!(third.status(), 429);
    println!("{:?}", third.headers());
    assert_eq!(field(third.headers(), "retry-after"), Some("1"));
    println!("{}", text(third).await);
}
