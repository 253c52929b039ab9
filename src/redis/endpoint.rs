//! Where the server is, and who asks.

use std::fmt;
use std::time::Duration;

use super::error::{Error, Kind};

/// Address of a server or of a cluster, with the credentials to use there.
///
/// Nothing is connected until something is asked.
///
/// # Examples
/// ```
/// use sluicegate::redis::Endpoint;
///
/// let endpoint = Endpoint::new("rediss://limits:secret@redis.internal:6380/0")?;
/// assert!(!format!("{endpoint:?}").contains("secret"));
/// assert!(Endpoint::new("http://redis.internal").is_err());
/// # Ok::<(), sluicegate::redis::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Endpoint {
    pub(super) nodes: Vec<String>,
    pub(super) cluster: bool,
    pub(super) credentials: Option<(String, String)>,
    pub(super) root: Option<Vec<u8>>,
    pub(super) client: Option<(Vec<u8>, Vec<u8>)>,
    pub(super) connect_timeout: Duration,
}

impl Endpoint {
    /// Takes the address of one server: `redis://[user:password@]host[:port][/database]`, `rediss://` for TLS, or
    /// `unix:///path`.
    ///
    /// # Errors
    /// If that is not such an address.
    pub fn new(url: impl Into<String>) -> Result<Self, Error> {
        Self::over(vec![url.into()], false)
    }

    /// Takes the addresses of some nodes of a cluster; it finds the others itself.
    ///
    /// # Errors
    /// If there is none, or one is no address.
    pub fn cluster<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Result<Self, Error> {
        Self::over(urls.into_iter().map(Into::into).collect(), true)
    }

    fn over(nodes: Vec<String>, cluster: bool) -> Result<Self, Error> {
        let endpoint = Self {
            nodes,
            cluster,
            credentials: None,
            root: None,
            client: None,
            connect_timeout: CONNECT_TIMEOUT,
        };
        if endpoint.nodes.is_empty() {
            let rule = "a cluster needs the address of at least one node, got 0".into();
            return Err(Error::new(Kind::Setting { rule }));
        }
        super::dial::check(&endpoint)?;
        Ok(endpoint)
    }

    /// Sets the user (of the server's access control list) and the password, instead of those in the address.
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials = Some((user.into(), password.into()));
        self
    }

    /// Sets the certificate, in PEM form, that the server's has to be signed by; default the public ones that browsers
    /// trust.
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.root = Some(pem.into());
        self
    }

    /// Sets the certificate and its key, in PEM form, that this process shows to the server; default none.
    pub fn client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.client = Some((certificate.into(), key.into()));
        self
    }

    /// Sets how long one attempt to connect may take; default 1 s.
    ///
    /// Nobody waits for it beyond the deadline of his own command.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Whether it is a cluster.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        self.cluster
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.nodes.iter().map(|url| without_password(url));
        f.debug_struct("Endpoint")
            .field("nodes", &shown.collect::<Vec<_>>())
            .field("cluster", &self.cluster)
            .field("user", &self.credentials.as_ref().map(|(user, _)| user))
            .finish_non_exhaustive()
    }
}

/// What stands between the scheme and the last `@` is not shown.
fn without_password(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => {
            format!("{}://...{}", &url[..scheme], &url[at..])
        }
        _ => url.to_owned(),
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
