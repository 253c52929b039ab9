//! What a layer adds to a request: a trivial service behind it, called in this process, without a socket.
//!
//! A thousand peers take turns. Both limit by the peer's address, with the same clock, and grant everything or, in the
//! last row, nothing. The request, its peer and the service are the same on both sides, and part of the figure.
//!
//! With fields, this crate's defaults are beside tower_governor's: `RateLimit` and `RateLimit-Policy` and a hold for the
//! handler on what was charged, beside `X-RateLimit-Limit` and `-Remaining`. In the row after it both write the latter,
//! this crate `X-RateLimit-Reset` too, and no handler gets a hold.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{Request, Response};
use sluicegate::http::{AdmissionLayer, Callers, HeaderDialect, ResetUnit};
use sluicegate::{FastClock, Key, KeyedLimiter, Rate};
use tower::{Layer, Service};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

use crate::gauge::{Row, Work};

pub(crate) fn rows() -> Vec<Row> {
    let row = |name, ours, peer| Row {
        name,
        unit: "ns/request",
        more_is_better: false,
        target: 1.0,
        ours,
        peers: vec![("tower_governor", peer)],
    };
    vec![
        row(
            "http-layer, granted, silent",
            ours(GRANTED, Some(HeaderDialect::RetryAfterOnly)),
            governor(GRANTED),
        ),
        row(
            "http-layer, granted, with fields",
            ours(GRANTED, None),
            governor_with_fields(GRANTED),
        ),
        row(
            "http-layer, granted, X-RateLimit fields, no hold",
            ours(
                GRANTED,
                Some(HeaderDialect::Legacy(ResetUnit::DeltaSeconds)),
            ),
            governor_with_fields(GRANTED),
        ),
        row(
            "http-layer, refused",
            ours(REFUSED, None),
            governor_with_fields(REFUSED),
        ),
    ]
}

const CALLS: f64 = 1e6;
const PEERS: u32 = 1000;
/// So much that all pass, and no peer is idle between its requests.
const GRANTED: u32 = 1_000_000;
/// One an hour, used up.
const REFUSED: u32 = 1;

/// Answers with nothing.
#[derive(Clone)]
struct Trivial;

impl Service<Request<Body>> for Trivial {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        ready(Ok(Response::new(Body::empty())))
    }
}

fn ours(burst: u32, dialect: Option<HeaderDialect>) -> Work {
    let rate = match burst {
        REFUSED => Rate::per_hour(1),
        _ => Rate::per_second(10),
    };
    let limiter = KeyedLimiter::<Key>::builder(rate.burst(u64::from(burst)))
        .clock(FastClock::new())
        .build()
        .expect("the settings are valid");
    let mut layer = AdmissionLayer::builder(limiter, Callers::by_peer().addresses());
    if let Some(dialect) = dialect {
        layer = layer.headers([dialect]).without_hold();
    }
    let layer = layer.build().expect("the settings are valid");
    time(layer.layer(Trivial), burst)
}

fn governor(burst: u32) -> Work {
    let config = GovernorConfigBuilder::default()
        .per_millisecond(100)
        .burst_size(burst)
        .finish()
        .expect("the settings are valid");
    time(GovernorLayer::new(config).layer(Trivial), burst)
}

fn governor_with_fields(burst: u32) -> Work {
    let mut config = GovernorConfigBuilder::default();
    config.per_millisecond(100).burst_size(burst);
    if burst == REFUSED {
        config.per_second(3600);
    }
    let config = config
        .use_headers()
        .finish()
        .expect("the settings are valid");
    time(GovernorLayer::new(config).layer(Trivial), burst)
}

/// Nanoseconds that a request takes from its making to its response.
fn time<S, R>(service: S, burst: u32) -> Work
where
    S: Service<Request<Body>, Response = Response<R>, Error = Infallible> + Clone + 'static,
{
    let expected = if burst == REFUSED { 429 } else { 200 };
    Box::new(move |length| {
        let mut service = service.clone();
        let calls = (CALLS * length) as u32;
        let mut cx = Context::from_waker(Waker::noop());
        let mut ask = |step: u32| {
            let mut request = Request::new(Body::empty());
            let peer = Ipv4Addr::from_bits(0x0a00_0000 | (step % PEERS * 617 % PEERS));
            request
                .extensions_mut()
                .insert(ConnectInfo(SocketAddr::new(peer.into(), 4711)));
            let _ = service.poll_ready(&mut cx);
            let Poll::Ready(Ok(response)) = pin!(service.call(request)).poll(&mut cx) else {
                panic!("nothing waits here")
            };
            black_box(response).status().as_u16()
        };
        // All peers are known, and have used up what little they have.
        (0..2 * PEERS).for_each(|step| {
            ask(step);
        });
        let start = Instant::now();
        let other = (0..calls).filter(|step| ask(*step) != expected).count();
        let took = start.elapsed().as_nanos() as f64 / f64::from(calls);
        assert_eq!(other, 0, "every answer is as it should be");
        took
    })
}
