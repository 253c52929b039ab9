//! Points in time as logs write them: nanoseconds since 1970 in UTC, signed and wide, so that no year from 0 to 9999
//! overflows.

/// `2023-11-16 18:17:03.9799600`, with `T` for the blank, and a zone or none (UTC).
pub(super) fn civil(text: &[u8]) -> Option<i128> {
    let mut text = Text(text);
    let year = text.digits(4)?;
    text.byte(b"-")?;
    let month = text.digits(2)?;
    text.byte(b"-")?;
    let day = text.digits(2)?;
    text.byte(b" Tt")?;
    let time = text.clock(days(year, month, day)?)?;
    text.0.is_empty().then_some(time)
}

/// `17/May/2015:10:05:00 +0000]`
pub(super) fn log_time(text: &[u8]) -> Option<i128> {
    let mut text = Text(text);
    let day = text.digits(2)?;
    text.byte(b"/")?;
    let name = text.0.get(..3)?;
    let month = MONTHS
        .iter()
        .position(|month| name.eq_ignore_ascii_case(month))?;
    text.0 = &text.0[3..];
    text.byte(b"/")?;
    let year = text.digits(4)?;
    text.byte(b":")?;
    let time = text.clock(days(year, month as i64 + 1, day)?)?;
    text.byte(b"]")?;
    Some(time)
}

/// A whole or decimal number of units, in nanoseconds.
pub(super) fn number(text: &[u8], unit: i128) -> Option<i128> {
    let mut text = Text(text);
    let whole = Some(text.run()).filter(|run| (1..=20).contains(&run.len()))?;
    let whole = whole
        .iter()
        .fold(0, |sum, digit| sum * 10 + i128::from(digit - b'0'));
    let nanos = whole * unit + text.fraction(unit)?;
    text.0.is_empty().then_some(nanos)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar; none if there is no such day.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365];
    let at = usize::try_from(month - 1).ok().filter(|&at| at < 12)?;
    let length = before[at + 1] - before[at] + i64::from(leap && month == 2);
    if !(1..=length).contains(&day) {
        return None;
    }
    // Leap days of the years that are over, from year 1 on.
    let past = year - 1;
    let leaps = past.div_euclid(4) - past.div_euclid(100) + past.div_euclid(400);
    let of_year = before[at] + day - 1 + i64::from(leap && month > 2);
    Some((year * 365 + leaps + of_year) - DAYS_TO_1970)
}

/// What is left to read of a time.
struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    fn byte(&mut self, any: &[u8]) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        any.contains(&first).then(|| {
            self.0 = rest;
            first
        })
    }

    fn run(&mut self) -> &'a [u8] {
        let length = self
            .0
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let (run, rest) = self.0.split_at(length);
        self.0 = rest;
        run
    }

    fn digits(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        digits.iter().try_fold(0, |sum, byte| {
            byte.is_ascii_digit()
                .then(|| sum * 10 + i64::from(byte - b'0'))
        })
    }

    /// Fraction of a unit, if a point follows; digits below a nanosecond are cut off.
    fn fraction(&mut self, unit: i128) -> Option<i128> {
        if self.byte(b".").is_none() {
            return Some(0);
        }
        let digits = Some(self.run()).filter(|run| !run.is_empty())?;
        let (mut nanos, mut place) = (0, unit);
        for digit in digits {
            // Tenfold first: a unit of 1,000 ns has three places that count.
            nanos += i128::from(digit - b'0') * place / 10;
            place /= 10;
        }
        Some(nanos)
    }

    /// `hh:mm:ss.fff` and a zone, on a day.
    fn clock(&mut self, day: i64) -> Option<i128> {
        let hour = self.digits(2).filter(|hour| *hour < 24)?;
        self.byte(b":")?;
        let minute = self.digits(2).filter(|minute| *minute < 60)?;
        self.byte(b":")?;
        // Second 60 is a leap second: it counts as the first of the next minute.
        let second = self.digits(2).filter(|second| *second <= 60)?;
        let fraction = self.fraction(SECOND)?;
        let ahead = self.zone()?;
        let seconds = ((day * 24 + hour) * 60 + minute - ahead) * 60 + second;
        Some(i128::from(seconds) * SECOND + fraction)
    }

    /// Minutes ahead of UTC: `Z`, `UTC`, `+0200`, `+02:00`, `+02` or nothing.
    fn zone(&mut self) -> Option<i64> {
        self.0 = self.0.trim_ascii_start();
        for name in [&b"UTC"[..], b"GMT", b"Z", b"z"] {
            if let Some(rest) = self.0.strip_prefix(name) {
                self.0 = rest;
                return Some(0);
            }
        }
        let Some(sign) = self.byte(b"+-") else {
            return Some(0);
        };
        let hours = self.digits(2).filter(|hours| *hours < 24)?;
        let colon = self.byte(b":").is_some();
        let minutes = match self.0.first() {
            Some(byte) if colon || byte.is_ascii_digit() => self.digits(2)?,
            _ if colon => return None,
            _ => 0,
        };
        let ahead = hours * 60 + Some(minutes).filter(|minutes| *minutes < 60)?;
        Some(if sign == b'-' { -ahead } else { ahead })
    }
}

const SECOND: i128 = 1_000_000_000;
/// Days from 0000-01-01 to 1970-01-01, less the leap day of year 0, which [`days`] does not count either.
const DAYS_TO_1970: i64 = 719_527;
const MONTHS: [&[u8]; 12] = [
    b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec",
];
/// Sizes below which a Unix number counts in a unit, and the nanoseconds in it: s up to the year 5138, ms from 1973 on,
/// us and ns likewise.
pub(super) const UNITS: [(i128, i128); 4] = [
    (100_000_000_000, SECOND),
    (100_000_000_000_000, 1_000_000),
    (100_000_000_000_000_000, 1_000),
    (100_000_000_000_000_000_000, 1),
];
