//! Who goes next, as users see it: lanes, tenants, costs. In paused time.

mod lanes;
mod tenants;

use std::time::Duration;

use sluicegate::queue::{Ledger, Ledgers, Sender, Terms};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MILLI: Duration = Duration::from_millis(1);

/// Lanes add up to the whole, and so do tenants with the others; each of them balances.
#[track_caller]
pub(crate) fn assert_exact<T>(tx: &Sender<T>) -> Ledgers {
    let whole = tx.snapshot().ledger;
    let ledgers = tx.control().ledgers();
    let lanes: Vec<&Ledger> = ledgers.lanes.values().collect();
    let tenants: Vec<&Ledger> = ledgers.tenants.values().chain([&ledgers.others]).collect();
    for parts in [lanes, tenants] {
        assert!(parts.iter().all(|part| part.is_balanced()), "{ledgers:?}");
        let sum = |field: fn(&Ledger) -> u64| parts.iter().map(|part| field(part)).sum::<u64>();
        let fields: [fn(&Ledger) -> u64; 15] = [
            |part| part.offered,
            |part| part.refused,
            |part| part.cancelled_waiting,
            |part| part.waiting,
            |part| part.admitted,
            |part| part.reserved,
            |part| part.queued,
            |part| part.in_flight,
            |part| part.acked,
            |part| part.failed,
            |part| part.evicted,
            |part| part.expired,
            |part| part.cancelled,
            |part| part.abandoned,
            |part| part.requeued,
        ];
        for (number, field) in fields.into_iter().enumerate() {
            assert_eq!(sum(field), field(&whole), "field {number}: {ledgers:?}");
        }
    }
    ledgers
}

pub(crate) fn tenant(name: &str) -> Terms {
    Terms::new().tenant(name)
}
