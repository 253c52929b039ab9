//! gRPC: statuses and details as a real client reads them.

use std::time::Duration;

use http::{HeaderValue, Request};
use sluicegate::http::{AdmissionLayer, Callers, QueueLayer};
use sluicegate::queue::Builder;
use sluicegate::{Cause, Gate, Hierarchy, Key, KeyedLimiter, ManualClock, Rate, RateLimiter};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::echo::{Echo, SAY, say};
use crate::kit::{Body, field, from, send, text};

/// Serves the echo behind a layer, and connects.
macro_rules! serve {
    ($layer:expr) => {{
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = Server::builder().layer($layer).add_service(Echo);
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("a target");
        endpoint.connect().await.expect("it serves")
    }};
}

async fn ask(channel: &Channel) -> Result<String, Status> {
    let said = say(channel, tonic::Request::new("hello".to_owned())).await;
    said.map(tonic::Response::into_inner)
}

/// Case 22: code 8 with the exact delay, and something that tells it from gRPC's own use of that code.
#[tokio::test]
async fn a_client_over_its_quota_reads_when_to_retry() {
    let limits = Hierarchy::<Key>::builder()
        .level(
            "ip",
            Rate::new(1, Duration::from_millis(61_234))
                .expect("a rate")
                .burst(2),
            |key: &Key| key.clone(),
        )
        .clock(ManualClock::new())
        .build()
        .expect("a level");
    let layer = AdmissionLayer::builder(limits.clone(), Callers::by_peer().addresses())
        .build()
        .expect("a layer");
    let channel = serve!(layer.clone());
    for _ in 0..2 {
        assert_eq!(ask(&channel).await.expect("within the quota"), "hello");
    }
    let status = ask(&channel).await.expect_err("over the quota");
    assert_eq!(status.code(), Code::ResourceExhausted);
    let retry = status.get_details_retry_info().expect("RetryInfo");
    assert_eq!(retry.retry_delay, Some(Duration::from_millis(61_234)));
    let details = status.get_error_details();
    let violation = &details.quota_failure().expect("QuotaFailure").violations[0];
    assert_eq!(violation.subject, "policy:ip");
    let info = details.error_info().expect("ErrorInfo");
    assert_eq!(
        (info.reason.as_str(), info.metadata["policy"].as_str()),
        ("RATE_LIMIT_EXCEEDED", "ip")
    );
    let pushback = status
        .metadata()
        .get("grpc-retry-pushback-ms")
        .expect("pushback");
    assert_eq!(pushback, "61234");
    // The address came from the connection: loopback, not the share of those who have none.
    assert_eq!((limits.keys()[0].1, layer.counts().unidentified), (1, 0));
}

#[tokio::test]
async fn an_overloaded_service_is_unavailable_with_a_delay() {
    let turnstile = Builder::new(Rate::per_minute(1))
        .max_depth(1)
        .max_waiters(0)
        .turnstile()
        .expect("a queue");
    let _turn = turnstile.enter().await.expect("the first");
    let mut second = Box::pin(turnstile.enter());
    assert!(futures_util::poll!(&mut second).is_pending());
    let channel = serve!(
        QueueLayer::builder(turnstile.clone())
            .build()
            .expect("a layer")
    );
    let status = ask(&channel).await.expect_err("it is full");
    assert_eq!(status.code(), Code::Unavailable);
    let delay = status
        .get_details_retry_info()
        .and_then(|retry| retry.retry_delay);
    assert!(delay >= Some(Duration::from_secs(30)), "{delay:?}");
    let info = status.get_error_details();
    assert_eq!(
        info.error_info().expect("ErrorInfo").reason,
        "TEMPORARY_REDUCED_CAPACITY"
    );
}

#[tokio::test]
async fn the_timeout_of_a_call_is_its_deadline_in_the_queue() {
    let turnstile = Builder::new(Rate::per_second(1))
        .turnstile()
        .expect("a queue");
    let _turn = turnstile.enter().await.expect("the first");
    let mut others: Vec<_> = (0..3).map(|_| Box::pin(turnstile.enter())).collect();
    for other in &mut others {
        assert!(futures_util::poll!(other).is_pending());
    }
    let layer = QueueLayer::builder(turnstile.clone())
        .build()
        .expect("a layer");
    let mut call = from("192.0.2.1");
    call.headers_mut().insert(
        "content-type",
        HeaderValue::from_static("application/grpc+proto"),
    );
    call.headers_mut()
        .insert("grpc-timeout", HeaderValue::from_static("500m"));
    let refused = send(&layer, call).await;
    assert_eq!(
        field(refused.headers(), "grpc-status"),
        Some("14"),
        "at once"
    );
    assert_eq!(turnstile.snapshot().ledger.refused, 1);
}

#[tokio::test]
async fn a_refusal_is_200_with_trailers_only_and_no_body() {
    let limiter = RateLimiter::with_clock(Rate::per_second(1).burst(1), ManualClock::new());
    assert!(limiter.check(1).is_granted());
    let layer = AdmissionLayer::builder(limiter, |_| Ok(()))
        .build()
        .expect("a layer");
    for content in [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc-web+proto",
    ] {
        let mut call: Request<Body> = from("192.0.2.1");
        *call.uri_mut() = SAY.parse().expect("a target");
        call.headers_mut()
            .insert("content-type", HeaderValue::from_static(content));
        let refused = send(&layer, call).await;
        assert_eq!(refused.status(), 200);
        assert_eq!(field(refused.headers(), "content-type"), Some(content));
        assert_eq!(field(refused.headers(), "grpc-status"), Some("8"));
        assert_eq!(field(refused.headers(), "retry-after"), None);
        assert_eq!(text(refused).await, "");
    }
}

#[tokio::test]
async fn what_can_never_fit_has_no_delay_and_says_not_to_retry() {
    let limiter = RateLimiter::new(Rate::per_second(1).burst(1));
    let layer = AdmissionLayer::builder(limiter, |_| Ok(()))
        .cost(|_| 2)
        .build()
        .expect("a layer");
    let status = ask(&serve!(layer)).await.expect_err("it costs too much");
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.get_details_retry_info().is_none());
    assert_eq!(
        status
            .metadata()
            .get("grpc-retry-pushback-ms")
            .expect("pushback"),
        "-1"
    );
}

#[tokio::test]
async fn a_handler_turns_its_own_refusals_into_statuses() {
    let (tx, _rx) = Builder::new(Rate::per_second(10))
        .max_depth(1)
        .build()
        .expect("a queue");
    let callers = KeyedLimiter::<u64>::builder(Rate::per_minute(1).burst(1))
        .build()
        .expect("a limiter");
    let gate = Gate::new(callers, tx.clone());
    gate.try_send(&1, "first").expect("it fits");
    let refused = gate.try_send(&2, "second").expect_err("the queue is full");
    assert!(matches!(refused.cause(), Cause::Queue(_)));
    assert_eq!(Status::from(refused).code(), Code::Unavailable);
    let refusal = tx.try_send("third").expect_err("it is full").into_parts().1;
    let status = Status::from(refusal);
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.get_details_retry_info().is_some());

    let (tx, _rx) = Builder::new(Rate::per_second(10)).build().expect("a queue");
    let callers = KeyedLimiter::<u64>::builder(Rate::per_minute(1).burst(1))
        .build()
        .expect("a limiter");
    let gate = Gate::new(callers, tx);
    gate.try_send(&1, "first").expect("it fits");
    let status = Status::from(gate.try_send(&1, "second").expect_err("over the quota"));
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(
        status
            .get_details_retry_info()
            .expect("RetryInfo")
            .retry_delay
            > Some(Duration::from_secs(50))
    );
}
