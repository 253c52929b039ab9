//! How many per how long, kept as the ratio that was written down.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::error::RateError;
use crate::tick::{Fine, nanos};

/// So many units per period: a ratio, never rounded to whole nanoseconds per unit.
///
/// The period is at least 1 ns and at most 584 years; the count is at least 1. Zero is not a rate: a queue is paused,
/// a limit is refused when it is built. Two rates are equal when count and period are: `1/s` and `60/min` drain alike
/// but read differently.
///
/// # Examples
/// ```
/// use sluicegate::Rate;
/// use std::time::Duration;
///
/// let rate: Rate = "10/250ms".parse()?;
/// assert_eq!(rate, Rate::new(10, Duration::from_millis(250))?);
/// assert_eq!(Rate::per_minute(5).to_string(), "5/min");
/// assert!("0/s".parse::<Rate>().is_err());
/// # Ok::<(), sluicegate::RateError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    count: u64,
    period: u64,
}

impl Rate {
    /// Makes a rate of `count` units per second.
    ///
    /// # Panics
    /// If `count` is 0; [`Rate::new`] returns an error instead.
    #[must_use]
    #[track_caller]
    pub const fn per_second(count: u64) -> Self {
        Self::whole(count, SECOND)
    }

    /// Makes a rate of `count` units per minute.
    ///
    /// # Panics
    /// If `count` is 0; [`Rate::new`] returns an error instead.
    #[must_use]
    #[track_caller]
    pub const fn per_minute(count: u64) -> Self {
        Self::whole(count, MINUTE)
    }

    /// Makes a rate of `count` units per hour.
    ///
    /// # Panics
    /// If `count` is 0; [`Rate::new`] returns an error instead.
    #[must_use]
    #[track_caller]
    pub const fn per_hour(count: u64) -> Self {
        Self::whole(count, HOUR)
    }

    /// Makes a rate of `count` units per day of 24 hours.
    ///
    /// # Panics
    /// If `count` is 0; [`Rate::new`] returns an error instead.
    #[must_use]
    #[track_caller]
    pub const fn per_day(count: u64) -> Self {
        Self::whole(count, DAY)
    }

    /// Makes a rate of `count` units per `period`.
    ///
    /// # Errors
    /// If the count or the period is zero, or the period is beyond 2^64 - 1 ns (584 years).
    pub const fn new(count: u64, period: Duration) -> Result<Self, RateError> {
        let nanos = period.as_nanos();
        if count == 0 {
            Err(RateError::ZeroCount)
        } else if nanos == 0 {
            Err(RateError::ZeroPeriod)
        } else if nanos > u64::MAX as u128 {
            Err(RateError::PeriodTooLong { period })
        } else {
            Ok(Self {
                count,
                period: nanos as u64,
            })
        }
    }

    /// Units per period.
    #[must_use]
    pub const fn count(self) -> u64 {
        self.count
    }

    /// Period in which [`count`](Self::count) units pass.
    #[must_use]
    pub const fn period(self) -> Duration {
        Duration::from_nanos(self.period)
    }

    /// Time from one unit to the next; the fraction beyond 2^-64 ns is cut off.
    pub(crate) const fn interval(self) -> Fine {
        Fine(((self.period as u128) << 64) / self.count as u128)
    }

    /// Units that fall due in `span`, rounded down.
    pub(crate) fn units_in(self, span: Duration) -> u64 {
        let units = u128::from(nanos(span)) * u128::from(self.count) / u128::from(self.period);
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    /// Units that fall due in `span`, rounded up.
    pub(crate) fn units_in_ceil(self, span: Duration) -> u64 {
        let product = u128::from(nanos(span)) * u128::from(self.count);
        u64::try_from(product.div_ceil(u128::from(self.period))).unwrap_or(u64::MAX)
    }

    /// Units per second, for those who need no exactness.
    pub(crate) fn per_second_f64(self) -> f64 {
        self.count as f64 * 1e9 / self.period as f64
    }

    /// The rate of so many units per second, to nine decimals; at least one unit in a thousand million seconds.
    pub(crate) fn from_per_second_f64(units: f64) -> Self {
        // The cast saturates at both ends.
        Self {
            count: ((units * 1e9) as u64).max(1),
            period: 1_000_000_000 * SECOND,
        }
    }

    /// The rate `step` steps of `of` on the way to another one.
    pub(crate) fn toward(self, other: Self, step: u64, of: u64) -> Self {
        let period = self.period.max(other.period);
        // Finer counts, so that even steps between small rates are even.
        let fine = if period <= u64::MAX / FINE { FINE } else { 1 };
        let period = period * fine;
        let count =
            |rate: Self| u128::from(rate.count) * u128::from(period) / u128::from(rate.period);
        let (from, to) = (count(self), count(other));
        let (step, of) = (u128::from(step.min(of)), u128::from(of.max(1)));
        let moved = from.abs_diff(to) / of * step + from.abs_diff(to) % of * step / of;
        let count = if to >= from {
            from + moved
        } else {
            from - moved
        };
        Self {
            count: u64::try_from(count).unwrap_or(u64::MAX).max(1),
            period,
        }
    }

    #[track_caller]
    const fn whole(count: u64, period: u64) -> Self {
        assert!(
            count > 0,
            "a rate of zero is not a rate: pause the queue instead"
        );
        Self { count, period }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.count)?;
        match self.period {
            SECOND => f.write_str("s"),
            MINUTE => f.write_str("min"),
            HOUR => f.write_str("h"),
            DAY => f.write_str("day"),
            nanos => write!(f, "{}", Span(Duration::from_nanos(nanos))),
        }
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rate({self})")
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let (count, period) = text.split_once('/').ok_or(RateError::Syntax)?;
        let count = count.trim().parse().map_err(|_| RateError::Syntax)?;
        let period = period.trim();
        // "10/s" leaves the number of the period out; "10/250ms" gives it.
        let period = match period.as_bytes().first() {
            Some(b'0'..=b'9') => Span::parse(period),
            _ => Span::parse(&format!("1{period}")),
        };
        Self::new(count, period.ok_or(RateError::Syntax)?)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Rate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Rate {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse()
            .map_err(|error| serde::de::Error::custom(format!("{error}: {text:?}")))
    }
}

/// Text form of a duration: a whole number of its largest exact unit ("250ms", "1min").
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span(pub(crate) Duration);

impl Span {
    /// Reads a whole number and a unit; `None` if it is anything else or does not fit.
    pub(crate) fn parse(text: &str) -> Option<Duration> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = text[..digits].parse().ok()?;
        let unit = match text[digits..].trim() {
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" | "sec" => SECOND,
            "m" | "min" => MINUTE,
            "h" | "hour" => HOUR,
            "d" | "day" => DAY,
            _ => return None,
        };
        number.checked_mul(unit).map(Duration::from_nanos)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = nanos(self.0);
        if nanos == 0 {
            return f.write_str("0s");
        }
        let units = [
            (DAY, "day"),
            (HOUR, "h"),
            (MINUTE, "min"),
            (SECOND, "s"),
            (1_000_000, "ms"),
            (1_000, "us"),
        ];
        let (size, name) = units
            .into_iter()
            .find(|(size, _)| nanos.is_multiple_of(*size))
            .unwrap_or((1, "ns"));
        write!(f, "{}{name}", nanos / size)
    }
}

const FINE: u64 = 1000;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, count: u64, period: Duration) {
        assert_eq!(text.parse(), Rate::new(count, period), "{text}");
    }

    #[test]
    fn every_text_form_is_read() {
        check("200/s", 200, Duration::from_secs(1));
        check("5/min", 5, Duration::from_secs(60));
        check("1/day", 1, Duration::from_secs(86_400));
        check("10/250ms", 10, Duration::from_millis(250));
        check("1/2s", 1, Duration::from_secs(2));
        check(" 7 / 3 h ", 7, Duration::from_secs(10_800));
    }

    #[test]
    fn what_is_no_rate_is_refused_by_its_reason() {
        assert_eq!("0/s".parse::<Rate>(), Err(RateError::ZeroCount));
        assert_eq!("1/0s".parse::<Rate>(), Err(RateError::ZeroPeriod));
        for text in [
            "",
            "/",
            "1",
            "1/",
            "-1/s",
            "1/x",
            "1.5/s",
            "99999999999999999999/s",
            "1/99999999999999999999ns",
        ] {
            assert_eq!(text.parse::<Rate>(), Err(RateError::Syntax), "{text:?}");
        }
        let period = Duration::from_secs(u64::MAX);
        assert_eq!(
            Rate::new(1, period),
            Err(RateError::PeriodTooLong { period })
        );
    }

    #[test]
    #[should_panic(expected = "a rate of zero is not a rate")]
    fn a_zero_count_panics_where_documented() {
        let _ = Rate::per_second(0);
    }

    proptest! {
        #[test]
        fn text_round_trips(count in 1..=u64::MAX, period in 1..=u64::MAX) {
            let rate = Rate::new(count, Duration::from_nanos(period)).expect("both are above zero");
            prop_assert_eq!(rate.to_string().parse(), Ok(rate));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            let _ = text.parse::<Rate>();
        }
    }
}
