//! Who was refused most in the last minute, one summary for each level.
//!
//! A ring of six summaries of ten seconds each, merged when somebody looks: what is older than a minute is gone, and the
//! memory is fixed however many keys there are. Guarantees under the merge: a key's guaranteed count never exceeds the
//! true one in the window, and its highest never falls below it.

use std::collections::HashMap;
use std::time::Duration;

use super::space_saving::SpaceSaving;
use crate::key::Key;
use crate::tick::Tick;

/// Refusals at one level in the last minute.
#[derive(Clone, Debug)]
pub(crate) struct HotKeys {
    ring: [SpaceSaving<Seen>; SPANS],
    /// Number of the ten seconds that count now.
    current: u64,
    /// Refusals that were not counted because somebody looked, by the same ring.
    missed: [u64; SPANS],
}

/// What is known of a key beside its count.
#[derive(Clone, Debug)]
struct Seen {
    key: Key,
    last: Tick,
}

/// A key that was refused often.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hot {
    pub(crate) key: Key,
    pub(crate) guaranteed: u64,
    pub(crate) at_most: u64,
    pub(crate) last: Tick,
}

impl HotKeys {
    pub(crate) fn new() -> Self {
        Self {
            ring: std::array::from_fn(|_| SpaceSaving::new(KEYS)),
            current: 0,
            missed: [0; SPANS],
        }
    }

    /// Counts a refusal of a key, which `hash` stands for, and some that were missed.
    pub(crate) fn refuse(&mut self, hash: u64, key: &Key, missed: u64, now: Tick) {
        let at = self.turn(now);
        self.missed[at] += missed;
        self.ring[at].count(hash, |seen| match seen {
            Some(seen) => {
                seen.last = seen.last.max(now);
                None
            }
            None => Some(Seen {
                key: shortened(key),
                last: now,
            }),
        });
    }

    /// Refusals in the window, those that were missed included.
    pub(crate) fn refusals(&mut self, now: Tick) -> u64 {
        self.turn(now);
        let counted = self.ring.iter().map(SpaceSaving::counted);
        counted.chain(self.missed).sum()
    }

    /// The keys that were refused most for certain, most first.
    pub(crate) fn top(&mut self, most: usize, now: Tick) -> Vec<Hot> {
        self.turn(now);
        // A key that is not in a summary may have been counted there as often as the least that is.
        let unseen: u64 = self.ring.iter().map(SpaceSaving::lowest).sum();
        let missed: u64 = self.missed.iter().sum();
        let mut merged: HashMap<u64, Hot> = HashMap::new();
        for summary in &self.ring {
            for entry in summary.entries() {
                let hot = merged.entry(entry.key).or_insert_with(|| Hot {
                    key: entry.value.key.clone(),
                    guaranteed: 0,
                    at_most: unseen + missed,
                    last: Tick::ZERO,
                });
                hot.guaranteed += entry.count - entry.error;
                hot.at_most += entry.count - summary.lowest();
                hot.last = hot.last.max(entry.value.last);
            }
        }
        let mut hot: Vec<Hot> = merged.into_values().collect();
        hot.sort_by_key(|hot| {
            let order = (hot.guaranteed, hot.at_most, hot.last);
            std::cmp::Reverse(order)
        });
        hot.truncate(most);
        hot
    }

    /// Highest guaranteed count.
    pub(crate) fn hottest(&mut self, now: Tick) -> u64 {
        self.turn(now);
        let mut merged: HashMap<u64, u64> = HashMap::new();
        for entry in self.ring.iter().flat_map(SpaceSaving::entries) {
            *merged.entry(entry.key).or_default() += entry.count - entry.error;
        }
        merged.into_values().max().unwrap_or(0)
    }

    /// Turns the ring to `now`, and says where that is. A clock that was set back counts as standing still.
    fn turn(&mut self, now: Tick) -> usize {
        let span = now.as_nanos() / SPAN.as_nanos() as u64;
        let gone = span.saturating_sub(self.current).min(SPANS as u64);
        for ahead in 0..gone {
            let at = ((span - ahead) % SPANS as u64) as usize;
            self.ring[at].clear();
            self.missed[at] = 0;
        }
        self.current = self.current.max(span);
        (self.current % SPANS as u64) as usize
    }
}

/// A key as it is kept: its text, if it is so long that a few would be many megabytes.
fn shortened(key: &Key) -> Key {
    if key.as_bytes().len() <= LONGEST {
        return key.clone();
    }
    Key::from(key.to_text(LONGEST / 4))
}

/// Keys of a summary.
const KEYS: usize = 256;
/// Summaries of the ring.
const SPANS: usize = 6;
const SPAN: Duration = Duration::from_secs(10);
/// Bytes of a key that is kept whole.
const LONGEST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Tick {
        Tick::from_nanos(seconds * 1_000_000_000)
    }

    proptest! {
        #[test]
        fn what_is_told_holds_of_the_last_minute(
            hits in proptest::collection::vec((0_u64..700, prop_oneof![0_u64..3, 0_u64..2_000], 1_u64..4), 1..1_500),
            ahead in 0_u64..80,
        ) {
            let mut hot = HotKeys::new();
            let (mut now, mut truth) = (0, Vec::new());
            for (gap, key, refusals) in hits {
                // Bursts, and now and then a pause.
                now += if gap < 650 { 0 } else { gap - 640 };
                for _ in 0..refusals {
                    hot.refuse(key, &Key::from(key), 0, at(now));
                    truth.push((now, key));
                }
            }
            let end = now + ahead;
            let since = (end / 10).saturating_sub(5) * 10;
            let inside = |key: u64| {
                truth.iter().filter(|(time, hit)| *time >= since && *hit == key).count() as u64
            };
            let total = truth.iter().filter(|(time, _)| *time >= since).count() as u64;
            prop_assert_eq!(hot.refusals(at(end)), total);
            let top = hot.top(usize::MAX, at(end));
            for found in &top {
                let key = (0..2_000).find(|key| Key::from(*key) == found.key).expect("one of them");
                let truth_of = inside(key);
                prop_assert!(found.guaranteed <= truth_of && truth_of <= found.at_most, "{found:?}, {truth_of}");
                let last = truth.iter().rev().find(|(_, hit)| *hit == key).map(|(time, _)| *time);
                prop_assert_eq!(Some(found.last), last.map(at));
            }
            // Whoever has more than its share of every summary is among them.
            for key in 0..3 {
                let is_told = top.iter().any(|found| found.key == Key::from(key));
                prop_assert!(is_told || inside(key) <= total / KEYS as u64, "{key}");
            }
            prop_assert_eq!(hot.hottest(at(end)), top.first().map_or(0, |first| first.guaranteed));
        }
    }

    #[test]
    fn what_is_a_minute_old_is_gone() {
        let mut hot = HotKeys::new();
        hot.refuse(1, &Key::from(1), 0, at(1_009));
        assert_eq!(hot.top(9, at(1_059)).len(), 1);
        assert_eq!(hot.top(9, at(1_060)).len(), 0);
        assert_eq!(hot.refusals(at(1_060)), 0);
    }

    #[test]
    fn a_clock_that_jumps_costs_no_memory_and_loses_no_order() {
        let mut hot = HotKeys::new();
        for now in [u64::MAX, 0, 5, u64::MAX, 1 << 40] {
            hot.refuse(1, &Key::from(1), 0, Tick::from_nanos(now));
        }
        let top = hot.top(9, Tick::ZERO);
        assert_eq!((top[0].guaranteed, top[0].last), (5, Tick::MAX));
    }

    #[test]
    fn a_long_key_is_kept_short() {
        let mut hot = HotKeys::new();
        hot.refuse(1, &Key::from("k".repeat(64_000)), 0, at(0));
        let kept = &hot.top(1, at(0))[0].key;
        assert!(kept.as_bytes().len() <= LONGEST + 8);
        assert!(kept.to_text(100).starts_with("kkkk"));
    }

    #[test]
    fn missed_refusals_widen_what_is_told() {
        let mut hot = HotKeys::new();
        hot.refuse(1, &Key::from(1), 0, at(0));
        hot.refuse(1, &Key::from(1), 3, at(0));
        let top = hot.top(1, at(0));
        assert_eq!((top[0].guaranteed, top[0].at_most), (2, 5));
        assert_eq!(hot.refusals(at(0)), 5);
    }
}
