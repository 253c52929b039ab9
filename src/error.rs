//! What cannot be built, and why: every error names the field, the value and the rule.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// Why a [`Rate`](crate::Rate) cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RateError {
    /// The count is zero; a rate lets at least one unit pass per period.
    ZeroCount,
    /// The period is zero.
    ZeroPeriod,
    /// The period is beyond 2^64 - 1 ns (584 years).
    PeriodTooLong {
        /// What was asked for.
        period: Duration,
    },
    /// The text is not of the form `count/period`.
    Syntax,
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroCount => f.write_str("a rate needs a count of at least 1, got 0"),
            Self::ZeroPeriod => f.write_str("a rate needs a period of at least 1 ns, got 0"),
            Self::PeriodTooLong { period } => {
                write!(
                    f,
                    "a rate's period is at most 18446744073709551615 ns (584 years), got {period:?}"
                )
            }
            Self::Syntax => f.write_str(
                "a rate reads as count/period, like \"200/s\", \"5/min\" or \"10/250ms\"",
            ),
        }
    }
}

impl Error for RateError {}

/// Why a queue, a keyed limiter or a hierarchy cannot be built or changed.
///
/// Nothing is changed when it is returned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A rate in it cannot be made.
    Rate(RateError),
    /// A setting breaks a rule.
    Setting {
        /// The setting, as its setter is named.
        field: &'static str,
        /// What was asked for.
        value: String,
        /// The rule that it breaks, with the numbers it depends on.
        rule: String,
    },
}

impl BuildError {
    pub(crate) fn setting(
        field: &'static str,
        value: impl fmt::Display,
        rule: impl Into<String>,
    ) -> Self {
        Self::Setting {
            field,
            value: value.to_string(),
            rule: rule.into(),
        }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(error) => error.fmt(f),
            Self::Setting { field, value, rule } => write!(f, "{field} is {value}: {rule}"),
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Rate(error) => Some(error),
            Self::Setting { .. } => None,
        }
    }
}

impl From<RateError> for BuildError {
    fn from(error: RateError) -> Self {
        Self::Rate(error)
    }
}
