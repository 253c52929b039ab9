//! The layer as a tower middleware: readiness, sharing, modes, what a handler can do, stores that wait or fail.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use sluicegate::http::{AdmissionLayer, AdmissionMode, Admitted, Callers, HeaderDialect};
use sluicegate::{Key, KeyedLimiter, ManualClock, Rate, RateLimiter};
use tower::{Layer, Service, ServiceExt};

use crate::kit::{Body, field, from, ok, send};
use crate::remote::Remote;

/// A service with so many permits: `poll_ready` takes one and `call` uses it, else it panics.
struct Permits {
    free: Arc<AtomicU64>,
    held: bool,
}

impl Permits {
    fn new(free: u64) -> Self {
        Self {
            free: Arc::new(AtomicU64::new(free)),
            held: false,
        }
    }
}

impl Clone for Permits {
    fn clone(&self) -> Self {
        Self {
            free: Arc::clone(&self.free),
            held: false,
        }
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        if self.held {
            self.free.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Service<Request<Body>> for Permits {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if !self.held {
            let took = self
                .free
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |free| {
                    free.checked_sub(1)
                });
            self.held = took.is_ok();
        }
        if self.held {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        assert!(std::mem::take(&mut self.held), "called without being ready");
        self.free.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(Response::new(Body::default())))
    }
}

fn limiter(burst: u64) -> (RateLimiter, ManualClock) {
    let clock = ManualClock::new();
    (
        RateLimiter::with_clock(Rate::per_second(10).burst(burst), clock.clone()),
        clock,
    )
}

/// Case 25: the readied service is the one that is called, on every path.
#[tokio::test]
async fn the_service_that_was_readied_is_the_one_that_is_called() {
    let (local, _) = limiter(100);
    let service = AdmissionLayer::builder(local, |_| Ok(()))
        .build()
        .unwrap()
        .layer(Permits::new(1));
    for _ in 0..3 {
        assert_eq!(
            service
                .clone()
                .oneshot(from("192.0.2.1"))
                .await
                .unwrap()
                .status(),
            200
        );
    }
    let mut service = AdmissionLayer::builder(Remote::new(100), |_| Ok(()))
        .build()
        .unwrap()
        .layer(Permits::new(2));
    for _ in 0..3 {
        let ready = service.ready().await.unwrap();
        assert_eq!(ready.call(from("192.0.2.1")).await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn refusals_hold_nothing_that_other_clones_wait_for() {
    let (limiter, _) = limiter(1);
    assert!(limiter.check(1).is_granted());
    let permits = Permits::new(1);
    let layer = AdmissionLayer::builder(limiter, |_| Ok(()))
        .build()
        .unwrap();
    let mut refused = layer.layer(permits.clone());
    let response = refused
        .ready()
        .await
        .unwrap()
        .call(from("192.0.2.1"))
        .await
        .unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(
        permits.free.load(Ordering::SeqCst),
        1,
        "the connection is idle now"
    );
}

/// Case 24: clones share.
#[tokio::test]
async fn services_and_their_clones_share_one_limit() {
    let (limiter, _) = limiter(10);
    let layer = AdmissionLayer::builder(limiter, |_| Ok(()))
        .build()
        .unwrap();
    let mut passed = 0;
    for connection in 0..40 {
        let service = if connection % 2 == 0 {
            layer.layer(tower::service_fn(ok))
        } else {
            layer.clone().layer(tower::service_fn(ok))
        };
        passed += u32::from(
            service
                .clone()
                .oneshot(from("192.0.2.1"))
                .await
                .unwrap()
                .status()
                == 200,
        );
    }
    assert_eq!(passed, 10);
    let counts = layer.counts();
    assert_eq!((counts.allowed, counts.rejected), (10, 30));
}

#[tokio::test]
async fn each_request_is_charged_its_cost() {
    let (limiter, _) = limiter(10);
    let layer = AdmissionLayer::builder(limiter.clone(), |_| Ok(()))
        .cost(|head| head.uri().path().len() as u64)
        .build()
        .unwrap();
    let mut request = from("192.0.2.1");
    *request.uri_mut() = "/four".parse().unwrap();
    assert_eq!(send(&layer, request).await.status(), 200);
    assert_eq!(limiter.peek(0).remaining, 5);
}

#[tokio::test]
async fn a_dry_run_lets_everybody_pass_and_counts() {
    let (limiter, _) = limiter(2);
    let layer = AdmissionLayer::builder(limiter, |_| Ok(()))
        .mode(AdmissionMode::DryRun)
        .build()
        .unwrap();
    for _ in 0..5 {
        let response = send(&layer, from("192.0.2.1")).await;
        assert_eq!(response.status(), 200);
        assert_eq!(field(response.headers(), "retry-after"), None);
    }
    let counts = layer.counts();
    assert_eq!(
        (counts.allowed, counts.shadow_rejected, counts.rejected),
        (2, 3, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn waiting_is_bounded_in_time_and_number() {
    let limiter = RateLimiter::new(Rate::per_second(10).burst(1));
    let layer = AdmissionLayer::builder(limiter, |_| Ok(()))
        .mode(AdmissionMode::Wait(Duration::from_millis(250)))
        .max_waiting(3)
        .build()
        .unwrap();
    let start = tokio::time::Instant::now();
    let all = (0..6).map(|_| async {
        let response = send(&layer, from("192.0.2.1")).await;
        (response.status().as_u16(), start.elapsed().as_millis())
    });
    let mut ends = futures_util::future::join_all(all).await;
    ends.sort_unstable();
    let (passed, refused) = ends.split_at(3);
    // One at once, two after their waits; two found no seat; one would have had to wait for longer than 250 ms.
    assert!(passed.iter().all(|(status, _)| *status == 200), "{ends:?}");
    assert!(
        passed[1].1 >= 100 && passed[2].1 >= 200 && passed[2].1 < 260,
        "{ends:?}"
    );
    assert!(refused.iter().all(|(status, _)| *status == 429), "{ends:?}");
    assert_eq!(layer.counts().allowed, 3);
    // The seats are free again.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let both = [
        send(&layer, from("192.0.2.1")),
        send(&layer, from("192.0.2.1")),
    ];
    let both = futures_util::future::join_all(both).await;
    assert!(both.iter().all(|response| response.status() == 200));
}

#[tokio::test]
async fn who_waits_holds_no_permit_of_the_service() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(Rate::per_second(1).burst(1), clock.clone());
    assert!(limiter.check(1).is_granted());
    let layer = AdmissionLayer::builder(limiter, |_| Ok(()))
        .mode(AdmissionMode::Wait(Duration::from_secs(5)))
        .clock(clock.clone())
        .build()
        .unwrap();
    let permits = Permits::new(1);
    let mut service = layer.layer(permits.clone());
    let mut waiting = Box::pin(service.ready().await.unwrap().call(from("192.0.2.1")));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    assert_eq!(permits.free.load(Ordering::SeqCst), 1);
    clock.advance(Duration::from_secs(1));
    assert_eq!(waiting.await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_handler_can_charge_more_and_give_back() {
    let (limiter, _) = limiter(10);
    let layer = AdmissionLayer::builder(limiter.clone(), |_| Ok(()))
        .build()
        .unwrap();
    let handler = |request: Request<Body>| async move {
        let admitted: Admitted = request
            .extensions()
            .get()
            .cloned()
            .expect("it was let through");
        assert_eq!(admitted.ruling().charge().cost(), 1);
        let extra: u64 = request.headers()["extra"]
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        let status = match admitted.charge_more(extra).await {
            Ok(more) => {
                if extra == 3 {
                    assert!(more.give_back() && !more.give_back(), "once");
                }
                200
            }
            Err(limited) => {
                assert_eq!(limited.level(), Some("limit"));
                assert!(admitted.give_back());
                413
            }
        };
        Ok::<_, Infallible>(
            Response::builder()
                .status(status)
                .body(Body::default())
                .unwrap(),
        )
    };
    let ask = async |extra: &'static str| {
        let mut request = from("192.0.2.1");
        request
            .headers_mut()
            .insert("extra", extra.parse().unwrap());
        let service = layer.layer(tower::service_fn(handler));
        service.oneshot(request).await.unwrap().status().as_u16()
    };
    assert_eq!((ask("4").await, limiter.peek(0).remaining), (200, 5));
    assert_eq!((ask("3").await, limiter.peek(0).remaining), (200, 4));
    assert_eq!((ask("9").await, limiter.peek(0).remaining), (413, 4));
}

/// Case 20, B12: the clock jumps between decision and encoding, and every field is still of one instant.
#[tokio::test]
async fn headers_come_from_the_decision() {
    let (limiter, clock) = limiter(10);
    let layer = AdmissionLayer::builder(limiter, |_| Ok(()))
        .build()
        .unwrap();
    let handler = move |_: Request<Body>| {
        clock.advance(Duration::from_secs(3600));
        ok(Request::new(Body::default()))
    };
    let service = layer.layer(tower::service_fn(handler));
    let response = service.oneshot(from("192.0.2.1")).await.unwrap();
    assert_eq!(
        field(response.headers(), "ratelimit"),
        Some("\"limit\";r=9;t=1")
    );
    assert_eq!(field(response.headers(), "retry-after"), None);
}

/// What a layer lets through and refuses is seen where its limits are watched, by route.
#[cfg(feature = "metrics")]
#[tokio::test]
async fn a_layer_over_watched_limits_is_told_of_by_route() {
    use sluicegate::Hierarchy;
    use sluicegate::observe::{Watched, snapshot};
    let clock = ManualClock::new();
    let limits = Hierarchy::<String>::builder()
        .level("route", Rate::per_second(1).burst(2), String::clone)
        .clock(clock.clone())
        .build()
        .expect("it is valid");
    let limits = Watched::with_clock("layer", limits, clock)
        .by_endpoint(|route: &String| Some(route.as_str()));
    let layer = AdmissionLayer::builder(limits, |head| Ok(head.method().as_str().to_owned()))
        .build()
        .unwrap();
    for _ in 0..5 {
        send(&layer, from("192.0.2.1")).await;
    }
    let limiters = snapshot().limiters;
    let seen = limiters.iter().find(|limiter| limiter.name == "layer");
    let endpoints = &seen.expect("it lives").endpoints;
    let verdicts = &endpoints[0].verdicts;
    assert_eq!(
        (
            endpoints[0].name.as_str(),
            verdicts.allowed,
            verdicts.rejected
        ),
        ("GET", 2, 3)
    );
}

#[tokio::test]
async fn without_a_hold_everything_else_is_the_same() {
    let quiet = [HeaderDialect::RetryAfterOnly];
    let limits = || {
        let limiter = KeyedLimiter::<Key>::builder(Rate::per_minute(1).burst(2));
        limiter.clock(ManualClock::new()).build().unwrap()
    };
    let handler = |request: Request<Body>| async move {
        assert!(request.extensions().get::<Admitted>().is_none());
        ok(request).await
    };
    for dialects in [&quiet[..], &[HeaderDialect::ListDraft]] {
        let layer = AdmissionLayer::builder(limits(), Callers::by_peer().addresses())
            .headers(dialects.iter().copied())
            .without_hold()
            .exact_retry_after()
            .build()
            .unwrap();
        let service = layer.layer(tower::service_fn(handler));
        let mut statuses = Vec::new();
        for peer in ["192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2"] {
            let response = service.clone().oneshot(from(peer)).await.unwrap();
            let seconds = field(response.headers(), "retry-after").map(str::to_owned);
            statuses.push((response.status().as_u16(), seconds));
        }
        let refused = (429, Some("60".to_owned()));
        assert_eq!(statuses, [(200, None), (200, None), refused, (200, None)]);
        let unknown = service
            .clone()
            .oneshot(Request::new(Body::default()))
            .await
            .unwrap();
        assert_eq!(unknown.status(), 200);
        let counts = layer.counts();
        assert_eq!(
            (counts.allowed, counts.rejected, counts.unidentified),
            (4, 1, 1)
        );
    }
    let layer = AdmissionLayer::builder(limits(), Callers::by_peer().addresses())
        .headers(quiet)
        .mode(AdmissionMode::DryRun)
        .without_hold()
        .build()
        .unwrap();
    for _ in 0..3 {
        assert_eq!(send(&layer, from("192.0.2.1")).await.status(), 200);
    }
    assert_eq!(
        (layer.counts().allowed, layer.counts().shadow_rejected),
        (2, 1)
    );
}
