//! Requests in a queue, and behind a gate.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::BodyExt;
use sluicegate::http::{Deadline, GateLayer, QueueLayer};
use sluicegate::queue::{Builder, Priority, Turnstile};
use sluicegate::{Rate, RateLimiter};
use tokio::time::Instant;
use tower::{Layer, ServiceExt};

use crate::kit::{Body, field, from, ok, send, text};

fn rate(per_second: u64) -> Builder {
    Builder::new(Rate::per_second(per_second))
}

#[tokio::test(start_paused = true)]
async fn requests_leave_at_the_rate_with_so_many_at_once() {
    let turnstile = rate(100).max_in_flight(3).turnstile().unwrap();
    let layer = QueueLayer::builder(turnstile.clone()).build().unwrap();
    let (now, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (inside, peak) = (Arc::clone(&now), Arc::clone(&most));
    let handler = move |request: Request<Body>| {
        let (inside, peak) = (Arc::clone(&inside), Arc::clone(&peak));
        async move {
            let count = inside.fetch_add(1, Ordering::SeqCst) + 1;
            peak.fetch_max(count, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            ok(request).await
        }
    };
    let service = layer.layer(tower::service_fn(handler));
    let start = Instant::now();
    let all = (0..50).map(|_| service.clone().oneshot(from("192.0.2.1")));
    let responses = join_all(all).await;
    assert!(
        responses
            .iter()
            .all(|response| response.as_ref().unwrap().status() == 200)
    );
    assert!(most.load(Ordering::SeqCst) <= 3);
    let took = start.elapsed();
    assert!(
        took >= Duration::from_millis(440) && took < Duration::from_millis(700),
        "{took:?}"
    );
    let ledger = turnstile.snapshot().ledger;
    assert_eq!((ledger.acked, ledger.in_flight), (50, 0));
    assert!(ledger.is_balanced());
    assert_eq!(layer.counts().allowed, 50);
}

#[tokio::test(start_paused = true)]
async fn what_is_shed_is_503_with_a_time_of_its_own() {
    let turnstile = rate(20).max_depth(200).max_waiters(0).turnstile().unwrap();
    let layer = QueueLayer::builder(turnstile.clone()).build().unwrap();
    let all: Vec<_> = (0..260)
        .map(|_| Box::pin(send(&layer, from("192.0.2.1"))))
        .collect();
    let (mut refused, mut waiting) = (Vec::new(), Vec::new());
    // All in one task, which would otherwise be told to yield after so many.
    let poll_all = async {
        for mut asked in all {
            match futures_util::poll!(&mut asked) {
                Poll::Ready(response) => refused.push(response),
                Poll::Pending => waiting.push(asked),
            }
        }
    };
    tokio::task::unconstrained(poll_all).await;
    assert!(
        refused.len() > 50 && waiting.len() >= 150,
        "{} {}",
        refused.len(),
        waiting.len()
    );
    let (mut first, mut last) = (u64::MAX, 0);
    for response in refused
        .into_iter()
        .filter(|response| response.status() != 200)
    {
        assert_eq!(response.status(), 503);
        let seconds: u64 = field(response.headers(), "retry-after")
            .unwrap()
            .parse()
            .unwrap();
        assert!(seconds >= 1 && seconds >= last, "a trickle, not a herd");
        first = first.min(seconds);
        last = seconds;
        assert_eq!(field(response.headers(), "cache-control"), Some("no-store"));
        assert!(text(response).await.contains("temporary-reduced-capacity"));
    }
    // Down to the low mark at this rate takes about 5 s, and each of those refused has a place 50 ms later.
    // From 160 down to the low mark of 100 takes 3 s, and each of the 99 is told a place 50 ms after the one before.
    assert!(
        (3..=4).contains(&first) && (8..=9).contains(&last),
        "{first} to {last}"
    );
    let ledger = turnstile.snapshot().ledger;
    assert_eq!(
        (ledger.offered, ledger.refused),
        (260, 99),
        "each is counted once"
    );
    assert_eq!(
        layer.counts().queue_rejected,
        260 - waiting.len() as u64 - 1
    );
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_cannot_be_met_is_refused_at_the_door() {
    let turnstile = rate(10).turnstile().unwrap();
    let layer = QueueLayer::builder(turnstile.clone()).build().unwrap();
    for _ in 0..21 {
        let layer = layer.clone();
        tokio::spawn(async move { send(&layer, from("192.0.2.1")).await.status() });
    }
    tokio::task::yield_now().await;
    // About 2 s stand before it.
    let start = Instant::now();
    let mut late = from("192.0.2.1");
    late.extensions_mut()
        .insert(Deadline(start + Duration::from_secs(1)));
    let refused = send(&layer, late).await;
    assert_eq!(
        (refused.status().as_u16(), start.elapsed()),
        (503, Duration::ZERO),
        "at once"
    );
    assert!(field(refused.headers(), "retry-after").is_some());
    let mut patient = from("192.0.2.1");
    patient
        .extensions_mut()
        .insert(Deadline(start + Duration::from_secs(4)));
    assert_eq!(send(&layer, patient).await.status(), 200);
    assert!(start.elapsed() >= Duration::from_millis(1900));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_gives_up_its_place() {
    let turnstile = rate(10).turnstile().unwrap();
    let layer = QueueLayer::builder(turnstile.clone()).build().unwrap();
    let mut first: Vec<_> = (0..11)
        .map(|_| Box::pin(send(&layer, from("192.0.2.1"))))
        .collect();
    for asked in &mut first {
        let _ = futures_util::poll!(asked);
    }
    let start = Instant::now();
    let last = send(&layer, from("192.0.2.1"));
    let mut last = Box::pin(last);
    assert!(futures_util::poll!(&mut last).is_pending());
    drop(first);
    assert_eq!(last.await.status(), 200);
    assert!(
        start.elapsed() <= Duration::from_millis(150),
        "{:?}",
        start.elapsed()
    );
    let snapshot = turnstile.snapshot();
    assert!(snapshot.ledger.cancelled >= 9 && snapshot.depth == 0 && snapshot.ledger.is_balanced());
}

#[tokio::test(start_paused = true)]
async fn terms_say_who_goes_first() {
    let turnstile = rate(10).turnstile().unwrap();
    let layer = QueueLayer::builder(turnstile)
        .terms(|head, terms| match head.uri().path() {
            "/urgent" => terms.priority(Priority::Critical),
            _ => terms,
        })
        .build()
        .unwrap();
    let start = Instant::now();
    let ask = async |path: &str| {
        let mut request = from("192.0.2.1");
        *request.uri_mut() = path.parse().unwrap();
        assert_eq!(send(&layer, request).await.status(), 200);
        start.elapsed()
    };
    let batch = join_all((0..10).map(|_| ask("/batch")));
    let (batch, urgent) = tokio::join!(batch, ask("/urgent"));
    assert!(urgent < batch[5], "{urgent:?} of {batch:?}");
}

#[tokio::test(start_paused = true)]
async fn a_turn_lasts_until_the_body_ends_if_so_asked() {
    let turnstile = rate(1000).max_in_flight(1).turnstile().unwrap();
    let in_flight = |turnstile: &Turnstile| turnstile.snapshot().ledger.in_flight;
    let short = QueueLayer::builder(turnstile.clone()).build().unwrap();
    let response = send(&short, from("192.0.2.1")).await;
    assert_eq!(in_flight(&turnstile), 0);
    drop(response);
    let long = QueueLayer::builder(turnstile.clone())
        .until_body_ends()
        .build()
        .unwrap();
    let handler =
        |_: Request<Body>| async { Ok::<_, Infallible>(Response::new(Body::from("rows"))) };
    for read in [true, false] {
        let service = long.layer(tower::service_fn(handler));
        let response = service.oneshot(from("192.0.2.1")).await.unwrap();
        assert_eq!(in_flight(&turnstile), 1);
        if read {
            assert_eq!(
                response.into_body().collect().await.unwrap().to_bytes(),
                "rows"
            );
        } else {
            drop(response);
        }
        assert_eq!(in_flight(&turnstile), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_closed_queue_is_503_and_an_exempt_request_does_not_care() {
    let turnstile = rate(10).turnstile().unwrap();
    let layer = QueueLayer::builder(turnstile.clone())
        .exempt(|head| head.uri().path() == "/health")
        .build()
        .unwrap();
    assert!(turnstile.close());
    let refused = send(&layer, from("192.0.2.1")).await;
    assert_eq!(refused.status(), 503);
    assert_eq!(field(refused.headers(), "retry-after"), None);
    let mut health = from("192.0.2.1");
    *health.uri_mut() = "/health".parse().unwrap();
    assert_eq!(send(&layer, health).await.status(), 200);
}

fn gate(limiter: &RateLimiter, turnstile: &Turnstile) -> GateLayer<RateLimiter> {
    GateLayer::builder(limiter.clone(), |_| Ok(()), turnstile.clone())
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_gate_tells_the_client_over_quota_from_the_overloaded_service() {
    let limiter = RateLimiter::new(Rate::per_hour(1).burst(3));
    let turnstile = rate(10)
        .max_depth(2)
        .max_waiters(0)
        .watermarks(0, 2)
        .turnstile()
        .unwrap();
    let layer = gate(&limiter, &turnstile);
    let mut asked: Vec<_> = (0..5)
        .map(|_| Box::pin(send(&layer, from("192.0.2.1"))))
        .collect();
    let mut statuses = Vec::new();
    for asked in &mut asked {
        if let Poll::Ready(response) = futures_util::poll!(asked) {
            statuses.push(response.status().as_u16());
        }
    }
    // One is served at once and two are queued; the queue is full, so the limit is not even asked.
    assert_eq!(statuses, [200, 503, 503]);
    assert_eq!(limiter.peek(0).remaining, 0);
    let served = join_all(asked.drain(1..3)).await;
    assert!(served.iter().all(|response| response.status() == 200));
    assert_eq!(
        send(&layer, from("192.0.2.1")).await.status(),
        429,
        "the queue has room, the quota is used up"
    );
    let counts = layer.counts();
    assert_eq!(
        (counts.allowed, counts.queue_rejected, counts.rejected),
        (3, 2, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_queue_refuses_or_a_client_gives_up_is_charged_to_nobody() {
    let limiter = RateLimiter::new(Rate::per_hour(1).burst(10));
    let turnstile = rate(10).turnstile().unwrap();
    let layer = gate(&limiter, &turnstile);
    let mut asked: Vec<_> = (0..5)
        .map(|_| Box::pin(send(&layer, from("192.0.2.1"))))
        .collect();
    for asked in &mut asked {
        let _ = futures_util::poll!(asked);
    }
    assert_eq!(limiter.peek(0).remaining, 5);
    drop(asked);
    assert_eq!(limiter.peek(0).remaining, 9, "one was served");
    let mut late = from("192.0.2.1");
    late.extensions_mut().insert(Deadline(Instant::now()));
    assert_eq!(send(&layer, late).await.status(), 503);
    assert_eq!(limiter.peek(0).remaining, 9);
    // Closed while it waits.
    turnstile.control().pause("maintenance");
    let mut waits = Box::pin(send(&layer, from("192.0.2.1")));
    assert!(futures_util::poll!(&mut waits).is_pending());
    assert_eq!(limiter.peek(0).remaining, 8);
    drop(waits);
    assert_eq!(limiter.peek(0).remaining, 9);
}

#[tokio::test(start_paused = true)]
async fn under_pressure_bursts_are_cut_at_the_gate() {
    let limiter = RateLimiter::new(Rate::per_hour(1).burst(40));
    let turnstile = rate(10)
        .max_depth(12)
        .watermarks(2, 4)
        .max_waiters(100)
        .turnstile()
        .unwrap();
    let layer = gate(&limiter, &turnstile);
    let mut asked: Vec<_> = (0..40)
        .map(|_| Box::pin(send(&layer, from("192.0.2.1"))))
        .collect();
    let mut refused = 0;
    for asked in &mut asked {
        if let Poll::Ready(response) = futures_util::poll!(asked) {
            refused += u64::from(response.status() == 429);
        }
    }
    assert_eq!(
        (refused, limiter.peek(0).remaining),
        (20, 20),
        "half of the burst is kept"
    );
}
