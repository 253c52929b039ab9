//! Addresses by their bits: canonical form, networks, prefixes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A block of addresses: those that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    first: IpAddr,
    prefix: u8,
}

impl Network {
    /// Reads `10.0.0.0/8`, `fd00::/8`, or a single address.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address
            .trim()
            .parse()
            .map_err(|_| "a network reads as address/prefix")?;
        let canonical = address.to_canonical();
        let longest = bits(address);
        let prefix = match prefix {
            Some(prefix) => prefix
                .trim()
                .parse()
                .ok()
                .filter(|prefix| *prefix <= longest)
                .ok_or("a prefix is at most 32, for IPv6 128")?,
            None => longest,
        };
        // A mapped IPv4 network is the IPv4 network.
        let prefix = if canonical.is_ipv4() && address.is_ipv6() {
            prefix.checked_sub(96).ok_or("it holds all of IPv4")?
        } else {
            prefix
        };
        if prefix == 0 {
            return Err("a prefix of 0 trusts everybody");
        }
        Ok(Self {
            first: masked(canonical, prefix),
            prefix,
        })
    }

    /// Whether a canonical address lies in it.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.first.is_ipv4() && masked(address, self.prefix) == self.first
    }
}

/// The first address of the block of `prefix` bits around a canonical address.
pub(super) fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX
                .checked_shl(32 - u32::from(prefix.min(32)))
                .unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX
                .checked_shl(128 - u32::from(prefix.min(128)))
                .unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

const fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Reads a node of a forwarding header: an address, with or without port, brackets and quotes; in canonical form.
///
/// `unknown`, obfuscated names, zones and anything else are `None`.
pub(super) fn node(text: &[u8]) -> Option<IpAddr> {
    if text.len() > LONGEST_NODE {
        return None;
    }
    let text = str::from_utf8(text).ok()?.trim_matches([' ', '\t']);
    let text = match text.strip_prefix('"') {
        Some(rest) => rest.strip_suffix('"')?,
        None => text,
    };
    let address = if let Ok(address) = text.parse::<IpAddr>() {
        address
    } else if let Some(inner) = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
    {
        inner.parse::<Ipv6Addr>().ok()?.into()
    } else {
        let socket = text.parse::<SocketAddr>().ok()?;
        // `parse` accepts a zone, which means something on one machine only.
        if text.contains('%') {
            return None;
        }
        socket.ip()
    };
    Some(address.to_canonical())
}

/// Longer than `"[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]:65535"` with spaces around it.
const LONGEST_NODE: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn reads(text: &str, expected: Option<&str>) {
        let expected = expected.map(|text| text.parse().expect("an address"));
        assert_eq!(node(text.as_bytes()), expected, "{text:?}");
    }

    #[test]
    fn nodes_are_read_in_every_spelling() {
        reads("192.0.2.1", Some("192.0.2.1"));
        reads(" 192.0.2.1\t", Some("192.0.2.1"));
        reads("192.0.2.1:8080", Some("192.0.2.1"));
        reads("\"192.0.2.1:8080\"", Some("192.0.2.1"));
        reads("2001:db8::1", Some("2001:db8::1"));
        reads("[2001:db8::1]", Some("2001:db8::1"));
        reads("\"[2001:db8::1]:443\"", Some("2001:db8::1"));
        reads("::ffff:192.0.2.1", Some("192.0.2.1"));
        reads("[::ffff:c000:201]:1", Some("192.0.2.1"));
        // NAT64 and loopback stay IPv6.
        reads("64:ff9b::192.0.2.1", Some("64:ff9b::c000:201"));
        reads("::1", Some("::1"));
    }

    #[test]
    fn what_is_no_address_is_none() {
        let no = [
            "",
            "unknown",
            "_hidden",
            "192.0.2",
            "192.0.2.1:",
            "192.0.2.1:99999",
            "[192.0.2.1]",
            "[2001:db8::1",
            "2001:db8::1]",
            "\"192.0.2.1",
            "192.0.2.1\"",
            "fe80::1%eth0",
            "[fe80::1%3]:80",
            "192.0.2.1 192.0.2.2",
            "0x7f.1",
            "192.0.2.01",
        ];
        for text in no {
            reads(text, None);
        }
        assert_eq!(node(&[0xff, b'1']), None);
        assert_eq!(node(&[b' '; 100]), None);
    }

    #[test]
    fn networks_contain_by_bits() {
        let network = Network::parse("10.1.2.3/8").expect("it is one");
        assert!(network.contains([10, 255, 0, 1].into()));
        assert!(!network.contains([11, 0, 0, 1].into()));
        assert!(!network.contains("::a00:1".parse().expect("an address")));
        let mapped = Network::parse("::ffff:10.0.0.0/104").expect("it is one");
        assert!(mapped.contains([10, 9, 9, 9].into()));
        let v6 = Network::parse("2001:db8::/33").expect("it is one");
        assert!(v6.contains("2001:db8:7fff::1".parse().expect("an address")));
        assert!(!v6.contains("2001:db8:8000::1".parse().expect("an address")));
        for bad in [
            "0.0.0.0/0",
            "::/0",
            "10.0.0.0/33",
            "::1/129",
            "10/8",
            "::ffff:0:0/96",
            "x",
            "1.2.3.4/-1",
        ] {
            assert!(Network::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_masked_address_is_the_first_of_its_block(bits in any::<u128>(), prefix in 0_u8..=128) {
            let address = IpAddr::from(Ipv6Addr::from_bits(bits));
            let IpAddr::V6(first) = masked(address, prefix) else { panic!("still IPv6") };
            let low = 1_u128.checked_shl(128 - u32::from(prefix)).map_or(u128::MAX, |size| size - 1);
            prop_assert_eq!(first.to_bits() & low, 0);
            prop_assert_eq!(first.to_bits() | (bits & low), bits);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = node(&bytes);
        }
    }
}
