//! A bucket in one atomic word: a grant is one exchange, a refusal only reads.
//!
//! ```text
//! bits 63..52  tag: which set of parameters the rest is to be read by
//! bits 51..0   tat: theoretical arrival time, in units of 2^-fraction ns after `base`
//! all ones     shut: the state is behind the lock
//! ```
//!
//! - J1  Parameters change only while the word is shut, by whoever holds the lock; reopening with other parameters
//!   takes the next tag. So an exchange that expects an old word fails, and a reader who finds the same tag before and
//!   after has read parameters that belong together. (A thread would have to sleep through a multiple of 4,096 such
//!   changes, and find the old word to the bit, to be fooled.)
//! - J2  While open, `tat` fits its bits: it is at most one tolerance ahead of an instant within reach of `base`. What is
//!   further from `base` takes the lock, which moves `base`.
//!
//! The interval is cut off at 2^-fraction ns, and the fraction has so many bits that it is at least 2^22 units long:
//! at most 0.25 ppm too short, and exact to the nanosecond over a whole burst wherever the bits allow.

use std::time::Duration;

use crate::decision::{Decision, Verdict};
use crate::policy::Gcra;
use crate::sync::{AtomicU64, Ordering};
use crate::tick::{Fine, Tick};

/// The word and the parameters that it is read by.
#[derive(Debug)]
pub(crate) struct Word {
    word: AtomicU64,
    /// Latest instant that was charged: a clock that goes back counts as standing there.
    last: AtomicU64,
    base: AtomicU64,
    fraction: AtomicU64,
    interval: AtomicU64,
    tolerance: AtomicU64,
    depth: AtomicU64,
}

/// Parameters of a bucket whose instants fit a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    fraction: u32,
    interval: u64,
    tolerance: u64,
    depth: u64,
}

/// A word whose parameters were read and belong to it.
#[derive(Clone, Copy)]
struct Reading {
    base: u64,
    scale: Scale,
}

impl Scale {
    /// `None` if the bucket needs more bits than there are: a burst of days, or of hundreds of millions.
    pub(crate) fn of(core: Gcra) -> Option<Self> {
        let bits = |value: u128| 128 - value.leading_zeros();
        // Whole nanoseconds of both, rounded up to a power of two.
        let tolerance = bits(core.tolerance().0 >> 64);
        let interval = bits(core.interval().0 >> 64);
        let exact = bits(u128::from(core.depth())) + 4;
        let needed = (INTERVAL_BITS + 1).saturating_sub(interval);
        let most = TOLERANCE_BITS.checked_sub(tolerance)?.min(MOST_FRACTION);
        if needed > most {
            return None;
        }
        let fraction = exact.max(needed).min(most);
        let interval = (core.interval().0 >> (64 - fraction)) as u64;
        Some(Self {
            fraction,
            interval,
            tolerance: interval.checked_mul(core.depth())?,
            depth: core.depth(),
        })
    }

    /// Nanoseconds after `base` within which instants fit the word.
    #[inline]
    const fn reach(self) -> u64 {
        REACH >> self.fraction
    }

    /// A span in units of the word.
    ///
    /// Rounded down, as the interval is: a unit charged under the lock must not seem longer than one charged here. What
    /// came from the word is a whole number of them already, so only a charge is rounded, never what is merely read.
    const fn units(self, span: Fine) -> u128 {
        span.0 >> (64 - self.fraction)
    }

    /// Units of the word as time, rounded up to a nanosecond.
    #[inline]
    const fn duration(self, units: u64) -> Duration {
        let mask = (1 << self.fraction) - 1;
        Duration::from_nanos((units >> self.fraction) + (units & mask != 0) as u64)
    }
}

impl Word {
    /// Makes a word that is shut.
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            word: AtomicU64::new(SHUT),
            last: zero(),
            base: zero(),
            fraction: zero(),
            interval: zero(),
            tolerance: zero(),
            depth: zero(),
        }
    }

    /// Decides without the lock; `None` if that takes the lock.
    #[inline(always)] // Else the numbers that the caller does not ask for are worked out all the same.
    pub(crate) fn check(&self, now: Tick, cost: u64) -> Option<Decision> {
        // Acquire pairs with the release that opened the word: what it is read by is there.
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word == SHUT {
                return None;
            }
            let Reading { base, scale } = self.read();
            let last = self.last.load(Ordering::Relaxed).max(base);
            let now = now.max(Tick::from_nanos(last));
            let passed = now.as_nanos() - base;
            if passed > scale.reach() || cost == 0 || cost > scale.depth {
                return None;
            }
            let at = passed << scale.fraction;
            let tat = word & TAT;
            // Saturating, as parameters that do not belong together are found out only below.
            let after = tat
                .max(at)
                .saturating_add(cost.saturating_mul(scale.interval));
            if after - at > scale.tolerance {
                // Acquire, so that this load is not done before those of the parameters (J1).
                let again = self.word.load(Ordering::Acquire);
                if again & !TAT != word & !TAT || again == SHUT {
                    word = again;
                    continue;
                }
                let retry_after = scale.duration(after - at - scale.tolerance);
                let verdict = Verdict::Refused { retry_after };
                return Some(scale.decision(now, verdict, tat.saturating_sub(at)));
            }
            // Acquire and release: a lock holder who finds this word has everything that led to it.
            let (order, failed) = (Ordering::AcqRel, Ordering::Acquire);
            match self
                .word
                .compare_exchange_weak(word, word & !TAT | after, order, failed)
            {
                Ok(_) => {
                    // The line is ours already, so this costs no more; it may lag behind another thread's.
                    if now.as_nanos() > last {
                        self.last.store(now.as_nanos(), Ordering::Relaxed);
                    }
                    return Some(scale.decision(now, Verdict::Granted, after - at));
                }
                Err(found) => word = found,
            }
        }
    }

    /// Shuts the word, by the holder of the lock; the `tat` that it held and the last instant charged, if it was open.
    pub(crate) fn shut(&self) -> Option<(Fine, Tick)> {
        // Acquire: what the fast path has charged. Release: the parameters stored next are not seen before this.
        let word = self.word.swap(SHUT, Ordering::AcqRel);
        if word == SHUT {
            return None;
        }
        let Reading { base, scale } = self.read();
        let since = Fine(u128::from(word & TAT) << (64 - scale.fraction));
        let last = Tick::from_nanos(self.last.load(Ordering::Relaxed));
        Some((Fine::from_nanos(base).plus(since), last))
    }

    /// Opens the word again, by the holder of the lock; false if the state does not fit, and it stays shut.
    pub(crate) fn open(
        &self,
        scale: Scale,
        tat: Fine,
        last: Tick,
        now: Tick,
        tag: &mut u64,
    ) -> bool {
        let reading = self.read();
        let passed = now.as_nanos().wrapping_sub(reading.base);
        let stays = reading.scale == scale && passed <= scale.reach() / 2;
        let base = if stays { reading.base } else { now.as_nanos() };
        let since = scale.units(tat.minus(Fine::from_nanos(base)));
        if since > u128::from(REACH + scale.tolerance) {
            return false;
        }
        if !stays {
            *tag = (*tag + 1) % TAGS;
            // Released, each: whoever reads one of them finds the word shut or changed afterwards (J1).
            self.base.store(base, Ordering::Release);
            self.fraction
                .store(u64::from(scale.fraction), Ordering::Release);
            self.interval.store(scale.interval, Ordering::Release);
            self.tolerance.store(scale.tolerance, Ordering::Release);
            self.depth.store(scale.depth, Ordering::Release);
        }
        self.last.store(last.as_nanos(), Ordering::Relaxed);
        let word = *tag << TAT.count_ones() | since as u64;
        self.word.store(word, Ordering::Release);
        true
    }

    #[inline(always)]
    fn read(&self) -> Reading {
        Reading {
            base: self.base.load(Ordering::Acquire),
            scale: Scale {
                fraction: self.fraction.load(Ordering::Acquire) as u32,
                interval: self.interval.load(Ordering::Acquire),
                tolerance: self.tolerance.load(Ordering::Acquire),
                depth: self.depth.load(Ordering::Acquire),
            },
        }
    }
}

impl Scale {
    /// The numbers around a verdict that leaves the bucket `lead` ahead.
    #[inline(always)]
    fn decision(self, at: Tick, verdict: Verdict, lead: u64) -> Decision {
        let left = self.tolerance.saturating_sub(lead);
        let missing = self.interval.saturating_sub(left);
        Decision {
            at,
            verdict,
            limit: self.depth,
            remaining: left / self.interval.max(1),
            next_unit_in: self.duration(missing),
            reset_after: self.duration(lead),
        }
    }
}

const SHUT: u64 = u64::MAX;
const TAT: u64 = (1 << 52) - 1;
const TAGS: u64 = 1 << 12;
/// Units after `base` that `now` may reach; a tolerance fits above it, and twice that is below `TAT`.
const REACH: u64 = 1 << 50;
/// Bits of a tolerance.
const TOLERANCE_BITS: u32 = 49;
/// Bits that an interval has at least: its last one is below a quarter of a millionth of it.
const INTERVAL_BITS: u32 = 22;
/// With more bits of fraction the reach would fall below 134 ms, and `base` would have to be moved often.
const MOST_FRACTION: u32 = 23;
