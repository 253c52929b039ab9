//! What the machine carries for a queue: the item, and what few jobs have beside it.

use std::task::Waker;

use tokio::sync::oneshot;

use super::terms::Terms;
use super::ticket::Ending;
use super::watch::Watch;

/// An item on its way. A plain one is a pointer larger than the item.
pub(crate) struct Parcel<T> {
    pub(crate) item: T,
    pub(crate) extras: Option<Box<Extras>>,
}

impl<T> Parcel<T> {
    pub(crate) const fn plain(item: T) -> Self {
        Self { item, extras: None }
    }

    /// Whether the job's token has fired.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.extras
            .as_ref()
            .is_some_and(|extras| extras.terms.is_cancelled())
    }

    /// Takes out what a departure ends: nobody watches the token of a job in flight.
    ///
    /// The caller drops it with no lock held, as that wakes the driver.
    pub(crate) fn unwatch(&mut self) -> Option<Watch> {
        self.extras.as_mut()?.watch.take()
    }
}

/// What few jobs have.
#[derive(Default)]
pub(crate) struct Extras {
    pub(crate) terms: Terms,
    /// Whoever waits for the job's end.
    pub(crate) ticket: Option<oneshot::Sender<Ending>>,
    /// Registration of the token with the driver, while the job is queued.
    pub(crate) watch: Option<Watch>,
    /// In a turnstile: the future whose turn this is.
    pub(crate) waker: Option<Waker>,
}

impl Extras {
    /// What a job on these terms has, if anything.
    pub(crate) fn of(terms: &Terms) -> Option<Box<Self>> {
        if terms.is_plain() && terms.tenant_key().is_none() {
            None
        } else {
            Some(Box::new(Self {
                terms: terms.clone(),
                ..Self::default()
            }))
        }
    }

    /// Whether a tenant is all there is to keep.
    pub(crate) fn is_tenant_only(&self) -> bool {
        self.terms.is_plain() && self.ticket.is_none()
    }

    /// As [`of`](Self::of), with somebody waiting for the end.
    pub(crate) fn tracked(terms: &Terms, ticket: oneshot::Sender<Ending>) -> Option<Box<Self>> {
        Some(Box::new(Self {
            terms: terms.clone(),
            ticket: Some(ticket),
            ..Self::default()
        }))
    }

    /// Tells whoever waits how the job ended. Runs foreign code.
    pub(crate) fn end(&mut self, ending: Ending) {
        if let Some(ticket) = self.ticket.take() {
            // Nobody waits any more: dropping a ticket detaches.
            let _ = ticket.send(ending);
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
