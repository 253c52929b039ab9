//! Fixed window: so many per window, counted from nothing when the next one begins.

use std::time::Duration;

use super::{LONGEST, Policy};
use crate::decision::{Decision, Verdict};
use crate::error::LimitError;
use crate::tick::Tick;

/// Lets `limit` pass in each window; a window begins at the first hit after the last one has ended.
///
/// | | |
/// |---|---|
/// | bound | `limit` in each of its windows; up to `2 limit` in a span of that length which straddles a seam |
/// | bursts | yes: the whole limit at once, and twice that at a seam |
/// | memory | an instant and a count (16 bytes) per key |
/// | error | none inside a window; at the seam the double burst |
///
/// With [`aligned`](Self::aligned), windows lie on the clock instead: "100 a minute, seconds 0 to 59". Callers then know
/// when it starts anew, and crowd there. If twice the limit at a seam is too much, use
/// [`SlidingLog`](crate::SlidingLog) or [`SlidingCounter`](crate::SlidingCounter).
///
/// # Examples
/// ```
/// use sluicegate::{FixedWindow, Policy, Tick};
/// use std::time::Duration;
///
/// let second = |n: u64| Tick::from_nanos(n * 1_000_000_000);
/// let rule = FixedWindow::new(100, Duration::from_secs(60))?.aligned(Duration::ZERO);
/// let mut state = rule.start(second(59));
/// // The double burst at the seam: 200 within two seconds, each window keeping to its 100.
/// assert!(rule.check(&mut state, second(59), 100).is_granted());
/// assert!(rule.check(&mut state, second(60), 100).is_granted());
/// assert_eq!(rule.check(&mut state, second(60), 1).retry_after(), Some(Duration::from_secs(60)));
/// # Ok::<(), sluicegate::LimitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    limit: u64,
    window: u64,
    offset: Option<u64>,
}

/// State of a fixed window: when it ends, and what was charged in it. With nothing charged, the end means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowState {
    pub(crate) end: Tick,
    pub(crate) used: u64,
}

impl FixedWindow {
    /// Makes a rule of `limit` units per `window`.
    ///
    /// # Errors
    /// If the limit or the window is 0, or the window is longer than 292 years.
    pub const fn new(limit: u64, window: Duration) -> Result<Self, LimitError> {
        match checked(limit, window) {
            Ok(window) => Ok(Self {
                limit,
                window,
                offset: None,
            }),
            Err(error) => Err(error),
        }
    }

    /// Lets windows begin at multiples of their length since tick 0, plus `offset`.
    ///
    /// The clocks that the limiters use by default count from the Unix epoch, so a window of a minute is the minute of
    /// the clock, and a day begins at midnight UTC plus the offset. An offset beyond the window counts modulo it.
    #[must_use]
    pub const fn aligned(mut self, offset: Duration) -> Self {
        self.offset = Some((offset.as_nanos() % self.window as u128) as u64);
        self
    }

    /// Units per window.
    #[must_use]
    pub const fn quota(&self) -> u64 {
        self.limit
    }

    /// Length of a window.
    #[must_use]
    pub const fn window(&self) -> Duration {
        Duration::from_nanos(self.window)
    }

    /// Offset of windows that lie on the clock; `None` if they begin at the first hit.
    #[must_use]
    pub const fn offset(&self) -> Option<Duration> {
        match self.offset {
            Some(offset) => Some(Duration::from_nanos(offset)),
            None => None,
        }
    }

    /// End of a window which begins with a hit at `now`.
    fn end_after(&self, now: Tick) -> Tick {
        let Some(offset) = self.offset else {
            return now + self.window();
        };
        // The part of a window that has passed at `now`; before the first offset it is counted from the window before.
        let passed = match now.as_nanos().checked_sub(offset) {
            Some(since) => since % self.window,
            None => self.window - (offset - now.as_nanos()),
        };
        now + Duration::from_nanos(self.window - passed)
    }

    /// What counts at `now`: the units of its window, and when that ends.
    fn current(&self, state: &WindowState, now: Tick) -> WindowState {
        // At the end of time no window ends, or each call would begin a new one.
        if state.used > 0 && (now < state.end || state.end == Tick::MAX) {
            return *state;
        }
        WindowState {
            end: self.end_after(now),
            used: 0,
        }
    }

    /// A window that ends later than one of this rule could, as it began under a longer one; with an end of its own.
    pub(crate) fn clamped(&self, state: &WindowState, now: Tick) -> Option<WindowState> {
        let stands = state.used > 0 && state.end > now;
        let end = self.end_after(now);
        (stands && state.end - now > self.window()).then_some(WindowState { end, ..*state })
    }

    /// The state under this rule of a window that was counted by another one.
    pub(crate) fn adopted(&self, state: &WindowState, old: &Self, now: Tick) -> WindowState {
        let current = old.current(state, now);
        let end = match self.offset {
            Some(_) => self.end_after(now),
            None => current.end.before(old.window()) + self.window(),
        };
        WindowState { end, ..current }
    }
}

/// Limit and window of a rule that counts in windows, in nanoseconds, if they make sense.
pub(super) const fn checked(limit: u64, window: Duration) -> Result<u64, LimitError> {
    let span = window.as_nanos();
    if limit == 0 {
        Err(LimitError::Zero { field: "limit" })
    } else if span == 0 {
        Err(LimitError::Zero { field: "window" })
    } else if span > LONGEST as u128 {
        Err(LimitError::WindowTooLong { window })
    } else {
        Ok(span as u64)
    }
}

impl Policy for FixedWindow {
    type State = WindowState;

    fn start(&self, now: Tick) -> WindowState {
        WindowState {
            end: self.end_after(now),
            used: 0,
        }
    }

    fn peek(&self, state: &WindowState, now: Tick, cost: u64) -> Decision {
        let current = self.current(state, now);
        let left = self.limit.saturating_sub(current.used);
        let to_end = current.end - now;
        let verdict = if cost == 0 || cost <= left {
            Verdict::Granted
        } else if cost > self.limit {
            Verdict::Never {
                max_cost: self.limit,
            }
        } else {
            Verdict::Refused {
                retry_after: to_end.max(Duration::from_nanos(1)),
            }
        };
        let remaining = match verdict {
            Verdict::Granted => left.saturating_sub(cost),
            Verdict::Refused { .. } | Verdict::Never { .. } => left,
        };
        let if_over = |over: bool| if over { to_end } else { Duration::ZERO };
        Decision {
            at: now,
            verdict,
            limit: self.limit,
            remaining,
            next_unit_in: if_over(remaining == 0),
            reset_after: if_over(remaining < self.limit),
        }
    }

    fn refund(&self, state: &mut WindowState, charged_at: Tick, cost: u64) {
        let in_window = charged_at < state.end && state.end - charged_at <= self.window();
        if in_window {
            state.used = state.used.saturating_sub(cost);
        }
    }

    fn is_idle(&self, state: &WindowState, now: Tick) -> bool {
        self.current(state, now).used == 0
    }

    fn charge(&self, state: &mut WindowState, at: Tick, cost: u64) {
        if cost > 0 {
            *state = self.current(state, at);
            state.used = state.used.saturating_add(cost);
        }
    }
}
