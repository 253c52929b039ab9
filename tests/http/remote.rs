//! Stores that let one wait, and stores that fail.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use sluicegate::http::AdmissionLayer;
use sluicegate::{
    Admission, Charge, Decision, Key, ManualClock, Rate, RateLimiter, Ruling, Tick, Verdict,
};
use tower::{Layer, ServiceExt};

use crate::kit::{field, from, ok, send, text};

/// An admission that decides when it is told to, as a remote store does.
#[derive(Clone)]
pub(crate) struct Remote {
    limiter: RateLimiter,
    open: Arc<AtomicBool>,
    down: Option<bool>,
    given_back: Arc<AtomicU64>,
}

impl Remote {
    pub(crate) fn new(burst: u64) -> Self {
        let limiter =
            RateLimiter::with_clock(Rate::per_second(10).burst(burst), ManualClock::new());
        let open = Arc::new(AtomicBool::new(true));
        Self {
            limiter,
            open,
            down: None,
            given_back: Arc::default(),
        }
    }
}

impl Admission for Remote {
    type Context = ();
    type Deciding = Pin<Box<dyn Future<Output = Ruling> + Send>>;

    fn charge(&self, (): &(), cost: u64) -> Charge {
        Charge::new(cost, [("remote", self.limiter.limit(), Key::from(()))])
    }

    fn admit(&self, charge: Charge) -> Self::Deciding {
        let remote = self.clone();
        Box::pin(async move {
            poll_fn(|_| {
                if remote.open.load(Ordering::SeqCst) {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
            .await;
            match remote.down {
                None => Ruling::new(
                    charge.clone(),
                    [("remote", remote.limiter.check(charge.cost()))],
                ),
                Some(passes) => {
                    let retry_after = Duration::from_millis(1500);
                    let verdict = if passes {
                        Verdict::Granted
                    } else {
                        Verdict::Refused { retry_after }
                    };
                    let decision = Decision {
                        at: Tick::ZERO,
                        verdict,
                        limit: 1,
                        remaining: 0,
                        next_unit_in: retry_after,
                        reset_after: retry_after,
                    };
                    Ruling::new(charge, [("remote", decision)]).degraded()
                }
            }
        })
    }

    fn give_back(&self, charge: Charge) {
        self.given_back.fetch_add(charge.cost(), Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_store_that_waits_is_waited_for_and_a_client_that_leaves_is_not() {
    let remote = Remote::new(2);
    let layer = AdmissionLayer::builder(remote.clone(), |_| Ok(()))
        .build()
        .unwrap();
    remote.open.store(false, Ordering::SeqCst);
    let service = layer.layer(tower::service_fn(ok));
    let mut asked = Box::pin(service.clone().oneshot(from("192.0.2.1")));
    assert!(futures_util::poll!(&mut asked).is_pending());
    let mut leaves = Box::pin(service.clone().oneshot(from("192.0.2.1")));
    assert!(futures_util::poll!(&mut leaves).is_pending());
    drop(leaves);
    remote.open.store(true, Ordering::SeqCst);
    let response = asked.await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(
        field(response.headers(), "ratelimit"),
        Some("\"remote\";r=1;t=1")
    );
    assert_eq!(
        service
            .clone()
            .oneshot(from("192.0.2.1"))
            .await
            .unwrap()
            .status(),
        200
    );
    assert_eq!(
        service.oneshot(from("192.0.2.1")).await.unwrap().status(),
        429
    );
}

/// B12: a store error escapes unhandled.
#[tokio::test]
async fn a_store_that_is_down_is_no_500() {
    let open = Remote {
        down: Some(true),
        ..Remote::new(1)
    };
    let layer = AdmissionLayer::builder(open, |_| Ok(())).build().unwrap();
    let passed = send(&layer, from("192.0.2.1")).await;
    assert_eq!(passed.status(), 200);
    assert_eq!(
        field(passed.headers(), "ratelimit"),
        None,
        "nobody knows how it stands"
    );
    assert_eq!(layer.counts().error_allowed, 1);

    let closed = Remote {
        down: Some(false),
        ..Remote::new(1)
    };
    let layer = AdmissionLayer::builder(closed, |_| Ok(())).build().unwrap();
    let refused = send(&layer, from("192.0.2.1")).await;
    assert_eq!(refused.status(), 503);
    assert_eq!(field(refused.headers(), "retry-after"), Some("2"));
    assert_eq!(field(refused.headers(), "ratelimit"), None);
    assert!(text(refused).await.contains("limiter-unavailable"));
    let counts = layer.counts();
    assert_eq!((counts.error_rejected, counts.rejected), (1, 0));
}
