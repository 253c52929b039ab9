//! What went wrong between this process and the server.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use crate::sync::Arc;

/// Why the server gave no answer that could be used.
///
/// None of these is a refusal: a command whose error [may have run](Self::may_have_run) may have changed the server's
/// state before its answer was lost.
#[derive(Clone)]
pub struct Error {
    kind: Kind,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// What is told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// No reply within the deadline.
    Timeout { deadline: Duration },
    /// There is no connection, and the command was not sent.
    Unreachable,
    /// The connection was lost after the command was sent.
    Lost,
    /// User, password or the user's rights.
    Denied { reply: String },
    /// The server is a replica.
    ReadOnly,
    /// The server's memory is full and it evicts nothing.
    OutOfMemory,
    /// Something else lies under the key.
    WrongType { reply: String },
    /// The server is loading, busy, or its cluster is changing.
    NotReady { reply: String },
    /// The script is not in the server's cache; nothing has run.
    NoScript,
    /// Keys of one script lie in several slots of a cluster.
    CrossSlot,
    /// Any other error reply.
    Refused { reply: String },
    /// A reply of another shape than was expected.
    Unexpected { reply: String },
    /// Not asked, as it has failed too often lately.
    Skipped { left: Duration },
    /// A setting that cannot be used.
    Setting { rule: String },
}

impl Error {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, source: None }
    }

    pub(super) fn caused(kind: Kind, source: impl StdError + Send + Sync + 'static) -> Self {
        Self {
            kind,
            source: Some(Arc::new(source)),
        }
    }

    pub(super) fn unexpected(reply: &impl fmt::Debug) -> Self {
        let mut reply = format!("{reply:?}");
        if let Some((end, _)) = reply.char_indices().nth(SHOWN) {
            reply.truncate(end);
        }
        Self::new(Kind::Unexpected { reply })
    }

    pub(super) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Whether no reply came within the deadline.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self.kind, Kind::Timeout { .. })
    }

    /// Whether there is no connection: it was refused, or lost.
    #[must_use]
    pub fn is_disconnected(&self) -> bool {
        matches!(self.kind, Kind::Unreachable | Kind::Lost)
    }

    /// Whether the user, the password or the user's rights do not suffice.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self.kind, Kind::Denied { .. })
    }

    /// Whether the server is a replica, which takes no writes: a failover that this process has not noticed yet.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.kind == Kind::ReadOnly
    }

    /// Whether the server's memory is full and its policy is to evict nothing.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.kind == Kind::OutOfMemory
    }

    /// Whether something that is not ours lies under one of our keys.
    #[must_use]
    pub fn is_wrong_type(&self) -> bool {
        matches!(self.kind, Kind::WrongType { .. })
    }

    /// Whether the server is all right, and only this command was not.
    pub(super) fn is_about_the_command(&self) -> bool {
        matches!(
            self.kind,
            Kind::WrongType { .. } | Kind::CrossSlot | Kind::Setting { .. } | Kind::Skipped { .. }
        )
    }

    /// Whether the command may have run although its answer was not received.
    ///
    /// Such a command is never repeated: it could count twice.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        matches!(
            self.kind,
            Kind::Timeout { .. } | Kind::Lost | Kind::Unexpected { .. }
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Timeout { deadline } => write!(f, "no reply within the deadline of {deadline:?}"),
            Kind::Unreachable => f.write_str("the server cannot be reached"),
            Kind::Lost => f.write_str("the connection was lost before the reply"),
            Kind::Denied { reply } => write!(f, "the server denies access: {reply}"),
            Kind::ReadOnly => f.write_str("the server is a replica and takes no writes"),
            Kind::OutOfMemory => f.write_str("the server's memory is full"),
            Kind::WrongType { reply } => write!(f, "something else lies under the key: {reply}"),
            Kind::NotReady { reply } => write!(f, "the server is not ready: {reply}"),
            Kind::NoScript => f.write_str("the server keeps forgetting the script"),
            Kind::CrossSlot => f.write_str("the keys lie in several slots of the cluster"),
            Kind::Refused { reply } => write!(f, "the server replied with an error: {reply}"),
            Kind::Unexpected { reply } => write!(f, "the reply has an unexpected shape: {reply}"),
            Kind::Skipped { left } => write!(
                f,
                "the server failed too often and is not asked for another {left:?}"
            ),
            Kind::Setting { rule } => f.write_str(rule),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.kind)
            .field("source", &self.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.source.as_ref()?;
        Some(&**source)
    }
}

/// Characters of an unexpected reply that a message shows.
const SHOWN: usize = 200;
