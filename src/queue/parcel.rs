//! What the machine carries for a queue: the item, and what few jobs have beside it.

use std::error::Error;
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

    /// Keeps why its last attempt failed. Returns what it was before, to be dropped unlocked.
    pub(crate) fn remember(
        &mut self,
        cause: Cause,
        terms: impl FnOnce() -> Terms,
    ) -> Option<Cause> {
        let extras = self.extras.get_or_insert_with(|| {
            Box::new(Extras {
                terms: terms(),
                ..Extras::default()
            })
        });
        extras.cause.replace(cause)
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

/// Why an attempt failed.
pub(crate) type Cause = Box<dyn Error + Send + Sync>;

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
    /// What the consumer gave as the cause when it last put the job back.
    pub(crate) cause: Option<Cause>,
    /// Where its producer was.
    #[cfg(feature = "tracing")]
    pub(crate) span: Option<tracing::Span>,
}

impl Extras {
    /// What a job on these terms has, if anything beside a tenant. Runs foreign code where spans are kept.
    pub(crate) fn of(terms: &Terms) -> Option<Box<Self>> {
        let mut extras = Self::plain();
        if extras.is_some() || !terms.is_plain() {
            extras.get_or_insert_default().terms = terms.clone();
        }
        extras
    }

    /// What is kept of a tenant that the machine does not know by name.
    pub(crate) fn of_tenant(terms: &Terms) -> Option<Box<Self>> {
        terms.has_tenant().then(|| {
            Box::new(Self {
                terms: terms.clone(),
                ..Self::default()
            })
        })
    }

    /// As [`of`](Self::of), for who is never handed to a consumer, and must not run foreign code.
    pub(crate) fn of_turn(terms: &Terms) -> Option<Box<Self>> {
        terms.is_kept().then(|| {
            Box::new(Self {
                terms: terms.clone(),
                ..Self::default()
            })
        })
    }

    /// What a job without terms has: its producer's span, if somebody keeps spans.
    #[cfg(feature = "tracing")]
    pub(crate) fn plain() -> Option<Box<Self>> {
        use tracing::{Span, level_filters::LevelFilter};
        if LevelFilter::current() == LevelFilter::OFF {
            return None;
        }
        let span = Span::current();
        (!span.is_none()).then(|| {
            Box::new(Self {
                span: Some(span),
                ..Self::default()
            })
        })
    }

    /// What a job without terms has.
    #[cfg(not(feature = "tracing"))]
    pub(crate) const fn plain() -> Option<Box<Self>> {
        None
    }

    /// Whether a tenant is all there is to keep.
    pub(crate) fn is_tenant_only(&self) -> bool {
        #[cfg(feature = "tracing")]
        if self.span.is_some() {
            return false;
        }
        self.terms.is_plain() && self.ticket.is_none()
    }

    /// As [`of`](Self::of), with somebody waiting for the end.
    pub(crate) fn tracked(terms: &Terms, ticket: oneshot::Sender<Ending>) -> Option<Box<Self>> {
        let mut extras = Self::plain().unwrap_or_default();
        extras.terms = terms.clone();
        extras.ticket = Some(ticket);
        Some(extras)
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
