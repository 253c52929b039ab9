//! What happened when, in a bounded number of equal steps: the steps double whenever the run outgrows them.

use std::time::Duration;

use crate::tick::Tick;

/// Counts of one step of a [`Timeline`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// Offers made, repeated ones included.
    pub offered: u64,
    /// Offers refused, by the edge or the queue.
    pub refused: u64,
    /// Jobs that started.
    pub started: u64,
    /// Jobs that ended while their caller still waited.
    pub good: u64,
    /// Greatest depth.
    pub depth: u64,
    /// Most offers in line at the door.
    pub waiting: u64,
    /// Most jobs in flight.
    pub in_flight: u64,
}

/// A run in equal steps of time.
#[derive(Clone, Debug)]
pub struct Timeline {
    width: u64,
    steps: Vec<Step>,
    /// What stands at the end of the last step.
    stands: Level,
}

/// What a run stands at between two events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) depth: u64,
    pub(crate) waiting: u64,
    pub(crate) in_flight: u64,
}

impl Timeline {
    pub(crate) fn new() -> Self {
        Self {
            width: FINEST,
            steps: vec![Step::default()],
            stands: Level::default(),
        }
    }

    /// Time of one step.
    #[must_use]
    pub const fn width(&self) -> Duration {
        Duration::from_nanos(self.width)
    }

    /// The steps from the first arrival on.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The same in at most so many columns: counts are added, levels are the greatest.
    #[must_use]
    pub fn columns(&self, most: usize) -> Self {
        let mut shrunk = self.clone();
        let group = self.steps.len().div_ceil(most.max(1)).max(1);
        shrunk.steps = self.steps.chunks(group).map(merged).collect();
        shrunk.width = self.width.saturating_mul(group as u64);
        shrunk
    }

    pub(crate) fn at(&mut self, now: Tick) -> &mut Step {
        let mut index = now.as_nanos() / self.width;
        while index >= MOST as u64 {
            self.steps = self.steps.chunks(2).map(merged).collect();
            self.width = self.width.saturating_mul(2);
            index = now.as_nanos() / self.width;
        }
        let index = index as usize;
        // A step in which nothing happened still has the depth that stood.
        let still = Step {
            depth: self.stands.depth,
            waiting: self.stands.waiting,
            in_flight: self.stands.in_flight,
            ..Step::default()
        };
        while self.steps.len() <= index {
            self.steps.push(still);
        }
        &mut self.steps[index]
    }

    pub(crate) fn level(&mut self, now: Tick, level: Level) {
        let step = self.at(now);
        step.depth = step.depth.max(level.depth);
        step.waiting = step.waiting.max(level.waiting);
        step.in_flight = step.in_flight.max(level.in_flight);
        self.stands = level;
    }
}

fn merged(steps: &[Step]) -> Step {
    let mut sum = Step::default();
    for step in steps {
        sum.offered += step.offered;
        sum.refused += step.refused;
        sum.started += step.started;
        sum.good += step.good;
        sum.depth = sum.depth.max(step.depth);
        sum.waiting = sum.waiting.max(step.waiting);
        sum.in_flight = sum.in_flight.max(step.in_flight);
    }
    sum
}

const FINEST: u64 = 1_000_000;
/// Twelve for each column of a wide terminal; 50 KiB.
const MOST: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(depth: u64) -> Level {
        Level {
            depth,
            ..Level::default()
        }
    }

    #[test]
    fn ten_years_fit_and_nothing_is_lost() {
        let mut timeline = Timeline::new();
        for day in 0..3650 {
            let now = Tick::from_nanos(day * 86_400_000_000_000);
            timeline.at(now).offered += 1;
            timeline.level(now, depth(day % 7));
        }
        assert!(timeline.steps().len() <= MOST);
        let offered: u64 = timeline.steps().iter().map(|step| step.offered).sum();
        assert_eq!(offered, 3650);
        let narrow = timeline.columns(70);
        assert!(narrow.steps().len() <= 70);
        assert!(narrow.steps().iter().all(|step| step.depth == 6));
    }

    #[test]
    fn a_quiet_step_keeps_the_depth_that_stood() {
        let mut timeline = Timeline::new();
        timeline.level(Tick::from_nanos(0), depth(5));
        timeline.level(Tick::from_nanos(10_000_000), depth(2));
        let depths: Vec<u64> = timeline.steps().iter().map(|step| step.depth).collect();
        assert_eq!(depths[..10], [5; 10]);
        assert_eq!(depths[10], 5);
    }
}
