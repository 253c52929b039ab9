//! Latest starts of queued jobs, the soonest first.
//!
//! A binary heap in chunks, as [`Places`] are: growth copies nothing, and no job costs an allocation. An entry whose job
//! has left by another way stays until it comes to the top, or until half of all are such.
//!
//! - I1  the job of the first entry is queued.
//! - I2  no entry is sooner than the one at half its index.

use crate::machine::outcome::JobKey;
use crate::machine::places::Places;
use crate::tick::Tick;

type Entry = (Tick, JobKey);

/// The heap.
#[derive(Debug, Default)]
pub(crate) struct Expiries {
    chunks: Vec<Vec<Entry>>,
    len: usize,
    /// Entries whose jobs have left, at most.
    left: usize,
}

impl Expiries {
    pub(crate) fn insert(&mut self, at: Tick, key: JobKey) {
        if self.len == self.chunks.len() * CHUNK {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let chunk = &mut self.chunks[self.len / CHUNK];
        chunk.push((at, key));
        self.len += 1;
        self.rise(self.len - 1);
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<Entry> {
        self.chunks.first()?.first().copied()
    }

    /// A job with an entry here has left its place.
    pub(crate) fn left<P>(&mut self, places: &Places<P>) {
        self.left += 1;
        let gone = |(_, key): &Entry| places.get(*key).is_none();
        if 2 * self.left > self.len + CHUNK {
            self.sweep(gone);
        }
        while self.first().as_ref().is_some_and(gone) {
            self.pop();
        }
    }

    fn pop(&mut self) {
        self.left = self.left.saturating_sub(1);
        let Some(last) = self.take_last() else { return };
        if self.len > 0 {
            self.set(0, last);
            self.sink(0);
        }
    }

    /// Takes out all that are gone, and puts the others in order again.
    fn sweep(&mut self, gone: impl Fn(&Entry) -> bool) {
        let mut kept = 0;
        for index in 0..self.len {
            let entry = self.at(index);
            if !gone(&entry) {
                self.set(kept, entry);
                kept += 1;
            }
        }
        while self.len > kept {
            self.take_last();
        }
        self.left = 0;
        (0..self.len / 2).rev().for_each(|index| self.sink(index));
    }

    fn rise(&mut self, mut index: usize) {
        let entry = self.at(index);
        while index > 0 {
            let above = (index - 1) / 2;
            if self.at(above) <= entry {
                break;
            }
            self.set(index, self.at(above));
            index = above;
        }
        self.set(index, entry);
    }

    fn sink(&mut self, mut index: usize) {
        let entry = self.at(index);
        loop {
            let mut below = 2 * index + 1;
            if below >= self.len {
                break;
            }
            if below + 1 < self.len && self.at(below + 1) < self.at(below) {
                below += 1;
            }
            if entry <= self.at(below) {
                break;
            }
            self.set(index, self.at(below));
            index = below;
        }
        self.set(index, entry);
    }

    fn take_last(&mut self) -> Option<Entry> {
        let last = self.len.checked_sub(1)?;
        self.len = last;
        // An empty chunk is kept: the next entry fills it again.
        self.chunks[last / CHUNK].pop()
    }

    fn at(&self, index: usize) -> Entry {
        self.chunks[index / CHUNK][index % CHUNK]
    }

    fn set(&mut self, index: usize, entry: Entry) {
        self.chunks[index / CHUNK][index % CHUNK] = entry;
    }
}

const CHUNK: usize = 256;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::machine::outcome::Owner;
    use crate::machine::places::{Entry as Job, Standing};
    use crate::machine::tenants::TenantId;
    use crate::words::Priority;

    fn job(at: Tick) -> Job<()> {
        Job {
            payload: (),
            cost: 1,
            since: Tick::ZERO,
            expires_at: at,
            attempts: 0,
            owner: Owner {
                priority: Priority::Normal,
                tenant: TenantId::NONE,
            },
            lasting: true,
        }
    }

    proptest! {
        #[test]
        fn the_first_is_always_the_soonest_that_is_queued(
            moves in prop::collection::vec((any::<bool>(), 0_u64..50, any::<prop::sample::Index>()), 1..1200),
        ) {
            let (mut places, mut expiries, mut model) = (Places::new(), Expiries::default(), BTreeSet::new());
            for (comes, at, which) in moves {
                if comes || model.is_empty() {
                    let at = Tick::from_nanos(at);
                    let key = places.insert(job(at), Standing::Delayed);
                    expiries.insert(at, key);
                    model.insert((at, key));
                } else {
                    let all: Vec<Entry> = model.iter().copied().collect();
                    let entry = *which.get(&all);
                    model.remove(&entry);
                    places.remove(entry.1);
                    expiries.left(&places);
                }
                prop_assert_eq!(expiries.first(), model.first().copied());
                prop_assert!(expiries.len <= 2 * model.len() + CHUNK + 2, "{} of {}", expiries.len, model.len());
            }
        }
    }
}
