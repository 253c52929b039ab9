//! Fields of responses: rounding, nesting, statuses, bodies.

use std::time::Duration;

use http::{HeaderValue, StatusCode};
use proptest::prelude::*;
use sluicegate::http::{AdmissionLayer, DeniedRequest, HeaderDialect, RefusalBody, ResetUnit};
use sluicegate::{
    FixedWindow, Hierarchy, LeakyBucket, Limit, ManualClock, Rate, RateLimiter, SlidingCounter,
    SlidingLog, Tick,
};

use crate::kit::{drained, field, from, list, send, text};

fn limit() -> impl Strategy<Value = Limit> {
    let spans = (1_u64..20, 1_u64..200_000);
    (0..5, spans).prop_map(|(kind, (count, millis))| {
        let span = Duration::from_millis(millis);
        let rate = Rate::new(count, span).expect("a rate");
        match kind {
            0 => rate.burst(count).into(),
            1 => LeakyBucket::new(rate, 1 + count / 2)
                .expect("a limit")
                .into(),
            2 => FixedWindow::new(count, span).expect("a limit").into(),
            3 => SlidingLog::new(count, span).expect("a limit").into(),
            _ => SlidingCounter::new(count, span).expect("a limit").into(),
        }
    })
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(future)
}

proptest! {
    /// Cases 1, 18, 19: no wait is told as 0, nothing is negative, and a client that obeys gets in.
    #[test]
    fn a_wait_is_at_least_a_second_and_obeying_it_succeeds(
        limit in limit(),
        pauses in proptest::collection::vec(0_u64..100_000, 1..40),
        costs in proptest::collection::vec(1_u64..4, 40),
        exact in any::<bool>(),
    ) {
        let clock = ManualClock::new();
        clock.set(Tick::from_nanos(1_764_590_400_123_456_789));
        let limiter = RateLimiter::with_clock(limit, clock.clone());
        let all = [HeaderDialect::ListDraft, HeaderDialect::Legacy(ResetUnit::UnixSeconds)];
        let layer = AdmissionLayer::builder(limiter, |_| Ok(()))
            .cost(|head| head.headers()["cost"].to_str().unwrap().parse().unwrap())
            .headers(all);
        let layer = if exact { layer.exact_retry_after() } else { layer };
        let layer = layer.build().expect("a layer");
        let request = |cost: u64| {
            let mut request = from("192.0.2.1");
            request.headers_mut().insert("cost", HeaderValue::from(cost));
            request
        };
        for (pause, cost) in pauses.iter().zip(costs) {
            clock.advance(Duration::from_micros(*pause));
            let response = block_on(send(&layer, request(cost)));
            let headers = response.headers();
            let told = field(headers, "retry-after").map(|text| text.parse::<u64>().expect("digits"));
            let limits = list(headers, "ratelimit");
            let parameter = |key: &str| limits[0].1.get(key).map(|text| text.parse::<u64>().expect("digits"));
            let left: u64 = field(headers, "x-ratelimit-remaining").expect("a number").parse().expect("digits");
            prop_assert_eq!(parameter("r"), Some(left));
            prop_assert!(left <= limit.quota());
            if response.status() == 200 {
                prop_assert_eq!(told, None);
                prop_assert!(parameter("t").is_some());
                prop_assert!(left > 0 || parameter("t") >= Some(1));
                continue;
            }
            prop_assert_eq!(response.status(), 429);
            if cost == 1 {
                prop_assert_eq!(left, 0);
            }
            match told {
                None => prop_assert!(cost > limit.quota(), "only what can never fit has no time"),
                Some(told) => {
                    prop_assert!(told >= 1);
                    prop_assert_eq!(parameter("t"), Some(told));
                    clock.advance(Duration::from_secs(told));
                    let again = block_on(send(&layer, request(cost)));
                    prop_assert_eq!(again.status(), 200, "{} after {} s", limit, told);
                }
            }
        }
    }
}

/// Case 1: waits below a second.
#[tokio::test]
async fn waits_are_rounded_up_and_never_to_zero() {
    for (millis, seconds) in [(1, "1"), (999, "1"), (1_000, "1"), (1_001, "2")] {
        let rate = Rate::new(1, Duration::from_millis(millis)).expect("a rate");
        let limiter = RateLimiter::with_clock(rate.burst(1), ManualClock::new());
        let layer = AdmissionLayer::builder(limiter, |_| Ok(()))
            .build()
            .expect("a layer");
        assert_eq!(send(&layer, from("192.0.2.1")).await.status(), 200);
        let refused = send(&layer, from("192.0.2.1")).await;
        assert_eq!(
            field(refused.headers(), "retry-after"),
            Some(seconds),
            "{millis} ms"
        );
    }
}

#[tokio::test]
async fn a_refusal_is_stored_by_nobody_and_says_why_in_the_chosen_form() {
    let build = |body| {
        AdmissionLayer::builder(drained(Rate::per_minute(1).burst(1)), |_| Ok(()))
            .body(body)
            .exact_retry_after()
            .build()
            .expect("a layer")
    };
    let send = async |body| send(&build(body), from("192.0.2.1")).await;

    let problem = send(RefusalBody::Problem).await;
    assert_eq!(field(problem.headers(), "cache-control"), Some("no-store"));
    assert_eq!(
        field(problem.headers(), "content-type"),
        Some("application/problem+json")
    );
    let json: serde_json::Value = serde_json::from_str(&text(problem).await).expect("JSON");
    let expected = serde_json::json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Request cannot be satisfied as assigned quota has been exceeded",
        "status": 429,
        "violated-policies": ["limit"],
        "retry_after_ms": 60_000,
    });
    assert_eq!(json, expected);

    let simple = send(RefusalBody::Simple).await;
    assert_eq!(
        field(simple.headers(), "content-type"),
        Some("application/json")
    );
    let expected =
        "{\"error\":\"RATE_LIMIT_EXCEEDED\",\"message\":\"Too many requests\",\"retryAfter\":60}";
    assert_eq!(text(simple).await, expected);

    let plain = send(RefusalBody::Text).await;
    assert!(text(plain).await.ends_with("exceeded\n"));

    let custom = |denied: &DeniedRequest<'_>| {
        let path = denied
            .head()
            .expect("there is a request")
            .uri()
            .path()
            .to_owned();
        let seconds = denied.retry_after_secs().expect("it helps");
        (
            HeaderValue::from_static("text/html"),
            format!("<p>{path} in {seconds}</p>"),
        )
    };
    let custom = send(RefusalBody::custom(custom)).await;
    assert_eq!(field(custom.headers(), "content-type"), Some("text/html"));
    assert_eq!(text(custom).await, "<p>/ in 60</p>");
}

#[tokio::test]
async fn a_limit_that_everybody_shares_is_503_and_hidden() {
    let limits = Hierarchy::<()>::builder()
        .level("global", Rate::per_second(1).burst(1), |()| ())
        .level("user", Rate::per_second(10).burst(10), |()| ())
        .clock(ManualClock::new())
        .build()
        .expect("levels");
    let layer = AdmissionLayer::builder(limits, |_| Ok(()))
        .build()
        .expect("a layer");
    let first = send(&layer, from("192.0.2.1")).await;
    assert_eq!(
        field(first.headers(), "ratelimit-policy"),
        Some("\"user\";q=10;w=1")
    );
    assert_eq!(
        field(first.headers(), "ratelimit"),
        Some("\"user\";r=9;t=1")
    );
    let refused = send(&layer, from("192.0.2.1")).await;
    assert_eq!(refused.status(), 503);
    assert_eq!(field(refused.headers(), "retry-after"), Some("1"));
    assert_eq!(field(refused.headers(), "ratelimit"), None);
    let body = text(refused).await;
    assert!(
        body.contains("#temporary-reduced-capacity") && !body.contains("global"),
        "{body}"
    );
    assert_eq!(layer.counts().rejected, 1);
}

#[tokio::test]
async fn what_can_never_fit_is_told_so_without_a_time() {
    let limiter = RateLimiter::with_clock(Rate::per_second(1).burst(3), ManualClock::new());
    let builder = || AdmissionLayer::builder(limiter.clone(), |_| Ok(())).cost(|_| 4);
    let layer = builder().build().expect("a layer");
    let refused = send(&layer, from("192.0.2.1")).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(field(refused.headers(), "retry-after"), None);
    assert!(text(refused).await.contains("cost-too-large"));
    assert_eq!(layer.counts().too_costly, 1);
    let status = StatusCode::PAYLOAD_TOO_LARGE;
    let layer = builder()
        .too_costly_status(status)
        .build()
        .expect("a layer");
    assert_eq!(send(&layer, from("192.0.2.1")).await.status(), status);
    assert!(builder().too_costly_status(StatusCode::OK).build().is_err());
}

#[tokio::test]
async fn retry_after_is_capped_and_spread_by_key_only() {
    let limiter = drained(Rate::per_day(1).burst(10));
    let builder = || AdmissionLayer::builder(limiter.clone(), |_| Ok(())).cost(|_| 10);
    let capped = builder()
        .longest_retry_after(Duration::from_secs(600))
        .build()
        .expect("a layer");
    let refused = send(&capped, from("192.0.2.1")).await;
    assert_eq!(field(refused.headers(), "retry-after"), Some("600"));
    let day = send(&builder().build().expect("a layer"), from("192.0.2.1")).await;
    assert_eq!(field(day.headers(), "retry-after"), Some("86400"));

    // Many keys with the same wait of 50 s: spread over at most 5 s more, and each always the same.
    let clock = ManualClock::new();
    let limiter = sluicegate::KeyedLimiter::<u64>::builder(
        Rate::new(1, Duration::from_secs(50))
            .expect("a rate")
            .burst(1),
    )
    .clock(clock)
    .build()
    .expect("a limiter");
    let key =
        |head: &sluicegate::http::Head<'_>| Ok(head.uri().path()[1..].parse().expect("a number"));
    let layer = AdmissionLayer::builder(limiter, key)
        .build()
        .expect("a layer");
    let ask = async |user: u64| {
        let mut request = from("192.0.2.1");
        *request.uri_mut() = format!("/{user}").parse().expect("a target");
        let response = send(&layer, request).await;
        field(response.headers(), "retry-after").map(|text| text.parse::<u64>().expect("digits"))
    };
    let mut seen = std::collections::BTreeSet::new();
    for user in 0..100 {
        assert_eq!(ask(user).await, None);
        let told = ask(user).await;
        assert_eq!(told, ask(user).await);
        seen.extend(told);
    }
    assert!(seen.iter().all(|told| (50..=55).contains(told)), "{seen:?}");
    assert!(seen.len() >= 4, "{seen:?}");
}

#[tokio::test]
async fn preflights_and_exempt_requests_are_not_counted() {
    let limiter = drained(Rate::per_second(1).burst(1));
    let layer = AdmissionLayer::builder(limiter, |_| Ok(()))
        .exempt(|head| head.uri().path() == "/health")
        .build()
        .expect("a layer");
    let mut preflight = from("192.0.2.1");
    *preflight.method_mut() = http::Method::OPTIONS;
    assert_eq!(
        send(&layer, preflight.clone()).await.status(),
        429,
        "a mere OPTIONS is counted"
    );
    preflight.headers_mut().insert(
        "access-control-request-method",
        HeaderValue::from_static("GET"),
    );
    assert_eq!(send(&layer, preflight).await.status(), 200);
    let mut health = from("192.0.2.1");
    *health.uri_mut() = "/health".parse().expect("a target");
    let response = send(&layer, health).await;
    assert_eq!(response.status(), 200);
    assert_eq!(field(response.headers(), "ratelimit"), None);
    assert_eq!(layer.counts().exempt, 2);
}
