//! What holds after each operation, and at the end.

use std::time::Duration;

use super::{At, Run};
use crate::machine::{Collected, Effects, Settled};
use crate::refusal::Reason;
use crate::tally::Histogram;
use crate::words::{Exit, Pressure, Priority};

impl Run {
    fn exit(&self, exit: Exit) -> u64 {
        self.exits.get(&exit).copied().unwrap_or(0)
    }

    pub(super) fn check(&self) {
        let ledger = self.machine.ledger();
        assert!(ledger.is_balanced(), "{ledger:?}");
        for priority in Priority::ALL {
            assert!(self.machine.lane(priority).is_balanced(), "{priority:?}");
        }
        let mut by_tenant = self.machine.others();
        assert!(by_tenant.is_balanced(), "others: {by_tenant:?}");
        for (key, own) in self.machine.tenants() {
            assert!(own.is_balanced(), "{key:?}: {own:?}");
            by_tenant.add(own);
        }
        assert_eq!(by_tenant, ledger, "tenants and others are everybody");
        let tally = self.machine.tally();
        assert_eq!(
            tally.refused.iter().sum::<u64>(),
            ledger.refused,
            "by reason"
        );
        let processed: u64 = tally.processing.iter().map(Histogram::count).sum();
        assert_eq!(tally.departed, ledger.in_flight + processed);
        assert_eq!(tally.departed, tally.drained.count());
        let ejected = ledger.evicted + ledger.expired + ledger.cancelled - self.given_back;
        assert!(tally.dropped.count() >= ejected, "and what was returned");
        let unheard = ledger.refused - self.refused;
        assert_eq!(ledger.offered, self.offered);
        assert_eq!(
            ledger.waiting + unheard,
            self.waiters.len() as u64,
            "{ledger:?}"
        );
        assert_eq!(ledger.cancelled_waiting, self.cancelled_waiting);
        assert_eq!(ledger.reserved, self.places.len() as u64);
        assert_eq!(ledger.in_flight, self.flight.len() as u64);
        assert_eq!(ledger.acked, self.acked);
        assert_eq!(ledger.failed, self.exit(Exit::Failed));
        assert_eq!(ledger.abandoned, self.exit(Exit::Abandoned));
        assert_eq!(ledger.evicted, self.exit(Exit::Evicted));
        assert_eq!(ledger.expired, self.exit(Exit::Expired));
        assert_eq!(ledger.returned, self.exit(Exit::Returned));
        assert_eq!(
            ledger.cancelled,
            self.exit(Exit::Cancelled) + self.given_back
        );
    }

    /// Everything settles: no item, no place and no waiter is left over.
    pub(super) fn finish_all(mut self) {
        let now = self.now() + Duration::from_secs(10);
        let mut fx = Effects::new();
        self.machine.resume(now, &mut fx);
        self.machine.close(now, &mut fx);
        for key in std::mem::take(&mut self.waiters) {
            match self.machine.collect(now, key, &mut fx) {
                Collected::Refused(refusal) => {
                    self.refused += 1;
                    assert!(refusal.reason() != Reason::WaitersFull, "it was in line");
                }
                other => panic!("a closed queue left a waiter {other:?}"),
            }
        }
        for place in std::mem::take(&mut self.places) {
            let item = self.next_item;
            self.next_item += 1;
            self.items.insert(item, At::Queue);
            self.machine.send(now, place, item, &mut fx);
        }
        for (item, run) in std::mem::take(&mut self.flight) {
            self.machine.settle(now, run, Settled::Acked, &mut fx);
            self.acked += 1;
            self.items.insert(item, At::Ended);
        }
        self.machine
            .drain(now, now + Duration::from_secs(1), &mut fx);
        self.absorb(std::mem::replace(&mut fx, Effects::new()));
        self.machine.advance(now + Duration::from_secs(1), &mut fx);
        self.absorb(fx);
        self.check();
        assert!(self.machine.is_drained() && self.machine.is_exhausted());
        assert_eq!(self.machine.depth(), 0, "capacity is whole again");
        assert!(
            self.items.values().all(|at| *at == At::Ended),
            "an item is lost"
        );
        assert_eq!(self.machine.pressure(), Pressure::Healthy);
    }
}
