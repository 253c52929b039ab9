//! What a watched limiter counts, and what it remembers of the last minutes.
//!
//! ```text
//!  check --one lock of its thread's own--> shard --read by--> publisher, sample, snapshot
//!    | refused                               |
//!    +--> hot keys (try_lock)                +-- once a second --> trace
//! ```
//! - [`shard`] counts by endpoint, verdict and level
//! - [`space_saving`], [`hot_keys`] who is refused most
//! - [`trace`] one sample a second, and the demand on each endpoint
//!
//! - I1  a check touches one lock, which its thread shares with few others and mostly nobody: no second instruction on
//!   which all threads wait.
//! - I2  what is counted of a request is counted under that one lock, so sums balance whenever they are read.

pub(crate) mod hot_keys;
mod names;
mod shard;
mod space_saving;
pub(crate) mod trace;

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use self::hot_keys::{Hot, HotKeys};
use self::names::Names;
pub(crate) use self::names::UNMATCHED;
use self::shard::Padded;
pub(crate) use self::shard::{
    Bound, EndpointCounts, LevelTotals, SeenKey, Shard, Totals, VERDICTS, Verdict,
};
use self::trace::Trace;
use super::roll::{METERS, Seat};
use crate::clock::Clock;
use crate::decision::Decision;
use crate::key::Key;
use crate::policy::Limit;
use crate::sync::process::{AtomicU64, Mutex};
use crate::sync::{Arc, Ordering};
use crate::tick::Tick;

/// Counts of one watched limiter.
pub(crate) struct Meter {
    seat: Seat,
    /// Names of its levels, and last `other` for those that it did not say it had.
    levels: Box<[Arc<str>]>,
    /// Keys forgotten and turned away before it was watched, by level.
    before: Box<[(u64, u64)]>,
    shards: Box<[Padded]>,
    names: Names,
    hot: Mutex<Vec<HotKeys>>,
    /// Refusals that found `hot` taken.
    missed: AtomicU64,
    hasher: RandomState,
    trace: Mutex<Trace>,
    clock: Box<dyn Clock>,
    status: Box<dyn Fn() -> Vec<LevelNow> + Send + Sync>,
}

/// A level as it stands.
#[derive(Clone, Debug)]
pub(crate) struct LevelNow {
    pub(crate) name: Arc<str>,
    pub(crate) limit: Limit,
    pub(crate) keys: Option<KeysNow>,
}

/// Keys of a level.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeysNow {
    pub(crate) held: u64,
    pub(crate) max: u64,
    pub(crate) forgotten: u64,
    pub(crate) turned_away: u64,
}

impl LevelNow {
    /// Units that one key may have per second, over time.
    pub(crate) fn per_second(&self) -> f64 {
        per_second(&self.limit)
    }

    /// Keys forgotten, and turned away.
    fn gone(&self) -> (u64, u64) {
        self.keys
            .map_or((0, 0), |keys| (keys.forgotten, keys.turned_away))
    }
}

/// Units per second, over time.
pub(crate) fn per_second(limit: &Limit) -> f64 {
    let rate = match limit {
        Limit::TokenBucket(rule) => rule.rate(),
        Limit::LeakyBucket(rule) => rule.rate(),
        _ => return limit.quota() as f64 / limit.window().as_secs_f64(),
    };
    rate.count() as f64 / rate.period().as_secs_f64()
}

/// A request that was decided.
pub(crate) struct Decided<L> {
    pub(crate) verdict: Verdict,
    pub(crate) endpoint: u32,
    pub(crate) cost: u64,
    /// Shows each level's name, decision and key.
    pub(crate) levels: L,
    /// Which of them refused.
    pub(crate) binding: Option<usize>,
}

impl Meter {
    /// `status` is asked for the levels as they stand, with no lock held.
    pub(crate) fn new(
        name: &str,
        clock: Box<dyn Clock>,
        status: Box<dyn Fn() -> Vec<LevelNow> + Send + Sync>,
    ) -> Arc<Self> {
        let levels = status();
        let before = levels.iter().map(LevelNow::gone).collect();
        let levels: Box<[Arc<str>]> = levels
            .into_iter()
            .map(|level| level.name)
            .chain([Arc::from(OTHER)])
            .collect();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let shards = threads.next_power_of_two().min(MOST_SHARDS);
        let meter = Arc::new(Self {
            seat: METERS.seat(Some(name)),
            shards: (0..shards).map(|_| Padded::new(levels.len())).collect(),
            names: Names::new(),
            hot: Mutex::new(levels.iter().map(|_| HotKeys::new()).collect()),
            missed: AtomicU64::new(0),
            hasher: RandomState::new(),
            trace: Mutex::new(Trace::default()),
            levels,
            before,
            clock,
            status,
        });
        METERS.fill(&meter.seat, Arc::downgrade(&meter));
        meter
    }

    /// Counts a request.
    pub(crate) fn record<'a, L, I>(&self, decided: Decided<L>)
    where
        L: Fn() -> I,
        I: Iterator<Item = (&'a str, &'a Decision, Option<&'a Key>)>,
    {
        let refused = match (decided.verdict, decided.binding) {
            (Verdict::Rejected, Some(binding)) => (decided.levels)().nth(binding),
            _ => None,
        };
        let bound = refused.map(|(name, decision, key)| {
            let hash = key.map_or(0, |key| self.hasher.hash_one(key));
            (self.level(decided.binding, name), decision, hash)
        });
        {
            let mut shard = self.shard();
            let is_sample = shard.count(decided.verdict, decided.endpoint, decided.cost);
            let levels = (decided.levels)().enumerate();
            for (position, (name, decision, key)) in levels {
                let level = self.level(Some(position), name);
                let everybody = key.is_some_and(Key::is_everybody);
                let charged = matches!(decided.verdict, Verdict::Allowed | Verdict::ErrorAllowed);
                let cost = if charged { decided.cost } else { 0 };
                shard.charge(level, cost, everybody, decision);
                if let Some(key) = key.filter(|_| is_sample) {
                    shard.see(decided.endpoint, level, self.hasher.hash_one(key));
                }
            }
            if let Some((level, decision, hash)) = bound {
                shard.refuse(level, decision, decided.endpoint, hash);
            }
        }
        if bound.is_some() {
            self.note_keys((decided.levels)());
        }
    }

    /// Counts what was given back to levels of these names.
    pub(crate) fn refund<'a>(&self, levels: impl Iterator<Item = &'a str>, cost: u64) {
        let mut shard = self.shard();
        for (position, name) in levels.enumerate() {
            shard.refund(self.level(Some(position), name), cost);
        }
    }

    /// The number of an endpoint.
    pub(crate) fn endpoint(&self, name: &str) -> u32 {
        if let Some(known) = self.shard().endpoint(name) {
            return known;
        }
        let (number, name) = self.names.find(name);
        if let Some(name) = name {
            self.shard().learn(name, number);
        }
        number
    }

    fn note_keys<'a>(
        &self,
        levels: impl Iterator<Item = (&'a str, &'a Decision, Option<&'a Key>)>,
    ) {
        let now = self.clock.now();
        // Whoever is refused waits for nobody here.
        let Some(mut hot) = self.hot.try_lock() else {
            // Relaxed: a count orders nothing else.
            self.missed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let missed = match self.missed.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.missed.swap(0, Ordering::Relaxed),
        };
        for (position, (name, _, key)) in levels.enumerate() {
            if let Some(key) = key.filter(|key| !key.is_everybody()) {
                let level = self.level(Some(position), name);
                hot[level].refuse(self.hasher.hash_one(key), key, missed, now);
            }
        }
    }

    /// Where a level is counted, which is mostly where it stands.
    fn level(&self, position: Option<usize>, name: &str) -> usize {
        let other = self.levels.len() - 1;
        match position {
            Some(at) if at < other && *self.levels[at] == *name => at,
            _ => {
                let mut known = self.levels[..other].iter();
                known.position(|level| **level == *name).unwrap_or(other)
            }
        }
    }

    fn shard(&self) -> crate::sync::process::MutexGuard<'_, Shard> {
        let at = shard::of_this_thread() & (self.shards.len() - 1);
        self.shards[at].lock()
    }

    // -- looking

    pub(crate) fn label(&self) -> &Arc<str> {
        &self.seat.label
    }

    /// Names of its levels, and last the rest.
    pub(crate) fn levels(&self) -> &[Arc<str>] {
        &self.levels
    }

    pub(crate) fn status(&self) -> Vec<LevelNow> {
        (self.status)()
    }

    pub(crate) fn now(&self) -> Tick {
        self.clock.now()
    }

    /// Names of the endpoints, by number.
    pub(crate) fn endpoints(&self) -> Vec<Arc<str>> {
        self.names.all()
    }

    /// Everything that was counted. One shard after the other, each under its lock: every request is in it whole.
    pub(crate) fn counts(&self) -> Shard {
        let mut sum = Shard::new(self.levels.len());
        for shard in &self.shards {
            sum.add(&shard.lock());
        }
        sum
    }

    /// What is published of such counts, and of the levels as they stand.
    pub(crate) fn totals(&self, counts: &Shard, status: &[LevelNow]) -> Totals {
        // Names are read after the counts, so that there is one for each.
        let mut totals = counts.totals(&self.names.all(), &self.levels);
        for (level, (forgotten, turned_away)) in status.iter().zip(&self.before) {
            if let Some(told) = totals.levels.get_mut(&level.name) {
                let (all_forgotten, all_turned_away) = level.gone();
                told.forgotten = all_forgotten.saturating_sub(*forgotten);
                told.turned_away = all_turned_away.saturating_sub(*turned_away);
            }
        }
        totals
    }

    /// Who was refused most at each level, and how many refusals there were.
    pub(crate) fn hot(&self, most: usize) -> Vec<(u64, Vec<Hot>)> {
        let now = self.clock.now();
        let mut hot = self.hot.lock();
        let told = hot.iter_mut();
        told.map(|hot| (hot.refusals(now), hot.top(most, now)))
            .collect()
    }

    /// Highest guaranteed count of a key in the last minute, by level.
    pub(crate) fn hottest(&self) -> Vec<u64> {
        let now = self.clock.now();
        let mut hot = self.hot.lock();
        hot.iter_mut().map(|hot| hot.hottest(now)).collect()
    }

    /// Takes the sample of this second, unless there is one.
    pub(crate) fn sample(&self) {
        let now = self.clock.now();
        if self.trace.lock().is_due(now) {
            let counts = self.counts();
            self.trace.lock().add(&counts, now);
        }
    }

    pub(crate) fn trace(&self) -> Trace {
        self.trace.lock().clone()
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let totals = self.totals(&self.counts(), &self.status());
        METERS.leave(&self.seat, &totals);
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter")
            .field("label", &self.seat.label)
            .field("levels", &self.levels)
            .finish_non_exhaustive()
    }
}

/// Name of what is counted together because it has no place of its own.
pub(crate) const OTHER: &str = super::roll::OTHER;
/// Threads beyond so many share.
const MOST_SHARDS: usize = 32;
