//! One level's limit in the numbers of the scripts, and what their replies mean.
//!
//! Scripts count in whole microseconds and units, as numbers that are exact up to 2^53. The interval of a bucket is a
//! ratio of microseconds to a count, and an instant of it a microsecond and a remainder over that count, so rates are
//! exact. The waits of a decision are worked out here, from the state that the script has judged, and rounded up to a
//! microsecond.

use std::time::Duration;

use super::scripts::Part;
use crate::decision::{Decision, Verdict};
use crate::error::BuildError;
use crate::policy::{
    CounterState, FixedWindow, Gcra, Limit, Policy, SlidingCounter, SlidingLog, WindowState,
};
use crate::rate::Rate;
use crate::tick::{Tick, nanos};

/// A limit that the scripts can keep.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    Token(Bucket),
    Leaky(Bucket),
    Fixed(FixedWindow),
    Log(SlidingLog),
    Counter(SlidingCounter),
}

/// A bucket whose unit takes `period / count` microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    period: u64,
    count: u64,
    depth: u64,
    core: Gcra,
}

/// What is asked of a level, and which of several equal charges in one call this is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) now: Tick,
    pub(super) cost: u64,
    pub(super) half: bool,
    /// Units charged after the state was read and before this.
    pub(super) charged: u64,
}

impl Rule {
    /// # Errors
    /// If a script could not keep it exactly; the error names the number and its bound.
    pub(super) fn new(limit: &Limit) -> Result<Self, BuildError> {
        let refuse = |rule: String| Err(BuildError::setting("limit", limit, rule));
        if nanos(limit.window()).div_ceil(1000) > LONGEST_WINDOW {
            return refuse(format!(
                "a shared limit covers at most {LONGEST_WINDOW} us (35 years)"
            ));
        }
        if limit.quota() > MOST_UNITS {
            return refuse(format!("a shared limit has at most {MOST_UNITS} units"));
        }
        let whole = |window: Duration| nanos(window).is_multiple_of(1000);
        let bucket = |rate: Rate, core| match Bucket::new(rate, core) {
            Some(bucket) => Ok(bucket),
            None => Err(BuildError::setting("limit", limit, TOO_FAST)),
        };
        Ok(match limit {
            Limit::TokenBucket(rule) => Self::Token(bucket(rule.rate(), rule.core())?),
            Limit::LeakyBucket(rule) => Self::Leaky(bucket(rule.rate(), rule.core())?),
            Limit::FixedWindow(rule) => {
                let offset = rule.offset().unwrap_or_default();
                if !whole(rule.window()) || !whole(offset) {
                    return refuse(WHOLE.into());
                }
                Self::Fixed(*rule)
            }
            Limit::SlidingLog(rule) => {
                if !whole(rule.window()) {
                    return refuse(WHOLE.into());
                }
                if rule.quota() > LONGEST_LOG {
                    return refuse(format!("a shared log has at most {LONGEST_LOG} units"));
                }
                Self::Log(*rule)
            }
            Limit::SlidingCounter(rule) => {
                if !whole(rule.window()) {
                    return refuse(WHOLE.into());
                }
                Self::Counter(*rule)
            }
        })
    }

    pub(super) fn part(&self) -> Part {
        match self {
            Self::Token(rule) | Self::Leaky(rule) => match rule.count {
                1 => Part::Interval,
                _ => Part::Bucket,
            },
            Self::Fixed(_) => Part::Fixed,
            Self::Log(_) => Part::Log,
            Self::Counter(_) => Part::Counter,
        }
    }

    /// Letter of the kind in the key: another kind of limit starts fresh.
    pub(super) fn letter(&self) -> u8 {
        match self {
            Self::Token(_) => b't',
            Self::Leaky(_) => b'l',
            Self::Fixed(_) => b'w',
            Self::Log(_) => b's',
            Self::Counter(_) => b'c',
        }
    }

    pub(super) fn quota(&self) -> u64 {
        match self {
            Self::Token(rule) | Self::Leaky(rule) => rule.depth,
            Self::Fixed(rule) => rule.quota(),
            Self::Log(rule) => rule.quota(),
            Self::Counter(rule) => rule.quota(),
        }
    }

    /// Arguments of a decision, as many as its part has. A cost beyond the quota is never charged, so it is cut.
    pub(super) fn arguments(&self, cost: u64, half: bool, push: &mut impl FnMut(i64)) {
        let cost = cost.min(self.quota());
        match self {
            Self::Token(rule) | Self::Leaky(rule) => {
                let kept = if half { rule.core.half_kept(cost) } else { 0 };
                let spans = [cost, rule.depth - kept, rule.depth].map(|units| rule.span(units));
                if rule.count == 1 {
                    return spans.iter().for_each(|(whole, _)| push(*whole));
                }
                for (whole, rest) in spans {
                    push(whole);
                    push(rest);
                }
                push(whole(rule.count));
            }
            Self::Fixed(rule) => {
                push(whole(cost));
                push(whole(rule.quota()));
                push(micros(rule.window()));
                push(rule.offset().map_or(-1, micros));
            }
            Self::Log(rule) => {
                push(whole(cost));
                push(whole(rule.quota()));
                push(micros(rule.window()));
            }
            Self::Counter(rule) => {
                let window = micros(rule.window());
                push(whole(cost));
                push(whole(rule.quota()));
                push(window);
                // Products with it stay exact in the scripts' numbers.
                push(1 << (51 - window.ilog2().min(50)));
            }
        }
    }

    /// Arguments of a refund of what was charged at `at`.
    pub(super) fn refund(&self, cost: u64, at: Tick, push: &mut impl FnMut(i64)) {
        let cost = cost.min(self.quota());
        match self {
            Self::Token(rule) | Self::Leaky(rule) => {
                for units in [cost, rule.depth] {
                    let (whole, rest) = rule.span(units);
                    push(whole);
                    push(rest);
                }
                push(whole(rule.count));
            }
            Self::Fixed(_) | Self::Log(_) | Self::Counter(_) => {
                push(whole(cost));
                push(micros(self.window()));
            }
        }
        push(whole(at.as_nanos() / 1000));
    }

    fn window(&self) -> Duration {
        match self {
            Self::Token(rule) | Self::Leaky(rule) => rule.core.window(),
            Self::Fixed(rule) => rule.window(),
            Self::Log(rule) => rule.window(),
            Self::Counter(rule) => rule.window(),
        }
    }

    /// What the rule says about the state that the script has found, once the charges before this one are made.
    ///
    /// `None` if it is no such state.
    pub(super) fn decide(&self, fields: &[u64], asked: Asked) -> Option<Decision> {
        let Asked {
            now, cost, charged, ..
        } = asked;
        let number = |index: usize| fields.get(index).copied();
        let decision = match self {
            Self::Token(rule) | Self::Leaky(rule) => {
                let rest = if rule.count == 1 { 0 } else { number(1)? };
                rule.decide(number(0)?, rest, asked)
            }
            Self::Fixed(rule) => {
                let (end, used) = (instant(number(0)?), number(1)?);
                let used = used.saturating_add(charged);
                rule.peek(&WindowState { end, used }, now, cost)
            }
            Self::Counter(rule) => {
                let (start, previous) = (instant(number(0)?), number(1)?);
                let current = number(2)?.saturating_add(charged);
                let state = CounterState::of(start, previous, current);
                rule.peek(&state, now, cost)
            }
            Self::Log(rule) => {
                let log = Logged {
                    used: number(0)?.saturating_add(charged),
                    last: if charged > 0 {
                        now
                    } else {
                        instant(number(1)?)
                    },
                    retry: instant(number(2)?),
                    unit: instant(number(3)?),
                };
                log.decide(rule, now, cost)
            }
        };
        Some(rounded_up(decision))
    }
}

impl Bucket {
    fn new(rate: Rate, core: Gcra) -> Option<Self> {
        let (period, count) = (nanos(rate.period()), rate.count());
        // More than one unit in 10 us.
        if u128::from(period) < 10_000 * u128::from(count) {
            return None;
        }
        let count = count.checked_mul(1000)?;
        let common = greatest_common_divisor(period, count);
        let (period, count) = (period / common, count / common);
        (count <= MOST_UNITS).then_some(Self {
            period,
            count,
            depth: core.depth(),
            core,
        })
    }

    /// Time of so many units, in microseconds and a remainder over the count.
    fn span(&self, units: u64) -> (i64, i64) {
        let parts = u128::from(units) * u128::from(self.period);
        let count = u128::from(self.count);
        // At most the burst's time, which is bounded.
        let us = i64::try_from(parts / count).unwrap_or(i64::MAX);
        (us, (parts % count) as i64)
    }

    /// In parts of a microsecond, as many as the count.
    fn decide(&self, us: u64, rest: u64, asked: Asked) -> Decision {
        let Asked {
            now,
            cost,
            half,
            charged,
        } = asked;
        let (count, period) = (u128::from(self.count), u128::from(self.period));
        let times = |units: u64| u128::from(units) * period;
        let full = times(self.depth);
        let lead = u128::from(us) * count + u128::from(rest) + times(charged);
        let wait = |parts: u128| {
            let nanos = (parts * 1000).div_ceil(count);
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        };
        let after = lead + times(cost);
        let kept = if half { self.core.half_kept(cost) } else { 0 };
        let room = full - times(kept);
        let verdict = if cost == 0 {
            Verdict::Granted
        } else if cost > self.depth {
            Verdict::Never {
                max_cost: self.depth,
            }
        } else if after <= room {
            Verdict::Granted
        } else {
            Verdict::Refused {
                retry_after: wait(after - room),
            }
        };
        let lead = match verdict {
            Verdict::Granted => after,
            Verdict::Refused { .. } | Verdict::Never { .. } => lead,
        };
        let remaining = full.saturating_sub(lead) / period;
        Decision {
            at: now,
            verdict,
            limit: self.depth,
            // At most the depth.
            remaining: remaining as u64,
            next_unit_in: match remaining {
                0 => wait((lead + period).saturating_sub(full)),
                _ => Duration::ZERO,
            },
            reset_after: wait(lead),
        }
    }
}

/// What a log holds, and when enough of it has left.
struct Logged {
    used: u64,
    last: Tick,
    retry: Tick,
    unit: Tick,
}

impl Logged {
    fn decide(&self, rule: &SlidingLog, now: Tick, cost: u64) -> Decision {
        let left = rule.quota().saturating_sub(self.used);
        let until_left = |at: Tick| rule.window().saturating_sub(now - at);
        let verdict = if cost <= left {
            Verdict::Granted
        } else if cost > rule.quota() {
            Verdict::Never {
                max_cost: rule.quota(),
            }
        } else {
            Verdict::Refused {
                retry_after: until_left(self.retry),
            }
        };
        let charged = match verdict {
            Verdict::Granted => cost,
            Verdict::Refused { .. } | Verdict::Never { .. } => 0,
        };
        let used = self.used + charged;
        let remaining = rule.quota().saturating_sub(used);
        Decision {
            at: now,
            verdict,
            limit: rule.quota(),
            remaining,
            next_unit_in: match remaining {
                0 => until_left(self.unit),
                _ => Duration::ZERO,
            },
            reset_after: match (used, charged) {
                (0, _) => Duration::ZERO,
                (_, 0) => until_left(self.last),
                _ => rule.window(),
            },
        }
    }
}

/// The server's clock has no finer steps, so a wait that ends within one ends with it.
fn rounded_up(mut decision: Decision) -> Decision {
    let up = |wait: Duration| Duration::from_micros(nanos(wait).div_ceil(1000));
    if let Verdict::Refused { retry_after } = &mut decision.verdict {
        *retry_after = up(*retry_after);
    }
    decision.next_unit_in = up(decision.next_unit_in);
    decision.reset_after = up(decision.reset_after);
    decision
}

fn instant(micros: u64) -> Tick {
    Tick::from_nanos(micros.saturating_mul(1000))
}

fn micros(span: Duration) -> i64 {
    whole(nanos(span) / 1000)
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Longest span in microseconds: instants that lie two of them ahead are exact until the year 2112.
const LONGEST_WINDOW: u64 = 1 << 50;
/// Most units, and largest count of a ratio: sums and products in the scripts stay exact.
const MOST_UNITS: u64 = 1 << 40;
/// An entry takes 16 bytes of the server's memory.
const LONGEST_LOG: u64 = 1 << 20;
const TOO_FAST: &str =
    "a shared bucket's rate is at most 100000/s, in a ratio of at most 1099511627776 units";
const WHOLE: &str = "a shared window lasts whole microseconds";
