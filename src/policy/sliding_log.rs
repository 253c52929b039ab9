//! Sliding log: an entry for each charge, so the count of the last window is exact.

use std::collections::VecDeque;
use std::time::Duration;

use super::Policy;
use super::fixed_window::checked;
use crate::decision::{Decision, Verdict};
use crate::error::LimitError;
use crate::tick::Tick;

/// Lets `limit` pass in any span of the length of the window, exactly.
///
/// | | |
/// |---|---|
/// | bound | any half-open span of the window's length lets at most `limit` through |
/// | bursts | the whole limit at once, and then nothing until the window has passed |
/// | memory | up to one entry of 16 bytes per unit of the limit and key |
/// | error | none |
///
/// An entry leaves exactly one window after it came. Charges of one instant share an entry; work per call grows with the
/// logarithm of the entries, apart from those that left. If memory per key matters use
/// [`SlidingCounter`](crate::SlidingCounter).
///
/// # Examples
/// ```
/// use sluicegate::{Policy, SlidingLog, Tick};
/// use std::time::Duration;
///
/// let second = |n: u64| Tick::from_nanos(n * 1_000_000_000);
/// let rule = SlidingLog::new(100, Duration::from_secs(60))?;
/// let mut state = rule.start(second(59));
/// assert!(rule.check(&mut state, second(59), 100).is_granted());
/// // No double burst at any seam: the next unit is free when the first has left.
/// let refused = rule.check(&mut state, second(60), 1);
/// assert_eq!(refused.retry_after(), Some(Duration::from_secs(59)));
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    limit: u64,
    window: u64,
}

/// State of a sliding log: what was charged when, oldest first.
///
/// Each entry carries the sum of everything charged up to it, so the units between any two instants are one subtraction.
/// The sums wrap; their differences are at most the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    entries: VecDeque<Entry>,
    /// Sum before the first entry.
    gone: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Tick,
    total: u64,
}

impl SlidingLog {
    /// Makes a rule of `limit` units in any `window`.
    ///
    /// # Errors
    /// If the limit or the window is 0, or the window is longer than 292 years.
    pub const fn new(limit: u64, window: Duration) -> Result<Self, LimitError> {
        match checked(limit, window) {
            Ok(window) => Ok(Self { limit, window }),
            Err(error) => Err(error),
        }
    }

    /// Units in any window.
    #[must_use]
    pub const fn quota(&self) -> u64 {
        self.limit
    }

    /// Length of the window.
    #[must_use]
    pub const fn window(&self) -> Duration {
        Duration::from_nanos(self.window)
    }

    /// How many entries have left by `now`.
    fn expired(&self, state: &LogState, now: Tick) -> usize {
        let window = self.window();
        state
            .entries
            .partition_point(|entry| now - entry.at >= window)
    }

    /// Time until the entry has left.
    fn until_left(&self, entry: Entry, now: Tick) -> Duration {
        self.window().saturating_sub(now - entry.at)
    }
}

impl LogState {
    /// Sum of everything before the entry with this index.
    fn total_before(&self, index: usize) -> u64 {
        match index.checked_sub(1) {
            Some(previous) => self.entries[previous].total,
            None => self.gone,
        }
    }

    /// The reading itself, or the last charge if that is later.
    fn clamped(&self, now: Tick) -> Tick {
        self.entries.back().map_or(now, |last| now.max(last.at))
    }
}

impl Policy for SlidingLog {
    type State = LogState;

    fn start(&self, _now: Tick) -> LogState {
        LogState::default()
    }

    fn peek(&self, state: &LogState, now: Tick, cost: u64) -> Decision {
        let now = state.clamped(now);
        let expired = self.expired(state, now);
        let before = state.total_before(expired);
        let used = state.total_before(state.entries.len()).wrapping_sub(before);
        let left = self.limit.saturating_sub(used);
        // Instant when as many units have left as are missing.
        let until_free = |missing: u64| {
            let first = state.entries.partition_point(|entry| {
                now - entry.at >= self.window() || entry.total.wrapping_sub(before) < missing
            });
            let entry = state.entries.get(first);
            entry.map_or(self.window(), |entry| self.until_left(*entry, now))
        };
        let verdict = if cost == 0 || cost <= left {
            Verdict::Granted
        } else if cost > self.limit {
            Verdict::Never {
                max_cost: self.limit,
            }
        } else {
            Verdict::Refused {
                retry_after: until_free(used - (self.limit - cost)),
            }
        };
        let charged = match verdict {
            Verdict::Granted => cost,
            Verdict::Refused { .. } | Verdict::Never { .. } => 0,
        };
        let (used, remaining) = (used + charged, left - charged);
        let last = match (charged, state.entries.back()) {
            (0, Some(last)) if used > 0 => self.until_left(*last, now),
            (0, _) => Duration::ZERO,
            _ => self.window(),
        };
        Decision {
            at: now,
            verdict,
            limit: self.limit,
            remaining,
            next_unit_in: match remaining {
                // What was charged just now leaves last, so the entries decide unless there were none.
                0 => until_free(used - (self.limit - 1)),
                _ => Duration::ZERO,
            },
            reset_after: last,
        }
    }

    fn refund(&self, state: &mut LogState, charged_at: Tick, cost: u64) {
        let found = state
            .entries
            .binary_search_by_key(&charged_at, |entry| entry.at);
        let Ok(index) = found else { return };
        let own = state.entries[index]
            .total
            .wrapping_sub(state.total_before(index));
        let back = own.min(cost);
        for entry in state.entries.iter_mut().skip(index) {
            entry.total = entry.total.wrapping_sub(back);
        }
        if back == own {
            state.entries.remove(index);
        }
    }

    fn is_idle(&self, state: &LogState, now: Tick) -> bool {
        self.expired(state, now) == state.entries.len()
    }

    fn charge(&self, state: &mut LogState, at: Tick, cost: u64) {
        if cost == 0 {
            return;
        }
        let expired = self.expired(state, at);
        state.gone = state.total_before(expired);
        state.entries.drain(..expired);
        let total = state.total_before(state.entries.len()).wrapping_add(cost);
        match state.entries.back_mut() {
            Some(last) if last.at == at => last.total = total,
            _ => state.entries.push_back(Entry { at, total }),
        }
        // Gives back what a burst took, but not on every quiet moment.
        if state.entries.capacity() > SMALL && state.entries.len() < state.entries.capacity() / 4 {
            state.entries.shrink_to(state.entries.len() * 2);
        }
    }
}

/// Entries below which a log is not worth shrinking.
const SMALL: usize = 32;
