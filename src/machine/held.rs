//! Places that stand ready for an item which may never come, as of a sink that was asked whether it is ready.
//!
//! Such an offer always goes through the line, and its place stays granted until it is collected with the item in hand.
//! So one that is not used lapses as any granted place does, and holds nothing from the others.

use std::time::Duration;

use crate::machine::door::{Door, Form};
use crate::machine::line::Stand;
use crate::machine::outcome::{Ask, Effects, Place, WaiterKey};
use crate::machine::queue::Machine;
use crate::refusal::Refusal;
use crate::tick::Tick;

impl<P> Machine<P> {
    /// As `offer`, but where there is room the place is granted to a waiter, not handed out.
    pub(crate) fn offer_held(
        &mut self,
        now: Tick,
        ask: &Ask,
        fx: &mut Effects<P>,
    ) -> Result<WaiterKey, Refusal> {
        self.arrive(now, fx);
        let owner = self.owner(ask);
        self.count(owner, |count| count.offered += 1);
        let free = match self.door(self.now, ask, Form::Wait) {
            Door::No(reason, excess) => {
                return Err(self.turn_away(ask, owner, Form::Wait, reason, excess));
            }
            Door::Line => false,
            Door::Free | Door::Evict(_) => true,
        };
        let waiter = self.waiter(ask, owner, None);
        self.tenants.get_mut(owner.tenant).line += u128::from(ask.cost);
        let key = self.stand_in_line(waiter);
        self.count(owner, |count| count.waiting += 1);
        if free {
            self.grant(key, ask.cost, owner, fx);
        }
        self.judge(fx);
        Ok(key)
    }

    /// Whether the place of this waiter stands ready. One that had lapsed stands in line again.
    ///
    /// # Errors
    /// It was refused; its key has ended.
    pub(crate) fn is_ready(
        &mut self,
        now: Tick,
        key: WaiterKey,
        fx: &mut Effects<P>,
    ) -> Result<bool, Refusal> {
        self.arrive(now, fx);
        self.stand_again(key, fx);
        match self.line.get(key).map(|waiter| &waiter.stand) {
            Some(Stand::Granted(_)) => Ok(true),
            Some(Stand::Refused(refusal)) => {
                let refusal = refusal.clone();
                self.line.remove(key);
                Err(refusal)
            }
            _ => Ok(false),
        }
    }

    /// A waiter that had lapsed stands in line again.
    pub(super) fn stand_again(&mut self, key: WaiterKey, fx: &mut Effects<P>) {
        let lapsed = self
            .line
            .get(key)
            .filter(|waiter| matches!(waiter.stand, Stand::Lapsed))
            .map(|waiter| (waiter.cost, waiter.owner));
        if let Some((cost, owner)) = lapsed {
            self.line.set(key, Stand::Standing);
            self.tenants.get_mut(owner.tenant).line += u128::from(cost);
            self.judge(fx);
        }
    }
}

impl Place {
    /// Takes the time for which the place stood ready out of the job's wait, and out of the time to its first start.
    pub(crate) fn idle_for(&mut self, idle: Duration) {
        self.offered_at = self.offered_at + idle;
        self.expiry.first = self.expiry.first + idle;
    }
}
