//! Walks along headers that anybody may have written.

use super::*;
use proptest::prelude::*;

const PEER: &str = "10.0.0.9";

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn map(name: &AddressHeader, lines: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        let value = HeaderValue::from_bytes(line.as_bytes()).expect("a value");
        headers.append(name.name().clone(), value);
    }
    headers
}

fn private() -> TrustedProxies {
    TrustedProxies::networks(["10.0.0.0/8", "fd00::/8"]).expect("networks")
}

#[track_caller]
fn check(lines: &[&str], client: &str, note: Option<Note>) {
    let header = AddressHeader::XForwardedFor;
    let walk = super::client(ip(PEER), &map(&header, lines), &header, &private());
    assert_eq!(
        walk,
        Walk {
            client: ip(client),
            note
        },
        "{:.200}",
        format!("{lines:?}")
    );
}

#[test]
fn the_first_untrusted_from_the_right_is_the_client() {
    check(&["203.0.113.7"], "203.0.113.7", None);
    check(&["203.0.113.7, 10.1.1.1"], "203.0.113.7", None);
    check(&["203.0.113.7, 10.1.1.1, fd00::1"], "203.0.113.7", None);
    check(&["203.0.113.7:4711,10.1.1.1:80"], "203.0.113.7", None);
    check(&["[2001:db8::1]:443 , 10.1.1.1"], "2001:db8::1", None);
    check(
        &["::ffff:203.0.113.7, ::ffff:10.1.1.1"],
        "203.0.113.7",
        None,
    );
}

#[test]
fn what_stands_left_of_the_client_changes_nothing() {
    for forged in [
        "1.2.3.4",
        "unknown",
        "\"",
        "10.0.0.1",
        ",,,",
        "é",
        "1.2.3.4, 5.6.7.8",
    ] {
        check(&[&format!("{forged}, 203.0.113.7")], "203.0.113.7", None);
        check(&[forged, "203.0.113.7"], "203.0.113.7", None);
        check(&[forged, "203.0.113.7, 10.4.4.4"], "203.0.113.7", None);
    }
    let many = "1.2.3.4, ".repeat(10_000) + "203.0.113.7";
    check(&[&many], "203.0.113.7", None);
}

#[test]
fn a_hop_that_is_no_address_ends_the_walk_at_the_last_good_one() {
    for bad in [
        "unknown",
        "_secret",
        "",
        "999.1.1.1",
        "fe80::1%1",
        "10.1.1.1 10.1.1.2",
    ] {
        check(
            &[&format!("203.0.113.7, {bad}")],
            PEER,
            Some(Note::Malformed),
        );
        check(
            &[&format!("203.0.113.7, {bad}, 10.2.2.2")],
            "10.2.2.2",
            Some(Note::Malformed),
        );
    }
}

#[test]
fn only_trusted_hops_give_the_leftmost_and_a_long_list_gives_up() {
    check(&["10.1.1.1, 10.2.2.2"], "10.1.1.1", Some(Note::AllTrusted));
    check(&[], PEER, None);
    check(
        &[&vec!["10.1.1.1"; 10_000].join(","), "10.7.7.7"],
        "10.1.1.1",
        Some(Note::TooLong),
    );
    check(
        &[&("203.0.113.7,".to_owned() + &vec!["10.1.1.1"; 40].join(","))],
        "10.1.1.1",
        Some(Note::TooLong),
    );
    let long = "203.0.113.7,".to_owned() + &" ".repeat(5000) + "10.1.1.1";
    check(&[&long], PEER, Some(Note::TooLong));
}

#[test]
fn a_peer_that_is_not_trusted_is_the_client_whatever_it_says() {
    let header = AddressHeader::XForwardedFor;
    let headers = map(&header, &["203.0.113.7"]);
    let walk = super::client(ip("198.51.100.1"), &headers, &header, &private());
    assert_eq!(
        walk,
        Walk {
            client: ip("198.51.100.1"),
            note: Some(Note::Untrusted)
        }
    );
}

#[test]
fn hops_are_counted_from_the_right() {
    let header = AddressHeader::XForwardedFor;
    let check = |hops, line: &str, client: &str, note| {
        let proxies = TrustedProxies::hops(hops).expect("a count");
        let walk = super::client(ip(PEER), &map(&header, &[line]), &header, &proxies);
        assert_eq!(
            walk,
            Walk {
                client: ip(client),
                note
            },
            "{hops} of {line}"
        );
    };
    check(1, "1.1.1.1, 2.2.2.2", "2.2.2.2", None);
    check(2, "1.1.1.1, 2.2.2.2", "1.1.1.1", None);
    check(3, "1.1.1.1, 2.2.2.2", PEER, Some(Note::Malformed));
    check(2, "1.1.1.1, unknown", PEER, Some(Note::Malformed));
}

#[test]
fn forwarded_is_read_by_its_names() {
    let header = AddressHeader::Forwarded;
    let check = |lines: &[&str], client: &str, note| {
        let walk = super::client(ip(PEER), &map(&header, lines), &header, &private());
        assert_eq!(
            walk,
            Walk {
                client: ip(client),
                note
            },
            "{:.200}",
            format!("{lines:?}")
        );
    };
    check(
        &["for=203.0.113.7;proto=https;by=10.0.0.9"],
        "203.0.113.7",
        None,
    );
    check(&["For=\"[2001:db8::17]:4711\""], "2001:db8::17", None);
    check(
        &["for=1.1.1.1, For=203.0.113.7, FOR=10.1.1.1;host=\"a,b;for=9.9.9.9\""],
        "203.0.113.7",
        None,
    );
    check(&["for=\"", "for=203.0.113.7"], "203.0.113.7", None);
    check(&["for=\", for=203.0.113.7"], "203.0.113.7", None);
    check(
        &["for=203.0.113.7, for=unknown"],
        PEER,
        Some(Note::Malformed),
    );
    check(
        &["for=203.0.113.7, for=_gazonk"],
        PEER,
        Some(Note::Malformed),
    );
    check(
        &["for=203.0.113.7, proto=http"],
        PEER,
        Some(Note::Malformed),
    );
    check(
        &["for=1.1.1.1;for=203.0.113.7"],
        PEER,
        Some(Note::Malformed),
    );
    check(&["203.0.113.7"], PEER, Some(Note::Malformed));
}

#[test]
fn a_single_header_counts_only_once_and_from_a_proxy() {
    let header = AddressHeader::Single(HeaderName::from_static("cf-connecting-ip"));
    let check = |peer: &str, lines: &[&str], client: &str, note| {
        let walk = super::client(ip(peer), &map(&header, lines), &header, &private());
        assert_eq!(
            walk,
            Walk {
                client: ip(client),
                note
            },
            "{:.200}",
            format!("{lines:?}")
        );
    };
    check(PEER, &["203.0.113.7"], "203.0.113.7", None);
    check(
        PEER,
        &["203.0.113.7", "203.0.113.8"],
        PEER,
        Some(Note::Malformed),
    );
    check(
        PEER,
        &["203.0.113.7, 203.0.113.8"],
        PEER,
        Some(Note::Malformed),
    );
    check(PEER, &[], PEER, None);
    check(
        "8.8.8.8",
        &["203.0.113.7"],
        "8.8.8.8",
        Some(Note::Untrusted),
    );
}

use http::HeaderName;

proptest! {
    #[test]
    fn no_prefix_of_any_bytes_changes_who_the_client_is(
        junk in proptest::collection::vec(proptest::collection::vec(0x20_u8..=0xff, 0..60), 0..8),
        inner in 0_usize..4,
        forwarded in any::<bool>(),
    ) {
        let (header, prefix) = match forwarded {
            true => (AddressHeader::Forwarded, "for="),
            false => (AddressHeader::XForwardedFor, ""),
        };
        let mut tail = format!("{prefix}203.0.113.7");
        for hop in 0..inner {
            tail += &format!(", {prefix}10.0.0.{hop}");
        }
        let mut headers = HeaderMap::new();
        for line in &junk {
            let line: Vec<u8> = line.iter().copied().filter(|byte| *byte != 0x7f).collect();
            headers.append(header.name(), HeaderValue::from_bytes(&line).expect("a value"));
        }
        let mut last = junk.first().cloned().unwrap_or_default();
        last.retain(|byte| *byte != 0x7f);
        last.extend_from_slice(b", ");
        last.extend_from_slice(tail.as_bytes());
        headers.append(header.name(), HeaderValue::from_bytes(&last).expect("a value"));
        let walk = super::client(ip(PEER), &headers, &header, &private());
        prop_assert_eq!(walk.client, ip("203.0.113.7"));
    }
}
