//! Sixteen bytes of state per key, whatever the limit.
//!
//! Buckets and fixed windows fit in place; logs and counters, and instants beyond the year 2116, lie in a slab beside the
//! table. A cell knows by itself when it is idle, so keys are forgotten without asking which limit they have.

use crate::policy::{BucketState, Limit, LimitState, Policy, WindowState};
use crate::tick::{Fine, Tick};

/// State of one key. The upper two bits of the first word tell the kind, the rest is an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    head: u64,
    tail: u64,
}

/// States that do not fit a cell, each with its limit.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    states: Vec<Option<(Limit, LimitState)>>,
    free: Vec<u32>,
}

impl Cell {
    /// Puts a state away.
    pub(crate) fn pack(limit: &Limit, state: LimitState, slab: &mut Slab) -> Self {
        Self::in_place(&state).unwrap_or_else(|| slab.insert(*limit, state))
    }

    fn in_place(state: &LimitState) -> Option<Self> {
        let (kind, head, tail) = match state {
            LimitState::TokenBucket(state) => {
                (TOKEN, (state.tat.0 >> 64) as u64, state.tat.0 as u64)
            }
            LimitState::LeakyBucket(state) => {
                (LEAKY, (state.tat.0 >> 64) as u64, state.tat.0 as u64)
            }
            LimitState::FixedWindow(state) => (WINDOW, state.end.as_nanos(), state.used),
            LimitState::SlidingLog(_) | LimitState::SlidingCounter(_) => return None,
        };
        let head = (head <= INSTANT).then_some(kind | head)?;
        Some(Self { head, tail })
    }

    /// The theoretical arrival time, if this is a bucket of the limit's kind.
    #[inline]
    pub(crate) fn bucket(self, limit: &Limit) -> Option<Fine> {
        let kind = match limit {
            Limit::TokenBucket(_) => TOKEN,
            Limit::LeakyBucket(_) => LEAKY,
            _ => return None,
        };
        (self.head & !INSTANT == kind).then(|| self.fine())
    }

    /// Stores the theoretical arrival time of a bucket; false if it does not fit.
    #[inline]
    pub(crate) fn set_bucket(&mut self, tat: Fine) -> bool {
        let head = (tat.0 >> 64) as u64;
        if head > INSTANT {
            return false;
        }
        self.head = self.head & !INSTANT | head;
        self.tail = tat.0 as u64;
        true
    }

    const fn fine(self) -> Fine {
        Fine(((self.head & INSTANT) as u128) << 64 | self.tail as u128)
    }

    /// Takes a state out; the cell has to be packed again, or dropped.
    pub(crate) fn unpack(self, slab: &mut Slab) -> LimitState {
        match self.head & !INSTANT {
            TOKEN => LimitState::TokenBucket(BucketState::new(self.fine())),
            LEAKY => LimitState::LeakyBucket(BucketState::new(self.fine())),
            WINDOW => LimitState::FixedWindow(WindowState {
                end: Tick::from_nanos(self.head & INSTANT),
                used: self.tail,
            }),
            _ => slab.remove(self.tail as u32),
        }
    }

    /// Looks at a state in its place.
    pub(crate) fn look<R>(self, slab: &Slab, look: impl FnOnce(&LimitState) -> R) -> R {
        match self.head & !INSTANT {
            BESIDE => look(slab.get(self.tail as u32).1),
            // Only what lies beside needs the slab to be taken out.
            _ => look(&self.unpack(&mut Slab::default())),
        }
    }

    /// Whether the key can be forgotten: a fresh state would decide alike.
    #[inline]
    pub(crate) fn is_idle(self, slab: &Slab, now: Tick) -> bool {
        match self.head & !INSTANT {
            TOKEN | LEAKY => self.fine() <= Fine::at(now),
            WINDOW => self.head & INSTANT <= now.as_nanos() || self.tail == 0,
            _ => {
                let (limit, state) = slab.get(self.tail as u32);
                limit.is_idle(state, now)
            }
        }
    }
}

impl Slab {
    fn insert(&mut self, limit: Limit, state: LimitState) -> Cell {
        let entry = Some((limit, state));
        let index = match self.free.pop() {
            Some(index) => {
                self.states[index as usize] = entry;
                index
            }
            None => {
                self.states.push(entry);
                (self.states.len() - 1) as u32
            }
        };
        Cell {
            head: BESIDE,
            tail: u64::from(index),
        }
    }

    fn get(&self, index: u32) -> (&Limit, &LimitState) {
        let entry = self.states[index as usize].as_ref();
        let (limit, state) = entry.expect("a cell that lies beside has its state here");
        (limit, state)
    }

    fn remove(&mut self, index: u32) -> LimitState {
        let entry = self.states[index as usize].take();
        self.free.push(index);
        // All free: the memory of a rush is given back.
        if self.free.len() == self.states.len() {
            *self = Self::default();
        }
        entry.expect("a cell that lies beside has its state here").1
    }
}

/// Bits of the first word that hold an instant: nanoseconds until the year 2116.
const INSTANT: u64 = (1 << 62) - 1;
const TOKEN: u64 = 0;
const LEAKY: u64 = 1 << 62;
const WINDOW: u64 = 2 << 62;
const BESIDE: u64 = 3 << 62;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_state_comes_back_as_it_was_put_away() {
        let mut slab = Slab::default();
        for text in [
            "token_bucket 3/s burst 50",
            "leaky_bucket 3/s depth 50",
            "fixed_window 50 per 1min",
            "sliding_log 50 per 1min",
            "sliding_counter 50 per 1min",
        ] {
            for now in [Tick::from_nanos(7), Tick::from_nanos(u64::MAX / 3)] {
                let limit: Limit = text.parse().expect("it is a limit");
                let mut state = limit.start(now);
                let granted = limit.check(&mut state, now, 20);
                assert!(granted.is_granted());
                let cell = Cell::pack(&limit, state, &mut slab);
                assert!(!cell.is_idle(&slab, now));
                let left = cell.look(&slab, |state| limit.peek(state, now, 0).remaining);
                assert_eq!(left, 30, "{text}");
                let later = now + granted.reset_after;
                assert!(cell.is_idle(&slab, later), "{text}");
                assert!(
                    !cell.is_idle(&slab, later.max(now + Duration::from_nanos(1)).before_one())
                );
                let state = cell.unpack(&mut slab);
                assert_eq!(limit.peek(&state, now, 0).remaining, 30, "{text}");
            }
        }
        assert!(slab.states.is_empty(), "nothing is left behind");
    }

    trait BeforeOne {
        fn before_one(self) -> Self;
    }

    impl BeforeOne for Tick {
        fn before_one(self) -> Self {
            Tick::from_nanos(self.as_nanos() - 1)
        }
    }

    #[test]
    fn a_bucket_or_a_window_takes_sixteen_bytes() {
        assert_eq!(size_of::<Cell>(), 16);
        assert_eq!(size_of::<(u64, Cell)>(), 24);
    }
}
