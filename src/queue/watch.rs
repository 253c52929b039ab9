//! Cancellation tokens of offers in line and of queued jobs, as the driver watches them.
//!
//! Whoever holds the [`Watch`] keeps the entry alive; dropping it takes the entry out, so that a token which outlives a
//! million jobs holds none of them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::{AbortHandle, AbortRegistration, Abortable};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::machine::{JobKey, WaiterKey};

/// Whom a token cancels.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject {
    Waiter(WaiterKey),
    Job(JobKey),
}

/// Keeps a token watched. Dropping it wakes the driver, so it is dropped with no lock held.
#[derive(Debug)]
pub(crate) struct Watch(AbortHandle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A token on its way to the driver.
#[derive(Debug)]
pub(crate) struct NewWatch {
    subject: Subject,
    token: CancellationToken,
    registration: AbortRegistration,
}

impl NewWatch {
    pub(crate) fn pair(subject: Subject, token: &CancellationToken) -> (Watch, Self) {
        let (handle, registration) = AbortHandle::new_pair();
        (
            Watch(handle),
            Self {
                subject,
                token: token.clone(),
                registration,
            },
        )
    }

    /// Whether the subject has left before the driver looked.
    pub(crate) fn is_over(&self) -> bool {
        self.registration.handle().is_aborted()
    }

    pub(crate) fn start(self) -> Watched {
        let fired = Box::pin(self.token.cancelled_owned());
        Watched {
            subject: self.subject,
            fired: Abortable::new(fired, self.registration),
        }
    }
}

/// Future of the subject whose token fired; `None` if it has left.
#[derive(Debug)]
pub(crate) struct Watched {
    subject: Subject,
    fired: Abortable<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl Future for Watched {
    type Output = Option<Subject>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let subject = self.subject;
        Pin::new(&mut self.fired)
            .poll(cx)
            .map(|fired| fired.ok().map(|()| subject))
    }
}
