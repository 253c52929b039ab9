//! A bucket in one atomic word: a grant is one exchange, a refusal only reads.
//!
//! ```text
//! stamp + tat  open; tat: theoretical arrival time, in units of 2^-fraction ns after `base`, below 2^52 - 64
//!     stamp    tag << 52 | fraction; the tag says which set of parameters the word is to be read by
//! all ones     shut: the state is behind the lock; no stamp has this tag
//! ```
//!
//! - J1  Parameters change only while the word is shut, by whoever holds the lock; reopening with other parameters
//!   takes the next tag, and its stamp is stored beside them, last of all. A reader takes the stamp first, then the
//!   parameters, then the word: of newer parameters than the stamp's the word has been shut since, and if the stamp is
//!   an old one the word has another; either is at least 2^52 - 64 away from it. So a word that is nearer belongs to
//!   all that was read, and an exchange that expects it fails if anything has changed. (A thread would have to sleep
//!   through a multiple of 4,095 such changes, and find the old word to the bit, to be fooled.)
//! - J2  While open, `tat` fits its bits: it is at most one tolerance ahead of an instant within reach of `base`. What is
//!   further from `base` takes the lock, which moves `base`.
//! - J3  A charge is judged no earlier than the charges that its thread can know of: `last` is stored before the next
//!   call of the same thread, and before anything that this thread tells another.
//!
//! The interval is cut off at 2^-fraction ns, and the fraction has so many bits that it is at least 2^22 units long, or
//! a whole number of them: at most 0.25 ppm too short, and exact to the nanosecond over a whole burst wherever the bits
//! allow.

use std::time::Duration;

use crate::decision::{Decision, Verdict};
use crate::policy::Gcra;
use crate::sync::{AtomicU64, Ordering};
use crate::tick::{Fine, Tick};

/// The word and the parameters that it is read by.
///
/// The parameters have a cache line of their own, which all threads share: the one with the word moves from core to core
/// with each grant. Nothing else lies in either.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Word {
    word: AtomicU64,
    /// Latest instant that was charged: a clock that goes back counts as standing there.
    last: AtomicU64,
    read_by: Parameters,
}

#[derive(Debug)]
#[repr(align(64))]
struct Parameters {
    /// What the words that these belong to start from; its lowest bits are the fraction.
    stamp: AtomicU64,
    base: AtomicU64,
    reach: AtomicU64,
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

/// Parameters that belong to the words with their stamp (J1).
#[derive(Clone, Copy)]
struct Reading {
    stamp: u64,
    base: u64,
    reach: u64,
    scale: Scale,
}

impl Scale {
    /// `None` if the bucket needs more bits than there are: a burst of days, or of hundreds of millions.
    pub(crate) fn of(core: Gcra) -> Option<Self> {
        let bits = |value: u128| 128 - value.leading_zeros();
        // Whole nanoseconds of both, rounded up to a power of two.
        let tolerance = bits(core.tolerance().0 >> 64);
        let interval = bits(core.interval().0 >> 64);
        // With so many bits nothing is cut off; at once, if the interval is a whole number of nanoseconds.
        let whole = 64 - (core.interval().0 as u64).trailing_zeros();
        let exact = (bits(u128::from(core.depth())) + 4).min(whole);
        let needed = (INTERVAL_BITS + 1).saturating_sub(interval).min(whole);
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

    /// What a word of this scale starts from; `tag` is in its place.
    const fn stamp(self, tag: u64) -> u64 {
        tag | self.fraction as u64
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
            read_by: Parameters {
                stamp: zero(),
                base: zero(),
                reach: zero(),
                interval: zero(),
                tolerance: zero(),
                depth: zero(),
            },
        }
    }

    /// Decides without the lock; `None` if that takes the lock.
    #[inline(always)] // Else the numbers that the caller does not ask for are worked out all the same.
    pub(crate) fn check(&self, now: Tick, cost: u64) -> Option<Decision> {
        let Reading {
            stamp,
            base,
            reach,
            scale,
        } = self.read_by.read();
        // Acquire pairs with the release that opened the word (J1).
        let mut word = self.word.load(Ordering::Acquire);
        let last = self.last.load(Ordering::Relaxed);
        let now = now.as_nanos();
        let now = now.max(last);
        // Before `base` is out of reach as well: the difference wraps.
        let passed = now.wrapping_sub(base);
        // A cost of one fits every bucket, so for that one the depth is not even loaded.
        if passed > reach || cost == 0 || (cost > 1 && cost > scale.depth) {
            return None;
        }
        let at = passed << scale.fraction;
        loop {
            // From another stamp it is further than that, and from a word that is shut too (J1).
            let tat = word.wrapping_sub(stamp);
            if tat > MOST_TAT {
                return None;
            }
            // Neither overflows: the cost fits the depth, and all of it belongs together.
            let after = tat.max(at) + cost * scale.interval;
            if after - at > scale.tolerance {
                let retry_after = scale.duration(after - at - scale.tolerance);
                let verdict = Verdict::Refused { retry_after };
                return Some(scale.decision(now, verdict, tat.saturating_sub(at)));
            }
            // Acquire and release: a lock holder who finds this word has everything that led to it.
            let (order, failed) = (Ordering::AcqRel, Ordering::Acquire);
            match self
                .word
                .compare_exchange_weak(word, stamp + after, order, failed)
            {
                Ok(_) => {
                    // The line is ours already, so this costs no more; it may lag behind another thread's.
                    if now > last {
                        self.last.store(now, Ordering::Relaxed);
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
        let Reading {
            stamp, base, scale, ..
        } = self.read_by.read();
        let since = Fine(u128::from(word - stamp) << (64 - scale.fraction));
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
        let reading = self.read_by.read();
        let passed = now.as_nanos().wrapping_sub(reading.base);
        let stays = reading.scale == scale && passed <= scale.reach() / 2;
        let base = if stays { reading.base } else { now.as_nanos() };
        let since = scale.units(tat.minus(Fine::from_nanos(base)));
        if since > u128::from(REACH + scale.tolerance) {
            return false;
        }
        if !stays {
            *tag = (*tag + 1) % TAGS;
            self.read_by.write(*tag << TAG_SHIFT, base, scale);
        }
        self.last.store(last.as_nanos(), Ordering::Relaxed);
        let word = scale.stamp(*tag << TAG_SHIFT) + since as u64;
        self.word.store(word, Ordering::Release);
        true
    }
}

impl Parameters {
    #[inline(always)]
    fn read(&self) -> Reading {
        // Acquire, each: the word is read after all of them, and the stamp before the others (J1).
        let stamp = self.stamp.load(Ordering::Acquire);
        Reading {
            stamp,
            base: self.base.load(Ordering::Acquire),
            reach: self.reach.load(Ordering::Acquire),
            scale: Scale {
                fraction: stamp as u32 % 64,
                interval: self.interval.load(Ordering::Acquire),
                tolerance: self.tolerance.load(Ordering::Acquire),
                depth: self.depth.load(Ordering::Acquire),
            },
        }
    }

    /// Changes them, while the word is shut and by the holder of the lock.
    fn write(&self, tag: u64, base: u64, scale: Scale) {
        // Release, each: whoever reads one of them finds the word shut or changed afterwards; the stamp last (J1).
        let release = Ordering::Release;
        self.base.store(base, release);
        self.reach.store(scale.reach(), release);
        self.interval.store(scale.interval, release);
        self.tolerance.store(scale.tolerance, release);
        self.depth.store(scale.depth, release);
        self.stamp.store(scale.stamp(tag), release);
    }
}

impl Scale {
    /// The numbers around a verdict that leaves the bucket `lead` ahead.
    #[inline(always)]
    fn decision(self, at: u64, verdict: Verdict, lead: u64) -> Decision {
        let left = self.tolerance.saturating_sub(lead);
        let missing = self.interval.saturating_sub(left);
        Decision {
            at: Tick::from_nanos(at),
            verdict,
            limit: self.depth,
            remaining: left / self.interval.max(1),
            next_unit_in: self.duration(missing),
            reset_after: self.duration(lead),
        }
    }
}

const SHUT: u64 = u64::MAX;
const TAG_SHIFT: u32 = 52;
/// The last tag of its bits is that of a word that is shut.
const TAGS: u64 = (1 << 12) - 1;
/// Stamps lie further apart than this, as fractions are below 64.
const MOST_TAT: u64 = (1 << TAG_SHIFT) - 64;
/// Units after `base` that `now` may reach; a tolerance fits above it, and twice that is below `MOST_TAT`.
const REACH: u64 = 1 << 50;
/// Bits of a tolerance.
const TOLERANCE_BITS: u32 = 49;
/// Bits that an interval has at least: its last one is below a quarter of a millionth of it.
const INTERVAL_BITS: u32 = 22;
/// With more bits of fraction the reach would fall below 134 ms, and `base` would have to be moved often.
const MOST_FRACTION: u32 = 23;
