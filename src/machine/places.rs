//! Where queued jobs live: a chunked slab whose slots are threaded onto lists.
//!
//! Chunks are never moved, so growth copies nothing. A slot costs 48 bytes beside its payload.
//!
//! - I1  a slot is on exactly one of: the free list, one of the lists of [`Lanes`](super::lanes::Lanes), none.
//! - I2  `generation` changes whenever a slot is freed, so that a stale key finds nothing.

use crate::machine::outcome::{JobKey, Owner};
use crate::machine::tenants::TenantId;
use crate::tick::Tick;
use crate::words::Priority;

/// Where a queued job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// May leave; in the order of its lane.
    Ready,
    /// May leave, but its own future was late: out of the order, first when asked for.
    Aside,
    /// Waits for its retry.
    Delayed,
}

/// A queued job. `prev` and `next` belong to [`List`].
#[derive(Debug)]
pub(crate) struct Slot<P> {
    payload: Option<P>,
    pub(crate) cost: u64,
    /// Its offer, or the instant its retry is due.
    pub(crate) since: Tick,
    /// Latest start; [`Tick::MAX`] = none.
    pub(crate) expires_at: Tick,
    generation: u32,
    prev: u32,
    next: u32,
    /// Starts it had.
    pub(crate) attempts: u32,
    // The owner, in parts: together they would take a word more.
    tenant: TenantId,
    priority: Priority,
    pub(crate) standing: Standing,
    /// Whether `expires_at` binds retries too.
    pub(crate) lasting: bool,
}

/// What a new slot is filled with.
#[derive(Debug)]
pub(crate) struct Entry<P> {
    pub(crate) payload: P,
    pub(crate) cost: u64,
    pub(crate) since: Tick,
    pub(crate) expires_at: Tick,
    pub(crate) attempts: u32,
    pub(crate) owner: Owner,
    /// Whether `expires_at` binds retries too.
    pub(crate) lasting: bool,
}

impl<P> Slot<P> {
    #[inline]
    fn new(entry: Entry<P>, standing: Standing, generation: u32, prev: u32) -> Self {
        let Entry {
            payload,
            cost,
            since,
            expires_at,
            attempts,
            owner,
            lasting,
        } = entry;
        Self {
            payload: Some(payload),
            cost,
            since,
            expires_at,
            generation,
            prev,
            next: NONE,
            attempts,
            tenant: owner.tenant,
            priority: owner.priority,
            standing,
            lasting,
        }
    }
}

impl<P> Slot<P> {
    #[inline]
    pub(crate) const fn owner(&self) -> Owner {
        Owner {
            priority: self.priority,
            tenant: self.tenant,
        }
    }
}

/// First-in-first-out list of slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    pub(crate) len: usize,
}

impl List {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self {
            head: NONE,
            tail: NONE,
            len: 0,
        }
    }
}

/// The slab.
#[derive(Debug)]
pub(crate) struct Places<P> {
    chunks: Vec<Vec<Slot<P>>>,
    free: u32,
    len: usize,
}

impl<P> Places<P> {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            free: NONE,
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Fills a slot that is on no list.
    pub(crate) fn insert(&mut self, entry: Entry<P>, standing: Standing) -> JobKey {
        self.fill(entry, standing, NONE)
    }

    /// Fills a slot at the end of a list.
    #[inline]
    pub(crate) fn push(&mut self, list: &mut List, entry: Entry<P>) -> JobKey {
        let tail = list.tail;
        let key = self.fill(entry, Standing::Ready, tail);
        self.append(list, tail, key.index);
        key
    }

    /// Frees the slot; it must be on no list any more.
    pub(crate) fn remove(&mut self, key: JobKey) -> Option<Entry<P>> {
        let (entry, prev, next) = self.empty(key)?;
        debug_assert!(prev == NONE && next == NONE, "freed while on a list (I1)");
        Some(entry)
    }

    /// Frees the slot of a job that is on this list.
    #[inline]
    pub(crate) fn pull(&mut self, list: &mut List, key: JobKey) -> Option<Entry<P>> {
        let (entry, prev, next) = self.empty(key)?;
        self.close_ranks(list, prev, next);
        Some(entry)
    }

    /// Frees the slot of the first job of this list, if that `may` go.
    #[inline]
    pub(crate) fn pull_first(
        &mut self,
        list: &mut List,
        may: impl FnOnce(&Slot<P>) -> bool,
    ) -> Option<Entry<P>> {
        let index = list.head;
        if index == NONE || !may(self.slot_mut(index)) {
            return None;
        }
        let (entry, prev, next) = self.empty_at(index);
        self.close_ranks(list, prev, next);
        Some(entry)
    }

    #[inline]
    pub(crate) fn get(&self, key: JobKey) -> Option<&Slot<P>> {
        let slot = self.chunks.get(chunk(key.index))?.get(offset(key.index))?;
        (slot.generation == key.generation && slot.payload.is_some()).then_some(slot)
    }

    #[inline]
    pub(crate) fn find_mut(&mut self, key: JobKey) -> Option<&mut Slot<P>> {
        let slot = self
            .chunks
            .get_mut(chunk(key.index))?
            .get_mut(offset(key.index))?;
        (slot.generation == key.generation && slot.payload.is_some()).then_some(slot)
    }

    pub(crate) fn payload_mut(&mut self, key: JobKey) -> Option<&mut P> {
        self.find_mut(key)?.payload.as_mut()
    }

    /// Every filled slot, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (JobKey, &Slot<P>)> {
        let slots = self.chunks.iter().flatten().enumerate();
        slots
            .filter(|(_, slot)| slot.payload.is_some())
            .map(|(index, slot)| {
                let index = index as u32;
                (
                    JobKey {
                        index,
                        generation: slot.generation,
                    },
                    slot,
                )
            })
    }

    #[inline]
    pub(crate) fn head(&self, list: &List) -> Option<JobKey> {
        self.key_at(list.head)
    }

    /// A list from head to tail.
    pub(crate) fn walk(&self, list: &List) -> impl Iterator<Item = JobKey> {
        std::iter::successors(self.key_at(list.head), |key| {
            self.key_at(self.chunks[chunk(key.index)][offset(key.index)].next)
        })
    }

    pub(crate) fn tail(&self, list: &List) -> Option<JobKey> {
        self.key_at(list.tail)
    }

    pub(crate) fn push_back(&mut self, list: &mut List, key: JobKey) {
        let tail = list.tail;
        self.slot_mut(key.index).prev = tail;
        self.append(list, tail, key.index);
    }

    pub(crate) fn unlink(&mut self, list: &mut List, key: JobKey) {
        let slot = self.slot_mut(key.index);
        let prev = std::mem::replace(&mut slot.prev, NONE);
        let next = std::mem::replace(&mut slot.next, NONE);
        self.close_ranks(list, prev, next);
    }

    /// The second half of joining a list: the new slot knows of `tail` already.
    #[inline]
    fn append(&mut self, list: &mut List, tail: u32, index: u32) {
        list.tail = index;
        list.len += 1;
        match tail {
            NONE => list.head = index,
            tail => self.slot_mut(tail).next = index,
        }
    }

    /// The second half of leaving a list: the slots beside it learn of each other.
    #[inline]
    fn close_ranks(&mut self, list: &mut List, prev: u32, next: u32) {
        list.len -= 1;
        match prev {
            NONE => list.head = next,
            prev => self.slot_mut(prev).next = next,
        }
        match next {
            NONE => list.tail = prev,
            next => self.slot_mut(next).prev = prev,
        }
    }

    #[inline]
    fn fill(&mut self, entry: Entry<P>, standing: Standing, prev: u32) -> JobKey {
        self.len += 1;
        if self.free == NONE {
            return self.grow(Slot::new(entry, standing, 0, prev));
        }
        let index = self.free;
        let slot = self.slot_mut(index);
        let (generation, after) = (slot.generation, slot.next);
        *slot = Slot::new(entry, standing, generation, prev);
        self.free = after;
        JobKey { index, generation }
    }

    /// Frees a slot; returns what it held, and its place on a list.
    #[inline]
    fn empty(&mut self, key: JobKey) -> Option<(Entry<P>, u32, u32)> {
        self.get(key)?;
        Some(self.empty_at(key.index))
    }

    /// As [`empty`](Self::empty), of a slot that is filled.
    #[inline]
    fn empty_at(&mut self, index: u32) -> (Entry<P>, u32, u32) {
        let free = self.free;
        let slot = self.slot_mut(index);
        let payload = slot
            .payload
            .take()
            .expect("a slot that a live key or a list finds is filled");
        slot.generation = slot.generation.wrapping_add(1);
        let prev = std::mem::replace(&mut slot.prev, NONE);
        let next = std::mem::replace(&mut slot.next, free);
        let owner = slot.owner();
        let &mut Slot {
            cost,
            since,
            expires_at,
            attempts,
            lasting,
            ..
        } = slot;
        self.free = index;
        self.len -= 1;
        let entry = Entry {
            payload,
            cost,
            since,
            expires_at,
            attempts,
            owner,
            lasting,
        };
        (entry, prev, next)
    }

    #[inline]
    fn key_at(&self, index: u32) -> Option<JobKey> {
        (index != NONE).then(|| {
            let generation = self.chunks[chunk(index)][offset(index)].generation;
            JobKey { index, generation }
        })
    }

    fn grow(&mut self, slot: Slot<P>) -> JobKey {
        if self.chunks.last().is_none_or(|last| last.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let full = (self.chunks.len() - 1) * CHUNK;
        let last = self
            .chunks
            .last_mut()
            .expect("a chunk with room was just made sure of");
        let index = u32::try_from(full + last.len())
            .ok()
            .filter(|index| *index != NONE);
        last.push(slot);
        JobKey {
            index: index.expect("2^32 jobs exceed any memory"),
            generation: 0,
        }
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> &mut Slot<P> {
        &mut self.chunks[chunk(index)][offset(index)]
    }
}

const fn chunk(index: u32) -> usize {
    index as usize / CHUNK
}

const fn offset(index: u32) -> usize {
    index as usize % CHUNK
}

/// Slots of a chunk: small enough for a queue of ten jobs, large enough that a million jobs are few chunks.
const CHUNK: usize = 256;
const NONE: u32 = u32::MAX;
