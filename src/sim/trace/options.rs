//! What to take from a trace: which columns, and which part of its time.

use std::str::FromStr;

use super::time::civil;

/// Which columns of a trace are read, and from when to when.
///
/// A column is called by its name in the header of a CSV, or by its number from 1; by its field in JSON lines, `a.b` for
/// a field of a field; in an access log by one of `client`, `user`, `request`, `path`, `status` and `bytes`.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Columns {
    pub(super) time: Option<String>,
    pub(super) key: Option<String>,
    pub(super) costs: Vec<String>,
    pub(super) from: Option<Bound>,
    pub(super) to: Option<Bound>,
}

impl Columns {
    /// The time alone, wherever it is found.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the time from this column.
    pub fn time(mut self, column: impl Into<String>) -> Self {
        self.time = Some(column.into());
        self
    }

    /// Reads from this column whose arrival it is.
    pub fn key(mut self, column: impl Into<String>) -> Self {
        self.key = Some(column.into());
        self
    }

    /// Adds this column to the cost.
    pub fn cost(mut self, column: impl Into<String>) -> Self {
        self.costs.push(column.into());
        self
    }

    /// Leaves out what comes before.
    pub const fn from(mut self, bound: Bound) -> Self {
        self.from = Some(bound);
        self
    }

    /// Leaves out what comes at this time and after it.
    pub const fn to(mut self, bound: Bound) -> Self {
        self.to = Some(bound);
        self
    }
}

/// An end of the part that is read: a point in time, or so long after the first arrival.
///
/// It is written as a time of a CSV (`2023-11-16 18:20:00`) or as a span (`90s`, `15min`, `2h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Nanoseconds since 1970, in UTC.
    At(i128),
    /// Nanoseconds after the first arrival.
    After(i128),
}

impl Bound {
    pub(super) fn resolve(self, first: i128) -> i128 {
        match self {
            Self::At(time) => time,
            Self::After(nanos) => first + nanos,
        }
    }
}

impl FromStr for Bound {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(time) = civil(text.trim().as_bytes()) {
            return Ok(Self::At(time));
        }
        let text = text.trim();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = match unit.trim() {
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" | "min" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" | "day" => 86_400_000_000_000_i128,
            _ => 0,
        };
        match number.parse::<u32>() {
            Ok(number) if unit > 0 => Ok(Self::After(i128::from(number) * unit)),
            _ => Err(format!(
                "{text:?} is neither a time like \"2023-11-16 18:20:00\" nor a span like \"15min\""
            )),
        }
    }
}
