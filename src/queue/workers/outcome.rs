//! What a handler says became of its job.

use std::error::Error;

use crate::queue::backoff::Backoff;
use crate::queue::job::Job;

/// What becomes of a job that its handler dropped unsettled.
///
/// Handlers return anything that turns into one: `()` is [`Ack`](Self::Ack), `Ok(())` too, and `Err` is
/// [`Error`](Self::Error).
#[derive(Debug)]
pub enum Outcome {
    /// The job is done.
    Ack,
    /// The job failed for good: its item is dead-lettered.
    Fail,
    /// The attempt failed: the job leaves again after this back-off, if it has [attempts](crate::queue::Builder::max_attempts)
    /// left.
    Retry(Backoff),
    /// As [`Retry`](Self::Retry) with the [workers' back-off](super::Workers::backoff); where the job has no attempts
    /// left, or the queue is closed, this is the cause of its dead letter.
    Error(Box<dyn Error + Send + Sync>),
}

impl Outcome {
    /// Settles the job, unless its handler did.
    pub(super) fn settle<T>(self, job: Option<Job<T>>, backoff: Backoff) {
        let Some(job) = job else { return };
        match self {
            Self::Ack => job.ack(),
            Self::Fail => job.fail(),
            Self::Retry(backoff) => job.retry(backoff),
            Self::Error(error) => job.retry_because(error, backoff),
        }
    }
}

impl From<()> for Outcome {
    fn from((): ()) -> Self {
        Self::Ack
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<Result<(), E>> for Outcome {
    fn from(result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::Ack,
            Err(error) => Self::Error(error.into()),
        }
    }
}
