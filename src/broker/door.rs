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

    /// The broker has stopped taking from publishers, whatever the polls say: so it is taken to be, until the next one.
    pub(super) fn found_blocked(&mut self, now: Instant) -> Turned {
        let polled = self.polled.get_or_insert(Polled {
            depth: Depth::default(),
            at: now,
            share: 0,
        });
        polled.depth.blocked = true;
        self.refused += 1;
        let depth = self.estimate();
        Turned {
            reason: Reason::Overloaded,
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
mod tests;
