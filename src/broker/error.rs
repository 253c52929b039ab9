//! What a broker could not do.

use std::error::Error;
use std::fmt;

/// What went wrong, as far as the caller's next step depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BrokerErrorKind {
    /// The broker holds as much as it may: it said no, nothing was stored.
    Full,
    /// The broker has stopped taking from publishers, by an alarm of memory or disk.
    Blocked,
    /// The payload is above what the broker takes. Coming back does not help.
    TooLarge,
    /// Queue or stream does not exist.
    Missing,
    /// The broker does not know these credentials, or they do not allow it.
    Credentials,
    /// Queue or stream exists, but is of a kind on which the promises of this crate cannot be kept.
    Unsuitable,
    /// No connection. What was asked was not done, or will be undone.
    Disconnected,
    /// No answer in time: it may have been done or not.
    Unconfirmed,
    /// The receipt is of a delivery that has been settled or that the broker has taken back, and may have handed to
    /// another.
    Stale,
    /// Anything else the broker said.
    Other,
}

impl BrokerErrorKind {
    /// Name in lower case with underscores, as metrics label it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Blocked => "blocked",
            Self::TooLarge => "too_large",
            Self::Missing => "missing",
            Self::Credentials => "credentials",
            Self::Unsuitable => "unsuitable",
            Self::Disconnected => "disconnected",
            Self::Unconfirmed => "unconfirmed",
            Self::Stale => "stale",
            Self::Other => "other",
        }
    }

    /// Whether the same call may succeed later with nothing changed but time.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        matches!(
            self,
            Self::Full | Self::Blocked | Self::Disconnected | Self::Unconfirmed | Self::Other
        )
    }
}

/// Error of a broker.
pub struct BrokerError {
    kind: BrokerErrorKind,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl BrokerError {
    /// Makes an error that says `message`, in lower case, with the numbers.
    #[must_use]
    pub fn new(kind: BrokerErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
        }
    }

    /// Adds what lies behind it.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What went wrong.
    #[must_use]
    pub const fn kind(&self) -> BrokerErrorKind {
        self.kind
    }
}

impl fmt::Debug for BrokerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerError")
            .field("kind", &self.kind)
            .field("message", &self.message)
            .field("source", &self.source)
            .finish()
    }
}

impl fmt::Display for BrokerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for BrokerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let source = self.source.as_deref()?;
        Some(source)
    }
}
