//! The small closed sets of words that rules, machine and queue share.

use std::fmt;

/// How urgent a job is; more urgent jobs leave first, with ageing.
///
/// `Critical` may also use the room above the high mark that is closed to everybody else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Priority {
    /// Evicted first, and refused first wherever the more urgent can still be served: at a bound on the wait, which all
    /// others are ahead of, and at a queue that evicts by priority.
    Low,
    /// What an offer has that does not say.
    #[default]
    Normal,
    /// Ahead of ordinary work.
    High,
    /// Health checks, operators, what keeps the system alive.
    Critical,
}

impl Priority {
    /// All of them, least urgent first.
    pub const ALL: [Self; 4] = [Self::Low, Self::Normal, Self::High, Self::Critical];

    #[inline]
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Name in lower case, as metrics label it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// How full the queue is, as producers feel it: one rung of the ladder.
///
/// The marks have hysteresis: a queue that went past its high mark is healthy again only at its low mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Pressure {
    /// Offers are admitted at once.
    #[default]
    Healthy,
    /// `try_*` is refused, producers that can wait stand in line.
    Elevated,
    /// The line is full too, or jobs have waited too long for too long: everybody is refused.
    Overloaded,
}

impl Pressure {
    /// Name in lower case, as metrics label it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Elevated => "elevated",
            Self::Overloaded => "overloaded",
        }
    }
}

impl fmt::Display for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What `try_*` does where it finds no free place. Producers that wait never evict.
///
/// Victims are queued jobs that may leave now: neither in flight nor waiting for a retry. They end as
/// [`Exit::Evicted`], item included; a newcomer that cannot make enough room evicts nobody and is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenFull {
    /// The newcomer pays: it is refused, and told when to come back.
    #[default]
    Refuse,
    /// The job that waited longest pays: for data that grows stale.
    EvictOldest,
    /// The job that came last pays: those that waited long keep their place.
    EvictNewest,
    /// The oldest job of the least urgent priority pays, unless it is more urgent than the newcomer.
    EvictLowest,
    /// As [`EvictLowest`](Self::EvictLowest), but only jobs that are less urgent than the newcomer pay.
    EvictLower,
}

/// How a job ended that no consumer acknowledged; each of them is dead-lettered with its item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// Not started in time.
    Expired,
    /// Made room for a newer job.
    Evicted,
    /// Its cancellation token fired while it was queued.
    Cancelled,
    /// The consumer said that it failed, or its attempts were used up.
    Failed,
    /// The consumer dropped it unsettled.
    Abandoned,
    /// The queue ended before it could start.
    Returned,
}

impl Exit {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Expired,
        Self::Evicted,
        Self::Cancelled,
        Self::Failed,
        Self::Abandoned,
        Self::Returned,
    ];

    /// Name in lower case, as metrics label it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Evicted => "evicted",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Abandoned => "abandoned",
            Self::Returned => "returned",
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether work flows: red when a departure is due and nothing has started for long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Health {
    /// Nothing is due, or what is due is being taken.
    #[default]
    Green,
    /// There is a backlog and nothing starts: consumers are gone, stuck, or all in-flight places are held.
    Red,
}
