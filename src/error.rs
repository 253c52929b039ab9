//! What cannot be built, and why: every error names the field, the value and the rule.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::rate::Rate;

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

/// Why a limit cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// The rate in it cannot be made.
    Rate(RateError),
    /// A number that has to be at least 1 is zero.
    Zero {
        /// The number: `burst`, `depth`, `limit` or `window`.
        field: &'static str,
    },
    /// Filling the whole burst takes longer than 2^63 - 1 ns (292 years), so instants could overflow.
    TooSlow {
        /// The rate that was asked for.
        rate: Rate,
        /// The burst or depth that was asked for.
        burst: u64,
    },
    /// The window is longer than 2^63 - 1 ns (292 years), so instants could overflow.
    WindowTooLong {
        /// What was asked for.
        window: Duration,
    },
    /// The start balance is above the burst.
    InitialAboveBurst {
        /// The start balance that was asked for.
        initial: u64,
        /// The burst that bounds it.
        burst: u64,
    },
    /// The text is none of the forms in which limits are written.
    Syntax,
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(error) => error.fmt(f),
            Self::Zero { field } => write!(f, "{field} is at least 1, got 0"),
            Self::TooSlow { rate, burst } => write!(
                f,
                "a burst of {burst} at {rate} takes longer than 9223372036854775807 ns (292 years) to fill"
            ),
            Self::WindowTooLong { window } => write!(
                f,
                "a window is at most 9223372036854775807 ns (292 years), got {window:?}"
            ),
            Self::InitialAboveBurst { initial, burst } => {
                write!(f, "initial is at most the burst of {burst}, got {initial}")
            }
            Self::Syntax => f.write_str(
                "a limit reads like \"token_bucket 10/s burst 50\", \"leaky_bucket 10/s depth 5\" or \
                 \"fixed_window 100 per 1min\"",
            ),
        }
    }
}

impl Error for LimitError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Rate(error) => Some(error),
            _ => None,
        }
    }
}

impl From<RateError> for LimitError {
    fn from(error: RateError) -> Self {
        Self::Rate(error)
    }
}

/// Why waiting for a grant is refused at once, or ended without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireError {
    /// The cost can never be granted; waiting is useless.
    Never {
        /// Largest cost that can.
        max_cost: u64,
    },
    /// The turn would come, or has come, after the time that the caller allows.
    TooLate {
        /// Time until the turn would have come, as known when this was said.
        retry_after: Duration,
    },
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never { max_cost } => {
                write!(f, "cost exceeds {max_cost} and can never be granted")
            }
            Self::TooLate { retry_after } => {
                write!(f, "turn comes too late: in {retry_after:?}")
            }
        }
    }
}

impl Error for AcquireError {}

/// Why a queue, a keyed limiter or a hierarchy cannot be built or changed.
///
/// Nothing is changed when it is returned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A rate in it cannot be made.
    Rate(RateError),
    /// A limit in it cannot be made.
    Limit(LimitError),
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
            Self::Limit(error) => error.fmt(f),
            Self::Setting { field, value, rule } => write!(f, "{field} is {value}: {rule}"),
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Rate(error) => Some(error),
            Self::Limit(error) => Some(error),
            Self::Setting { .. } => None,
        }
    }
}

impl From<RateError> for BuildError {
    fn from(error: RateError) -> Self {
        Self::Rate(error)
    }
}

impl From<LimitError> for BuildError {
    fn from(error: LimitError) -> Self {
        Self::Limit(error)
    }
}
