//! What a handler says became of a message.

use std::error::Error;

use crate::queue::Backoff;
use crate::queue::workers::Outcome;

/// What becomes of a message once its handler has returned.
///
/// Handlers return anything that turns into one: `()` and `Ok(())` are [`Ack`](Self::Ack), `Err` is
/// [`Error`](Self::Error), and every [`Outcome`] has its counterpart.
#[derive(Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// It is done: acked.
    Ack,
    /// It can never be done, for this reason: moved to the dead letters.
    DeadLetter(String),
    /// The attempt failed: delivered again after this back-off, or moved to the dead letters with its deliveries used
    /// up.
    Retry(Backoff),
    /// As [`Retry`](Self::Retry) with the [source's back-off](super::SourceBuilder::backoff); the error is the reason on
    /// its dead letter.
    Error(Box<dyn Error + Send + Sync>),
}

impl From<()> for Verdict {
    fn from((): ()) -> Self {
        Self::Ack
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<Result<(), E>> for Verdict {
    fn from(result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::Ack,
            Err(error) => Self::Error(error.into()),
        }
    }
}

impl From<Outcome> for Verdict {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Ack => Self::Ack,
            Outcome::Fail => Self::DeadLetter(String::from("its handler said that it failed")),
            Outcome::Retry(backoff) => Self::Retry(backoff),
            Outcome::Error(error) => Self::Error(error),
        }
    }
}
