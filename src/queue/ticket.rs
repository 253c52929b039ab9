//! How a job ended, for whoever sent it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::words::Exit;

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// A consumer did it.
    Acked,
    /// A consumer said that it failed, or its attempts were used up.
    Failed,
    /// It made room for a newer job.
    Evicted,
    /// It did not start in time.
    Expired,
    /// Its cancellation token fired while it was queued.
    Cancelled,
    /// A consumer dropped it unsettled.
    Abandoned,
    /// The queue ended before it could start.
    Returned,
}

impl From<Exit> for Ending {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Expired => Self::Expired,
            Exit::Evicted => Self::Evicted,
            Exit::Cancelled => Self::Cancelled,
            Exit::Failed => Self::Failed,
            Exit::Abandoned => Self::Abandoned,
            Exit::Returned => Self::Returned,
        }
    }
}

/// Future of a job's end; made by [`Offer::track`](super::Offer::track).
///
/// Acceptance, start and end are three different moments: `track` is over at the first, a ticket at the last. A job that
/// goes back for a retry has not ended. Dropping a ticket detaches it; the job goes on.
///
/// # Cancel safety
/// It can be polled, put aside and polled again; the end is not lost.
#[derive(Debug)]
#[must_use = "a ticket does nothing unless polled; drop it to detach"]
pub struct Ticket {
    end: oneshot::Receiver<Ending>,
}

impl Ticket {
    pub(crate) fn pair() -> (oneshot::Sender<Ending>, Self) {
        let (sender, end) = oneshot::channel();
        (sender, Self { end })
    }

    /// How the job ended, if it has.
    pub(crate) fn now(&mut self) -> Option<Ending> {
        match self.end.try_recv() {
            Ok(ending) => Some(ending),
            Err(oneshot::error::TryRecvError::Empty) => None,
            Err(oneshot::error::TryRecvError::Closed) => Some(Ending::Returned),
        }
    }
}

impl Future for Ticket {
    type Output = Ending;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ending> {
        // Every way out of the queue tells the end; only a queue torn down as a whole could drop the other half.
        Pin::new(&mut self.end)
            .poll(cx)
            .map(|end| end.unwrap_or(Ending::Returned))
    }
}
