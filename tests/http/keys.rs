//! Who the client is, whatever it says.

use std::net::{IpAddr, Ipv6Addr};

use http::{HeaderName, HeaderValue, Method};
use proptest::prelude::*;
use sluicegate::http::{
    AddressHeader, AdmissionLayer, Caller, Callers, Head, Peer, RouteTemplate, TrustedProxies,
    Unidentified,
};
use sluicegate::{Hierarchy, Key, KeyedLimiter, ManualClock, Rate};

use crate::kit::{Body, from, send};

fn key(callers: &Callers, request: &http::Request<Body>) -> Key {
    callers.address(&Head::of(request)).expect("it has a peer")
}

fn plain(address: &str) -> Key {
    Key::from(address.parse::<IpAddr>().expect("an address"))
}

fn proxied() -> Callers {
    let proxies = TrustedProxies::networks(["10.0.0.0/8"]).expect("networks");
    Callers::builder().behind(proxies).build().expect("callers")
}

fn with(mut request: http::Request<Body>, name: &'static str, value: &[u8]) -> http::Request<Body> {
    let value = HeaderValue::from_bytes(value).expect("a value");
    request
        .headers_mut()
        .append(HeaderName::from_static(name), value);
    request
}

/// Case 8: the default believes no header, and case 10: it counts that one was there.
#[test]
fn by_default_no_header_is_believed() {
    let callers = Callers::by_peer();
    for (name, value) in [
        ("x-forwarded-for", "1.2.3.4"),
        ("forwarded", "for=1.2.3.4"),
        ("x-real-ip", "1.2.3.4"),
    ] {
        let request = with(from("192.0.2.1"), name, value.as_bytes());
        assert_eq!(key(&callers, &request), plain("192.0.2.1"));
    }
    assert_eq!(
        callers.forwarded_untrusted(),
        2,
        "of the two that proxies use"
    );
}

#[test]
fn a_proxy_that_the_server_was_not_told_of_is_noticed() {
    let callers = proxied();
    let request = with(from("172.16.0.1"), "x-forwarded-for", b"203.0.113.7");
    assert_eq!(key(&callers, &request), plain("172.16.0.1"));
    assert_eq!(callers.forwarded_untrusted(), 1);
    let request = with(from("10.0.0.1"), "x-forwarded-for", b"unknown");
    assert_eq!(key(&callers, &request), plain("10.0.0.1"));
    assert_eq!(callers.clone().forwarded_malformed(), 1);
}

/// Case 3: all of IPv4 in one bucket. Case 5: a dual-stack socket.
#[test]
fn mapped_addresses_are_the_addresses_they_map() {
    let callers = proxied();
    assert_eq!(key(&callers, &from("::ffff:192.0.2.1")), plain("192.0.2.1"));
    assert_ne!(
        key(&callers, &from("::ffff:192.0.2.1")),
        key(&callers, &from("::ffff:192.0.2.2"))
    );
    let request = with(
        from("::ffff:10.0.0.1"),
        "x-forwarded-for",
        b"::ffff:203.0.113.7",
    );
    assert_eq!(key(&callers, &request), plain("203.0.113.7"));
    assert_eq!(key(&callers, &from("::1")), plain("::"));
}

/// Case 6: a thousand addresses of one block are one caller.
#[tokio::test]
async fn a_thousand_addresses_of_one_block_share_a_bucket() {
    let limiter = KeyedLimiter::<Key>::builder(Rate::per_minute(1).burst(7))
        .clock(ManualClock::new())
        .build()
        .expect("a limiter");
    let layer = AdmissionLayer::builder(limiter.clone(), Callers::by_peer().addresses())
        .build()
        .expect("a layer");
    let mut passed = 0;
    let block = 0x2001_0db8_0001_0002_u128 << 64;
    for host in 0..1000_u128 {
        let address = Ipv6Addr::from_bits(
            block | host.wrapping_mul(0x9E37_79B9_7F4A_7C15) & u128::from(u64::MAX),
        );
        let response = send(&layer, from(&address.to_string())).await;
        passed += u64::from(response.status() == 200);
    }
    assert_eq!((passed, limiter.len()), (7, 1));
    assert_eq!(
        send(&layer, from("2001:db8:1:3::1")).await.status(),
        200,
        "the next block"
    );
}

#[test]
fn prefixes_are_settable_within_reason() {
    let wide = Callers::builder()
        .ipv6_prefix(48)
        .ipv4_prefix(24)
        .build()
        .expect("callers");
    assert_eq!(
        key(&wide, &from("2001:db8:1:2::1")),
        key(&wide, &from("2001:db8:1:3::1"))
    );
    assert_eq!(
        key(&wide, &from("192.0.2.1")),
        key(&wide, &from("192.0.2.200"))
    );
    for (v4, v6) in [(7, 64), (33, 64), (32, 31), (32, 129)] {
        assert!(
            Callers::builder()
                .ipv4_prefix(v4)
                .ipv6_prefix(v6)
                .build()
                .is_err()
        );
    }
    let caller = Callers::by_peer()
        .identify(&Head::of(&from("2001:db8:1:2::1")))
        .expect("a peer");
    assert_eq!(caller.address(), plain("2001:db8:1:2::"));
    assert_eq!(caller.block(48), Some(plain("2001:db8:1::")));
    assert_eq!(caller.ip().to_string(), "2001:db8:1:2::1");
}

/// Case 7: the forged left changes nothing, through the whole layer.
#[tokio::test]
async fn a_forged_left_gives_no_new_bucket() {
    let limiter = KeyedLimiter::<Key>::builder(Rate::per_minute(1).burst(3))
        .clock(ManualClock::new())
        .build()
        .expect("a limiter");
    let layer = AdmissionLayer::builder(limiter.clone(), proxied().addresses())
        .build()
        .expect("a layer");
    let mut passed = 0;
    for forged in 0..200_u32 {
        let mut request = from("10.0.0.1");
        if forged % 2 == 0 {
            request = with(
                request,
                "x-forwarded-for",
                format!("1.2.3.{}", forged % 256).as_bytes(),
            );
            request = with(request, "x-forwarded-for", b"203.0.113.7, 10.3.3.3");
        } else {
            request = with(
                request,
                "x-forwarded-for",
                format!("5.6.{}.7, 203.0.113.7", forged % 256).as_bytes(),
            );
        }
        passed += u32::from(send(&layer, request).await.status() == 200);
    }
    assert_eq!((passed, limiter.len()), (3, 1));
}

#[tokio::test]
async fn without_an_address_all_share_a_strict_limit_and_are_counted() {
    let limiter = KeyedLimiter::<Key>::builder(Rate::per_second(1000).burst(1000))
        .build()
        .expect("a limiter");
    let layer = AdmissionLayer::builder(limiter.clone(), Callers::by_peer().addresses())
        .unidentified(Rate::per_hour(1).burst(2))
        .build()
        .expect("a layer");
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(
            send(&layer, http::Request::new(Body::default()))
                .await
                .status()
                .as_u16(),
        );
    }
    assert_eq!(statuses, [200, 200, 429, 429], "and never 500");
    let counts = layer.counts();
    assert_eq!(
        (
            counts.unidentified,
            counts.missing,
            counts.allowed,
            counts.rejected
        ),
        (4, 4, 2, 2)
    );
    assert!(limiter.is_empty());
}

#[derive(Clone)]
struct Session(Vec<u8>);

fn named() -> Callers {
    Callers::builder()
        .user(|head| Some(head.extension::<Session>()?.0.clone()))
        .api_key(|head| Some(head.headers().get("x-api-key")?.as_bytes().to_vec()))
        .build()
        .expect("callers")
}

fn caller(callers: &Callers, request: &http::Request<Body>) -> Result<Caller, Unidentified> {
    callers.identify(&Head::of(request))
}

#[test]
fn users_fall_back_to_their_address_and_names_are_hashed() {
    let callers = named();
    let anonymous = caller(&callers, &from("192.0.2.1")).expect("a peer");
    assert_eq!(anonymous.user(), None);
    assert_eq!(anonymous.user_or_address(), plain("192.0.2.1"));
    let mut request = with(from("192.0.2.1"), "x-api-key", b"sk_live_0123456789");
    request
        .extensions_mut()
        .insert(Session(b"192.0.2.1".to_vec()));
    let ada = caller(&callers, &request).expect("a peer");
    assert_ne!(
        ada.user_or_address(),
        plain("192.0.2.1"),
        "a user called like an address"
    );
    assert_ne!(ada.user(), ada.api_key());
    assert!(!format!("{ada:?}").contains("sk_live"));
}

#[test]
fn names_of_64_kb_and_of_any_bytes_do_no_harm() {
    let callers = named();
    let mut request = from("192.0.2.1");
    request.extensions_mut().insert(Session(vec![b'x'; 65_536]));
    assert_eq!(
        caller(&callers, &request).err(),
        Some(Unidentified::TooLong)
    );
    let request = with(from("192.0.2.1"), "x-api-key", &[0xff, 0xfe, b'\t', 0x80]);
    assert!(
        caller(&callers, &request)
            .expect("it is one")
            .api_key()
            .is_some()
    );
    let long = with(from("192.0.2.1"), "x-api-key", &[b'k'; 65_536]);
    assert_eq!(caller(&callers, &long).err(), Some(Unidentified::TooLong));
}

#[test]
fn processes_with_one_secret_make_the_same_keys() {
    let fleet = || {
        let user = |head: &Head<'_>| Some(head.extension::<Session>()?.0.clone());
        Callers::builder()
            .user(user)
            .secret([3; 32])
            .build()
            .expect("callers")
    };
    let mut request = from("192.0.2.1");
    request.extensions_mut().insert(Session(b"ada".to_vec()));
    let key = |callers: Callers| caller(&callers, &request).expect("a peer").user();
    assert_eq!(key(fleet()), key(fleet()));
    assert_ne!(key(fleet()), key(named()));
}

/// Cases 26, 28, 29: spellings, methods and paths without end are a closed set of endpoints.
#[tokio::test]
async fn random_methods_and_paths_are_one_endpoint() {
    let limits = Hierarchy::<Caller>::builder()
        .level(
            "endpoint",
            Rate::per_second(1).burst(1_000_000),
            Caller::endpoint,
        )
        .build()
        .expect("a level");
    let callers = Callers::builder()
        .known_paths(["/login", "/orders.Orders/Put"])
        .build()
        .expect("callers");
    let layer = AdmissionLayer::builder(limits.clone(), callers.identities())
        .build()
        .expect("a layer");
    for step in 0..2_000 {
        let mut request = from("192.0.2.1");
        *request.method_mut() =
            Method::from_bytes(format!("M{step}").as_bytes()).expect("a method");
        *request.uri_mut() = format!("/{step}/x").parse().expect("a target");
        assert_eq!(send(&layer, request).await.status(), 200);
    }
    assert_eq!(limits.keys()[0].1, 1);
    for path in [
        "/login",
        "/orders.Orders/Put",
        "/login/",
        "//login",
        "/LOGIN",
        "/%6cogin",
        "/login?x=1",
    ] {
        let mut request = from("192.0.2.1");
        *request.uri_mut() = path.parse().expect("a target");
        assert_eq!(send(&layer, request).await.status(), 200);
    }
    // other unmatched, GET unmatched, GET of the two that are known.
    assert_eq!(limits.keys()[0].1, 4);
}

#[test]
fn a_router_may_name_the_template_itself() {
    let mut request = from("192.0.2.1");
    request
        .extensions_mut()
        .insert(RouteTemplate("/users/{id}".into()));
    *request.uri_mut() = "/users/7".parse().expect("a target");
    let caller = caller(&Callers::by_peer(), &request).expect("a peer");
    assert_eq!(caller.route().to_string(), "GET /users/{id}");
}

#[test]
fn one_source_is_configured_and_no_other_is_asked() {
    let single = AddressHeader::Single(HeaderName::from_static("cf-connecting-ip"));
    let callers = Callers::builder()
        .behind(TrustedProxies::networks(["10.0.0.0/8"]).expect("networks"))
        .header(single)
        .peer(|extensions| extensions.get::<Peer>().map(|Peer(ip)| *ip))
        .build()
        .expect("callers");
    let mut request = with(from("192.0.2.9"), "x-forwarded-for", b"1.2.3.4");
    request.extensions_mut().insert(Peer([10, 0, 0, 1].into()));
    assert_eq!(key(&callers, &request), plain("10.0.0.1"));
    let request = with(request, "cf-connecting-ip", b"203.0.113.7");
    assert_eq!(key(&callers, &request), plain("203.0.113.7"));
    for refused in ["0.0.0.0/0", "::/0", "10.0.0.0/40", "proxy"] {
        let error = TrustedProxies::networks([refused])
            .expect_err("it is none")
            .to_string();
        assert!(error.contains(refused), "{error}");
    }
    assert!(TrustedProxies::hops(0).is_err() && TrustedProxies::hops(33).is_err());
}

proptest! {
    #[test]
    fn no_header_bytes_panic_or_make_more_than_one_client_of_one_tail(
        lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..6),
        which in 0..3,
    ) {
        let header = match which {
            0 => AddressHeader::XForwardedFor,
            1 => AddressHeader::Forwarded,
            _ => AddressHeader::Single(HeaderName::from_static("x-real-ip")),
        };
        let name = [HeaderName::from_static("x-forwarded-for"), http::header::FORWARDED, HeaderName::from_static("x-real-ip")];
        let proxies = TrustedProxies::networks(["10.0.0.0/8"]).expect("networks");
        let callers = Callers::builder().behind(proxies).header(header).build().expect("callers");
        let mut request = from("10.0.0.1");
        for line in &lines {
            if let Ok(value) = HeaderValue::from_bytes(line) {
                request.headers_mut().append(&name[which as usize], value);
            }
        }
        prop_assert!(callers.address(&Head::of(&request)).is_ok());
    }
}
