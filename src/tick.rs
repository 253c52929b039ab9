//! An instant on a clock that the caller picked, and the finer instants which schedules are kept in.
//!
//! [`Tick`] is what the outside sees: whole nanoseconds. Schedules add fractions of a nanosecond many times over, so
//! they are kept as [`Fine`]: 64 bits of nanoseconds and 64 bits of fraction. One addition of an interval is off by
//! less than 2^-64 ns, so 1e9 additions a second for ten years are off by less than a fiftieth of a nanosecond.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// Instant in whole nanoseconds since an epoch that the caller picked.
///
/// Arithmetic saturates at both ends of the range (584 years), so it neither panics nor wraps.
///
/// # Examples
/// ```
/// use sluicegate::Tick;
/// use std::time::Duration;
///
/// let start = Tick::from_nanos(5);
/// let later = start + Duration::from_nanos(7);
/// assert_eq!(later - start, Duration::from_nanos(7));
/// assert_eq!(start - later, Duration::ZERO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tick(u64);

impl Tick {
    /// The epoch itself.
    pub const ZERO: Self = Self(0);
    /// The last instant there is; what lies beyond it counts as this one.
    pub const MAX: Self = Self(u64::MAX);

    /// Makes the instant that lies `nanos` nanoseconds after the epoch.
    #[must_use]
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Instant `duration` before this one, not before the epoch.
    pub(crate) fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

impl Add<Duration> for Tick {
    type Output = Self;

    #[inline]
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

impl Sub for Tick {
    type Output = Duration;

    #[inline]
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tick({}ns)", self.0)
    }
}

/// Nanoseconds of a duration, capped at the range of [`Tick`].
#[inline]
pub(crate) fn nanos(duration: Duration) -> u64 {
    let whole = duration.as_secs().saturating_mul(1_000_000_000);
    whole.saturating_add(u64::from(duration.subsec_nanos()))
}

/// Instant or span in units of 2^-64 nanoseconds; arithmetic saturates.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Fine(pub(crate) u128);

impl Fine {
    pub(crate) const ZERO: Self = Self(0);

    #[inline]
    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self((nanos as u128) << 64)
    }

    #[inline]
    pub(crate) const fn at(tick: Tick) -> Self {
        Self::from_nanos(tick.0)
    }

    #[inline]
    pub(crate) fn span(duration: Duration) -> Self {
        Self::from_nanos(nanos(duration))
    }

    /// First whole nanosecond that is not before this instant.
    #[inline]
    pub(crate) fn ceil(self) -> Tick {
        let whole = (self.0 >> 64) as u64;
        Tick(if self.0 as u64 == 0 {
            whole
        } else {
            whole.saturating_add(1)
        })
    }

    /// This span as a duration, rounded up to a whole nanosecond.
    #[inline]
    pub(crate) fn duration(self) -> Duration {
        Duration::from_nanos(self.ceil().0)
    }

    #[inline]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    #[inline]
    pub(crate) fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    #[inline]
    pub(crate) fn times(self, n: u64) -> Self {
        Self(self.0.saturating_mul(u128::from(n)))
    }

    /// How often `unit` goes into this span, at most 2^64 - 1 times; a unit of zero counts as the least there is.
    ///
    /// A division of 128 bits costs as much as the whole rest of a decision, so the leading 64 bits are divided and the
    /// quotient is put right, wherever they hold enough of the unit.
    #[inline]
    pub(crate) fn over(self, unit: Self) -> u64 {
        let unit = unit.0.max(1);
        if self.0 < unit {
            return 0;
        }
        let shift = 64_u32.saturating_sub(self.0.leading_zeros());
        let (span, divisor) = ((self.0 >> shift) as u64, (unit >> shift) as u64);
        if divisor >> 32 == 0 {
            return u64::try_from(self.0 / unit).unwrap_or(u64::MAX);
        }
        // The divisor is cut off by less than 2^-32 of it, and the quotient is below 2^32: it is off by one at most,
        // upwards; what the span lost makes it one too low at most.
        let quotient = span / divisor;
        let product = unit.wrapping_mul(u128::from(quotient));
        if product > self.0 {
            quotient - 1
        } else if self.0 - product >= unit {
            quotient + 1
        } else {
            quotient
        }
    }

    /// `self * numerator / denominator` without losing bits that matter: the product is split, so that it cannot
    /// overflow before the division. A zero denominator counts as one.
    pub(crate) fn scaled(self, numerator: Self, denominator: Self) -> Self {
        let divisor = denominator.0.max(1);
        let (whole, rest) = (self.0 / divisor, self.0 % divisor);
        let head = whole.saturating_mul(numerator.0);
        let tail = match rest.checked_mul(numerator.0) {
            Some(product) => product / divisor,
            // Both factors are large: shift the pair of them down together. The quotient keeps 60 bits and more.
            None => {
                let shift = 128 - (rest.leading_zeros() + numerator.0.leading_zeros()).min(127);
                let low = (shift / 2 + 1).min(64);
                let product = (rest >> low).saturating_mul(numerator.0 >> low);
                let scale = divisor >> low;
                if scale == 0 {
                    u128::MAX
                } else {
                    (product / scale.max(1)).saturating_mul(1 << low)
                }
            }
        };
        Self(head.saturating_add(tail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Tick::MAX + Duration::MAX, Tick::MAX);
        assert_eq!(Tick::ZERO - Tick::MAX, Duration::ZERO);
        assert_eq!(
            Tick::from_nanos(3).before(Duration::from_secs(1)),
            Tick::ZERO
        );
    }

    #[test]
    fn a_fraction_rounds_up_to_the_next_nanosecond() {
        assert_eq!(Fine(1).ceil(), Tick::from_nanos(1));
        assert_eq!(Fine::from_nanos(7).ceil(), Tick::from_nanos(7));
        assert_eq!(Fine(u128::MAX).ceil(), Tick::MAX);
    }

    proptest::proptest! {
        #[test]
        fn the_short_division_is_exact(span in 0..=u128::MAX, unit in 1..=u128::MAX, cut in 0..128_u32, short in 0..128_u32) {
            let (span, unit) = (Fine(span >> cut), Fine((unit >> short).max(1)));
            let exact = u64::try_from(span.0 / unit.0).unwrap_or(u64::MAX);
            proptest::prop_assert_eq!(span.over(unit), exact);
            // Around whole multiples, where an error of one would show.
            let whole = Fine(unit.0.saturating_mul(u128::from(exact >> 1).max(1)));
            for near in [whole.0.saturating_sub(1), whole.0, whole.0.saturating_add(1)] {
                let exact = u64::try_from(near / unit.0).unwrap_or(u64::MAX);
                proptest::prop_assert_eq!(Fine(near).over(unit), exact);
            }
        }
    }

    #[test]
    fn scaling_keeps_the_ratio_over_the_whole_range() {
        let day = Fine::from_nanos(86_400_000_000_000);
        let milli = Fine::from_nanos(1_000_000);
        assert_eq!(day.scaled(milli, day), milli);
        assert_eq!(milli.scaled(day, milli), day);
        let half = Fine::from_nanos(43_200_000_000_000).scaled(milli, day);
        let off = half.0.abs_diff(Fine::from_nanos(500_000).0);
        assert!(off < Fine::from_nanos(1).0, "off by {off}");
    }
}
