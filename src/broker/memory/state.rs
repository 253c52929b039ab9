//! The messages of one in-memory queue, and who holds them.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};

use tokio::time::Instant;

use super::MemoryReceipt;
use crate::broker::error::{BrokerError, BrokerErrorKind};
use crate::broker::message::{Delivery, Message};

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) entries: BTreeMap<u64, Entry>,
    /// What may be handed out, oldest first.
    pub(super) ready: BTreeSet<u64>,
    /// What becomes ready by time: holds that pass and retries that fall due.
    pub(super) timed: BTreeSet<(Instant, u64)>,
    pub(super) in_flight: u64,
    pub(super) next: u64,
    pub(super) recent: HashSet<String>,
    pub(super) recent_order: VecDeque<String>,
    pub(super) down: bool,
    pub(super) blocked: bool,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) message: Message,
    pub(super) deliveries: u32,
    /// Hand-outs so far, given back or not: what a receipt is checked against.
    pub(super) hand_outs: u64,
    /// When it becomes ready, if it is held or delayed.
    pub(super) due: Option<Instant>,
    pub(super) held: bool,
}

impl State {
    pub(super) fn store(&mut self, message: Message) {
        let number = self.next;
        self.next += 1;
        self.ready.insert(number);
        let entry = Entry {
            message,
            deliveries: 0,
            hand_outs: 0,
            due: None,
            held: false,
        };
        self.entries.insert(number, entry);
    }

    pub(super) fn remember(&mut self, id: &str) {
        self.recent.insert(id.to_owned());
        self.recent_order.push_back(id.to_owned());
        if self.recent_order.len() > REMEMBERED
            && let Some(oldest) = self.recent_order.pop_front()
        {
            self.recent.remove(&oldest);
        }
    }

    /// Makes ready whatever time has brought.
    pub(super) fn bring_in(&mut self, now: Instant) {
        while let Some(&(at, number)) = self.timed.first() {
            if at > now {
                return;
            }
            self.timed.pop_first();
            if let Some(entry) = self.entries.get_mut(&number) {
                entry.due = None;
                self.in_flight -= u64::from(entry.held);
                entry.held = false;
                self.ready.insert(number);
            }
        }
    }

    pub(super) fn hold(&mut self, number: u64, until: Instant) -> Option<Delivery<MemoryReceipt>> {
        let entry = self.entries.get_mut(&number)?;
        entry.deliveries += 1;
        entry.hand_outs += 1;
        entry.held = true;
        entry.due = Some(until);
        self.in_flight += 1;
        self.timed.insert((until, number));
        Some(Delivery {
            message: entry.message.clone(),
            attempt: entry.deliveries,
            receipt: MemoryReceipt {
                number,
                hand_out: entry.hand_outs,
            },
        })
    }

    /// The entry that the receipt still stands for.
    pub(super) fn held(
        &mut self,
        name: &str,
        receipt: &MemoryReceipt,
    ) -> Result<&mut Entry, BrokerError> {
        self.entries
            .get_mut(&receipt.number)
            .filter(|entry| entry.held && entry.hand_outs == receipt.hand_out)
            .ok_or_else(|| {
                BrokerError::new(
                    BrokerErrorKind::Stale,
                    format!(
                        "delivery of message {} of broker {name} is over",
                        receipt.number
                    ),
                )
            })
    }

    /// Ends a hold: ready now, or when due.
    pub(super) fn release(&mut self, number: u64, due: Option<Instant>) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        if let Some(until) = entry.due.take() {
            self.timed.remove(&(until, number));
        }
        self.in_flight -= u64::from(entry.held);
        entry.held = false;
        entry.due = due;
        match due {
            Some(at) => self.timed.insert((at, number)),
            None => self.ready.insert(number),
        };
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.release(number, None);
        self.ready.remove(&number);
        self.entries.remove(&number);
    }
}

/// Names of messages that are remembered against doubles.
const REMEMBERED: usize = 100_000;
