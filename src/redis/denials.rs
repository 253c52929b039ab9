//! Refusals remembered until they end: a flood of refused calls costs the server one.
//!
//! A refusal tells when its cost would fit. Until then nobody can be granted that cost there, unless somebody gives a
//! charge back or raises the limit: of what happens in this process that is noticed, elsewhere it is not, until then.
//! What is remembered is found by exactly what was asked: keys, limits and cost.

use std::collections::HashMap;

use tokio::time::Instant;

use crate::decision::{Decision, Verdict};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering};

/// Every level's decision in a refusal.
pub(super) type Decisions = Arc<[(Arc<str>, Decision)]>;

#[derive(Debug)]
pub(super) struct Denials {
    known: Mutex<HashMap<Box<[u8]>, Denial>>,
    /// Refusals that found it full.
    full: AtomicU64,
    /// Counts of refunds, each of the keys that share a place.
    refunds: Box<[AtomicU64]>,
}

#[derive(Debug)]
struct Denial {
    since: Instant,
    until: Instant,
    decisions: Decisions,
    refunds: u64,
}

impl Denials {
    pub(super) fn new() -> Self {
        Self {
            known: Mutex::new(HashMap::new()),
            full: AtomicU64::new(0),
            refunds: (0..PLACES).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Refunds of these keys so far, to be read before the server is asked.
    pub(super) fn refunds<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> u64 {
        let counts = keys.map(|key| self.place(key).load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }

    pub(super) fn refunded<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) {
        for key in keys {
            self.place(key).fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The refusal of the same request, as it reads now.
    pub(super) fn get<'a>(
        &self,
        identity: &[u8],
        keys: impl Iterator<Item = &'a [u8]>,
    ) -> Option<Vec<(Arc<str>, Decision)>> {
        let mut known = self.known.lock();
        let denial = known.get(identity)?;
        let now = Instant::now();
        if now >= denial.until || denial.refunds != self.refunds(keys) {
            known.remove(identity);
            return None;
        }
        let (decisions, passed) = (Arc::clone(&denial.decisions), now - denial.since);
        drop(known);
        let aged = decisions.iter().map(|(name, decision)| {
            let mut decision = decision.clone();
            decision.at = decision.at + passed;
            decision.next_unit_in = decision.next_unit_in.saturating_sub(passed);
            decision.reset_after = decision.reset_after.saturating_sub(passed);
            if let Verdict::Refused { retry_after } = &mut decision.verdict {
                *retry_after = retry_after.saturating_sub(passed).max(LEAST);
            }
            (Arc::clone(name), decision)
        });
        Some(aged.collect())
    }

    /// Remembers a refusal that was asked for at `since`, when so many refunds were known.
    pub(super) fn put(&self, identity: &[u8], since: Instant, decisions: Decisions, refunds: u64) {
        let waits = decisions
            .iter()
            .map(|(_, decision)| match decision.verdict {
                Verdict::Refused { retry_after } => Some(retry_after),
                Verdict::Granted | Verdict::Never { .. } => None,
            });
        // The instant of asking is before that of the decision, so what is remembered ends too early rather than late.
        let Some(until) = waits
            .flatten()
            .max()
            .and_then(|wait| since.checked_add(wait))
        else {
            return;
        };
        let mut known = self.known.lock();
        if known.len() >= MOST && !known.contains_key(identity) {
            // Looking at all of them takes long, so it is done now and then.
            if self
                .full
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(SWEEP)
            {
                let now = Instant::now();
                known.retain(|_, denial| denial.until > now);
            }
            if known.len() >= MOST {
                // Not remembering one costs a call to the server, and nothing else.
                return;
            }
        }
        let denial = Denial {
            since,
            until,
            decisions,
            refunds,
        };
        known.insert(identity.into(), denial);
    }

    fn place(&self, key: &[u8]) -> &AtomicU64 {
        // FNV-1a: short keys, and nothing to be won by who makes them meet.
        let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = key.iter().fold(0xcbf2_9ce4_8422_2325, mix);
        &self.refunds[(hash % PLACES) as usize]
    }
}

/// Refusals remembered at most.
const MOST: usize = 8192;
/// Refusals that find no room, for each time that room is made: the more there is to look at, the rarer.
const SWEEP: u64 = 1024;
const PLACES: u64 = 1024;
const LEAST: std::time::Duration = std::time::Duration::from_micros(1);
