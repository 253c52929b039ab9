//! What one process knows of a broker's depth, and whom it lets publish.
//!
//! Between two polls the depth is counted on: what was confirmed since the last poll began may be missing in its answer,
//! and what is unconfirmed may be in the broker or not. Both are added, so the estimate errs to the high side, by no
//! more than the window of unconfirmed publishes.
//!
//! - I1  estimate = depth of the last answer + confirmed since that poll began + unconfirmed.
//! - I2  with this process the only publisher, depth <= estimate <= `max_depth` whenever something is let in.
//! - I3  between two polls no more is let in than this process's share of the room that the last one found.

use std::time::Duration;

use tokio::time::Instant;

use super::contract::Depth;
use crate::policy::ladder::{Bounds, Ladder, Load};
use crate::refusal::Reason;
use crate::words::Pressure;

/// What a door is set to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) max_depth: u64,
    pub(super) low: u64,
    pub(super) high: u64,
    pub(super) max_unconfirmed: u64,
    pub(super) processes: u64,
    pub(super) poll_every: Duration,
    /// Messages a second that leave, as far as the caller knows.
    pub(super) drain: Option<f64>,
}

#[derive(Debug)]
pub(super) struct Door {
    settings: Settings,
    ladder: Ladder,
    polled: Option<Polled>,
    /// Confirmed, or of unknown outcome, since the last answered poll began.
    since: u64,
    /// The same since the running poll began.
    since_running: u64,
    unconfirmed: u64,
    /// Refused for depth since the door was last open.
    refused: u64,
    drain: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Polled {
    depth: Depth,
    at: Instant,
    /// What this process may add until the next one.
    share: u64,
}

/// Why not, and when to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turned {
    pub(super) reason: Reason,
    pub(super) retry_after: Duration,
    pub(super) depth: u64,
}

impl Door {
    pub(super) fn new(settings: Settings) -> Self {
        let ladder = Ladder::new(Bounds {
            max_depth: settings.max_depth,
            low: settings.low,
            high: settings.high,
            // Nobody stands in line here: past the high mark it refuses until the low one.
            max_waiters: 0,
            evicting: false,
        });
        Self {
            settings,
            ladder,
            polled: None,
            since: 0,
            since_running: 0,
            unconfirmed: 0,
            refused: 0,
            drain: settings.drain,
        }
    }

    /// Age of the last answer; `None` = there was none yet.
    pub(super) fn age(&self, now: Instant) -> Option<Duration> {
        let polled = self.polled?;
        Some(now.saturating_duration_since(polled.at))
    }

    /// Depth as far as it is known here (I1).
    pub(super) fn estimate(&self) -> u64 {
        let polled = self.polled.map_or(0, |polled| polled.depth.total());
        polled
            .saturating_add(self.since)
            .saturating_add(self.unconfirmed)
    }

    pub(super) fn unconfirmed(&self) -> u64 {
        self.unconfirmed
    }

    pub(super) fn pressure(&self) -> Pressure {
        let blocked = self.polled.is_some_and(|polled| polled.depth.blocked);
        if blocked || self.unconfirmed >= self.settings.max_unconfirmed {
            Pressure::Overloaded
        } else {
            self.ladder.state()
        }
    }

    /// Messages a second that leave the broker, as seen in the polls.
    pub(super) fn drain(&self) -> Option<f64> {
        self.drain.filter(|rate| *rate > SLOWEST)
    }

    /// Whether one more may be published; nothing is changed.
    pub(super) fn look(&self) -> Result<(), Turned> {
        let blocked = self.polled.is_some_and(|polled| polled.depth.blocked);
        let share = self.polled.map_or(0, |polled| polled.share);
        let estimate = self.estimate();
        let reason = if !self.ladder.fits(1, estimate) || self.since + self.unconfirmed >= share {
            Reason::Full
        } else if blocked
            || self.unconfirmed >= self.settings.max_unconfirmed
            || self.ladder.state() != Pressure::Healthy
        {
            Reason::Overloaded
        } else {
            return Ok(());
        };
        Err(Turned {
            reason,
            retry_after: self.comes_in(estimate),
            depth: estimate,
        })
    }

    /// Lets one in: it is unconfirmed from here on (keeps I2, I3).
    pub(super) fn enter(&mut self) -> Result<(), Turned> {
        match self.look() {
            Ok(()) => {
                self.unconfirmed += 1;
                self.judge();
                Ok(())
            }
            Err(turned) => {
                self.refused += 1;
                Err(turned)
            }
        }
    }

    /// One more that was turned away by a look.
    pub(super) fn count_refused(&mut self) {
        self.refused += 1;
    }

    /// A publish has ended; `stored` unless the broker said that it is not.
    pub(super) fn leave(&mut self, stored: bool) {
        self.unconfirmed -= 1;
        self.since += u64::from(stored);
        self.since_running += u64::from(stored);
        self.judge();
    }

    /// The broker refused for being full, whatever the polls say: so it is taken to be, until the next one.
    pub(super) fn found_full(&mut self, now: Instant) -> Turned {
        let (max_depth, estimate) = (self.settings.max_depth, self.estimate());
        let polled = self.polled.get_or_insert(Polled {
            depth: Depth::default(),
            at: now,
            share: 0,
        });
        polled.depth.queued += max_depth.saturating_sub(estimate);
        self.judge();
        self.refused += 1;
        let depth = self.estimate();
        Turned {
            reason: Reason::Full,
            retry_after: self.comes_in(depth),
            depth,
        }
    }

    pub(super) fn poll_begins(&mut self) {
        self.since_running = 0;
    }

    pub(super) fn poll_answers(&mut self, began: Instant, depth: Depth) {
        if let Some(before) = self.polled {
            let came = before.depth.total().saturating_add(self.since);
            let over = began.saturating_duration_since(before.at).as_secs_f64();
            if over > 0.0 && !depth.blocked {
                let left = came.saturating_sub(depth.total()) as f64 / over;
                // A poll says the more the longer ago the last one was.
                let weight = (over / MEMORY).min(1.0);
                let old = self.drain.unwrap_or(left);
                self.drain = Some(old + (left - old) * weight);
            }
        }
        self.since = self.since_running;
        let room = self.settings.max_depth.saturating_sub(depth.total());
        self.polled = Some(Polled {
            depth,
            at: began,
            share: room / self.settings.processes,
        });
        self.judge();
    }

    fn judge(&mut self) {
        let load = Load {
            depth: self.estimate(),
            line: 0,
            standing: false,
        };
        if self.ladder.judge(load) == Pressure::Healthy {
            self.refused = 0;
        }
    }

    /// Until the depth is down to the low mark, and one place more for each that was told so before.
    fn comes_in(&self, estimate: u64) -> Duration {
        let excess = match self.ladder.state() {
            Pressure::Healthy => 1,
            _ => estimate.saturating_sub(self.settings.low).max(1),
        };
        let ahead = excess.saturating_add(self.refused) as f64;
        let seconds = match self.drain() {
            Some(rate) => ahead / rate,
            // Nothing is known of the drain, so neither is the time.
            None => UNKNOWN.as_secs_f64(),
        };
        let until = Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST);
        until.min(LONGEST) + self.settings.poll_every
    }
}

/// Seconds over which the drain is averaged.
const MEMORY: f64 = 3.0;
/// A drain below this, in messages a second, is none.
const SLOWEST: f64 = 1e-3;
const UNKNOWN: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn settings(max_depth: u64, low: u64, window: u64, processes: u64) -> Settings {
        Settings {
            max_depth,
            low,
            high: max_depth,
            max_unconfirmed: window,
            processes,
            poll_every: Duration::from_millis(100),
            drain: None,
        }
    }

    fn holds(queued: u64) -> Depth {
        Depth {
            queued,
            ..Depth::default()
        }
    }

    #[test]
    fn nothing_is_let_in_before_the_first_answer() {
        let mut door = Door::new(settings(10, 5, 10, 1));
        assert_eq!(
            door.enter().expect_err("nothing is known").reason,
            Reason::Full
        );
        door.poll_begins();
        door.poll_answers(Instant::now(), holds(9));
        assert!(door.enter().is_ok());
        assert_eq!(door.enter().expect_err("ten of ten").depth, 10);
    }

    #[test]
    fn it_opens_at_the_low_mark_and_not_before() {
        let mut door = Door::new(settings(10, 5, 10, 1));
        door.poll_answers(Instant::now(), holds(10));
        for depth in [9, 8, 6] {
            door.poll_begins();
            door.poll_answers(Instant::now(), holds(depth));
            let turned = door.enter().expect_err("above the low mark");
            assert_eq!(turned.reason, Reason::Overloaded);
        }
        door.poll_answers(Instant::now(), holds(5));
        assert!(door.enter().is_ok());
    }

    #[test]
    fn what_is_confirmed_while_a_poll_runs_is_counted_on_its_answer() {
        let mut door = Door::new(settings(10, 5, 10, 1));
        door.poll_begins();
        door.poll_answers(Instant::now(), holds(0));
        door.enter().expect("there is room");
        door.leave(true);
        door.poll_begins();
        door.enter().expect("there is room");
        door.leave(true);
        door.poll_answers(Instant::now(), holds(1));
        assert_eq!(door.estimate(), 2);
    }

    #[test]
    fn a_window_of_unconfirmed_publishes_is_pressure_not_a_hang() {
        let mut door = Door::new(settings(100, 50, 2, 1));
        door.poll_answers(Instant::now(), holds(0));
        assert!(door.enter().is_ok() && door.enter().is_ok());
        assert_eq!(door.pressure(), Pressure::Overloaded);
        assert_eq!(
            door.enter().expect_err("two of two").reason,
            Reason::Overloaded
        );
        door.leave(false);
        assert_eq!(door.pressure(), Pressure::Healthy);
        assert!(door.enter().is_ok());
    }

    #[test]
    fn a_drain_that_is_known_gives_the_time_and_the_refused_come_as_a_trickle() {
        let mut door = Door::new(Settings {
            drain: Some(10.0),
            ..settings(100, 50, 10, 1)
        });
        door.poll_answers(Instant::now(), holds(100));
        let times: Vec<_> = (0..3)
            .map(|_| door.enter().expect_err("full").retry_after.as_millis())
            .collect();
        assert_eq!(times, [5_100, 5_200, 5_300]);
    }

    proptest! {
        /// One publisher, a broker that drains as it likes, polls that answer late: the bound holds at every step.
        #[test]
        fn one_publisher_never_passes_the_bound(
            max_depth in 1_u64..30, window in 1_u64..10,
            steps in prop::collection::vec((0_u8..6, 0_u64..4), 1..300),
        ) {
            let mut door = Door::new(settings(max_depth, max_depth / 2, window, 1));
            let (mut broker, mut under_way, mut answer) = (0_u64, 0_u64, None);
            for (step, n) in steps {
                match step {
                    0 | 1 => under_way += u64::from(door.enter().is_ok()),
                    2 if under_way > 0 => {
                        under_way -= 1;
                        let stored = n > 0;
                        broker += u64::from(stored);
                        door.leave(stored);
                    }
                    3 => broker = broker.saturating_sub(n),
                    4 if answer.is_none() => {
                        door.poll_begins();
                        answer = Some(broker);
                    }
                    5 => if let Some(depth) = answer.take() {
                        door.poll_answers(Instant::now(), holds(depth));
                    },
                    _ => {}
                }
                prop_assert!(under_way <= window);
                prop_assert!(broker + under_way <= max_depth, "{broker} + {under_way} > {max_depth}");
            }
        }

        /// Several processes, each with the answers of its own polls, however old: the bound and the stated overshoot.
        #[test]
        fn several_publishers_overshoot_by_less_than_the_bound(
            max_depth in 4_u64..40, processes in 2_u64..5,
            steps in prop::collection::vec((0_usize..4, 0_u8..4), 1..400),
        ) {
            let of = settings(max_depth, max_depth / 2, 100, processes);
            let mut doors: Vec<_> = (0..processes).map(|_| Door::new(of)).collect();
            let mut broker = 0_u64;
            for (who, step) in steps {
                let who = who % doors.len();
                let door = &mut doors[who];
                match step {
                    0 | 1 => if door.enter().is_ok() {
                        broker += 1;
                        door.leave(true);
                    },
                    2 => {
                        door.poll_begins();
                        door.poll_answers(Instant::now(), holds(broker));
                    }
                    _ => broker = broker.saturating_sub(1),
                }
                let overshoot = max_depth * (processes - 1) / processes;
                prop_assert!(broker <= max_depth + overshoot, "{broker} > {max_depth} + {overshoot}");
            }
        }
    }
}
