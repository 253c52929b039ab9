//! Jobs that are done and of which nobody else has to hear at once: counted aside, and taken over before anybody looks.
//!
//! Most acknowledgements change nothing but counts. So that they do not wait for whoever decides about offers and
//! departures, they are counted under a lock of their own. A job is counted here only after it departed, so what is
//! taken over is always among the jobs in flight.

use crate::machine::outcome::InFlight;
use crate::machine::queue::Machine;
use crate::machine::tenants::TenantId;
use crate::tally::Histogram;
use crate::tick::Tick;

/// Jobs done since the machine last took them over.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    /// Whether the machine lets them be counted here.
    open: bool,
    lanes: [u64; 4],
    /// Times in flight.
    took: Histogram,
}

impl Acks {
    /// Counts a job that is done. `false` = it was not: the machine has to hear of it.
    #[inline]
    pub(crate) fn count(&mut self, now: Tick, run: &InFlight) -> bool {
        if !self.open || run.owner.tenant != TenantId::NONE {
            return false;
        }
        self.lanes[run.owner.priority.index()] += 1;
        self.took.took(now - run.departed_at);
        true
    }
}

impl<P> Machine<P> {
    /// Whether acknowledgements change nothing but counts: nobody waits for a place in flight, no end is near, and no
    /// rate follows them.
    #[inline]
    pub(crate) fn lets_acks_wait(&self) -> bool {
        !self.closed && self.settings.max_in_flight == u64::MAX && !self.is_adaptive()
    }

    /// Takes over what was counted aside, and says whether more may be.
    pub(crate) fn take_over(&mut self, acks: &mut Acks) {
        acks.open = self.lets_acks_wait();
        if acks.lanes == [0; 4] {
            return;
        }
        for (ledger, acked) in self.ledgers.iter_mut().zip(std::mem::take(&mut acks.lanes)) {
            ledger.in_flight -= acked;
            ledger.acked += acked;
        }
        self.tally.add_done(&std::mem::take(&mut acks.took));
    }
}
