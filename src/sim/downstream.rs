//! What stands behind the queue: how long a job takes there, and when it is away.

use std::str::FromStr;
use std::time::Duration;

use super::dice::Dice;
use crate::rate::Span;
use crate::tick::Tick;

/// Model of what does the work.
///
/// # Examples
/// ```
/// use sluicegate::sim::{Downstream, Latency, Outage};
/// use std::time::Duration;
///
/// let slow = Downstream::new(Latency::Exponential(Duration::from_millis(20)))
///     .degrading(50, 1.0)
///     .outage("30s for 10s".parse::<Outage>()?);
/// # let _ = slow;
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Downstream {
    latency: Latency,
    knee: Option<(u64, f64)>,
    outages: Vec<Outage>,
}

/// Time that a job takes when nothing is in its way.
///
/// Text forms: `fixed 20ms`, `exponential 20ms`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Latency {
    /// Always the same.
    Fixed(Duration),
    /// Exponentially distributed around a mean.
    Exponential(Duration),
    /// One of these, each as likely as every other: what was measured.
    Measured(Vec<Duration>),
}

/// A time in which the downstream does not work.
///
/// Text forms: `30s for 10s` (jobs stall until its end), `30s for 10s failing` (they fail after their usual time).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    from: Duration,
    length: Duration,
    fails: bool,
}

impl Downstream {
    /// A downstream with this latency, whatever its load.
    pub const fn new(latency: Latency) -> Self {
        Self {
            latency,
            knee: None,
            outages: Vec::new(),
        }
    }

    /// Above `knee` jobs at once, every job takes `(jobs / knee) ^ power` times as long.
    ///
    /// 1 is a downstream that shares what it has; above 1 it also loses by contention.
    pub const fn degrading(mut self, knee: u64, power: f64) -> Self {
        self.knee = Some((knee, power));
        self
    }

    /// Adds an outage.
    pub fn outage(mut self, outage: Outage) -> Self {
        self.outages.push(outage);
        self
    }

    /// How long a job takes that starts now as one of so many, and whether it succeeds.
    pub(crate) fn serve(&self, now: Tick, in_flight: u64, dice: &mut Dice) -> (Duration, bool) {
        let mut latency = match &self.latency {
            Latency::Fixed(time) => *time,
            Latency::Exponential(mean) => scaled(*mean, dice.exponential()),
            Latency::Measured(times) if times.is_empty() => Duration::ZERO,
            Latency::Measured(times) => times[dice.below(times.len() as u64) as usize],
        };
        if let Some((knee, power)) = self.knee
            && in_flight > knee.max(1)
        {
            let crowd = in_flight as f64 / knee.max(1) as f64;
            latency = scaled(latency, crowd.powf(power));
        }
        let since = now - Tick::ZERO;
        let outage = self.outages.iter().find(|outage| {
            // A job that is under way when the outage begins meets it too.
            since.saturating_add(latency) > outage.from && since < outage.end()
        });
        match outage {
            Some(outage) if outage.fails => (latency, false),
            Some(outage) => (
                latency.saturating_add(outage.end() - since.max(outage.from)),
                true,
            ),
            None => (latency, true),
        }
    }
}

impl Default for Downstream {
    /// A downstream that takes no time.
    fn default() -> Self {
        Self::new(Latency::Fixed(Duration::ZERO))
    }
}

impl Outage {
    /// From an instant of the run on, for so long; jobs stall until its end.
    #[must_use]
    pub const fn new(from: Duration, length: Duration) -> Self {
        let fails = false;
        Self {
            from,
            length,
            fails,
        }
    }

    /// Jobs fail after their usual time instead.
    #[must_use]
    pub const fn failing(mut self) -> Self {
        self.fails = true;
        self
    }

    const fn end(&self) -> Duration {
        self.from.saturating_add(self.length)
    }
}

impl FromStr for Latency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let span = |text: &str| Span::parse(text);
        match words[..] {
            ["fixed", time] => span(time).map(Self::Fixed),
            ["exponential", mean] => span(mean).map(Self::Exponential),
            _ => None,
        }
        .ok_or_else(|| {
            format!("{text:?} is no latency; it reads like \"fixed 20ms\" or \"exponential 20ms\"")
        })
    }
}

impl FromStr for Outage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (times, failing) = match words[..] {
            [from, "for", length] => ([from, length], false),
            [from, "for", length, "failing"] => ([from, length], true),
            _ => (["", ""], false),
        };
        match times.map(Span::parse) {
            [Some(from), Some(length)] if failing => Ok(Self::new(from, length).failing()),
            [Some(from), Some(length)] => Ok(Self::new(from, length)),
            _ => Err(format!(
                "{text:?} is no outage; it reads like \"30s for 10s\" or \"30s for 10s failing\""
            )),
        }
    }
}

fn scaled(time: Duration, by: f64) -> Duration {
    Duration::try_from_secs_f64(time.as_secs_f64() * by).unwrap_or(Duration::MAX)
}
