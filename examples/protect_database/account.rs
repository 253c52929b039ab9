//! What only the queued run has: who refused what, the rate, and the ledger of the queue.

use std::collections::BTreeMap;
use std::time::Duration;

use sluicegate::queue::Ledger;
use sluicegate::{Cause, Denied};

use crate::chart::{brief, percentile, thousands};
use crate::held::Held;

/// Account of the queued run.
#[derive(Debug)]
pub(crate) struct Account {
    /// Departures per second asked for.
    pub(crate) rate_set: f64,
    /// Departures per second measured.
    pub(crate) rate_held: Option<Held>,
    /// Bound of jobs in flight.
    pub(crate) max_in_flight: u64,
    /// Who refused, and what was told.
    pub(crate) refusals: Refusals,
    /// Offers made again after a refusal.
    pub(crate) retried: u64,
    /// What the queue counted. Offers that the edge refuses never reach it.
    pub(crate) ledger: Ledger,
    /// Whether its sums agree, with themselves and with what the run counted.
    pub(crate) is_balanced: bool,
}

impl Account {
    /// The ledger, word by word.
    pub(crate) fn words(&self) -> [(&'static str, u64); 16] {
        let ledger = &self.ledger;
        [
            ("offered", ledger.offered),
            ("refused", ledger.refused),
            ("cancelled_waiting", ledger.cancelled_waiting),
            ("waiting", ledger.waiting),
            ("admitted", ledger.admitted),
            ("reserved", ledger.reserved),
            ("queued", ledger.queued),
            ("in_flight", ledger.in_flight),
            ("acked", ledger.acked),
            ("failed", ledger.failed),
            ("evicted", ledger.evicted),
            ("expired", ledger.expired),
            ("cancelled", ledger.cancelled),
            ("abandoned", ledger.abandoned),
            ("returned", ledger.returned),
            ("requeued", ledger.requeued),
        ]
    }
}

/// Waits that refused producers were told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals {
    edge: Vec<Duration>,
    /// By the reason.
    queue: BTreeMap<String, Vec<Duration>>,
}

impl Refusals {
    /// Notes one, and the wait that it told.
    pub(crate) fn note<T>(&mut self, denied: &Denied<T>, wait: Duration) {
        match denied.cause() {
            Cause::Edge(_) => self.edge.push(wait),
            Cause::Queue(refusal) => {
                let reason = format!("{:?}", refusal.reason());
                self.queue.entry(reason).or_default().push(wait);
            }
        }
    }

    /// How many there were at the edge.
    pub(crate) fn by_edge(&self) -> u64 {
        self.edge.len() as u64
    }

    /// How many came from the queue.
    pub(crate) fn by_queue(&self) -> u64 {
        self.queue.values().map(|waits| waits.len() as u64).sum()
    }

    /// One line for everybody who refused.
    pub(crate) fn lines(&self) -> Vec<String> {
        let queue = self
            .queue
            .iter()
            .map(|(reason, waits)| (format!("the queue ({reason})"), waits));
        [("the edge".to_owned(), &self.edge)]
            .into_iter()
            .chain(queue)
            .filter(|(_, waits)| !waits.is_empty())
            .map(|(who, waits)| line(&who, waits))
            .collect()
    }
}

fn line(who: &str, waits: &[Duration]) -> String {
    let mut waits = waits.to_vec();
    waits.sort_unstable();
    let told = |share| percentile(&waits, share).map_or_else(String::new, brief);
    format!(
        "refused by {who}: {} times, told to come back in {} to {} (median {})",
        thousands(waits.len() as u64),
        told(0.0),
        told(1.0),
        told(0.5),
    )
}
