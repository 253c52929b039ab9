//! When a turn comes: arithmetic on a limit, its state and what waits before.

use std::task::Waker;
use std::time::Duration;

use crate::policy::{Limit, LimitState, Policy};
use crate::tick::{Fine, Tick};

/// Limit and state that the line stands before, and the instant that is judged.
pub(crate) struct Before<'a> {
    pub(crate) limit: &'a Limit,
    pub(crate) state: &'a mut LimitState,
    pub(crate) now: Tick,
    /// Whom to wake once the lock is released.
    pub(crate) wakes: &'a mut Vec<Waker>,
}

/// Instant at which a bucket grants a cost that comes behind everything it was charged for.
pub(crate) fn newcomer_due(before: &Before<'_>, cost: u64) -> Tick {
    let core = before.limit.bucket().expect("only asked of buckets");
    let tat = before.state.bucket().map_or(Fine::ZERO, |state| state.tat);
    let start = tat.max(Fine::at(before.now));
    // An instant beyond the range of ticks is no instant: the newcomer is refused.
    match start.0.checked_add(core.interval().times(cost).0) {
        Some(after) => Fine(after).minus(core.tolerance()).ceil(),
        None => Tick::MAX,
    }
}

/// Instant at which the head of a bucket's line is due: `tat`, which the whole line is charged to, minus what is behind.
pub(crate) fn due_in_bucket(before: &Before<'_>, line: u128, head: u128) -> Tick {
    let core = before.limit.bucket().expect("only asked of buckets");
    let tat = before.state.bucket().map_or(Fine::ZERO, |state| state.tat);
    tat.minus(ahead_of(core.interval(), line - head))
        .minus(core.tolerance())
        .ceil()
}

/// Time that so much cost takes at the rate.
pub(crate) fn ahead_of(interval: Fine, cost: u128) -> Fine {
    Fine(interval.0.saturating_mul(cost))
}

/// Shortest wait in a window until a cost fits that has so much before it, itself included; `head` is the first in line.
pub(crate) fn wait_behind(before: &Before<'_>, head: Option<u64>, ahead: u128) -> Duration {
    let Before { limit, now, .. } = *before;
    let wait = |cost: u64| {
        let decision = limit.peek(before.state, now, cost);
        decision.retry_after().unwrap_or_default()
    };
    let quota = limit.quota();
    let ahead_now = u64::try_from(ahead).unwrap_or(u64::MAX).min(quota);
    let head = wait(head.unwrap_or(ahead_now));
    if matches!(limit, Limit::SlidingCounter(_)) {
        // What is charged fades, so more than the limit may pass in a window: only the head's turn is sure.
        return head;
    }
    let windows = u32::try_from((ahead.max(1) - 1) / u128::from(quota)).unwrap_or(u32::MAX);
    head.saturating_add(limit.window().saturating_mul(windows))
        .max(wait(ahead_now))
}
