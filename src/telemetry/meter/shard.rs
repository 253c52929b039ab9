//! What the requests of a few threads add up to.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::decision::{self, Decision};
use crate::sync::Arc;
use crate::sync::Ordering;
use crate::sync::process::{AtomicU64, Mutex, MutexGuard};
use crate::tally::{Histogram, RETRIES};
use crate::telemetry::roll::Sum;
use crate::tick::Tick;

/// How a request ended at a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allowed,
    Rejected,
    Exempt,
    ErrorAllowed,
    ErrorRejected,
}

/// How many there are.
pub(crate) const VERDICTS: usize = 5;

impl Verdict {
    pub(crate) const ALL: [Self; VERDICTS] = [
        Self::Allowed,
        Self::Rejected,
        Self::Exempt,
        Self::ErrorAllowed,
        Self::ErrorRejected,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Rejected => "rejected",
            Self::Exempt => "exempt",
            Self::ErrorAllowed => "error_allowed",
            Self::ErrorRejected => "error_rejected",
        }
    }
}

/// Counts under one lock.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    /// By number of the endpoint; shorter than the numbers that were given.
    pub(crate) endpoints: Vec<EndpointCounts>,
    pub(crate) levels: Vec<LevelCounts>,
    numbers: HashMap<Arc<str>, u32>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EndpointCounts {
    pub(crate) verdicts: [u64; VERDICTS],
    /// Cost of all requests.
    pub(crate) units: u64,
    pub(crate) bound: Bound,
    /// Keys that were seen at its first levels, of every so many requests.
    pub(crate) keys: [SeenKey; KEYED],
}

/// Under how many keys a level was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SeenKey {
    #[default]
    None,
    /// The one that this hash stands for.
    One(u64),
    Several,
}

impl SeenKey {
    fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, seen) | (seen, Self::None) => seen,
            (one, other) if one == other => one,
            _ => Self::Several,
        }
    }
}

impl EndpointCounts {
    pub(crate) fn offered(&self) -> u64 {
        self.verdicts.iter().sum()
    }

    pub(crate) fn refused(&self) -> u64 {
        self.verdicts[Verdict::Rejected as usize] + self.verdicts[Verdict::ErrorRejected as usize]
    }
}

/// By whom all requests to an endpoint were refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Bound {
    #[default]
    Nobody,
    /// At a level, under the one key that this hash stands for.
    One {
        level: usize,
        hash: u64,
    },
    /// At a level, under several keys.
    Level(usize),
    Several,
}

impl Bound {
    fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nobody, bound) | (bound, Self::Nobody) => bound,
            (one, other) if one == other => one,
            (one, other) if one.level().is_some() && one.level() == other.level() => {
                one.level().map_or(Self::Several, Self::Level)
            }
            _ => Self::Several,
        }
    }

    /// The level at which all were refused.
    pub(crate) fn level(self) -> Option<usize> {
        match self {
            Self::One { level, .. } | Self::Level(level) => Some(level),
            Self::Nobody | Self::Several => None,
        }
    }
}

/// Counts of a level.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LevelCounts {
    pub(crate) told: LevelTotals,
    /// Requests that it was asked about, and those of them that it counts for everybody.
    pub(crate) asked: u64,
    pub(crate) everybody: u64,
    /// What was left at the latest decision.
    latest: Tick,
    pub(crate) remaining: u64,
}

impl LevelCounts {
    /// Whether everybody shares it.
    pub(crate) fn is_shared(&self) -> bool {
        self.asked > 0 && self.everybody == self.asked
    }
}

/// What is published of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct LevelTotals {
    pub(crate) consumed: u64,
    pub(crate) refunded: u64,
    pub(crate) over_quota: u64,
    pub(crate) too_large: u64,
    pub(crate) retries: Histogram,
    /// Keys that were forgotten or turned away; counted elsewhere.
    pub(crate) forgotten: u64,
    pub(crate) turned_away: u64,
}

impl LevelTotals {
    pub(crate) fn refused(&self) -> u64 {
        self.over_quota + self.too_large
    }

    fn add(&mut self, other: &Self) {
        self.consumed = self.consumed.saturating_add(other.consumed);
        self.refunded = self.refunded.saturating_add(other.refunded);
        self.over_quota += other.over_quota;
        self.too_large += other.too_large;
        self.retries.add(&other.retries);
        self.forgotten += other.forgotten;
        self.turned_away += other.turned_away;
    }
}

impl Shard {
    pub(super) fn new(levels: usize) -> Self {
        Self {
            levels: vec![LevelCounts::default(); levels],
            ..Self::default()
        }
    }

    pub(super) fn endpoint(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    pub(super) fn learn(&mut self, name: Arc<str>, number: u32) {
        self.numbers.insert(name, number);
    }

    /// Counts a request; whether its keys should be looked at too.
    pub(super) fn count(&mut self, verdict: Verdict, endpoint: u32, cost: u64) -> bool {
        let counts = self.at(endpoint);
        let is_sample = counts.offered().is_multiple_of(SAMPLED);
        counts.verdicts[verdict as usize] += 1;
        counts.units = counts.units.saturating_add(cost);
        is_sample
    }

    /// Notes the key of a level in a request.
    pub(super) fn see(&mut self, endpoint: u32, level: usize, hash: u64) {
        if let Some(seen) = self.at(endpoint).keys.get_mut(level) {
            *seen = seen.join(SeenKey::One(hash));
        }
    }

    fn at(&mut self, endpoint: u32) -> &mut EndpointCounts {
        let at = endpoint as usize;
        if at >= self.endpoints.len() {
            self.endpoints.resize(at + 1, EndpointCounts::default());
        }
        &mut self.endpoints[at]
    }

    pub(super) fn charge(&mut self, level: usize, cost: u64, everybody: bool, decision: &Decision) {
        let counts = &mut self.levels[level];
        counts.told.consumed = counts.told.consumed.saturating_add(cost);
        counts.asked += 1;
        counts.everybody += u64::from(everybody);
        if decision.at >= counts.latest {
            counts.latest = decision.at;
            counts.remaining = decision.remaining;
        }
    }

    pub(super) fn refuse(&mut self, level: usize, decision: &Decision, endpoint: u32, hash: u64) {
        let told = &mut self.levels[level].told;
        match decision.verdict {
            decision::Verdict::Never { .. } => told.too_large += 1,
            decision::Verdict::Refused { retry_after } => {
                told.over_quota += 1;
                told.retries.observe(&RETRIES, nanos(retry_after));
            }
            decision::Verdict::Granted => debug_assert!(false, "it did not refuse"),
        }
        let endpoint = self.at(endpoint);
        endpoint.bound = endpoint.bound.join(Bound::One { level, hash });
    }

    pub(super) fn refund(&mut self, level: usize, cost: u64) {
        let told = &mut self.levels[level].told;
        told.refunded = told.refunded.saturating_add(cost);
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (at, more) in other.endpoints.iter().enumerate() {
            let counts = self.at(at as u32);
            for (mine, theirs) in counts.verdicts.iter_mut().zip(more.verdicts) {
                *mine += theirs;
            }
            counts.units = counts.units.saturating_add(more.units);
            counts.bound = counts.bound.join(more.bound);
            for (mine, theirs) in counts.keys.iter_mut().zip(more.keys) {
                *mine = mine.join(theirs);
            }
        }
        for (counts, more) in self.levels.iter_mut().zip(&other.levels) {
            counts.told.add(&more.told);
            counts.asked += more.asked;
            counts.everybody += more.everybody;
            if more.latest >= counts.latest {
                counts.latest = more.latest;
                counts.remaining = more.remaining;
            }
        }
    }

    pub(crate) fn offered(&self) -> u64 {
        self.endpoints.iter().map(EndpointCounts::offered).sum()
    }

    pub(crate) fn refused(&self) -> u64 {
        self.endpoints.iter().map(EndpointCounts::refused).sum()
    }

    pub(super) fn totals(&self, endpoints: &[Arc<str>], levels: &[Arc<str>]) -> Totals {
        let verdicts = self.endpoints.iter().map(|counts| counts.verdicts);
        let unseen = std::iter::repeat([0; VERDICTS]);
        let mut totals = Totals {
            endpoints: endpoints
                .iter()
                .map(Arc::clone)
                .zip(verdicts.chain(unseen))
                .collect(),
            levels: BTreeMap::new(),
        };
        for (name, level) in levels.iter().zip(&self.levels) {
            // A level may be called as the rest is.
            let counts = totals.levels.entry(Arc::clone(name)).or_default();
            counts.add(&level.told);
        }
        totals
    }
}

/// What outlives a limiter under its label.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) endpoints: BTreeMap<Arc<str>, [u64; VERDICTS]>,
    pub(crate) levels: BTreeMap<Arc<str>, LevelTotals>,
}

impl Sum for Totals {
    fn add(&mut self, other: &Self) {
        for (name, verdicts) in &other.endpoints {
            let mine = self.endpoints.entry(Arc::clone(name)).or_default();
            for (mine, theirs) in mine.iter_mut().zip(verdicts) {
                *mine += theirs;
            }
        }
        for (name, level) in &other.levels {
            let mine = self.levels.entry(Arc::clone(name)).or_default();
            mine.add(level);
        }
    }
}

/// A shard in lines of memory of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Padded(Mutex<Shard>);

impl Padded {
    pub(super) fn new(levels: usize) -> Self {
        Self(Mutex::new(Shard::new(levels)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Shard> {
        self.0.lock()
    }
}

/// A number of this thread, low ones first.
pub(super) fn of_this_thread() -> usize {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static MINE: Cell<Option<usize>> = const { Cell::new(None) };
    }
    // A thread that is just ending has none any more.
    let mine = MINE.try_with(|mine| {
        mine.get().unwrap_or_else(|| {
            // Relaxed: all that matters is that they differ.
            let number = NEXT.fetch_add(1, Ordering::Relaxed) as usize;
            mine.set(Some(number));
            number
        })
    });
    mine.unwrap_or(0)
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Levels whose keys are looked at.
const KEYED: usize = 8;
/// Of so many requests to an endpoint, the keys of one are looked at.
const SAMPLED: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_refused_is_told_as_far_as_it_is_one() {
        let one = |level, hash| Bound::One { level, hash };
        assert_eq!(Bound::Nobody.join(one(1, 7)), one(1, 7));
        assert_eq!(one(1, 7).join(one(1, 7)), one(1, 7));
        assert_eq!(one(1, 7).join(one(1, 8)), Bound::Level(1));
        assert_eq!(Bound::Level(1).join(one(1, 9)), Bound::Level(1));
        assert_eq!(one(1, 7).join(one(2, 7)), Bound::Several);
        assert_eq!(Bound::Several.join(Bound::Nobody), Bound::Several);
        assert_eq!(Bound::Several.join(one(1, 7)), Bound::Several);
    }
}
