//! Which machines in front of the server are believed, and in which header they speak.

use std::fmt;

use http::HeaderName;

use super::address::Network;
use crate::error::BuildError;

/// Proxies whose word about a client's address is taken.
///
/// Without it no header is. Name the networks of the proxies where they are known; count the hops where every request
/// passes through exactly as many.
///
/// # Examples
/// ```
/// use sluicegate::http::TrustedProxies;
///
/// let balancers = TrustedProxies::networks(["10.0.0.0/8", "2001:db8:1::/48"])?;
/// assert!(TrustedProxies::networks(["0.0.0.0/0"]).is_err(), "that would trust every client");
/// # let _ = balancers;
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TrustedProxies(pub(super) Trust);

#[derive(Clone, Debug)]
pub(super) enum Trust {
    Networks(Box<[Network]>),
    Hops(u8),
}

impl TrustedProxies {
    /// Trusts addresses in these networks, each written as `address/prefix` or a single address.
    ///
    /// The client is the first address from the right that lies outside of them.
    ///
    /// # Errors
    /// If one of them is no network, or is everybody (prefix 0); or if there is none.
    pub fn networks<N: AsRef<str>>(
        networks: impl IntoIterator<Item = N>,
    ) -> Result<Self, BuildError> {
        let parse = |text: N| {
            let text = text.as_ref();
            Network::parse(text).map_err(|rule| BuildError::setting("trusted proxies", text, rule))
        };
        let networks: Box<[_]> = networks.into_iter().map(parse).collect::<Result<_, _>>()?;
        if networks.is_empty() {
            let rule = "at least one network is named; without proxies, set none";
            return Err(BuildError::setting("trusted proxies", "[]", rule));
        }
        Ok(Self(Trust::Networks(networks)))
    }

    /// Trusts that every request has come through exactly so many proxies, 1 to 32, each of which adds an address.
    ///
    /// The client is that many addresses left of the peer. Whoever can reach the server past the proxies can claim any
    /// address, so prefer [`networks`](Self::networks).
    ///
    /// # Errors
    /// If it is not from 1 to 32.
    pub fn hops(count: u8) -> Result<Self, BuildError> {
        match count {
            1..=MOST_HOPS => Ok(Self(Trust::Hops(count))),
            _ => {
                let rule = "it is from 1 to 32 hops; without proxies, set none";
                Err(BuildError::setting("trusted proxies", count, rule))
            }
        }
    }
}

/// Header in which trusted proxies name the client. One is believed, and no other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressHeader {
    /// `X-Forwarded-For`: a list to which every proxy appends. The default.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239): the same with names.
    Forwarded,
    /// A header of one address, such as `CF-Connecting-IP` or `X-Real-IP`, which the proxy next to the server sets. Used
    /// only if it comes exactly once.
    Single(HeaderName),
}

impl AddressHeader {
    pub(super) fn name(&self) -> &HeaderName {
        match self {
            Self::XForwardedFor => &X_FORWARDED_FOR,
            Self::Forwarded => &http::header::FORWARDED,
            Self::Single(name) => name,
        }
    }
}

impl fmt::Display for AddressHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}

pub(super) static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Hops that are looked at, from the right.
pub(super) const MOST_HOPS: u8 = 32;
