//! Real servers on loopback: axum's router, many connections, and a client that this crate has nothing to do with.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::ConnectInfo;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use sluicegate::http::{AdmissionLayer, Admitted, Caller, Callers};
use sluicegate::queue::Builder;
use sluicegate::{FixedWindow, Gate, Hierarchy, Key, KeyedLimiter, ManualClock, Rate, RateLimiter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

use crate::kit::field;

/// Serves a router that is told the address of its peers.
async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, service).await });
    address
}

/// Sends a request without body on a kept connection, and reads head and body; `None` if the server has gone.
async fn exchange(stream: &mut TcpStream, request: &str) -> Option<String> {
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    let mut chunk = [0; 2048];
    loop {
        let read = stream
            .read(&mut chunk)
            .await
            .ok()
            .filter(|read| *read > 0)?;
        answer.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&answer).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().expect("digits"));
        if body.len() >= length {
            return Some(text);
        }
    }
}

/// Case 24: whatever the number of connections, the limit is one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_connections_are_admitted_within_the_envelope() {
    let limiter = RateLimiter::new(Rate::per_second(50).burst(10));
    let layer = AdmissionLayer::builder(limiter, |_| Ok(()))
        .build()
        .expect("a layer");
    let router = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(layer.clone());
    let start = Instant::now();
    let address = serve(router).await;
    let span = Duration::from_secs(10);
    let connections: Vec<_> = (0..100)
        .map(|_| {
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(address).await.expect("it listens");
                let (mut passed, mut refused) = (0_u64, 0_u64);
                while start.elapsed() < span {
                    let answer = exchange(&mut stream, "GET / HTTP/1.1\r\nhost: a\r\n\r\n")
                        .await
                        .expect("an answer");
                    match &answer[9..12] {
                        "200" => passed += 1,
                        "429" => refused += 1,
                        other => panic!("{other}"),
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                (passed, refused)
            })
        })
        .collect();
    let (mut passed, mut refused) = (0, 0);
    for connection in connections {
        let (some, others) = connection.await.expect("it does not panic");
        passed += some;
        refused += others;
    }
    let took = start.elapsed().as_secs_f64();
    println!("{passed} admitted and {refused} refused in {took:.2} s");
    let most = 10.0 + 50.0 * took;
    assert!(
        passed as f64 <= most,
        "{passed} of at most {most} in {took} s"
    );
    assert!(passed as f64 >= 250.0, "{passed} in {took} s");
    assert!(refused > 0);
    let counts = layer.counts();
    assert_eq!((counts.allowed, counts.rejected), (passed, refused));
}

/// Debian's urllib3 waits as long as `Retry-After` says, and gets in at the second try.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_another_language_obeys_and_succeeds_at_the_second_try() {
    let limiter = KeyedLimiter::<Key>::builder(
        Rate::new(1, Duration::from_millis(1300))
            .expect("a rate")
            .burst(1),
    )
    .build()
    .expect("a limiter");
    let layer = AdmissionLayer::builder(limiter, Callers::by_peer().addresses())
        .build()
        .expect("a layer");
    let router = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(layer.clone());
    let address = serve(router).await;
    let script = "
import sys, urllib3
http = urllib3.PoolManager()
retries = urllib3.Retry(total=1, status=1)
first = http.request('GET', sys.argv[1], retries=retries)
second = http.request('GET', sys.argv[1], retries=retries)
tried = [(entry.status, ) for entry in second.retries.history]
print(first.status, len(first.retries.history), second.status, tried, second.data.decode())
";
    let python = tokio::process::Command::new("/usr/bin/python3")
        .args(["-c", script, &format!("http://{address}/")])
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(60), python)
        .await
        .expect("in time");
    let output = output.expect("Debian's python3 is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.trim(), "200 0 200 [(429,)] hello", "{errors}");
    let counts = layer.counts();
    assert_eq!((counts.allowed, counts.rejected), (2, 1));
}

/// A client that closes its connection while it is queued gives its place up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_closed_leaves_the_queue() {
    let turnstile = Builder::new(Rate::per_minute(1))
        .turnstile()
        .expect("a queue");
    let layer = sluicegate::http::QueueLayer::builder(turnstile.clone())
        .build()
        .expect("a layer");
    let address = serve(
        Router::new()
            .route("/", get(|| async { "hello" }))
            .layer(layer),
    )
    .await;
    let mut streams = Vec::new();
    for _ in 0..6 {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream
            .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            .await
            .expect("it reads");
        streams.push(stream);
    }
    let until = async |what: &dyn Fn(&sluicegate::queue::Snapshot) -> bool| {
        for _ in 0..1000 {
            if what(&turnstile.snapshot()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{:?}", turnstile.snapshot());
    };
    until(&|snapshot| snapshot.depth + snapshot.waiting == 5).await;
    drop(streams);
    until(&|snapshot| snapshot.depth == 0 && snapshot.waiting == 0).await;
    assert!(turnstile.snapshot().ledger.is_balanced());
}

fn connected(method: &str, path: &str) -> Request<axum::body::Body> {
    let request = Request::builder().method(method).uri(path);
    let peer = SocketAddr::from(([192, 0, 2, 1], 4711));
    request
        .extension(ConnectInfo(peer))
        .body(axum::body::Body::empty())
        .expect("a request")
}

/// Case 26: however the path is spelled, it is the template that counts.
#[tokio::test]
async fn a_route_is_counted_by_its_template() {
    let limits = Hierarchy::<Caller>::builder()
        .level(
            "endpoint",
            FixedWindow::new(3, Duration::from_secs(60)).expect("a limit"),
            Caller::address_at_endpoint,
        )
        .clock(ManualClock::new())
        .build()
        .expect("a level");
    let layer = AdmissionLayer::builder(limits.clone(), Callers::by_peer().identities())
        .build()
        .expect("a layer");
    let router = Router::new()
        .route("/users/{id}", get(|| async { "user" }))
        .route("/login", post(|| async { "in" }))
        .layer(layer);
    let ask = async |method: &str, path: &str| {
        let response = router
            .clone()
            .oneshot(connected(method, path))
            .await
            .expect("infallible");
        response.status().as_u16()
    };
    let mut statuses = Vec::new();
    for path in [
        "/users/1",
        "/users/2",
        "/users/%33",
        "/users/4",
        "/users/5?x",
    ] {
        statuses.push(ask("GET", path).await);
    }
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    // Other spellings of a route are no route.
    for path in ["//login", "/login/", "/LOGIN", "/logi%6e"] {
        let status = ask("POST", path).await;
        assert!(
            [404, 429].contains(&status) || path.contains('%'),
            "{path}: {status}"
        );
    }
    assert_eq!(ask("POST", "/login").await, 200);
    assert!(limits.keys()[0].1 <= 3);
}

#[tokio::test]
async fn handlers_extract_what_was_charged() {
    let limiter = RateLimiter::with_clock(Rate::per_second(1).burst(9), ManualClock::new());
    let layer = AdmissionLayer::builder(limiter.clone(), |_| Ok(()))
        .build()
        .expect("a layer");
    let handler = async |admitted: Admitted| match admitted.charge_more(4).await {
        Ok(_) => StatusCode::OK,
        Err(_) => StatusCode::TOO_MANY_REQUESTS,
    };
    let router = Router::new()
        .route("/limited", get(handler))
        .route(
            "/maybe",
            get(async |admitted: Option<Admitted>| admitted.is_some().to_string()),
        )
        .layer(layer)
        .route(
            "/free",
            get(async |admitted: Option<Admitted>| admitted.is_some().to_string()),
        )
        .route("/broken", get(async |_: Admitted| "never"));
    let ask = async |path: &str| {
        let response = router
            .clone()
            .oneshot(connected("GET", path))
            .await
            .expect("infallible");
        let status = response.status().as_u16();
        let body = response
            .into_body()
            .collect()
            .await
            .expect("a body")
            .to_bytes();
        (status, String::from_utf8(body.to_vec()).expect("a text"))
    };
    assert_eq!(ask("/limited").await.0, 200);
    assert_eq!(limiter.peek(0).remaining, 4);
    assert_eq!(ask("/maybe").await, (200, "true".into()));
    assert_eq!(ask("/free").await, (200, "false".into()));
    assert_eq!(ask("/broken").await.0, 500);
}

#[tokio::test]
async fn a_refusal_or_denial_is_a_response() {
    let (tx, _rx) = Builder::new(Rate::per_second(10))
        .max_depth(1)
        .build()
        .expect("a queue");
    let callers = KeyedLimiter::<u64>::builder(Rate::per_minute(1).burst(1))
        .build()
        .expect("a limiter");
    let gate = Gate::new(callers, tx.clone());
    gate.try_send(&1, "first").expect("it fits");
    let full = gate
        .try_send(&2, "second")
        .expect_err("the queue is full")
        .into_response();
    assert_eq!(full.status(), 503);
    assert!(field(full.headers(), "retry-after").is_some());
    let refused = tx
        .try_send("third")
        .expect_err("it is full")
        .into_parts()
        .1
        .into_response();
    assert_eq!(refused.status(), 503);
    assert_eq!(field(refused.headers(), "cache-control"), Some("no-store"));
    assert!(tx.close());
    let closed = tx
        .try_send("fourth")
        .expect_err("it is closed")
        .into_parts()
        .1
        .into_response();
    assert_eq!(
        (
            closed.status().as_u16(),
            field(closed.headers(), "retry-after")
        ),
        (503, None)
    );

    let (tx, _rx) = Builder::new(Rate::per_second(10)).build().expect("a queue");
    let callers = KeyedLimiter::<u64>::builder(Rate::per_minute(1).burst(1))
        .build()
        .expect("a limiter");
    let gate = Gate::new(callers, tx);
    gate.try_send(&1, "first").expect("it fits");
    let denied = gate
        .try_send(&1, "second")
        .expect_err("over the quota")
        .into_response();
    assert_eq!(denied.status(), 429);
    assert_eq!(
        field(denied.headers(), "ratelimit-policy"),
        Some("\"key\";q=1;w=60")
    );
}
