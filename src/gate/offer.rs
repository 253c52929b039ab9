//! An offer at a gate, on terms of its own.

use std::fmt;
use std::time::Duration;

use super::denied::{Cause, Denied};
use super::{Gate, Paid};
use crate::limiter::{Admission, Charge, Immediate};
use crate::queue::{Accepted, Refused, Terms, terms_setters};

/// An item with the terms it is offered on; made by [`Gate::offer`].
#[must_use = "an offer does nothing until it is sent"]
pub struct GateOffer<'a, A: Admission, T> {
    gate: &'a Gate<A, T>,
    context: &'a A::Context,
    item: T,
    terms: Terms,
}

impl<'a, A: Admission, T> GateOffer<'a, A, T> {
    pub(super) fn new(gate: &'a Gate<A, T>, context: &'a A::Context, item: T) -> Self {
        Self {
            gate,
            context,
            item,
            terms: Terms::new(),
        }
    }

    terms_setters!();

    /// Sends the item, waiting in line for a place if need be. The cost is charged to the edge too.
    ///
    /// # Errors
    /// As [`Gate::send`].
    ///
    /// # Cancel safety
    /// As [`Gate::send`].
    pub fn send(self) -> impl Future<Output = Result<Accepted, Denied<T>>> {
        self.send_for(None)
    }

    /// Sends the item, staying in line for at most `stay`.
    ///
    /// # Errors
    /// As [`Gate::send`].
    ///
    /// # Cancel safety
    /// As [`Gate::send`].
    pub fn send_within(self, stay: Duration) -> impl Future<Output = Result<Accepted, Denied<T>>> {
        self.send_for(Some(stay))
    }

    /// Sends the item if edge and queue take it now; only over limiters in this process.
    ///
    /// # Errors
    /// As [`Gate::send`].
    pub fn try_send(self) -> Result<Accepted, Denied<T>>
    where
        A: Immediate,
    {
        let charge = self.charge();
        let Self {
            gate, item, terms, ..
        } = self;
        let paid = match gate.pay_now(&terms, charge) {
            Ok(paid) => paid,
            Err(cause) => return Err(Denied::new(item, cause)),
        };
        finish(paid, gate.sender.offer(item).terms(terms).try_send())
    }

    // Charged before the first await, so that the future does not hold the context.
    fn send_for(
        self,
        stay: Option<Duration>,
    ) -> impl Future<Output = Result<Accepted, Denied<T>>> + use<'a, A, T> {
        let charge = self.charge();
        let Self {
            gate, item, terms, ..
        } = self;
        async move {
            let paid = match gate.pay(&terms, charge).await {
                Ok(paid) => paid,
                Err(cause) => return Err(Denied::new(item, cause)),
            };
            let offer = gate.sender.offer(item).terms(terms);
            let sent = match stay {
                Some(stay) => offer.send_within(stay).await,
                None => offer.send().await,
            };
            finish(paid, sent)
        }
    }

    fn charge(&self) -> Charge {
        self.gate.edge.charge(self.context, self.terms.charged())
    }
}

/// The charge is kept if the queue took the item.
fn finish<A: Admission, T>(
    paid: Paid<'_, A>,
    sent: Result<Accepted, Refused<T>>,
) -> Result<Accepted, Denied<T>> {
    match sent {
        Ok(accepted) => {
            paid.keep();
            Ok(accepted)
        }
        Err(refused) => {
            let (item, refusal) = refused.into_parts();
            Err(Denied::new(item, Cause::Queue(refusal)))
        }
    }
}

impl<A: Admission, T> fmt::Debug for GateOffer<'_, A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateOffer")
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}
