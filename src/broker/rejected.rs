//! A message that was not accepted, and why.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::error::BrokerError;
use super::message::Message;
use crate::limiter::Ruling;
use crate::refusal::Refusal;

/// Who did not accept a message.
#[derive(Debug)]
#[non_exhaustive]
pub enum RejectedBy {
    /// The edge: a limit is used up. Nothing was charged, nothing was published.
    Edge(Ruling),
    /// The depth of the broker, or the broker itself for being full. Nothing was published, and what the edge had
    /// charged was given back.
    Depth(Refusal),
    /// The broker did not answer, or not as it should. [`BrokerError::kind`] tells whether the message may have been
    /// stored nevertheless.
    Broker(BrokerError),
}

/// Refusal of an [`Admission`](super::Admission); it gives the message back.
pub struct Rejected {
    message: Box<Message>,
    by: Box<RejectedBy>,
    retry_after: Option<Duration>,
}

impl Rejected {
    pub(super) fn new(message: Message, by: RejectedBy, retry_after: Option<Duration>) -> Self {
        Self {
            message: Box::new(message),
            by: Box::new(by),
            retry_after,
        }
    }

    /// Who, with the numbers.
    #[must_use]
    pub const fn by(&self) -> &RejectedBy {
        &self.by
    }

    /// Time after which a caller who comes alone gets in, as far as is known; `None` where coming back does not help.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The message that was not accepted.
    #[must_use]
    pub fn into_inner(self) -> Message {
        *self.message
    }

    /// Message and who did not accept it.
    #[must_use]
    pub fn into_parts(self) -> (Message, RejectedBy) {
        (*self.message, *self.by)
    }
}

impl fmt::Debug for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected")
            .field("by", &self.by)
            .field("retry_after", &self.retry_after)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.by {
            RejectedBy::Depth(refusal) => refusal.fmt(f),
            RejectedBy::Edge(ruling) => {
                f.write_str("limit ")?;
                if let Some(level) = ruling.binding() {
                    write!(f, "{level} ")?;
                }
                match ruling.retry_after() {
                    Some(after) => write!(f, "is used up, retry after {after:?}"),
                    None => f.write_str("can never grant this cost"),
                }
            }
            RejectedBy::Broker(error) => error.fmt(f),
        }
    }
}

impl Error for Rejected {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &*self.by {
            RejectedBy::Broker(error) => Some(error),
            _ => None,
        }
    }
}
