//! The operating calendar: another rate at known times, reached in a straight line.

use std::sync::Arc;
use std::time::Duration;

use super::text::Share;
use crate::rate::Rate;
use crate::tick::Tick;

/// When the rate is another than usual, week after week.
///
/// ```text
///   usual rate ────╮                  ╭──── usual rate
///                   ╲                ╱
///                    ╰── the other ─╯
///                 from              to      each slope as long as `ramp`
/// ```
#[derive(Clone, Debug, Default)]
pub struct Calendar {
    windows: Vec<Window>,
    /// Seconds ahead of UTC.
    offset: i64,
}

#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) name: Arc<str>,
    /// Second of the week, Monday 00:00 being 0.
    pub(super) from: u64,
    pub(super) length: u64,
    pub(super) ramp: u64,
    pub(super) share: Share,
}

impl Calendar {
    pub(super) fn new(windows: Vec<Window>, minutes_ahead: i32) -> Self {
        Self {
            windows,
            offset: i64::from(minutes_ahead) * 60,
        }
    }

    /// Two windows, slopes included, that claim the same time.
    pub(super) fn overlap(&self) -> Option<(usize, usize)> {
        let spans = |window: &Window| (window.from, window.length + window.ramp);
        for (later, window) in self.windows.iter().enumerate() {
            let (from, length) = spans(window);
            let met = self.windows[..later].iter().position(|other| {
                let (other_from, other_length) = spans(other);
                let ahead = (from + WEEK - other_from) % WEEK;
                let back = (other_from + WEEK - from) % WEEK;
                ahead < other_length || back < length
            });
            if let Some(earlier) = met {
                return Some((earlier, later));
            }
        }
        None
    }

    /// Whether the rate is always the usual one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// Name of the window, slopes included, that an instant of Unix time falls into.
    #[must_use]
    pub fn window_at(&self, now: Tick) -> Option<&str> {
        self.find(now).map(|(window, _)| &*window.name)
    }

    /// Rate at an instant of Unix time, given the usual one.
    #[must_use]
    pub fn rate_at(&self, usual: Rate, now: Tick) -> Rate {
        let Some((window, into)) = self.find(now) else {
            return usual;
        };
        let other = window.share.of(usual);
        let ramp = window.ramp as f64;
        let done = if into < ramp {
            into / ramp
        } else if into >= window.length as f64 {
            1.0 - (into - window.length as f64) / ramp
        } else {
            return other;
        };
        between(usual, other, done)
    }

    /// The changes of the rate from an instant of Unix time on, for so long; a slope in 20 steps.
    ///
    /// The first is the rate at that instant itself.
    pub fn changes(
        &self,
        usual: Rate,
        from: Tick,
        length: Duration,
    ) -> impl Iterator<Item = (Duration, Rate)> {
        let mut at = Some(Duration::ZERO);
        let calendar = self.clone();
        std::iter::from_fn(move || {
            let now = at.filter(|at| *at <= length)?;
            at = calendar.next_change(from + now).map(|next| next - from);
            Some((now, calendar.rate_at(usual, from + now)))
        })
    }

    fn find(&self, now: Tick) -> Option<(&Window, f64)> {
        let second = self.second_of_week(now);
        self.windows.iter().find_map(|window| {
            let week = WEEK as f64;
            let into = (second - window.from as f64).rem_euclid(week);
            let end = (window.length + window.ramp) as f64;
            (into < end).then_some((window, into))
        })
    }

    fn second_of_week(&self, now: Tick) -> f64 {
        let seconds = now.as_nanos() / SECOND;
        let within = (now.as_nanos() % SECOND) as f64 / SECOND as f64;
        // 1970 began on a Thursday.
        let local = (seconds % WEEK) as i64;
        let second = (local + self.offset + 3 * DAY as i64).rem_euclid(WEEK as i64);
        second as f64 + within
    }

    fn next_change(&self, now: Tick) -> Option<Tick> {
        let second = self.second_of_week(now);
        let edges = self.windows.iter().flat_map(|window| {
            let slope = |start: u64| {
                (0..=STEPS)
                    .map(move |step| start as f64 + window.ramp as f64 * step as f64 / STEPS as f64)
            };
            slope(window.from).chain(slope(window.from + window.length))
        });
        let wait = edges
            .map(|edge| (edge - second).rem_euclid(WEEK as f64))
            // An edge at this very instant is behind us; so is one that rounding put a hair ahead.
            .map(|wait| if wait < 1e-3 { WEEK as f64 } else { wait })
            .min_by(f64::total_cmp)?;
        Some(now + Duration::from_nanos((wait * SECOND as f64).round() as u64))
    }

    pub(super) fn windows(&self) -> &[Window] {
        &self.windows
    }
}

impl Share {
    pub(super) fn of(self, usual: Rate) -> Rate {
        match self {
            Self::Rate(rate) => rate,
            Self::Percent(percent) => {
                let exact = usual
                    .count()
                    .checked_mul(u64::from(percent))
                    .zip(usual.period().checked_mul(100));
                exact
                    .and_then(|(count, period)| lowest(count, period))
                    .unwrap_or_else(|| between(usual, usual, 0.0))
            }
        }
    }
}

/// The same ratio in smaller numbers, as long as the period stays one of whole seconds.
fn lowest(mut count: u64, period: Duration) -> Option<Rate> {
    let mut nanos = u64::try_from(period.as_nanos()).ok()?;
    for factor in [10, 10, 10, 2, 2, 2, 5, 5, 5] {
        if count.is_multiple_of(factor) && nanos.is_multiple_of(factor * SECOND) {
            (count, nanos) = (count / factor, nanos / factor);
        }
    }
    Rate::new(count, Duration::from_nanos(nanos)).ok()
}

/// So far on the straight line from one rate to another, to a thousandth per second of it.
fn between(from: Rate, to: Rate, done: f64) -> Rate {
    let per_second = |rate: Rate| rate.count() as f64 / rate.period().as_secs_f64();
    let rate = per_second(from) + (per_second(to) - per_second(from)) * done.clamp(0.0, 1.0);
    let milli = ((rate * 1e3).round() as u64).max(1);
    lowest(milli, Duration::from_secs(1000)).unwrap_or(to)
}

const SECOND: u64 = 1_000_000_000;
pub(super) const DAY: u64 = 86_400;
pub(super) const WEEK: u64 = 7 * DAY;
const STEPS: u32 = 20;
