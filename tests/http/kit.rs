//! What the tests share: requests, a trivial service, fields read back.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use sluicegate::http::EdgeBody;
use tower::{Layer, Service, ServiceExt};

pub(crate) type Body = Full<Bytes>;

/// A request from a peer.
pub(crate) fn from(peer: &str) -> Request<Body> {
    let peer: IpAddr = peer.parse().expect("an address");
    let mut request = Request::new(Body::default());
    request.extensions_mut().insert(SocketAddr::new(peer, 4711));
    request
}

/// Answers with nothing.
pub(crate) async fn ok(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    Ok(Response::new(Body::default()))
}

/// Sends one request through a layer over [`ok`].
pub(crate) async fn send<L>(layer: &L, request: Request<Body>) -> Response<EdgeBody<Body>>
where
    L: Layer<tower::util::ServiceFn<fn(Request<Body>) -> Ok_>>,
    L::Service: Service<Request<Body>, Response = Response<EdgeBody<Body>>, Error = Infallible>,
{
    let service = layer.layer(tower::service_fn(boxed as fn(Request<Body>) -> Ok_));
    let Ok(response) = service.oneshot(request).await;
    response
}

pub(crate) type Ok_ =
    std::pin::Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

fn boxed(request: Request<Body>) -> Ok_ {
    Box::pin(ok(request))
}

/// A field that is there once.
#[track_caller]
pub(crate) fn field<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(|value| value.to_str().expect("a text"));
    assert_eq!(values.next(), None, "{name} comes twice");
    value
}

/// All of a body.
pub(crate) async fn text(response: Response<EdgeBody<Body>>) -> String {
    let body = response.into_body().collect().await;
    let bytes = body.expect("it cannot fail").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("a text")
}

/// A list of the IETF's draft as a structured-fields parser reads it: names, and integers or strings by their keys.
pub(crate) fn list(headers: &HeaderMap, name: &str) -> Vec<(String, BTreeMap<String, String>)> {
    let lines: Vec<_> = headers
        .get_all(name)
        .iter()
        .map(|line| line.to_str().expect("a text"))
        .collect();
    let list: sfv::List = sfv::Parser::new(&lines.join(", "))
        .parse()
        .expect("a list of RFC 9651");
    list.into_iter()
        .map(|entry| {
            let sfv::ListEntry::Item(item) = entry else {
                panic!("an inner list")
            };
            let name = item.bare_item.as_string().expect("a string").to_string();
            let show = |value: &sfv::BareItem| match (value.as_integer(), value.as_string()) {
                (Some(integer), _) => integer.to_string(),
                (_, Some(string)) => string.to_string(),
                _ => panic!("neither integer nor string"),
            };
            let parameters = item
                .params
                .iter()
                .map(|(key, value)| (key.to_string(), show(value)));
            (name, parameters.collect())
        })
        .collect()
}

/// A limiter that has nothing left, in time that stands still.
pub(crate) fn drained(rate: sluicegate::TokenBucket) -> sluicegate::RateLimiter {
    let limiter = sluicegate::RateLimiter::with_clock(rate, sluicegate::ManualClock::new());
    assert!(limiter.check(limiter.limit().quota()).is_granted());
    limiter
}
