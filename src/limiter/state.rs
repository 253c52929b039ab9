//! The state of one key, judged and changed wherever its cell keeps it.

use super::cell::{Cell, Slab};
use crate::decision::Decision;
use crate::policy::{Gcra, Limit, LimitState, Policy};
use crate::tick::Tick;

/// How much a grant has to leave in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    Nothing,
    Half,
}

impl Keep {
    /// Units that a grant of `cost` has to leave.
    #[inline(always)]
    pub(crate) fn of(self, core: &Gcra, cost: u64) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Half => core.half_kept(cost),
        }
    }
}

/// Decides by a state that has to be taken out of its cell.
#[inline(never)]
pub(crate) fn check_state(
    cell: &mut Cell,
    slab: &mut Slab,
    limit: &Limit,
    (now, cost, keep): (Tick, u64, Keep),
) -> Decision {
    with_state(cell, slab, limit, now, |state| {
        // Who is told to go away has nothing to wait for, and a cost of 0 changes nothing.
        if (1..=limit.quota()).contains(&cost) {
            clamp(limit, state, now);
        }
        let decision = peek(limit, state, now, cost, keep);
        if decision.is_granted() {
            limit.charge(state, decision.at, cost);
        }
        decision
    })
}

/// Charges a state that no longer fits its cell.
#[cold]
#[inline(never)]
pub(crate) fn charge_state(
    cell: &mut Cell,
    slab: &mut Slab,
    limit: &Limit,
    (now, cost): (Tick, u64),
) {
    with_state(cell, slab, limit, now, |state| {
        limit.charge(state, now, cost)
    });
}

/// Judges a state by the limit, as it stands or keeping half.
pub(crate) fn peek(
    limit: &Limit,
    state: &LimitState,
    now: Tick,
    cost: u64,
    keep: Keep,
) -> Decision {
    match keep {
        Keep::Nothing => limit.peek(state, now, cost),
        Keep::Half => limit.peek_keeping_half(state, now, cost),
    }
}

/// A bucket or a window further ahead than this limit allows, as that of another limit may be; clamped.
pub(crate) fn clamped(limit: &Limit, state: &LimitState, now: Tick) -> Option<LimitState> {
    match (limit, state) {
        (Limit::FixedWindow(rule), LimitState::FixedWindow(state)) => {
            let clamped = rule.clamped(state, now)?;
            Some(LimitState::FixedWindow(clamped))
        }
        _ => {
            let most = limit.bucket()?.furthest(now);
            if state.bucket()?.tat <= most {
                return None;
            }
            let mut state = state.clone();
            state.bucket_mut()?.tat = most;
            Some(state)
        }
    }
}

/// Clamps a state in place, as [`clamped`] does a copy.
pub(crate) fn clamp(limit: &Limit, state: &mut LimitState, now: Tick) {
    if let Some(clamped) = clamped(limit, state, now) {
        *state = clamped;
    }
}

/// Takes a state out of its cell and packs it again.
pub(crate) fn with_state<R>(
    cell: &mut Cell,
    slab: &mut Slab,
    limit: &Limit,
    now: Tick,
    change: impl FnOnce(&mut LimitState) -> R,
) -> R {
    let mut state = cell.unpack(slab);
    if !limit.fits(&state) {
        state = limit.start(now);
    }
    let result = change(&mut state);
    *cell = Cell::pack(limit, state, slab);
    result
}
