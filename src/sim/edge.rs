//! The edge before the queue: levels of limits, all charged or none, with the rules that run in production.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::decision::Verdict;
use crate::key::Key;
use crate::policy::{Limit, LimitState, Policy};
use crate::tick::Tick;

/// Whom a level counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// Everybody together.
    All,
    /// Each key by itself; an arrival without a key passes the level.
    Key,
}

/// One level of the edge, as it is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Level {
    pub(crate) name: Arc<str>,
    pub(crate) limit: Limit,
    pub(crate) per: Per,
}

/// The levels and what they remember.
#[derive(Debug)]
pub(crate) struct Edge {
    levels: Vec<Counted>,
}

#[derive(Debug)]
struct Counted {
    level: Level,
    states: HashMap<Key, LimitState>,
    /// Number of keys at which the idle ones are forgotten.
    sweep_at: usize,
}

/// Which level refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EdgeRefusal {
    pub(crate) level: usize,
    /// The longest of the refusing levels; none if the cost never fits.
    pub(crate) retry_after: Option<Duration>,
}

impl Edge {
    pub(crate) fn new(levels: &[Level]) -> Self {
        let counted = |level: &Level| Counted {
            level: level.clone(),
            states: HashMap::new(),
            sweep_at: LEAST_SWEEP,
        };
        Self {
            levels: levels.iter().map(counted).collect(),
        }
    }

    pub(crate) const fn is_open(&self) -> bool {
        self.levels.is_empty()
    }

    /// Judges all levels, then charges all or none. `keep_half`: while the queue is elevated, bursts are cut.
    pub(crate) fn check(
        &mut self,
        now: Tick,
        cost: u64,
        key: Option<&Key>,
        keep_half: bool,
    ) -> Result<(), EdgeRefusal> {
        let shared = Key::from(());
        let mut refused: Option<EdgeRefusal> = None;
        for (index, counted) in self.levels.iter_mut().enumerate() {
            let Some(key) = counted.level.key(key, &shared) else {
                continue;
            };
            let limit = counted.level.limit;
            let state = counted.state(key, now);
            let decision = if keep_half {
                limit.peek_keeping_half(state, now, cost)
            } else {
                limit.peek(state, now, cost)
            };
            let retry_after = match decision.verdict {
                Verdict::Granted => continue,
                Verdict::Refused { retry_after } => Some(retry_after),
                Verdict::Never { .. } => None,
            };
            let longest = |refused: EdgeRefusal| refused.retry_after.unwrap_or(Duration::MAX);
            let found = EdgeRefusal {
                level: index,
                retry_after,
            };
            if refused.is_none_or(|refused| longest(refused) < longest(found)) {
                refused = Some(found);
            }
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        for counted in &mut self.levels {
            if let Some(key) = counted.level.key(key, &shared) {
                let limit = counted.level.limit;
                limit.charge(counted.state(key, now), now, cost);
            }
        }
        Ok(())
    }

    /// Gives back what was charged at that instant.
    pub(crate) fn refund(&mut self, charged_at: Tick, cost: u64, key: Option<&Key>, now: Tick) {
        let shared = Key::from(());
        for counted in &mut self.levels {
            if let Some(key) = counted.level.key(key, &shared)
                && let Some(state) = counted.states.get_mut(key)
            {
                counted.level.limit.refund_at(state, charged_at, cost, now);
            }
        }
    }
}

impl Level {
    fn key<'a>(&self, key: Option<&'a Key>, shared: &'a Key) -> Option<&'a Key> {
        match self.per {
            Per::All => Some(shared),
            Per::Key => key,
        }
    }
}

impl Counted {
    fn state(&mut self, key: &Key, now: Tick) -> &mut LimitState {
        let limit = self.level.limit;
        if !self.states.contains_key(key) {
            if self.states.len() >= self.sweep_at {
                // Doubling the mark keeps the cost per arrival constant, whatever number of keys is busy.
                self.states.retain(|_, state| !limit.is_idle(state, now));
                self.sweep_at = (2 * self.states.len()).max(LEAST_SWEEP);
            }
            self.states.insert(key.clone(), limit.start(now));
        }
        self.states.get_mut(key).expect("it was just made sure of")
    }
}

const LEAST_SWEEP: usize = 1024;
