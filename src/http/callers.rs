//! How callers are told apart.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use http::Extensions;
use http::header::FORWARDED;

use super::caller::{Caller, LONGEST_NAME, Prefixes, Unidentified};
use super::counts::Tallies;
use super::forwarded::{self, Note};
use super::head::Head;
use super::proxies::{AddressHeader, TrustedProxies, X_FORWARDED_FOR};
use super::route::Route;
use super::secret::{Kind, Secret};
use crate::error::BuildError;
use crate::key::Key;
use crate::sync::Arc;

/// Tells who asks: by default the address of the transport's peer, and no header is believed.
///
/// A clone shares its counts with the original.
///
/// # Examples
/// ```
/// use sluicegate::http::{AddressHeader, Callers, TrustedProxies};
///
/// /// What the layer that authenticates has put into the request.
/// #[derive(Clone)]
/// struct Session { user: String }
///
/// let callers = Callers::builder()
///     .behind(TrustedProxies::networks(["10.0.0.0/8"])?)
///     .header(AddressHeader::Forwarded)
///     .user(|head| Some(head.extension::<Session>()?.user.clone()))
///     .build()?;
/// # let _ = callers;
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
#[derive(Clone)]
pub struct Callers {
    rules: Arc<Rules>,
}

struct Rules {
    proxies: Option<TrustedProxies>,
    header: AddressHeader,
    prefixes: Prefixes,
    peer: Option<PeerOf>,
    user: Option<NameOf>,
    api_key: Option<NameOf>,
    tenant: Option<NameOf>,
    known: Vec<Arc<str>>,
    secret: Secret,
    tallies: Tallies,
}

type NameOf = Box<dyn Fn(&Head<'_>) -> Option<Vec<u8>> + Send + Sync>;
type PeerOf = Box<dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync>;

/// Extension of a request that names the peer, for servers that have none of their own: its address as the transport
/// knows it, never one out of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

impl Callers {
    /// Tells callers apart by the address of the transport's peer.
    #[must_use]
    pub fn by_peer() -> Self {
        Self::builder().build().expect("the defaults are valid")
    }

    /// Starts a builder with the defaults.
    pub fn builder() -> CallersBuilder {
        CallersBuilder {
            rules: Rules {
                proxies: None,
                header: AddressHeader::default(),
                prefixes: Prefixes { ipv4: 32, ipv6: 64 },
                peer: None,
                user: None,
                api_key: None,
                tenant: None,
                known: Vec::new(),
                secret: Secret::of_process(),
                tallies: Tallies::default(),
            },
        }
    }

    /// Tells who makes a request.
    ///
    /// # Errors
    /// [`Unidentified`] if the peer is not known, or a name is too long.
    pub fn identify(&self, head: &Head<'_>) -> Result<Caller, Unidentified> {
        let rules = &*self.rules;
        let ip = rules.address(head)?;
        Ok(Caller {
            ip,
            prefixes: rules.prefixes,
            route: Route::of(head, &rules.known),
            user: rules.name(&rules.user, Kind::User, head)?,
            api_key: rules.name(&rules.api_key, Kind::ApiKey, head)?,
            tenant: rules.name(&rules.tenant, Kind::Tenant, head)?,
        })
    }

    /// Tells only the address, as a key, for a [`KeyedLimiter<Key>`](crate::KeyedLimiter).
    ///
    /// # Errors
    /// [`Unidentified`] if the peer is not known.
    pub fn address(&self, head: &Head<'_>) -> Result<Key, Unidentified> {
        let ip = self.rules.address(head)?;
        let Prefixes { ipv4, ipv6 } = self.rules.prefixes;
        let prefix = if ip.is_ipv4() { ipv4 } else { ipv6 };
        Ok(Key::from(super::address::masked(ip, prefix)))
    }

    /// [`identify`](Self::identify) as a function that owns what it needs, for
    /// [`AdmissionLayer::builder`](super::AdmissionLayer::builder).
    pub fn identities(
        &self,
    ) -> impl Fn(&Head<'_>) -> Result<Caller, Unidentified> + Send + Sync + 'static {
        let callers = self.clone();
        move |head| callers.identify(head)
    }

    /// [`address`](Self::address) as a function that owns what it needs.
    pub fn addresses(
        &self,
    ) -> impl Fn(&Head<'_>) -> Result<Key, Unidentified> + Send + Sync + 'static {
        let callers = self.clone();
        move |head| callers.address(head)
    }

    /// Requests that had a forwarding header which was not believed: no proxy is trusted, or the peer is none of them.
    ///
    /// If that grows, the server stands behind a proxy it was not told of, and all of its clients are one caller.
    #[must_use]
    pub fn forwarded_untrusted(&self) -> u64 {
        self.rules.tallies.untrusted()
    }

    /// Requests from a trusted proxy whose forwarding header could not be read to its end: a hop that is no address, too
    /// many hops, or all of them trusted proxies.
    #[must_use]
    pub fn forwarded_malformed(&self) -> u64 {
        self.rules.tallies.malformed()
    }
}

impl Rules {
    #[inline]
    fn address(&self, head: &Head<'_>) -> Result<IpAddr, Unidentified> {
        let peer = self
            .peer_of(head.extensions())
            .ok_or(Unidentified::Missing)?;
        let peer = peer.to_canonical();
        let headers = head.headers();
        let Some(proxies) = &self.proxies else {
            let is_claimed =
                || headers.contains_key(&X_FORWARDED_FOR) || headers.contains_key(FORWARDED);
            if !headers.is_empty() && is_claimed() {
                self.tallies.note(Note::Untrusted);
            }
            return Ok(peer);
        };
        let walk = forwarded::client(peer, headers, &self.header, proxies);
        if let Some(note) = walk.note {
            self.tallies.note(note);
        }
        Ok(walk.client)
    }

    fn peer_of(&self, extensions: &Extensions) -> Option<IpAddr> {
        if let Some(peer) = &self.peer {
            return peer(extensions);
        }
        if let Some(Peer(peer)) = extensions.get() {
            return Some(*peer);
        }
        #[cfg(feature = "axum")]
        if let Some(axum::extract::ConnectInfo(peer)) =
            extensions.get::<axum::extract::ConnectInfo<SocketAddr>>()
        {
            return Some(peer.ip());
        }
        #[cfg(feature = "tonic")]
        if let Some(peer) = super::for_tonic::peer(extensions) {
            return Some(peer);
        }
        extensions.get::<SocketAddr>().map(SocketAddr::ip)
    }

    fn name(
        &self,
        name: &Option<NameOf>,
        kind: Kind,
        head: &Head<'_>,
    ) -> Result<Option<Key>, Unidentified> {
        let Some(name) = name.as_ref().and_then(|name| name(head)) else {
            return Ok(None);
        };
        if name.len() > LONGEST_NAME {
            return Err(Unidentified::TooLong);
        }
        Ok(Some(self.secret.key(kind, &name)))
    }
}

/// Builder of [`Callers`].
#[must_use]
pub struct CallersBuilder {
    rules: Rules,
}

impl CallersBuilder {
    /// Proxies that are believed. Default: none, and so no header.
    pub fn behind(mut self, proxies: TrustedProxies) -> Self {
        self.rules.proxies = Some(proxies);
        self
    }

    /// Header in which those proxies name the client. Default [`AddressHeader::XForwardedFor`].
    pub fn header(mut self, header: AddressHeader) -> Self {
        self.rules.header = header;
        self
    }

    /// Leading bits of an IPv6 address that make one caller, 32 to 128. Default 64: the least that a customer has.
    ///
    /// A shorter one catches customers with larger blocks, and takes neighbours for one caller.
    pub fn ipv6_prefix(mut self, bits: u8) -> Self {
        self.rules.prefixes.ipv6 = bits;
        self
    }

    /// Leading bits of an IPv4 address that make one caller, 8 to 32. Default 32.
    pub fn ipv4_prefix(mut self, bits: u8) -> Self {
        self.rules.prefixes.ipv4 = bits;
        self
    }

    /// Where the transport's peer is found. Default: a [`Peer`], axum's `ConnectInfo<SocketAddr>` (feature `axum`),
    /// tonic's connection (feature `tonic`), or a plain `SocketAddr` among the extensions.
    pub fn peer(
        mut self,
        peer: impl Fn(&Extensions) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> Self {
        self.rules.peer = Some(Box::new(peer));
        self
    }

    /// Name of the user who has signed in, as the layer that authenticates tells it. Default: none.
    pub fn user<N: Into<Vec<u8>>>(
        mut self,
        user: impl Fn(&Head<'_>) -> Option<N> + Send + Sync + 'static,
    ) -> Self {
        self.rules.user = Some(Box::new(move |head| user(head).map(Into::into)));
        self
    }

    /// API key, once it is known to be valid: one that anybody can invent is no identity. Default: none.
    pub fn api_key<N: Into<Vec<u8>>>(
        mut self,
        api_key: impl Fn(&Head<'_>) -> Option<N> + Send + Sync + 'static,
    ) -> Self {
        self.rules.api_key = Some(Box::new(move |head| api_key(head).map(Into::into)));
        self
    }

    /// Name of the tenant. Default: none.
    pub fn tenant<N: Into<Vec<u8>>>(
        mut self,
        tenant: impl Fn(&Head<'_>) -> Option<N> + Send + Sync + 'static,
    ) -> Self {
        self.rules.tenant = Some(Box::new(move |head| tenant(head).map(Into::into)));
        self
    }

    /// Paths that are endpoints of their own where no router names templates, such as the methods of a gRPC service:
    /// `/orders.Orders/Put`. Default: none, and all are `unmatched`.
    pub fn known_paths<P: Into<std::sync::Arc<str>>>(
        mut self,
        paths: impl IntoIterator<Item = P>,
    ) -> Self {
        self.rules.known.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Secret with which names are hashed. Default: one of this process, made at random.
    ///
    /// Processes that share limits need the same one.
    pub fn secret(mut self, secret: [u8; 32]) -> Self {
        self.rules.secret = Secret::new(secret);
        self
    }

    /// Makes the callers.
    ///
    /// # Errors
    /// If a prefix is outside its range.
    pub fn build(mut self) -> Result<Callers, BuildError> {
        let Prefixes { ipv4, ipv6 } = self.rules.prefixes;
        if !(32..=128).contains(&ipv6) {
            let rule = "it is from 32 to 128 bits";
            return Err(BuildError::setting("ipv6_prefix", ipv6, rule));
        }
        if !(8..=32).contains(&ipv4) {
            let rule = "it is from 8 to 32 bits";
            return Err(BuildError::setting("ipv4_prefix", ipv4, rule));
        }
        self.rules.known.sort();
        Ok(Callers {
            rules: Arc::new(self.rules),
        })
    }
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules.fmt(f)
    }
}

impl fmt::Debug for CallersBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules.fmt(f)
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers")
            .field("proxies", &self.proxies)
            .field("header", &self.header)
            .field("prefixes", &self.prefixes)
            .finish_non_exhaustive()
    }
}
