//! An explicit no: why, how things stand, and when to come back.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::words::Pressure;

/// Why an offer was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The cost does not fit under the bound now.
    Full,
    /// There is room, but not for those who cannot wait: the queue is past its high mark, or delay stands.
    Overloaded,
    /// The line at the door is full, or was and is not half empty yet.
    WaitersFull,
    /// The job could not start before its deadline or within the longest wait.
    TooLate,
    /// It stood in line as long as it may.
    TimedOut,
    /// Its cost is above the bound; it can never fit.
    TooCostly,
    /// Its cancellation token had fired.
    Cancelled,
    /// The queue is paused and has no room.
    Paused,
    /// The queue takes no more offers.
    Closed,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Full,
        Self::Overloaded,
        Self::WaitersFull,
        Self::TooLate,
        Self::TimedOut,
        Self::TooCostly,
        Self::Cancelled,
        Self::Paused,
        Self::Closed,
    ];

    /// Name in lower case with underscores, as metrics label it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Overloaded => "overloaded",
            Self::WaitersFull => "waiters_full",
            Self::TooLate => "too_late",
            Self::TimedOut => "timed_out",
            Self::TooCostly => "too_costly",
            Self::Cancelled => "cancelled",
            Self::Paused => "paused",
            Self::Closed => "closed",
        }
    }
}

/// Refusal of an offer, with the numbers that led to it.
///
/// # Examples
/// ```
/// use sluicegate::Rate;
/// use sluicegate::queue::{Builder, Reason};
///
/// let (tx, _rx) = Builder::new(Rate::per_second(10)).max_depth(1).build()?;
/// tx.try_send("first")?;
/// let refused = tx.try_send("second").expect_err("the bound is one");
/// assert_eq!(refused.reason(), Reason::Full);
/// assert!(refused.retry_after().is_some());
/// assert_eq!(refused.into_inner(), "second");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub(crate) reason: Reason,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) depth: u64,
    pub(crate) max_depth: u64,
    pub(crate) cost: u64,
    pub(crate) pressure: Pressure,
    pub(crate) queue: Option<Arc<str>>,
}

impl Refusal {
    /// Why.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        self.reason
    }

    /// Time after which a caller who comes alone gets in, while consumers keep up.
    ///
    /// Refused callers are told successive times, so that they return as a trickle. `None` where coming back does not
    /// help or its time is not known: [`Reason::Paused`], [`Reason::Closed`], [`Reason::TooCostly`].
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// [`retry_after`](Self::retry_after) in whole seconds, rounded up and at least 1, as HTTP wants it.
    #[must_use]
    pub fn retry_after_secs(&self) -> Option<u64> {
        let after = self.retry_after?;
        Some(
            after
                .as_secs()
                .saturating_add(u64::from(after.subsec_nanos() > 0))
                .max(1),
        )
    }

    /// Cost in the queue at that moment: queued jobs and permits out.
    #[must_use]
    pub const fn depth(&self) -> u64 {
        self.depth
    }

    /// State of the ladder at that moment.
    #[must_use]
    pub const fn pressure(&self) -> Pressure {
        self.pressure
    }

    /// Name of the queue, if it was given one.
    #[must_use]
    pub fn queue(&self) -> Option<&str> {
        self.queue.as_deref()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("queue ")?;
        if let Some(name) = &self.queue {
            write!(f, "{name} ")?;
        }
        let Self {
            depth,
            max_depth,
            cost,
            pressure,
            ..
        } = self;
        match self.reason {
            Reason::Full => write!(
                f,
                "is full: {depth} of {max_depth} in use, {cost} more asked"
            ),
            Reason::Overloaded => {
                write!(
                    f,
                    "is past its healthy depth: {depth} of {max_depth} in use, {pressure}"
                )
            }
            Reason::WaitersFull => {
                write!(
                    f,
                    "has a full line at the door: {depth} of {max_depth} in use"
                )
            }
            Reason::TooLate => {
                write!(
                    f,
                    "could not start the job in time: {depth} of {max_depth} in use"
                )
            }
            Reason::TimedOut => {
                write!(f, "had no place in time: {depth} of {max_depth} in use")
            }
            Reason::TooCostly => {
                write!(f, "holds {max_depth}: cost {cost} can never fit")
            }
            Reason::Cancelled => f.write_str("was told that the offer is cancelled"),
            Reason::Paused => write!(f, "is paused: {depth} of {max_depth} in use"),
            Reason::Closed => f.write_str("is closed"),
        }?;
        match self.retry_after {
            Some(after) => write!(f, ", retry after {after:?}"),
            None => Ok(()),
        }
    }
}

impl Error for Refusal {}
