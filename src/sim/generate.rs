//! Arrivals out of a formula and a seed.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::dice::Dice;
use super::trace::Arrival;
use crate::rate::{Rate, Span};

/// How invented arrivals come.
///
/// Their text forms: `poisson 900/s`, `batch 90/s of 10`, `on_off 2000/s on 2s off 3s`,
/// `ramp 100/s to 900/s over 60s`, `diurnal 100/s to 900/s every 24h`.
///
/// # Examples
/// ```
/// use sluicegate::sim::Pattern;
/// use std::time::Duration;
///
/// let pattern: Pattern = "poisson 900/s".parse()?;
/// let arrivals = pattern.arrivals(7).take_while(|arrival| arrival.offset < Duration::from_secs(10));
/// let count = arrivals.count();
/// assert!((8_700..9_300).contains(&count), "{count}");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pattern {
    /// Independent of each other.
    Poisson {
        /// Mean rate.
        rate: Rate,
    },
    /// So many at once, at independent instants.
    Batch {
        /// Mean rate of the batches.
        rate: Rate,
        /// Arrivals in one batch.
        size: u32,
    },
    /// Poisson for a while, then nothing for a while.
    OnOff {
        /// Mean rate while on.
        rate: Rate,
        /// How long each.
        on: Duration,
        /// Silence between.
        off: Duration,
    },
    /// Poisson with a rate that changes in a straight line, and stays then.
    Ramp {
        /// At the start.
        from: Rate,
        /// From the end of the ramp on.
        to: Rate,
        /// How long the ramp is.
        over: Duration,
    },
    /// Poisson with a rate that swings in a sine from the lower to the higher and back.
    Diurnal {
        /// At the start of each period.
        low: Rate,
        /// In the middle of it.
        high: Rate,
        /// The period.
        every: Duration,
    },
}

impl Pattern {
    /// The arrivals, without end; the same seed gives the same.
    pub fn arrivals(self, seed: u64) -> impl Iterator<Item = Arrival> {
        let mut dice = Dice::new(seed);
        let peak = self.peak();
        let (mut now, mut left) = (0.0, 0_u32);
        std::iter::from_fn(move || {
            if left > 0 {
                left -= 1;
            } else {
                // Thinning (Lewis and Shedler 1979): candidates at the peak rate, each kept with the share that the
                // rate of its instant has of it.
                loop {
                    now += dice.exponential() / peak;
                    if dice.unit() * peak <= self.rate_at(now) {
                        break;
                    }
                }
                left = self.size() - 1;
            }
            Some(Arrival {
                offset: Duration::try_from_secs_f64(self.wall(now)).ok()?,
                ..Arrival::default()
            })
        })
    }

    /// Arrivals per second over a long time (of a ramp: at its end).
    #[must_use]
    pub fn mean_per_second(self) -> f64 {
        match self {
            Self::Poisson { rate } => per_second(rate),
            Self::Batch { rate, size } => per_second(rate) * f64::from(size),
            Self::OnOff { rate, on, off } => {
                per_second(rate) * on.as_secs_f64() / (on + off).as_secs_f64()
            }
            Self::Ramp { to, .. } => per_second(to),
            Self::Diurnal { low, high, .. } => (per_second(low) + per_second(high)) / 2.0,
        }
    }

    const fn size(self) -> u32 {
        match self {
            Self::Batch { size, .. } => size,
            _ => 1,
        }
    }

    fn peak(self) -> f64 {
        match self {
            Self::Poisson { rate } | Self::Batch { rate, .. } | Self::OnOff { rate, .. } => {
                per_second(rate)
            }
            Self::Ramp { from, to, .. } => per_second(from).max(per_second(to)),
            Self::Diurnal { low, high, .. } => per_second(low).max(per_second(high)),
        }
    }

    /// Time at which a clock that only runs while arrivals may come shows `now`.
    fn wall(self, now: f64) -> f64 {
        match self {
            Self::OnOff { on, off, .. } => {
                now + (now / on.as_secs_f64()).floor() * off.as_secs_f64()
            }
            _ => now,
        }
    }

    fn rate_at(self, now: f64) -> f64 {
        match self {
            Self::Poisson { .. } | Self::Batch { .. } | Self::OnOff { .. } => self.peak(),
            Self::Ramp { from, to, over } => {
                let done = (now / over.as_secs_f64().max(f64::MIN_POSITIVE)).min(1.0);
                per_second(from) + (per_second(to) - per_second(from)) * done
            }
            Self::Diurnal { low, high, every } => {
                let turn = now / every.as_secs_f64().max(f64::MIN_POSITIVE);
                let share = (1.0 - (turn * std::f64::consts::TAU).cos()) / 2.0;
                per_second(low) + (per_second(high) - per_second(low)) * share
            }
        }
    }
}

pub(crate) fn per_second(rate: Rate) -> f64 {
    rate.count() as f64 / rate.period().as_secs_f64()
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Poisson { rate } => write!(f, "poisson {rate}"),
            Self::Batch { rate, size } => write!(f, "batch {rate} of {size}"),
            Self::OnOff { rate, on, off } => {
                write!(f, "on_off {rate} on {} off {}", Span(on), Span(off))
            }
            Self::Ramp { from, to, over } => write!(f, "ramp {from} to {to} over {}", Span(over)),
            Self::Diurnal { low, high, every } => {
                write!(f, "diurnal {low} to {high} every {}", Span(every))
            }
        }
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate = |text: &str| {
            text.parse::<Rate>()
                .map_err(|error| format!("{error}: {text:?}"))
        };
        let span = |text: &str| {
            Span::parse(text)
                .filter(|span| !span.is_zero())
                .ok_or_else(|| format!("{text:?} is no span of time like \"2s\" or \"24h\""))
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        Ok(match words[..] {
            ["poisson", mean] => Self::Poisson { rate: rate(mean)? },
            ["batch", starts, "of", size] => Self::Batch {
                rate: rate(starts)?,
                size: size
                    .parse()
                    .ok()
                    .filter(|size| *size > 0)
                    .ok_or_else(|| format!("{size:?} is no size of a batch: at least 1"))?,
            },
            ["on_off", peak, "on", on, "off", off] => Self::OnOff {
                rate: rate(peak)?,
                on: span(on)?,
                off: span(off)?,
            },
            ["ramp", from, "to", to, "over", over] => Self::Ramp {
                from: rate(from)?,
                to: rate(to)?,
                over: span(over)?,
            },
            ["diurnal", low, "to", high, "every", every] => Self::Diurnal {
                low: rate(low)?,
                high: rate(high)?,
                every: span(every)?,
            },
            _ => {
                return Err(format!(
                    "{text:?} is no pattern; patterns read like \"poisson 900/s\", \"batch 90/s of 10\", \
                     \"on_off 2000/s on 2s off 3s\", \"ramp 100/s to 900/s over 60s\", \
                     \"diurnal 100/s to 900/s every 24h\""
                ));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, seconds: u64, expected: f64) {
        let pattern: Pattern = text.parse().expect(text);
        assert_eq!(pattern.to_string(), text);
        let end = Duration::from_secs(seconds);
        let mut last = Duration::ZERO;
        let count = pattern
            .arrivals(11)
            .inspect(|arrival| {
                assert!(arrival.offset >= last);
                last = arrival.offset;
            })
            .take_while(|arrival| arrival.offset < end)
            .count();
        let off = count as f64 / expected - 1.0;
        assert!(off.abs() < 0.05, "{text}: {count} of {expected}");
    }

    #[test]
    fn every_pattern_keeps_its_mean() {
        check("poisson 900/s", 20, 18_000.0);
        check("batch 90/s of 10", 100, 90_000.0);
        check("on_off 2000/s on 2s off 3s", 50, 40_000.0);
        check("ramp 100/s to 900/s over 1min", 120, 84_000.0);
        check("diurnal 100/s to 900/s every 10s", 40, 20_000.0);
    }

    #[test]
    fn what_is_no_pattern_is_told_what_would_be() {
        for text in [
            "",
            "poisson",
            "poisson 0/s",
            "batch 1/s of 0",
            "on_off 1/s on 0s off 1s",
            "x",
        ] {
            let error = text.parse::<Pattern>().expect_err(text);
            assert!(
                error.contains("like") || error.contains("least") || error.contains("zero"),
                "{error}"
            );
        }
    }
}
