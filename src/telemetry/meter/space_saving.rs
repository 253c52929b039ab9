//! The most frequent of many keys, in fixed memory: the Space-Saving summary of Metwally, Agrawal and El Abbadi.
//!
//! A key that is known is counted; while there is room, a new one is too; else it takes the place of the key with the
//! lowest count, and its own count goes on from there, with that as its possible error. With `m` places and `n` counted:
//!
//! - G1  the counts add up to `n`.
//! - G2  the lowest count is at most `n / m`.
//! - G3  `count - error <= true count <= count`, for every key that is held.
//! - G4  every key whose true count exceeds `n / m` is held.
//!
//! The entries are a heap, lowest count on top (H1), with an index by key (H2): counting takes `O(log m)`.

use std::collections::HashMap;

/// Counts of the most frequent keys, each with a value that is kept as long as the key is.
#[derive(Clone, Debug)]
pub(crate) struct SpaceSaving<V> {
    most: usize,
    heap: Vec<Entry<V>>,
    places: HashMap<u64, usize>,
    counted: u64,
}

/// A key that is held.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry<V> {
    pub(crate) key: u64,
    /// At most so often it was counted,
    pub(crate) count: u64,
    /// and at least `count - error` times.
    pub(crate) error: u64,
    pub(crate) value: V,
}

impl<V> SpaceSaving<V> {
    /// At most so many keys, one at least.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            heap: Vec::new(),
            places: HashMap::new(),
            counted: 0,
        }
    }

    /// Counts a key; `update` changes the value that it has, or makes the first.
    pub(crate) fn count(&mut self, key: u64, update: impl FnOnce(Option<&mut V>) -> Option<V>) {
        self.counted += 1;
        if let Some(place) = self.places.get(&key).copied() {
            let entry = &mut self.heap[place];
            entry.count += 1;
            if let Some(value) = update(Some(&mut entry.value)) {
                entry.value = value;
            }
            self.sink(place);
            return;
        }
        let Some(value) = update(None) else {
            debug_assert!(false, "a new key has a value");
            return;
        };
        let lowest = self.lowest();
        let entry = Entry {
            key,
            count: lowest + 1,
            error: lowest,
            value,
        };
        if self.heap.len() < self.most {
            self.heap.push(entry);
            self.places.insert(key, self.heap.len() - 1);
            self.rise(self.heap.len() - 1);
        } else {
            let gone = std::mem::replace(&mut self.heap[0], entry);
            self.places.remove(&gone.key);
            self.places.insert(key, 0);
            self.sink(0);
        }
    }

    /// Most that a key which is not held can have been counted: nothing while there is room.
    pub(crate) fn lowest(&self) -> u64 {
        match self.heap.first() {
            Some(entry) if self.heap.len() == self.most => entry.count,
            _ => 0,
        }
    }

    /// All that was counted.
    pub(crate) fn counted(&self) -> u64 {
        self.counted
    }

    /// The keys that are held, in no order.
    pub(crate) fn entries(&self) -> &[Entry<V>] {
        &self.heap
    }

    /// One key, if it is held.
    #[cfg(test)]
    pub(crate) fn get(&self, key: u64) -> Option<&Entry<V>> {
        self.places.get(&key).map(|place| &self.heap[*place])
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.heap.clear();
        self.places.clear();
        self.counted = 0;
    }

    /// Restores H1 after a count has grown.
    fn sink(&mut self, mut place: usize) {
        loop {
            let (left, right) = (2 * place + 1, 2 * place + 2);
            let count = |at: usize| self.heap.get(at).map(|entry| entry.count);
            let lower = match (count(left), count(right)) {
                (Some(one), Some(other)) if other < one => right,
                (Some(_), _) => left,
                (None, _) => return,
            };
            if self.heap[lower].count >= self.heap[place].count {
                return;
            }
            self.swap(place, lower);
            place = lower;
        }
    }

    /// Restores H1 after an entry was added at the end.
    fn rise(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent].count <= self.heap[place].count {
                return;
            }
            self.swap(place, parent);
            place = parent;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        // Keeps H2.
        for place in [a, b] {
            self.places.insert(self.heap[place].key, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn count(summary: &mut SpaceSaving<()>, key: u64) {
        summary.count(key, |held| held.is_none().then_some(()));
    }

    #[track_caller]
    fn check(summary: &SpaceSaving<()>, truth: &HashMap<u64, u64>) {
        let (n, m) = (truth.values().sum::<u64>(), summary.most as u64);
        let counts = summary.entries().iter().map(|entry| entry.count);
        assert_eq!(counts.clone().sum::<u64>(), n, "G1");
        assert_eq!(summary.counted(), n);
        assert!(summary.lowest() <= n / m, "G2");
        for entry in summary.entries() {
            let truth = truth[&entry.key];
            let least = entry.count - entry.error;
            assert!(least <= truth && truth <= entry.count, "G3: {entry:?}");
            assert_eq!(summary.get(entry.key), Some(entry), "H2");
        }
        for (key, truth) in truth {
            let held = summary.get(*key).is_some();
            assert!(held || *truth <= n / m, "G4: {key}");
            assert!(held || *truth <= summary.lowest(), "{key}");
        }
        for place in 1..summary.heap.len() {
            let parent = &summary.heap[(place - 1) / 2];
            assert!(parent.count <= summary.heap[place].count, "H1");
        }
        assert!(summary.heap.len() <= summary.most);
    }

    proptest! {
        #[test]
        fn the_four_guarantees_hold_after_every_count(
            most in 1_usize..12,
            // A few keys come often, most of them once.
            keys in proptest::collection::vec(prop_oneof![0_u64..4, 0_u64..20, 0_u64..400], 0..400),
        ) {
            let mut summary = SpaceSaving::new(most);
            let mut truth = HashMap::new();
            for key in keys {
                count(&mut summary, key);
                *truth.entry(key).or_default() += 1;
                check(&summary, &truth);
            }
        }
    }

    #[test]
    fn a_hundred_thousand_keys_take_the_memory_of_few() {
        let mut summary = SpaceSaving::new(256);
        for key in 0..100_000_u64 {
            count(&mut summary, key);
            count(&mut summary, 7 << 32);
        }
        assert_eq!(summary.heap.len(), 256);
        assert_eq!(summary.places.len(), 256);
        let heavy = summary.get(7 << 32).expect("half of all is more than n/m");
        assert!(heavy.count - heavy.error >= 99_000, "{heavy:?}");
    }
}
