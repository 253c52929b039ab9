//! What a limit answers: one value with the verdict and every number that a caller or a header needs.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::tick::Tick;

/// Answer of a limit to one question, with the numbers behind it.
///
/// All of it is judged at the one instant [`at`](Self::at), so the numbers fit together and no second clock reading is
/// needed to write headers from them.
///
/// # Examples
/// ```
/// use sluicegate::{Policy, Rate, Tick};
/// use std::time::Duration;
///
/// let rule = Rate::per_second(10).burst(2);
/// let mut state = rule.start(Tick::ZERO);
/// assert!(rule.check(&mut state, Tick::ZERO, 2).is_granted());
///
/// let refused = rule.check(&mut state, Tick::ZERO, 1);
/// assert_eq!(refused.retry_after(), Some(Duration::from_millis(100)));
/// assert_eq!((refused.limit, refused.remaining), (2, 0));
/// ```
#[must_use = "a limit only advises: a refused caller has to be turned away"]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Instant that was judged; give it back to `refund`.
    ///
    /// It is the clock's reading, or the last one that counted if the clock went back.
    pub at: Tick,
    /// Granted, refused for now, or impossible.
    pub verdict: Verdict,
    /// Most that the limit ever grants at once: the burst of a bucket, the limit of a window.
    pub limit: u64,
    /// What is left after this decision, rounded down.
    pub remaining: u64,
    /// Time until one more unit is free; zero if one is free now.
    pub next_unit_in: Duration,
    /// Time until the limit is completely unused again, if nothing else is charged.
    pub reset_after: Duration,
}

/// Three ways in which a limit can answer.
// A tag of its own: left to itself the compiler hides it in the nanoseconds of the wait, and whoever asks only whether
// the cost was granted would have the wait worked out.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The cost was charged.
    Granted,
    /// The cost does not fit now; nothing was charged.
    Refused {
        /// Shortest wait after which the same cost is granted, if nothing else is charged meanwhile.
        retry_after: Duration,
    },
    /// The cost can never fit; waiting is useless, and nothing was charged.
    Never {
        /// Largest cost that can.
        max_cost: u64,
    },
}

impl Decision {
    /// Whether the cost was charged.
    #[must_use]
    #[inline]
    pub const fn is_granted(&self) -> bool {
        matches!(self.verdict, Verdict::Granted)
    }

    /// Wait after which the same cost is granted; `None` if it was granted now or never can be.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.verdict {
            Verdict::Refused { retry_after } => Some(retry_after),
            Verdict::Granted | Verdict::Never { .. } => None,
        }
    }

    /// Turns a refusal into an error, to be passed on with `?`.
    ///
    /// # Errors
    /// [`Limited`] unless the cost was granted.
    pub fn into_result(self) -> Result<(), Limited> {
        Limited::of(&self, None)
    }
}

/// Error form of a refusal: who refused, and when to come back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited {
    verdict: Refused,
    level: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    For(Duration),
    Never { max_cost: u64 },
}

impl Limited {
    /// `Ok` for a grant, else the refusal of `level`.
    pub(crate) fn of(decision: &Decision, level: Option<Arc<str>>) -> Result<(), Self> {
        let verdict = match decision.verdict {
            Verdict::Granted => return Ok(()),
            Verdict::Refused { retry_after } => Refused::For(retry_after),
            Verdict::Never { max_cost } => Refused::Never { max_cost },
        };
        Err(Self { verdict, level })
    }

    /// Wait after which the same cost is granted; `None` if it never can be.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self.verdict {
            Refused::For(wait) => Some(wait),
            Refused::Never { .. } => None,
        }
    }

    /// Level of the hierarchy that refused; `None` for a limit that stands alone.
    #[must_use]
    pub fn level(&self) -> Option<&str> {
        self.level.as_deref()
    }
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.level {
            Some(level) => write!(f, "limit {level:?} is reached")?,
            None => f.write_str("limit is reached")?,
        }
        match self.verdict {
            Refused::For(wait) => write!(f, ": free again in {wait:?}"),
            Refused::Never { max_cost } => {
                write!(f, ": the cost exceeds {max_cost} and can never be granted")
            }
        }
    }
}

impl Error for Limited {}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(verdict: Verdict) -> Decision {
        Decision {
            at: Tick::ZERO,
            verdict,
            limit: 5,
            remaining: 0,
            next_unit_in: Duration::ZERO,
            reset_after: Duration::ZERO,
        }
    }

    #[test]
    fn a_grant_is_ok_and_a_refusal_says_when() {
        assert_eq!(decision(Verdict::Granted).into_result(), Ok(()));
        let retry_after = Duration::from_millis(7);
        let limited = decision(Verdict::Refused { retry_after })
            .into_result()
            .expect_err("it is refused");
        assert_eq!(limited.retry_after(), Some(retry_after));
        assert_eq!(limited.level(), None);
        assert_eq!(limited.to_string(), "limit is reached: free again in 7ms");
    }

    #[test]
    fn what_can_never_be_granted_has_no_retry_after() {
        let never = decision(Verdict::Never { max_cost: 5 });
        assert_eq!(never.retry_after(), None);
        let limited = Limited::of(&never, Some("user".into())).expect_err("it is refused");
        assert_eq!(
            (limited.retry_after(), limited.level()),
            (None, Some("user"))
        );
        assert_eq!(
            limited.to_string(),
            "limit \"user\" is reached: the cost exceeds 5 and can never be granted"
        );
    }
}
