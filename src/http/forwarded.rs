//! The walk along forwarding headers, from the server outwards.
//!
//! The list is every line of the header in order, split at commas, and the peer at its end. It is read from the right,
//! as its left may say anything: the first address that is not trusted is the client. What does not read as an address
//! ends the walk at the last good hop; nothing is ever stepped over.

use std::net::IpAddr;

use http::{HeaderMap, HeaderValue};

use super::address::{Network, node};
use super::proxies::{AddressHeader, MOST_HOPS, Trust, TrustedProxies};

/// What the walk found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Walk {
    pub(super) client: IpAddr,
    pub(super) note: Option<Note>,
}

/// What an operator should know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// The header is there, and the peer is nobody who is believed.
    Untrusted,
    /// A hop was no address, or fewer hops than there have to be.
    Malformed,
    /// Every hop is a trusted proxy.
    AllTrusted,
    /// More hops or bytes than are looked at.
    TooLong,
}

/// Finds the client behind a peer, whose address is canonical.
pub(super) fn client(
    peer: IpAddr,
    headers: &HeaderMap,
    header: &AddressHeader,
    proxies: &TrustedProxies,
) -> Walk {
    let found = |client, note| Walk { client, note };
    match &proxies.0 {
        Trust::Networks(networks) if !is_in(networks, peer) => {
            let untrusted = headers.contains_key(header.name());
            found(peer, untrusted.then_some(Note::Untrusted))
        }
        trust => match header {
            AddressHeader::Single(name) => {
                let mut values = headers.get_all(name).iter();
                let (first, second) = (values.next(), values.next());
                match (first.and_then(|value| node(value.as_bytes())), second) {
                    (Some(client), None) => found(client, None),
                    _ => found(peer, first.is_some().then_some(Note::Malformed)),
                }
            }
            AddressHeader::XForwardedFor | AddressHeader::Forwarded => {
                let named = *header == AddressHeader::Forwarded;
                let hops = Hops::new(headers.get_all(header.name()).iter(), named);
                match trust {
                    Trust::Networks(networks) => outermost(peer, hops, networks),
                    Trust::Hops(count) => counted(peer, hops, *count),
                }
            }
        },
    }
}

fn is_in(networks: &[Network], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(address))
}

/// The first from the right that is not trusted.
fn outermost<'a>(peer: IpAddr, hops: impl Iterator<Item = Hop<'a>>, trusted: &[Network]) -> Walk {
    let mut client = peer;
    for hop in hops {
        match hop {
            Hop::Node(text) => match node(text) {
                Some(address) => client = address,
                None => {
                    return Walk {
                        client,
                        note: Some(Note::Malformed),
                    };
                }
            },
            Hop::Nobody => {
                return Walk {
                    client,
                    note: Some(Note::Malformed),
                };
            }
            Hop::TooMany => {
                return Walk {
                    client,
                    note: Some(Note::TooLong),
                };
            }
        }
        if !is_in(trusted, client) {
            return Walk { client, note: None };
        }
    }
    // A peer that is a proxy and says nothing is one that asks for itself, a health check for example.
    let said = client != peer;
    Walk {
        client,
        note: said.then_some(Note::AllTrusted),
    }
}

/// The one that is so many hops left of the peer; the peer itself if there are fewer, as it came another way.
fn counted<'a>(peer: IpAddr, mut hops: impl Iterator<Item = Hop<'a>>, count: u8) -> Walk {
    let mut client = peer;
    for _ in 0..count {
        client = match hops.next() {
            Some(Hop::Node(text)) => match node(text) {
                Some(address) => address,
                None => {
                    return Walk {
                        client,
                        note: Some(Note::Malformed),
                    };
                }
            },
            Some(Hop::Nobody) => {
                return Walk {
                    client,
                    note: Some(Note::Malformed),
                };
            }
            Some(Hop::TooMany) => {
                return Walk {
                    client,
                    note: Some(Note::TooLong),
                };
            }
            None => {
                return Walk {
                    client: peer,
                    note: Some(Note::Malformed),
                };
            }
        };
    }
    Walk { client, note: None }
}

/// One element of the list.
enum Hop<'a> {
    Node(&'a [u8]),
    /// An element of `Forwarded` that does not say for whom, or says it twice.
    Nobody,
    TooMany,
}

/// Elements from the right, over all lines, up to the bounds.
struct Hops<'a, L> {
    lines: L,
    line: Option<&'a [u8]>,
    named: bool,
    hops: u8,
    bytes: usize,
}

impl<'a, L: DoubleEndedIterator<Item = &'a HeaderValue>> Hops<'a, L> {
    fn new(lines: L, named: bool) -> Self {
        Self {
            lines,
            line: None,
            named,
            hops: MOST_HOPS,
            bytes: MOST_BYTES,
        }
    }
}

impl<'a, L: DoubleEndedIterator<Item = &'a HeaderValue>> Iterator for Hops<'a, L> {
    type Item = Hop<'a>;

    fn next(&mut self) -> Option<Hop<'a>> {
        let line = match self.line.take() {
            Some(line) => line,
            None => self.lines.next_back()?.as_bytes(),
        };
        if self.hops == 0 {
            return Some(Hop::TooMany);
        }
        // Looked at up to the bound, so that a line of a megabyte costs no more than one of 4 KiB.
        let seen = &line[line.len().saturating_sub(self.bytes)..];
        let comma = if self.named {
            last_unquoted(seen, b',')
        } else {
            seen.iter().rposition(|byte| *byte == b',')
        };
        if comma.is_none() && seen.len() < line.len() {
            return Some(Hop::TooMany);
        }
        let start = comma.map_or(0, |comma| comma + 1);
        let element = &seen[start..];
        self.hops -= 1;
        self.bytes = self.bytes.saturating_sub(element.len() + 1);
        self.line = comma.map(|comma| &line[..line.len() - seen.len() + comma]);
        if !self.named {
            return Some(Hop::Node(element));
        }
        Some(named(element).map_or(Hop::Nobody, Hop::Node))
    }
}

/// Last position of a byte outside of quotes, seen from the right: what a trusted proxy wrote last is well formed, and a
/// quote that an attacker left open on the left does not reach it.
fn last_unquoted(text: &[u8], wanted: u8) -> Option<usize> {
    let mut quoted = false;
    text.iter().rposition(|byte| {
        quoted ^= *byte == b'"';
        !quoted && *byte == wanted
    })
}

/// Value of the one `for` in an element of `Forwarded`.
fn named(element: &[u8]) -> Option<&[u8]> {
    let mut rest = element;
    let mut found = None;
    loop {
        let semicolon = last_unquoted(rest, b';');
        let pair = &rest[semicolon.map_or(0, |semicolon| semicolon + 1)..];
        let equals = pair.iter().position(|byte| *byte == b'=');
        if let Some(equals) = equals {
            let (name, value) = (pair[..equals].trim_ascii(), &pair[equals + 1..]);
            if name.eq_ignore_ascii_case(b"for") && found.replace(value).is_some() {
                return None;
            }
        }
        match semicolon {
            Some(semicolon) => rest = &rest[..semicolon],
            None => return found,
        }
    }
}

/// Bytes of the header that are looked at, from the right.
const MOST_BYTES: usize = 4096;

#[cfg(test)]
mod tests;
