//! Depth, marks and catch-up from a rate, a demand and a deadline; every number with the assumption behind it.

use std::fmt;
use std::time::Duration;

use super::figures::{brief, percent};
use super::generate::per_second;
use super::theory::{Endless, Marked};
use crate::rate::{Rate, Span};

/// What a queue is sized for.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Sizing {
    pub(super) rate: Rate,
    deadline: Duration,
    downstream: Duration,
    depth: Option<u64>,
}

/// The numbers to set, and what to expect of them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Size {
    /// Bound of the depth.
    pub max_depth: u64,
    /// Mark below which the queue is healthy again.
    pub low: u64,
    /// Mark from which it is no longer healthy.
    pub high: u64,
    /// Departures that are made up for after a stall.
    pub catch_up: u64,
    /// Mean wait from offer to start of who is admitted.
    pub mean_wait: Duration,
    /// The wait that half of them do not exceed.
    pub p50_wait: Duration,
    /// The wait that 99 of 100 do not exceed.
    pub p99_wait: Duration,
    /// Share of the offers that are refused.
    pub refused: f64,
    /// Every number in words, with the assumption behind it.
    pub lines: Vec<Line>,
    /// What is wrong with the demand.
    pub warnings: Vec<String>,
}

/// One number of a [`Size`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Line {
    /// What it is.
    pub name: &'static str,
    /// The number, with its unit.
    pub value: String,
    /// What it rests on.
    pub because: String,
}

pub(super) struct Expected {
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) refused: f64,
}

impl Sizing {
    /// For jobs that leave at `rate` and must end within `deadline`, of which the downstream takes `downstream` (its
    /// p99).
    pub const fn new(rate: Rate, deadline: Duration, downstream: Duration) -> Self {
        Self {
            rate,
            deadline,
            downstream,
            depth: None,
        }
    }

    /// Keeps this bound instead of the one that follows from the deadline.
    pub const fn max_depth(mut self, depth: u64) -> Self {
        self.depth = Some(depth);
        self
    }

    /// Sizes for independent arrivals at this mean rate.
    ///
    /// # Examples
    /// ```
    /// use sluicegate::Rate;
    /// use sluicegate::sim::Sizing;
    /// use std::time::Duration;
    ///
    /// let sizing = Sizing::new(Rate::per_second(1000), Duration::from_millis(110), Duration::from_millis(10));
    /// let size = sizing.offered(Rate::per_second(900));
    /// assert_eq!(size.max_depth, 99);
    /// assert_eq!(size.mean_wait, Duration::from_micros(4500));
    /// assert!(sizing.offered(Rate::per_second(1100)).warnings[0].contains("above"));
    /// ```
    #[must_use]
    pub fn offered(&self, offered: Rate) -> Size {
        let mut size = self.bounds();
        let load = per_second(offered) / per_second(self.rate);
        self.warn_of(&mut size, load, &format!("offered {offered}"));
        let (expected, because) = self.expect(&size, load);
        self.fill(&mut size, &expected, because);
        self.clear_spike(&mut size, load);
        size
    }

    /// Sizes for what an edge of this rate and burst lets through in the worst case.
    #[must_use]
    pub fn edge(&self, edge: Rate, burst: u64) -> Size {
        let mut size = self.bounds();
        let (r, rate) = (per_second(edge), per_second(self.rate));
        let load = r / rate;
        self.warn_of(&mut size, load, &format!("an edge of {edge}"));
        let (expected, because) = self.expect(&size, load);
        self.fill(&mut size, &expected, because);
        let grain = GRAIN.as_secs_f64();
        let bound = "network calculus, no probability: arrivals never above burst + rate x time, a timer late by 2.5 ms";
        if r <= rate {
            let backlog = burst as f64 + r * grain;
            size.line("worst backlog", format!("{:.0}", backlog.ceil()), bound);
            let delay = grain + burst as f64 / rate;
            size.line("worst wait", Span(millis(delay)).to_string(), bound);
            let clear = if r < rate {
                brief(burst as f64 / (rate - r))
            } else {
                "never, if unlucky".to_owned()
            };
            size.line(
                "burst cleared in",
                clear,
                "the edge stays at its rate behind the burst",
            );
            if backlog > size.max_depth as f64 {
                size.warnings.push(format!(
                    "a conforming burst of {burst} does not fit into {}: bursts within the edge's limit are refused by the queue",
                    size.max_depth
                ));
            }
        } else {
            let full = (size.max_depth as f64 - burst as f64).max(0.0) / (r - rate);
            size.line(
                "full after",
                brief(full),
                "the edge lets in more than leaves, from an empty queue on",
            );
            let delay = size.max_depth as f64 / rate + grain;
            size.line(
                "worst wait",
                Span(millis(delay)).to_string(),
                "only the bound holds it: depth / rate",
            );
        }
        size
    }

    pub(super) fn bounds(&self) -> Size {
        let room = self.deadline.saturating_sub(self.downstream);
        let within = self.rate.units_in(room);
        let fitting = within.saturating_sub(1).max(1);
        let max_depth = self.depth.unwrap_or(fitting).max(1);
        let low = max_depth / 2;
        let high = (max_depth * 4 / 5).max(low + 1);
        let late = self.rate.units_in_ceil(GRAIN);
        let catch_up = self.rate.units_in(STALL).max(late).max(1);
        let mut size = Size {
            max_depth,
            low,
            high,
            catch_up,
            mean_wait: Duration::ZERO,
            p50_wait: Duration::ZERO,
            p99_wait: Duration::ZERO,
            refused: 0.0,
            lines: Vec::new(),
            warnings: Vec::new(),
        };
        let (deadline, downstream) = (Span(self.deadline), Span(self.downstream));
        let because = match self.depth {
            Some(_) => "as asked".to_owned(),
            None => format!(
                "rate x (deadline {deadline} - downstream p99 {downstream}) - 1: the last one in still ends in time"
            ),
        };
        size.line("max_depth", max_depth.to_string(), because);
        size.line(
            "watermarks",
            format!("{low}, {high}"),
            format!(
                "50 % and 80 %: {} from mark to mark at the rate, for producers to react",
                brief((high - low) as f64 / per_second(self.rate))
            ),
        );
        size.line(
            "catch_up",
            catch_up.to_string(),
            "what falls due in 100 ms, and in the 2.5 ms that the runtime's timer is late by",
        );
        size.line(
            "max_in_flight",
            self.rate.units_in_ceil(self.downstream).max(1).to_string(),
            "rate x downstream p99 (Little): a downstream as slow as its p99 still keeps the rate",
        );
        if self.downstream >= self.deadline {
            size.warnings.push(format!("the downstream's p99 of {downstream} leaves nothing of the deadline of {deadline}: no depth helps"));
        } else if within < 2 {
            size.warnings.push(format!(
                "less than two jobs leave within {}: even a queue of one is late at times",
                Span(room)
            ));
        }
        if max_depth > fitting {
            size.warnings.push(format!("a depth of {max_depth} is beyond rate x deadline ({fitting}): when it is full, every job ends too late"));
        }
        size
    }

    fn expect(&self, size: &Size, load: f64) -> (Expected, &'static str) {
        let marked = Marked::new(load, size.low, size.high);
        if load < 1.0 && marked.refused() < NEGLIGIBLE {
            let endless = Endless::new(load);
            let expected = Expected {
                mean: endless.mean_wait(),
                p50: endless.quantile(0.5),
                p99: endless.quantile(0.99),
                refused: marked.refused(),
            };
            return (
                expected,
                "independent (Poisson) arrivals of cost 1 into a fixed rate (M/D/1); burstier ones wait longer",
            );
        }
        let expected = Expected {
            mean: marked.mean_wait(),
            p50: marked.quantile(0.5),
            p99: marked.quantile(0.99),
            refused: marked.refused(),
        };
        (
            expected,
            "independent (Poisson) arrivals of cost 1, offered by try_send and not again: refused from the high mark down to the low one",
        )
    }

    pub(super) fn fill(&self, size: &mut Size, expected: &Expected, because: &str) {
        let time = |units: f64| {
            let seconds = units / per_second(self.rate);
            Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
        };
        (size.mean_wait, size.p50_wait) = (time(expected.mean), time(expected.p50));
        (size.p99_wait, size.refused) = (time(expected.p99), expected.refused);
        for (name, wait) in [
            ("mean wait", size.mean_wait),
            ("p50 wait", size.p50_wait),
            ("p99 wait", size.p99_wait),
        ] {
            size.line(name, brief(wait.as_secs_f64()), because);
        }
        size.line("refused", percent(size.refused), because);
    }

    fn clear_spike(&self, size: &mut Size, load: f64) {
        let rate = per_second(self.rate);
        let spare = rate * (1.0 - load);
        let because = "a steady flow (no chance): the offered load goes on behind the spike";
        let clear = if spare > 0.0 {
            brief(size.max_depth as f64 / spare)
        } else {
            "never".to_owned()
        };
        size.line("full queue cleared in", clear, because);
    }

    pub(super) fn warn_of(&self, size: &mut Size, load: f64, what: &str) {
        let rate = self.rate;
        if load > 1.0 {
            let share = percent(1.0 - 1.0 / load);
            size.warnings.push(format!("{what} is above the rate of {rate}: in the long run {share} is refused whatever the depth"));
        } else if load >= 1.0 {
            size.warnings.push(format!(
                "{what} equals the rate of {rate}: a spike never clears"
            ));
        } else if load > MARGIN {
            size.warnings.push(format!(
                "{what} is {} of the rate of {rate}: above 90 % waits and the time to clear a spike grow without bound",
                percent(load)
            ));
        }
    }
}

impl Size {
    pub(super) fn line(&mut self, name: &'static str, value: String, because: impl Into<String>) {
        self.lines.push(Line {
            name,
            value,
            because: because.into(),
        });
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(f, "{:<22} {:>14}   {}", line.name, line.value, line.because)?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        Ok(())
    }
}

fn millis(seconds: f64) -> Duration {
    Duration::from_millis((seconds * 1e3).round() as u64)
}

/// Usual lateness of the runtime's timer.
const GRAIN: Duration = Duration::from_micros(2500);
/// Longest stall whose departures are made up for.
const STALL: Duration = Duration::from_millis(100);
/// Share of the rate up to which waits are short and spikes clear.
pub(super) const MARGIN: f64 = 0.9;
/// Below this share of refusals the bound does not bend the waits.
const NEGLIGIBLE: f64 = 1e-3;
