//! Dialects, and what becomes of fields that are there already.

use http::{HeaderValue, Request, Response};
use sluicegate::http::{AdmissionLayer, EXPOSED_FIELDS, HeaderDialect, ResetUnit};
use sluicegate::{Hierarchy, ManualClock, Rate, RateLimiter};
use tower::{Layer, ServiceExt};

use crate::kit::{Body, drained, field, from, list, ok, send, text};

/// Lists are appended to; of single fields the tighter stays, of `Retry-After` the later.
#[tokio::test]
async fn nested_layers_never_promise_more_than_the_tighter_one() {
    let all = [
        HeaderDialect::ListDraft,
        HeaderDialect::Legacy(ResetUnit::DeltaSeconds),
    ];
    let layer = |name: &str, burst: u64| {
        let limits = Hierarchy::<()>::builder()
            .level(name, Rate::per_second(1).burst(burst), |()| ())
            .clock(ManualClock::new())
            .build()
            .expect("a level");
        AdmissionLayer::builder(limits, |_| Ok(()))
            .headers(all)
            .build()
            .expect("a layer")
    };
    for (outer, inner) in [(5, 3), (3, 5)] {
        let service =
            layer("outer", outer).layer(layer("inner", inner).layer(tower::service_fn(ok)));
        let response = service
            .clone()
            .oneshot(from("192.0.2.1"))
            .await
            .expect("infallible");
        let headers = response.headers();
        let names: Vec<_> = list(headers, "ratelimit")
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["inner", "outer"]);
        assert_eq!(field(headers, "x-ratelimit-remaining"), Some("2"));
        assert_eq!(field(headers, "x-ratelimit-limit"), Some("3"));
        for _ in 0..2 {
            let _ = service.clone().oneshot(from("192.0.2.1")).await;
        }
        let refused = service
            .oneshot(from("192.0.2.1"))
            .await
            .expect("infallible");
        assert_eq!(refused.status(), 429);
        let headers = refused.headers();
        assert_eq!(field(headers, "x-ratelimit-remaining"), Some("0"));
        let seconds: u64 = field(headers, "retry-after")
            .expect("a time")
            .parse()
            .expect("digits");
        let limits = list(headers, "ratelimit");
        assert_eq!(limits.len(), 1, "only who refuses");
        assert!(limits[0].1["t"].parse::<u64>().expect("digits") <= seconds);
    }
}

#[tokio::test]
async fn what_a_handler_said_is_not_made_more_permissive() {
    let later = |request: Request<Body>| async move {
        let status = request.headers()["status"]
            .to_str()
            .unwrap()
            .parse::<u16>()
            .unwrap();
        let response = Response::builder()
            .status(status)
            .header("retry-after", "120");
        let response = response.header("x-ratelimit-remaining", "nonsense");
        Ok::<_, std::convert::Infallible>(response.body(Body::default()).unwrap())
    };
    let limiter = RateLimiter::with_clock(Rate::per_second(1).burst(9), ManualClock::new());
    let layer = AdmissionLayer::builder(limiter, |_| Ok(()))
        .headers([
            HeaderDialect::ListDraft,
            HeaderDialect::Legacy(ResetUnit::DeltaSeconds),
        ])
        .build()
        .expect("a layer");
    let ask = async |status: &'static str| {
        let mut request = from("192.0.2.1");
        request
            .headers_mut()
            .insert("status", HeaderValue::from_static(status));
        layer
            .layer(tower::service_fn(later))
            .oneshot(request)
            .await
            .expect("infallible")
    };
    let busy = ask("503").await;
    assert_eq!(field(busy.headers(), "retry-after"), Some("120"));
    assert_eq!(
        field(busy.headers(), "x-ratelimit-remaining"),
        Some("nonsense")
    );
    assert_eq!(field(busy.headers(), "ratelimit"), None);
    assert!(
        field(busy.headers(), "ratelimit-policy").is_some(),
        "policies are told on errors too"
    );
    for silent in ["302", "101"] {
        assert_eq!(
            field(ask(silent).await.headers(), "ratelimit-policy"),
            None,
            "{silent}"
        );
    }
}

#[tokio::test]
async fn each_dialect_is_written_as_its_revision_has_it() {
    let ask = async |dialect| {
        let limiter = RateLimiter::with_clock(Rate::per_second(1).burst(60), ManualClock::new());
        let layer = AdmissionLayer::builder(limiter, |_| Ok(()))
            .headers([dialect])
            .build()
            .expect("a layer");
        send(&layer, from("192.0.2.1")).await.headers().clone()
    };
    let six = ask(HeaderDialect::Draft6).await;
    assert_eq!(field(&six, "ratelimit-limit"), Some("60"));
    assert_eq!(field(&six, "ratelimit-remaining"), Some("59"));
    assert_eq!(field(&six, "ratelimit-reset"), Some("1"));
    assert_eq!(field(&six, "ratelimit-policy"), Some("60;w=60"));
    let seven = ask(HeaderDialect::Draft7).await;
    assert_eq!(
        field(&seven, "ratelimit"),
        Some("limit=60, remaining=59, reset=1")
    );
    assert!(ask(HeaderDialect::None).await.is_empty());
    assert!(ask(HeaderDialect::RetryAfterOnly).await.is_empty());
    let clash = AdmissionLayer::builder(RateLimiter::new(Rate::per_second(1).burst(1)), |_| Ok(()))
        .headers([HeaderDialect::ListDraft, HeaderDialect::Draft6])
        .build();
    assert!(
        clash
            .expect_err("they clash")
            .to_string()
            .contains("Draft6")
    );
}

#[tokio::test]
async fn names_of_policies_are_tokens_whatever_the_level_is_called() {
    let limits = Hierarchy::<()>::builder()
        .level("1 \"user\", é", Rate::per_second(1).burst(2), |()| ())
        .clock(ManualClock::new())
        .build()
        .expect("a level");
    let layer = AdmissionLayer::builder(limits, |_| Ok(()))
        .build()
        .expect("a layer");
    let response = send(&layer, from("192.0.2.1")).await;
    assert_eq!(list(response.headers(), "ratelimit")[0].0, "x1__user____");
    let _ = send(&layer, from("192.0.2.1")).await;
    let refused = send(&layer, from("192.0.2.1")).await;
    let body: serde_json::Value = serde_json::from_str(&text(refused).await).expect("JSON");
    assert_eq!(body["violated-policies"][0], "1 \"user\", é");
}

/// Case 32: what a browser has to be allowed to read is what is sent.
#[tokio::test]
async fn all_that_is_sent_is_in_the_list_to_expose() {
    let sent = [
        HeaderDialect::ListDraft,
        HeaderDialect::Draft6,
        HeaderDialect::Draft7,
        HeaderDialect::Legacy(ResetUnit::UnixSeconds),
    ];
    for dialect in sent {
        let limiter = drained(Rate::per_second(1).burst(1));
        let layer = AdmissionLayer::builder(limiter, |_| Ok(()))
            .headers([dialect])
            .build()
            .expect("a layer");
        let refused = send(&layer, from("192.0.2.1")).await;
        let general = ["cache-control", "content-type"];
        for name in refused
            .headers()
            .keys()
            .filter(|name| !general.contains(&name.as_str()))
        {
            assert!(EXPOSED_FIELDS.contains(name), "{name}");
        }
    }
}
