//! What the page is served with.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use sluicegate::observe::{Keys, Snapshot, page, serve_page};
use tower::ServiceExt;

use crate::support::queue;

async fn ask(method: &str, path: &str) -> axum::response::Response {
    let request = Request::builder().method(method).uri(path);
    let request = request.body(Body::empty()).expect("it is valid");
    let answered = page(Keys::Hashed).oneshot(request).await;
    answered.expect("it always answers")
}

#[tokio::test]
async fn every_answer_forbids_what_the_page_does_not_need() {
    for path in [
        "/",
        "/page.js",
        "/charts.js",
        "/tables.js",
        "/page.css",
        "/snapshot.json",
        "/nowhere",
    ] {
        let answer = ask("GET", path).await;
        let policy = answer.headers()["content-security-policy"].to_str();
        let policy = policy.expect("it is text");
        for part in [
            "default-src 'none'",
            "script-src 'self';",
            "frame-ancestors 'none'",
            "form-action 'none'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"));
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
        assert_eq!(answer.headers()["cache-control"], "no-store");
    }
    assert_eq!(ask("GET", "/nowhere").await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn it_is_there_with_a_slash_and_without() {
    for (path, beside) in [("/ops", "./ops/page.js"), ("/ops/", "\"page.js")] {
        let app = axum::Router::new().nest_service("/ops", page(Keys::Hashed));
        let request = Request::get(path).body(Body::empty()).expect("it is valid");
        let answer = app.oneshot(request).await.expect("it always answers");
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        let body = answer.into_body().collect().await.expect("it is whole");
        let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        assert!(text.contains(beside), "{path}: {text}");
    }
}

#[tokio::test]
async fn it_is_read_only() {
    let (tx, _rx) = queue("read only", 10);
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        for path in ["/", "/snapshot.json", "/page.js"] {
            let answer = ask(method, path).await;
            assert_eq!(
                answer.status(),
                StatusCode::METHOD_NOT_ALLOWED,
                "{method} {path}"
            );
        }
    }
    assert_eq!(ask("HEAD", "/snapshot.json").await.status(), StatusCode::OK);
    assert_eq!(tx.snapshot().ledger.offered, 0);
}

#[tokio::test]
async fn the_snapshot_is_the_one_of_the_program_with_keys_as_asked() {
    let (tx, _rx) = queue("told", 10);
    tx.offer(1)
        .tenant("ada@example.org")
        .try_send()
        .expect("room");
    let body = ask("GET", "/snapshot.json")
        .await
        .into_body()
        .collect()
        .await;
    let text =
        String::from_utf8(body.expect("it is whole").to_bytes().to_vec()).expect("JSON is text");
    assert!(!text.contains("ada@example.org"));
    let snapshot = Snapshot::from_json(&text).expect("it is one");
    let told = snapshot.queues.iter().find(|queue| queue.name == "told");
    assert_eq!(told.map(|queue| queue.depth), Some(1));
}

#[tokio::test]
async fn it_is_served_on_loopback_and_to_this_machine_only() {
    for outside in ["0.0.0.0:0", "192.0.2.1:0", "[::]:0"] {
        let refused = serve_page(outside, Keys::Hashed)
            .await
            .expect_err("it is open");
        assert!(
            refused.to_string().contains("no loopback address"),
            "{refused}"
        );
    }
    let served = serve_page("127.0.0.1:0", Keys::Hashed)
        .await
        .expect("a free port");
    for (host, status) in [
        ("127.0.0.1:80", 200),
        ("localhost", 200),
        ("[::1]:9", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ] {
        assert_eq!(status_for(served.addr(), host).await, status, "{host}");
    }
}

/// Status of an answer to a request that names a host.
async fn status_for(addr: std::net::SocketAddr, host: &str) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(addr)
        .await
        .expect("it listens");
    let request =
        format!("GET /snapshot.json HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("it answers");
    let line = String::from_utf8_lossy(&answer[..answer.len().min(12)]).into_owned();
    line.rsplit(' ')
        .next()
        .and_then(|code| code.parse().ok())
        .expect("a status")
}
