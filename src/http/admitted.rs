//! The handler's hold on what its request was charged.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;

use super::settings::{Payer, Shared};
use crate::decision::Limited;
use crate::limiter::{Admission, Ruling, Solo};
use crate::sync::process::AtomicBool;
use crate::sync::{Arc, Ordering};

/// Extension of a request that was let through: what was decided, and a way to charge more or to give back.
///
/// The fields of the response tell of the decision at the door, whatever is charged later.
///
/// # Examples
/// ```
/// use sluicegate::http::Admitted;
///
/// async fn search<B>(request: http::Request<B>) -> http::StatusCode {
///     let admitted: Option<Admitted> = request.extensions().get().cloned();
///     let rows_found = 700;
///     // One unit for the request was charged at the door; big answers cost more.
///     if let Some(admitted) = admitted {
///         if admitted.charge_more(rows_found / 100).await.is_err() {
///             return http::StatusCode::TOO_MANY_REQUESTS;
///         }
///     }
///     http::StatusCode::OK
/// }
/// ```
#[derive(Clone)]
pub struct Admitted {
    held: Arc<dyn Held>,
}

trait Held: Send + Sync {
    fn ruling(&self) -> &Ruling;
    fn give_back(&self) -> bool;
    fn charge_more(&self, cost: u64) -> BoxFuture<'static, Result<Admitted, Limited>>;
}

/// A granted charge.
pub(super) struct Granted<A: Admission> {
    pub(super) record: Record,
    payer: Payer,
    pub(super) shared: Arc<Shared<A>>,
    given_back: AtomicBool,
}

/// What is known of a charge.
#[derive(Debug)]
pub(super) enum Record {
    Ruled(Ruling),
    /// The ruling is made when it is first asked for.
    Solo(Solo, OnceLock<Box<Ruling>>),
}

impl Record {
    pub(super) const fn of(solo: Solo) -> Self {
        Self::Solo(solo, OnceLock::new())
    }

    pub(super) fn ruling(&self) -> &Ruling {
        match self {
            Self::Ruled(ruling) => ruling,
            Self::Solo(solo, ruling) => ruling.get_or_init(|| Box::new(solo.to_ruling())),
        }
    }
}

impl Admitted {
    pub(super) fn new<A: Admission>(granted: Arc<Granted<A>>) -> Self {
        Self { held: granted }
    }

    /// What was decided at the door.
    pub fn ruling(&self) -> &Ruling {
        self.held.ruling()
    }

    /// Gives back what was charged: for a request that cost nothing after all. `true` if this call did it.
    ///
    /// After the limit's window nothing is given back.
    pub fn give_back(&self) -> bool {
        self.held.give_back()
    }

    /// Charges so much more to whoever made the request; all levels or none.
    ///
    /// # Errors
    /// [`Limited`] if a level refuses; what was charged before stays charged.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it gives back what it may have charged.
    pub fn charge_more(&self, cost: u64) -> ChargeMore {
        ChargeMore(self.held.charge_more(cost))
    }
}

/// Future of a further charge; made by [`Admitted::charge_more`].
#[must_use = "nothing is charged until it is polled"]
pub struct ChargeMore(BoxFuture<'static, Result<Admitted, Limited>>);

impl Future for ChargeMore {
    type Output = Result<Admitted, Limited>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for ChargeMore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChargeMore").finish_non_exhaustive()
    }
}

impl<A: Admission> Granted<A> {
    #[inline(always)] // Else the record is copied from hand to hand.
    pub(super) fn new(record: Record, payer: Payer, shared: Arc<Shared<A>>) -> Self {
        Self {
            record,
            payer,
            shared,
            given_back: AtomicBool::new(false),
        }
    }

    /// Gives the charge back unless that was done; `true` if this call did it.
    pub(super) fn return_once(&self) -> bool {
        let ruling = self.record.ruling();
        let edge = self.shared.edge.as_ref();
        let Some(edge) = edge.filter(|_| ruling.is_granted()) else {
            return false;
        };
        // Relaxed: only one may do it, and that is all it says.
        let done = self.given_back.swap(true, Ordering::Relaxed);
        if !done {
            edge.give_back(self.payer, ruling.charge());
        }
        !done
    }
}

impl<A: Admission> Held for Granted<A> {
    fn ruling(&self) -> &Ruling {
        self.record.ruling()
    }

    fn give_back(&self) -> bool {
        self.return_once()
    }

    fn charge_more(&self, cost: u64) -> BoxFuture<'static, Result<Admitted, Limited>> {
        let (shared, payer) = (Arc::clone(&self.shared), self.payer);
        let charge = self.record.ruling().charged().again(cost);
        Box::pin(async move {
            let ruling = match &shared.edge {
                None => Ruling::new(charge, std::iter::empty::<(&str, _)>()),
                Some(edge) => match edge.admit_now(payer, charge) {
                    Ok(ruling) => ruling,
                    Err(charge) => edge.admission.admit(charge).await,
                },
            };
            ruling.clone().into_result()?;
            let granted = Granted::new(Record::Ruled(ruling), payer, shared);
            Ok(Admitted::new(Arc::new(granted)))
        })
    }
}

impl fmt::Debug for Admitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Admitted").field(self.ruling()).finish()
    }
}
