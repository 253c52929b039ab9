//! The ladder of pressure: who is admitted at which depth, with hysteresis.
//!
//! ```text
//!               depth reaches high          line full, or standing delay
//!   Healthy ------------------> Elevated ------------------> Overloaded
//!      ^                          |   ^                          |
//!      +--------------------------+   +--------------------------+
//!        line empty, depth <= low        line at half, depth <= low
//! ```
//! A line at the door keeps the state from `Healthy`: those who wait go first. The state depends on its own past
//! only through the two marks and the half of the line, so a depth that wavers inside them does not flap.

use crate::words::Pressure;

/// Marks, bounds and the present state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ladder {
    bounds: Bounds,
    state: Pressure,
}

/// What a ladder is set to: `low < high <= max_depth`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) max_depth: u64,
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) max_waiters: u64,
    /// Newcomers may evict, so waiters may fill the queue up to its bound.
    pub(crate) evicting: bool,
}

/// What the state is judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) depth: u64,
    /// Offers standing in line.
    pub(crate) line: u64,
    /// Every recent job waited too long.
    pub(crate) standing: bool,
}

impl Ladder {
    pub(crate) fn new(bounds: Bounds) -> Self {
        debug_assert!(
            bounds.low < bounds.high && bounds.high <= bounds.max_depth,
            "marks in order"
        );
        Self {
            bounds,
            state: Pressure::Healthy,
        }
    }

    pub(crate) fn set_bounds(&mut self, bounds: Bounds) {
        debug_assert!(
            bounds.low < bounds.high && bounds.high <= bounds.max_depth,
            "marks in order"
        );
        self.bounds = bounds;
    }

    #[inline]
    pub(crate) fn state(&self) -> Pressure {
        self.state
    }

    /// Whether `cost` more fits under the bound.
    #[inline]
    pub(crate) fn fits(&self, cost: u64, depth: u64) -> bool {
        cost <= self.bounds.max_depth.saturating_sub(depth)
    }

    /// Whether the head of the line, or a newcomer behind an empty one, gets a place. `critical` = critical cost held.
    #[inline]
    pub(crate) fn grants(&self, cost: u64, depth: u64, critical: u64) -> bool {
        let Bounds {
            max_depth,
            low,
            high,
            evicting,
            ..
        } = self.bounds;
        let ceiling = if evicting { max_depth } else { high };
        // Critical jobs live in the room above the high mark, so they do not take it from the others below.
        let ordinary = depth - critical.min(max_depth - high).min(depth);
        self.fits(cost, depth)
            && (self.state == Pressure::Healthy
                || depth <= low
                || ordinary.saturating_add(cost) <= ceiling)
    }

    /// Judges the state anew after a change of depth, line, delay or bounds.
    #[inline]
    pub(crate) fn judge(&mut self, load: Load) -> Pressure {
        let Load {
            depth,
            line,
            standing,
        } = load;
        let Bounds {
            low,
            high,
            max_waiters,
            ..
        } = self.bounds;
        self.state = if standing && depth > low {
            Pressure::Overloaded
        } else if line == 0 && (depth <= low || (self.state == Pressure::Healthy && depth < high)) {
            Pressure::Healthy
        } else if line >= max_waiters
            || (self.state == Pressure::Overloaded && line > max_waiters / 2)
        {
            Pressure::Overloaded
        } else {
            Pressure::Elevated
        };
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bounds() -> impl Strategy<Value = Bounds> {
        (1_u64..60)
            .prop_flat_map(|max| (Just(max), 1..=max, 0_u64..6, any::<bool>()))
            .prop_flat_map(|(max_depth, high, max_waiters, evicting)| {
                (0..high).prop_map(move |low| Bounds {
                    max_depth,
                    low,
                    high,
                    max_waiters,
                    evicting,
                })
            })
    }

    fn load(depth: u64, line: u64) -> Load {
        Load {
            depth,
            line,
            standing: false,
        }
    }

    proptest! {
        #[test]
        fn the_state_is_at_a_fixed_point(bounds in bounds(), loads in prop::collection::vec((0_u64..80, 0_u64..8, any::<bool>()), 1..40)) {
            let mut ladder = Ladder::new(bounds);
            for (depth, line, standing) in loads {
                let load = Load { depth, line: line.min(bounds.max_waiters), standing };
                let state = ladder.judge(load);
                prop_assert_eq!(ladder.judge(load), state, "judged twice, same load");
            }
        }

        #[test]
        fn plus_or_minus_one_does_not_flap(bounds in bounds(), depth in 0_u64..60, moves in prop::collection::vec(any::<bool>(), 1..60)) {
            prop_assume!(bounds.high - bounds.low >= 2);
            let mut ladder = Ladder::new(bounds);
            ladder.judge(load(depth, 0));
            let mut changes = 0;
            let mut last = ladder.state();
            for up in moves {
                let state = ladder.judge(load(depth + u64::from(up), 0));
                changes += u32::from(state != last);
                last = state;
            }
            prop_assert!(changes <= 1, "{changes} changes around {depth}");
        }

        #[test]
        fn a_grant_keeps_the_bound(bounds in bounds(), depth in 0_u64..80, cost in 1_u64..30, critical in 0_u64..80) {
            let ladder = Ladder::new(bounds);
            prop_assert!(!ladder.grants(cost, depth, critical.min(depth)) || depth + cost <= bounds.max_depth);
        }

        #[test]
        fn a_head_that_fits_the_bound_is_granted_at_the_low_mark(bounds in bounds(), cost in 1_u64..60) {
            let mut ladder = Ladder::new(bounds);
            ladder.judge(load(bounds.max_depth, 1));
            let depth = bounds.low.min(bounds.max_depth.saturating_sub(cost));
            prop_assume!(cost <= bounds.max_depth);
            prop_assert!(ladder.grants(cost, depth, 0));
        }
    }

    #[test]
    fn a_line_of_none_is_overloaded_from_high_to_low() {
        let mut ladder = Ladder::new(Bounds {
            max_depth: 10,
            low: 5,
            high: 8,
            max_waiters: 0,
            evicting: false,
        });
        assert_eq!(ladder.judge(load(7, 0)), Pressure::Healthy);
        assert_eq!(ladder.judge(load(8, 0)), Pressure::Overloaded);
        assert_eq!(ladder.judge(load(6, 0)), Pressure::Overloaded);
        assert_eq!(ladder.judge(load(5, 0)), Pressure::Healthy);
    }

    #[test]
    fn critical_cost_leaves_the_others_their_room() {
        let mut ladder = Ladder::new(Bounds {
            max_depth: 10,
            low: 2,
            high: 8,
            max_waiters: 4,
            evicting: false,
        });
        ladder.judge(load(9, 1));
        // Two critical units sit above the high mark; seven ordinary ones below it leave room for one more.
        assert!(ladder.grants(1, 9, 2));
        assert!(!ladder.grants(1, 9, 0));
    }
}
