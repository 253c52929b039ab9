//! A small HTTP server for one page, on a thread with a runtime of its own.
//!
//! So it answers when the program's runtime is busy, has none, or has paused its time. It holds few connections, each
//! for one request and not for long: a scraper needs no more, and nobody else may keep it from being served.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::error::{Problem, ServeError};
use super::prometheus::Prometheus;
use crate::sync::Arc;

/// Metrics being served; stops when dropped.
#[derive(Debug)]
#[must_use = "dropped, it stops serving"]
pub struct Server {
    addr: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn bind(addr: impl ToSocketAddrs) -> Result<TcpListener, ServeError> {
        let bind = |addrs, error| ServeError::new(Problem::Bind(addrs, error));
        let addrs: Vec<SocketAddr> = addr
            .to_socket_addrs()
            .map_err(|error| bind(Vec::new(), error))?
            .collect();
        let outside = addrs
            .iter()
            .find(|addr| !addr.ip().to_canonical().is_loopback());
        if let Some(addr) = outside {
            return Err(ServeError::new(Problem::NotLoopback(*addr)));
        }
        if addrs.is_empty() {
            return Err(ServeError::new(Problem::NoAddress));
        }
        TcpListener::bind(&addrs[..]).map_err(|error| bind(addrs, error))
    }

    pub(super) fn start(listener: TcpListener, page: Prometheus) -> Result<Self, ServeError> {
        Self::spawn(listener, page).map_err(|error| ServeError::new(Problem::Start(error)))
    }

    fn spawn(listener: TcpListener, page: Prometheus) -> io::Result<Self> {
        let addr = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let run = move || {
            runtime.block_on(async {
                let listener = match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => listener,
                    // It was bound and made non-blocking; there is nobody left to tell.
                    Err(_) => return,
                };
                stopped.run_until_cancelled(accept(listener, page)).await;
            });
        };
        let thread = thread::Builder::new()
            .name("sluicegate-prometheus".into())
            .spawn(run)?;
        Ok(Self {
            addr,
            stop,
            thread: Some(thread),
        })
    }

    /// Address that it listens on.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops serving, and waits until the port is free again.
    pub fn stop(mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // Its panic, if there was one, has been reported by the panic hook.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn accept(listener: tokio::net::TcpListener, page: Prometheus) {
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Out of file descriptors, most likely: asking again at once would spin.
            Err(_) => {
                tokio::time::sleep(PATIENCE).await;
                continue;
            }
        };
        let page = page.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let answer = answer(&request, &page);
                async { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            // A client that breaks off, or is too slow, is its own business.
            let _ = tokio::time::timeout(LONGEST, connection).await;
            drop(permit);
        });
    }
}

fn answer(request: &Request<Incoming>, page: &Prometheus) -> Response<Full<Bytes>> {
    let (status, body) = match (request.uri().path(), request.method()) {
        ("/" | "/metrics", &Method::GET | &Method::HEAD) => (StatusCode::OK, page.render()),
        ("/" | "/metrics", _) => (StatusCode::METHOD_NOT_ALLOWED, String::new()),
        _ => (StatusCode::NOT_FOUND, String::new()),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EXPOSITION));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

/// The text format that every version of Prometheus reads.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";
/// A few scrapers, and somebody with a browser.
const MOST_CONNECTIONS: usize = 32;
/// Time for one request and its answer.
const LONGEST: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_millis(100);
