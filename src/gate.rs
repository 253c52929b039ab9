//! Edge and queue as one door.
//!
//! Two limiters in series know nothing of each other: a full queue lets its callers use up their quota for nothing, and
//! a burst at the edge fills the queue. The gate couples them:
//!
//! ```text
//!   offer --> would the queue refuse? --> charge the edge --> ask for a place --> queued
//!                 | yes                      | refused            | refused, timed out, cancelled
//!                 v                          v                    v
//!            Cause::Queue               Cause::Edge          the charge is given back, Cause::Queue
//! ```
//! While the queue is under pressure, token and leaky buckets at the edge keep half of their burst: bursts are cut, the
//! rate is not.

mod denied;
mod offer;

use std::fmt;

pub use self::denied::{Cause, Denied};
pub use self::offer::GateOffer;

use crate::limiter::{Admission, Charge, Immediate, Ruling};
use crate::queue::{Accepted, Permit, Refusal, Sender, Terms};
use crate::words::Pressure;

/// Door in front of a queue: an edge that says who may offer work, and the queue that takes it.
///
/// Clones share both.
///
/// # Examples
/// ```
/// use sluicegate::queue::Builder;
/// use sluicegate::{Cause, Gate, Rate, RateLimiter};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// let (tx, _rx) = Builder::new(Rate::per_second(10)).build()?;
/// let gate = Gate::new(RateLimiter::new(Rate::per_second(5).burst(2)), tx);
/// gate.send(&(), "first").await?;
/// gate.try_send(&(), "second")?;
/// let denied = gate.try_send(&(), "third").expect_err("the burst is two");
/// assert!(matches!(denied.cause(), Cause::Edge(_)));
/// assert_eq!(denied.into_inner(), "third");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Gate<A: Admission, T> {
    edge: A,
    sender: Sender<T>,
}

impl<A: Admission, T> Gate<A, T> {
    /// Puts an edge in front of a queue. The gate counts as a sender of it.
    pub fn new(edge: A, sender: Sender<T>) -> Self {
        Self { edge, sender }
    }

    /// Sends an item with cost 1, waiting in line for a place if need be. At the edge nobody waits.
    ///
    /// # Errors
    /// [`Denied`] gives the item back and says which of the two refused.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it leaves the line, gives the charge back and drops the item.
    pub async fn send(&self, context: &A::Context, item: T) -> Result<Accepted, Denied<T>> {
        self.offer(context, item).send().await
    }

    /// Sends an item with cost 1 if edge and queue take it now; only over limiters in this process.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn try_send(&self, context: &A::Context, item: T) -> Result<Accepted, Denied<T>>
    where
        A: Immediate,
    {
        self.offer(context, item).try_send()
    }

    /// Begins an offer on terms of its own.
    pub fn offer<'a>(&'a self, context: &'a A::Context, item: T) -> GateOffer<'a, A, T> {
        GateOffer::new(self, context, item)
    }

    /// Waits for a place of cost 1, without an item.
    ///
    /// The charge is given back if there is no place; a permit that is dropped unused keeps it.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    /// Dropped before it is done, it leaves the line and gives the charge back.
    pub fn reserve(
        &self,
        context: &A::Context,
    ) -> impl Future<Output = Result<Permit<'_, T>, Denied<()>>> {
        let terms = Terms::new();
        let charge = self.edge.charge(context, terms.charged());
        async move {
            let paid = self
                .pay(&terms, charge)
                .await
                .map_err(|cause| Denied::new((), cause))?;
            match self.sender.reserve_with(terms).await {
                Ok(permit) => {
                    paid.keep();
                    Ok(permit)
                }
                Err(refusal) => Err(Denied::new((), Cause::Queue(refusal))),
            }
        }
    }

    /// The edge.
    #[must_use]
    pub fn edge(&self) -> &A {
        &self.edge
    }

    /// The queue's sender.
    #[must_use]
    pub fn sender(&self) -> &Sender<T> {
        &self.sender
    }

    /// Asks the queue, then charges the edge; what is paid comes back unless it is kept.
    async fn pay(&self, terms: &Terms, charge: Charge) -> Result<Paid<'_, A>, Cause> {
        self.ask_queue(terms, false).map_err(Cause::Queue)?;
        let ruling = self.edge.admit(self.under_pressure(charge)).await;
        self.paid(ruling)
    }

    /// As `pay`, where the edge decides at once.
    fn pay_now(&self, terms: &Terms, charge: Charge) -> Result<Paid<'_, A>, Cause>
    where
        A: Immediate,
    {
        self.ask_queue(terms, true).map_err(Cause::Queue)?;
        self.paid(self.edge.rule(self.under_pressure(charge)))
    }

    fn ask_queue(&self, terms: &Terms, try_form: bool) -> Result<(), Refusal> {
        self.sender.refused_now(terms, try_form).map_or(Ok(()), Err)
    }

    fn paid(&self, ruling: Ruling) -> Result<Paid<'_, A>, Cause> {
        if ruling.is_granted() {
            Ok(Paid {
                edge: &self.edge,
                charge: Some(ruling.charge()),
            })
        } else {
            Err(Cause::Edge(ruling))
        }
    }

    fn under_pressure(&self, charge: Charge) -> Charge {
        match self.sender.pressure() {
            Pressure::Healthy => charge,
            Pressure::Elevated | Pressure::Overloaded => charge.keep_half(),
        }
    }
}

/// A charge that is given back when dropped.
struct Paid<'a, A: Admission> {
    edge: &'a A,
    charge: Option<Charge>,
}

impl<A: Admission> Paid<'_, A> {
    fn keep(mut self) {
        self.charge = None;
    }
}

impl<A: Admission> Drop for Paid<'_, A> {
    fn drop(&mut self) {
        if let Some(charge) = self.charge.take() {
            self.edge.give_back(charge);
        }
    }
}

impl<A: Admission, T> Clone for Gate<A, T> {
    fn clone(&self) -> Self {
        Self {
            edge: self.edge.clone(),
            sender: self.sender.clone(),
        }
    }
}

impl<A: Admission + fmt::Debug, T> fmt::Debug for Gate<A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("edge", &self.edge)
            .field("sender", &self.sender)
            .finish()
    }
}
