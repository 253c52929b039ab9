//! Values that are written as text: what does not read says what would.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

use crate::policy::Limit;
use crate::rate::{Rate, Span};

/// A value with a text form.
pub(super) trait Worded: Sized {
    /// What is expected, with an example.
    const LIKE: &'static str;
    fn read(text: &str) -> Result<Self, String>;
}

/// A value read from its text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Text<T>(pub(super) T);

impl<'de, T: Worded> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<T: Worded> Visitor<'_> for Reader<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::LIKE)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
                T::read(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Reader(PhantomData)).map(Text)
    }
}

fn expected<T: Worded>(text: &str, why: impl fmt::Display) -> String {
    format!("{text:?}: {why}; expected {}", T::LIKE)
}

impl Worded for Rate {
    const LIKE: &'static str = "a rate like \"200/s\", \"5/min\" or \"10/250ms\"";

    fn read(text: &str) -> Result<Self, String> {
        Self::from_str(text).map_err(|error| expected::<Self>(text, error))
    }
}

impl Worded for Duration {
    const LIKE: &'static str = "a span of time like \"500ms\", \"2s\" or \"10min\"";

    fn read(text: &str) -> Result<Self, String> {
        Span::parse(text).ok_or_else(|| expected::<Self>(text, "not a whole number and a unit"))
    }
}

impl Worded for Limit {
    const LIKE: &'static str =
        "a limit like \"token_bucket 10/s burst 50\" or \"sliding_log 100 per 1min\"";

    fn read(text: &str) -> Result<Self, String> {
        Self::from_str(text).map_err(|error| expected::<Self>(text, error))
    }
}

/// Minute of a day; 24:00 is its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Minute(pub(super) u32);

impl Worded for Minute {
    const LIKE: &'static str = "a time of day like \"02:30\"";

    fn read(text: &str) -> Result<Self, String> {
        let minute = text.split_once(':').and_then(|(hours, minutes)| {
            let two = |text: &str| {
                let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
                digits.then(|| text.parse::<u32>().ok()).flatten()
            };
            Some((two(hours)?, two(minutes)?))
        });
        match minute {
            Some((hour, minute)) if (hour < 24 && minute < 60) || (hour, minute) == (24, 0) => {
                Ok(Self(hour * 60 + minute))
            }
            _ => Err(expected::<Self>(text, "no such time")),
        }
    }
}

/// Minutes ahead of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offset(pub(super) i32);

impl Worded for Offset {
    const LIKE: &'static str = "an offset from UTC like \"+02:00\"";

    fn read(text: &str) -> Result<Self, String> {
        let (sign, time) = match text.as_bytes().first() {
            Some(b'+') => (1, &text[1..]),
            Some(b'-') => (-1, &text[1..]),
            _ => return Err(expected::<Self>(text, "it starts with a sign")),
        };
        let minute = Minute::read(time).map_err(|_| expected::<Self>(text, "no such offset"))?;
        Ok(Self(sign * minute.0 as i32))
    }
}

/// A rate, or a share of the usual one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Share {
    /// In hundredths.
    Percent(u32),
    Rate(Rate),
}

impl Worded for Share {
    const LIKE: &'static str = "a rate like \"60/s\" or a share of the usual one like \"30 %\"";

    fn read(text: &str) -> Result<Self, String> {
        let Some(number) = text.trim().strip_suffix('%') else {
            let rate = Rate::from_str(text).map_err(|error| expected::<Self>(text, error))?;
            return Ok(Self::Rate(rate));
        };
        match number.trim().parse() {
            Ok(percent @ 1..=10_000) => Ok(Self::Percent(percent)),
            _ => Err(expected::<Self>(
                text,
                "a share is a whole number from 1 to 10000",
            )),
        }
    }
}
