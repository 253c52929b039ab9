//! Who asks: what limits count.

use std::error::Error;
use std::fmt;
use std::net::IpAddr;

use super::address::masked;
use super::route::Route;
use crate::key::{IntoKey, Key};

/// Whom a request is counted for: context of a [`Hierarchy`](crate::Hierarchy) at the edge of a service.
///
/// Made by [`Callers`](super::Callers). Names that came with the request are kept as keyed hashes.
///
/// # Examples
/// The levels of a public interface. Who has not signed in is counted by address.
/// ```
/// use sluicegate::http::Caller;
/// use sluicegate::{FixedWindow, Hierarchy, Rate, SlidingLog};
/// use std::time::Duration;
///
/// let minute = Duration::from_secs(60);
/// let limits = Hierarchy::<Caller>::builder()
///     .level("global", Rate::per_second(1000).burst(10_000), |_| ())
///     .level("ip", SlidingLog::new(100, minute)?, Caller::address)
///     .level("user", Rate::per_second(50).burst(500), Caller::user)
///     .level("endpoint", FixedWindow::new(50, minute)?, Caller::user_at_endpoint)
///     .build()?;
/// # let _ = limits;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Caller {
    pub(super) ip: IpAddr,
    pub(super) prefixes: Prefixes,
    pub(super) route: Route,
    pub(super) user: Option<Key>,
    pub(super) api_key: Option<Key>,
    pub(super) tenant: Option<Key>,
}

/// Bits of an address that make one caller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefixes {
    pub(super) ipv4: u8,
    pub(super) ipv6: u8,
}

impl Caller {
    /// The address, or for IPv6 the block around it, which is one customer's.
    #[must_use]
    pub fn address(&self) -> Key {
        let prefix = match self.ip {
            IpAddr::V4(_) => self.prefixes.ipv4,
            IpAddr::V6(_) => self.prefixes.ipv6,
        };
        Key::from(masked(self.ip, prefix))
    }

    /// The wider block of `prefix` bits around an IPv6 address, for a second limit; `None` for IPv4.
    ///
    /// Who has a /48 has 65,536 blocks of 64 bits.
    #[must_use]
    pub fn block(&self, prefix: u8) -> Option<Key> {
        let ip = self.ip;
        ip.is_ipv6().then(|| Key::from(masked(ip, prefix)))
    }

    /// The whole address, in canonical form: a mapped IPv4 address is the IPv4 address.
    #[must_use]
    pub const fn ip(&self) -> IpAddr {
        self.ip
    }

    /// The user, if one has signed in.
    #[must_use]
    pub fn user(&self) -> Option<Key> {
        self.user.clone()
    }

    /// The user, or the address of who has not signed in.
    #[must_use]
    pub fn user_or_address(&self) -> Key {
        self.user().unwrap_or_else(|| self.address())
    }

    /// The API key, if there is one.
    #[must_use]
    pub fn api_key(&self) -> Option<Key> {
        self.api_key.clone()
    }

    /// The tenant, if there is one.
    #[must_use]
    pub fn tenant(&self) -> Option<Key> {
        self.tenant.clone()
    }

    /// Method and template of the route.
    #[must_use]
    pub const fn route(&self) -> &Route {
        &self.route
    }

    /// The endpoint, whoever calls it.
    #[must_use]
    pub fn endpoint(&self) -> Key {
        Key::from(&self.route)
    }

    /// The user, or the address of who has not signed in, at this endpoint.
    #[must_use]
    pub fn user_at_endpoint(&self) -> Key {
        let parts = (self.user_or_address(), self.endpoint()).into_key();
        parts.expect("both parts are there")
    }

    /// The address at this endpoint, for what comes before signing in.
    #[must_use]
    pub fn address_at_endpoint(&self) -> Key {
        let parts = (self.address(), self.endpoint()).into_key();
        parts.expect("both parts are there")
    }
}

/// Why nobody can say whom a request is to be counted for. All such requests share one strict limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unidentified {
    /// What identifies the caller is not there: the address of the peer, above all.
    Missing,
    /// It is there and cannot be read.
    Malformed,
    /// It is longer than 256 bytes.
    TooLong,
}

impl Unidentified {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Missing, Self::Malformed, Self::TooLong];

    /// Name in lower case with underscores, as metrics label it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::TooLong => "too_long",
        }
    }
}

impl fmt::Display for Unidentified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "the request has nothing that identifies its caller",
            Self::Malformed => "what identifies the caller cannot be read",
            Self::TooLong => "what identifies the caller is longer than 256 bytes",
        })
    }
}

impl Error for Unidentified {}

/// Longest name that is hashed.
pub(super) const LONGEST_NAME: usize = 256;
