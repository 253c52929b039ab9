//! What can go wrong with a queue on a server.

use std::error::Error as StdError;
use std::fmt;

use crate::queue::Refused;
use crate::redis::error::{Error as ServerError, Kind};

/// Why something could not be done to the queue.
pub struct Error {
    kind: ErrorKind,
}

/// What went wrong, as far as the caller's next step depends on it.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The server gave no answer that could be used; what was asked [may have been done](ServerError::may_have_run).
    Server(ServerError),
    /// A setting breaks a rule, which is named.
    Setting {
        /// The field, the value and the rule.
        rule: String,
    },
    /// The queue exists and is set otherwise. See [`Existing`](super::Existing).
    Conflict {
        /// The setting, as the server names it.
        setting: String,
        /// Its value on the server.
        stored: String,
        /// The value that was asked for.
        asked: String,
    },
    /// The queue was made by a version of this crate that lays it out otherwise.
    Version {
        /// The layout's number.
        found: String,
    },
    /// The payload is longer than [`max_payload`](super::Builder::max_payload).
    TooLarge {
        /// Its length.
        bytes: u64,
        /// The bound.
        most: u64,
    },
    /// The item cannot be written in the queue's format.
    Encode(Box<dyn StdError + Send + Sync>),
    /// The job is another consumer's by now, or is done: this one held it for longer than the claim time without a sign
    /// of life.
    TakenOver,
    /// The queue is full or closed, so that not all dead letters could be put back.
    NoRoom {
        /// How many were.
        moved: u64,
    },
}

impl Error {
    /// What went wrong.
    #[must_use]
    pub const fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Whether the job is another consumer's by now, or is done.
    #[must_use]
    pub const fn is_taken_over(&self) -> bool {
        matches!(self.kind, ErrorKind::TakenOver)
    }

    /// Whether the same call may succeed later with nothing changed but time.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match &self.kind {
            ErrorKind::Server(error) => matches!(
                error.kind(),
                Kind::Timeout { .. }
                    | Kind::Unreachable
                    | Kind::Lost
                    | Kind::ReadOnly
                    | Kind::OutOfMemory
                    | Kind::NotReady { .. }
                    | Kind::NoScript
            ),
            ErrorKind::NoRoom { .. } => true,
            _ => false,
        }
    }

    /// Whether the server may have done what was asked although this error came back.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        matches!(&self.kind, ErrorKind::Server(error) if error.may_have_run())
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self { kind }
    }
}

impl From<ServerError> for Error {
    fn from(error: ServerError) -> Self {
        ErrorKind::Server(error).into()
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ErrorKind::Server(error) => error.fmt(f),
            ErrorKind::Setting { rule } => f.write_str(rule),
            ErrorKind::Conflict {
                setting,
                stored,
                asked,
            } => {
                write!(
                    f,
                    "the queue exists with {setting} {stored}, not the {asked} asked for"
                )
            }
            ErrorKind::Version { found } => {
                write!(f, "the queue is laid out in version {found}, not 1")
            }
            ErrorKind::TooLarge { bytes, most } => {
                write!(f, "a payload is at most {most} bytes, got {bytes}")
            }
            ErrorKind::Encode(error) => write!(f, "the item cannot be written: {error}"),
            ErrorKind::TakenOver => f.write_str("the job is no longer held by this consumer"),
            ErrorKind::NoRoom { moved } => {
                write!(
                    f,
                    "the queue takes no more: {moved} dead letters were put back"
                )
            }
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.kind {
            ErrorKind::Server(error) => Some(error),
            ErrorKind::Encode(error) => Some(&**error),
            _ => None,
        }
    }
}

/// Why an offer was not taken; the item comes back.
///
/// A refusal and an unknown outcome are never confused.
pub enum OfferError<T> {
    /// The queue said no, and when to come back. Nothing was changed.
    Refused(Refused<T>),
    /// The offer could not be made, or its answer was lost.
    Failed {
        /// The item.
        item: T,
        /// Why. If it [may have run](Error::may_have_run) the job may be in the queue: offer it again under the same
        /// [id](super::Offer::id), and it is there once.
        error: Error,
    },
}

impl<T> OfferError<T> {
    /// The item that was not taken, or may have been.
    #[must_use]
    pub fn into_inner(self) -> T {
        match self {
            Self::Refused(refused) => refused.into_inner(),
            Self::Failed { item, .. } => item,
        }
    }

    /// The refusal, if it was one.
    #[must_use]
    pub const fn refusal(&self) -> Option<&crate::refusal::Refusal> {
        match self {
            Self::Refused(refused) => Some(refused.refusal()),
            Self::Failed { .. } => None,
        }
    }

    /// The error, if it was none.
    #[must_use]
    pub const fn error(&self) -> Option<&Error> {
        match self {
            Self::Refused(_) => None,
            Self::Failed { error, .. } => Some(error),
        }
    }
}

impl<T> fmt::Debug for OfferError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => f.debug_tuple("Refused").field(refused).finish(),
            Self::Failed { error, .. } => f
                .debug_struct("Failed")
                .field("error", error)
                .finish_non_exhaustive(),
        }
    }
}

impl<T> fmt::Display for OfferError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refused) => refused.fmt(f),
            Self::Failed { error, .. } => error.fmt(f),
        }
    }
}

impl<T> StdError for OfferError<T> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Refused(_) => None,
            Self::Failed { error, .. } => Some(error),
        }
    }
}

/// Why there is no job now.
#[derive(Debug)]
#[non_exhaustive]
pub enum TryRecvError {
    /// Nothing is queued.
    Empty,
    /// The next departure is not due.
    NotDue {
        /// Time until it is.
        after: std::time::Duration,
    },
    /// The fleet holds as many jobs as it may.
    Held,
    /// The queue is paused.
    Paused,
    /// The queue is closed and nothing is left in it, in flight included.
    Closed,
    /// The server gave no answer that could be used.
    Failed(Error),
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("nothing is queued"),
            Self::NotDue { after } => write!(f, "the next departure is due in {after:?}"),
            Self::Held => f.write_str("the fleet holds as many jobs as it may"),
            Self::Paused => f.write_str("the queue is paused"),
            Self::Closed => f.write_str("the queue is closed and empty"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl StdError for TryRecvError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Failed(error) => Some(error),
            _ => None,
        }
    }
}
