//! A live page over the snapshot, for people: a router to nest into a program's own, behind its own guard.
//!
//! The page is one document with one style sheet and two scripts, all of them part of the program. It asks for
//! `snapshot.json` beside itself once a second and draws. What it promises:
//! - I1  It is read-only: only `GET` and `HEAD` are answered, and nothing that is asked changes a queue or a limiter.
//! - I2  Nothing is asked of any other origin, and nothing that a caller named is ever markup: the policy sent along
//!   forbids foreign and inline scripts, frames and forms, and the scripts write text nodes only.
//! - I3  It needs no path of its own: it works wherever it is nested, and under `nest_service` with a slash at the end as
//!   well as without (`nest` knows only the path without).

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};

use axum::body::Body;
use axum::extract::OriginalUri;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::routing::get;
use axum::{Router, serve};
use tokio::net::TcpListener;

use super::snapshot::Keys;
use super::take::snapshot_with;

/// The live page, as a router that answers `/`, `/snapshot.json` and what the page is made of.
///
/// It tells of load and names, and asks nobody who they are: nest it behind the program's own guard, or serve it on
/// loopback with [`serve_page`]. A browser that is left open costs one snapshot a second.
///
/// # Examples
/// ```
/// use axum::Router;
/// use sluicegate::observe::{self, Keys};
///
/// let app: Router = Router::new().nest_service("/queues", observe::page(Keys::Hashed));
/// # let _ = app;
/// ```
pub fn page(keys: Keys) -> Router {
    let asset = |kind: &'static str, text: &'static str| {
        get(move || async move { answer(kind, Body::from(text)) })
    };
    Router::new()
        .route(
            "/",
            get(|OriginalUri(uri): OriginalUri| async move {
                answer(HTML, Body::from(document(&uri)))
            }),
        )
        .route("/page.css", asset("text/css; charset=utf-8", STYLE))
        .route("/charts.js", asset(SCRIPT, CHARTS))
        .route("/tables.js", asset(SCRIPT, TABLES))
        .route("/page.js", asset(SCRIPT, MAIN))
        .route(
            "/snapshot.json",
            get(move || async move { answer(JSON, Body::from(snapshot_with(keys).to_json())) }),
        )
        .fallback(|| async { plain(StatusCode::NOT_FOUND) })
        .method_not_allowed_fallback(|| async { plain(StatusCode::METHOD_NOT_ALLOWED) })
}

/// Serves the page at `/` of a loopback address, until the returned guard is dropped; it needs a tokio runtime.
///
/// Port 0 takes a free one. Requests that name another host than this machine are refused, so that no web site can have
/// a browser on this machine read the page for it.
///
/// # Errors
/// [`InvalidInput`](std::io::ErrorKind::InvalidInput) if an address is not of loopback, or there is none; else what the
/// system says when it is bound.
///
/// # Cancel safety
/// Nothing is served if the future is dropped.
pub async fn serve_page(addr: impl ToSocketAddrs, keys: Keys) -> std::io::Result<ServedPage> {
    let invalid = |message: String| std::io::Error::new(std::io::ErrorKind::InvalidInput, message);
    let addrs: Vec<SocketAddr> = addr.to_socket_addrs()?.collect();
    let outside = |addr: &&SocketAddr| !addr.ip().to_canonical().is_loopback();
    if let Some(addr) = addrs.iter().find(outside) {
        let message = format!(
            "{addr} is no loopback address: nest the router `page` behind a guard of your own"
        );
        return Err(invalid(message));
    }
    if addrs.is_empty() {
        return Err(invalid("no address to listen on".into()));
    }
    let listener = TcpListener::bind(&addrs[..]).await?;
    let addr = listener.local_addr()?;
    let app = page(keys).layer(axum::middleware::from_fn(only_this_machine));
    let task = tokio::spawn(async move {
        // It ends when it is aborted; an accept that fails is tried again by axum.
        let _ = serve(listener, app).await;
    });
    Ok(ServedPage { addr, task })
}

/// The page being served; stops when dropped.
#[must_use = "dropped, it stops serving"]
pub struct ServedPage {
    addr: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl ServedPage {
    /// Address that it listens on.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for ServedPage {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for ServedPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedPage")
            .field("addr", &self.addr)
            .finish_non_exhaustive()
    }
}

/// Against names that somebody else points at loopback ("DNS rebinding").
async fn only_this_machine(
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> Response {
    let host = request.headers().get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_loopback = name
        .parse::<std::net::IpAddr>()
        .is_ok_and(|ip| ip.to_canonical().is_loopback());
    if is_loopback || name.eq_ignore_ascii_case("localhost") {
        next.run(request).await
    } else {
        plain(StatusCode::MISDIRECTED_REQUEST)
    }
}

/// The document, with its parts named from where the browser stands: beside it, or one step down.
fn document(uri: &Uri) -> String {
    let path = uri.path();
    let last = path.rsplit('/').next().unwrap_or_default();
    let beside = match last {
        "" => String::new(),
        last => format!("./{}/", escaped(last)),
    };
    DOCUMENT.replace("{beside}", &beside)
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            letter => safe.push(letter),
        }
    }
    safe
}

fn plain(status: StatusCode) -> Response {
    let mut response = answer("text/plain; charset=utf-8", Body::empty());
    *response.status_mut() = status;
    response
}

fn answer(kind: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];
const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const JSON: &str = "application/json";
const DOCUMENT: &str = include_str!("page/index.html");
const STYLE: &str = include_str!("page/page.css");
const CHARTS: &str = include_str!("page/charts.js");
const TABLES: &str = include_str!("page/tables.js");
const MAIN: &str = include_str!("page/page.js");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_from_where_the_browser_stands() {
        let named = |path: &'static str| document(&Uri::from_static(path));
        assert!(named("/").contains("src=\"page.js\""));
        assert!(named("/ops/queues/").contains("src=\"page.js\""));
        assert!(named("/ops/queues").contains("src=\"./queues/page.js\""));
        assert!(named("/a:b").contains("href=\"./a:b/page.css\""));
        assert!(!named("/x%22%3E%3Cb%3E").contains("<b>"));
        assert!(!named("/").contains("{beside}"));
    }
}
