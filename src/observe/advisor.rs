//! What the observed load suggests to change, worked out when somebody asks.
//!
//! Silent on thin data: below [`LEAST`] requests, two minutes, or one refusal in twenty, nothing is said. Conservative:
//! what everybody shares, and the rate and the places in flight of a queue, protect what is behind them, and are never
//! advised to be raised; nor is a limit while one caller makes most of the refusals. Demand is what was offered, so
//! callers that come again after a refusal are counted again: what is advised is rather too high than too low.

use std::time::Duration;

use super::advice::{Advice, Confidence, Setting};
use super::queue_view::QueueView;
use crate::policy::{FixedWindow, LeakyBucket, Limit, SlidingCounter, SlidingLog, TokenBucket};
use crate::rate::Rate;
use crate::telemetry::meter::trace::Second;

/// What was asked of an endpoint, whose refusals all came from one level under one key.
#[derive(Clone, Debug)]
pub(super) struct Load<'a> {
    pub(super) limiter: &'a str,
    pub(super) endpoint: &'a str,
    pub(super) limit: Limit,
    /// What was asked, second by second.
    pub(super) seconds: &'a [Second],
}

/// Whom a level refused in the last minute.
#[derive(Clone, Debug)]
pub(super) struct Crowd<'a> {
    pub(super) limiter: &'a str,
    pub(super) level: &'a str,
    pub(super) limit: Limit,
    pub(super) per_second: f64,
    /// Requests to the limiter in that minute, and those that this level refused.
    pub(super) offered: u64,
    pub(super) refused: u64,
    /// Guaranteed refusals of the keys that were refused most, most first.
    pub(super) keys: &'a [u64],
    /// Units that a request asks for, on average.
    pub(super) cost: f64,
}

/// A limit for an endpoint: what all but one minute in a hundred asked for.
pub(super) fn endpoint(load: &Load<'_>) -> Option<Advice> {
    let Load { limit, seconds, .. } = load;
    let offered: u64 = seconds.iter().map(|second| u64::from(second.offered)).sum();
    let refused: u64 = seconds.iter().map(|second| u64::from(second.refused)).sum();
    if offered < LEAST || seconds.len() < LEAST_SECONDS || is_few(refused, offered) {
        return None;
    }
    let demand: Vec<f64> = seconds
        .iter()
        .map(|second| f64::from(second.units))
        .collect();
    let minutes = sums(&demand, 60);
    let typical = quantile(&minutes, 0.5);
    let peak = quantile(&minutes, 0.99);
    let suggested = suggested(limit, &demand, peak)?;
    let share = 100.0 * refused as f64 / offered as f64;
    let per_minute = limit.quota() as f64 * 60.0 / limit.window().as_secs_f64();
    let raise = peak / per_minute;
    let mut reason = format!(
        "{share:.0} % refused over {} at {}/min; p99 offered {peak:.0}/min",
        span(seconds.len()),
        short(per_minute)
    );
    let mut confidence = confidence(offered, seconds.len(), peak, typical);
    if raise > LARGE_STEP {
        confidence = Confidence::Low;
        reason += &format!(
            ", {raise:.1} times the limit: see first that what is behind it can take so much"
        );
    }
    Some(Advice {
        name: load.limiter.into(),
        subject: load.endpoint.into(),
        setting: Setting::Limit,
        current: limit.to_string(),
        suggested: suggested.to_string(),
        reason,
        confidence,
    })
}

/// A limit for each key of a level at which many are refused: what the middle one of them asked for.
pub(super) fn level(crowd: &Crowd<'_>) -> Option<Advice> {
    let Crowd { limit, keys, .. } = crowd;
    let keys: Vec<f64> = keys
        .iter()
        .filter(|refused| **refused >= FEW)
        .map(|n| *n as f64)
        .collect();
    if crowd.refused < LEAST || keys.len() < LEAST_KEYS || is_few(crowd.refused, crowd.offered) {
        return None;
    }
    // Who is refused has used up the limit: that much was granted beside.
    let granted = crowd.per_second * 60.0;
    let peak = granted + crowd.cost * quantile(&keys, 0.5);
    let even = vec![peak / 60.0; 60];
    let suggested = suggested(limit, &even, peak)?;
    let share = 100.0 * crowd.refused as f64 / crowd.offered.max(crowd.refused) as f64;
    Some(Advice {
        name: crowd.limiter.into(),
        subject: crowd.level.into(),
        setting: Setting::Limit,
        current: limit.to_string(),
        suggested: suggested.to_string(),
        reason: format!(
            "{share:.0} % refused by this level in the last minute, nobody more than a quarter of it; \
             the middle one of the {} refused most asked for {peak:.0}/min at {}/min",
            keys.len(),
            short(granted)
        ),
        confidence: Confidence::Low,
    })
}

/// A bound for a queue that refuses in bursts although its rate is enough on average.
pub(super) fn queue(view: &QueueView) -> Option<Advice> {
    let rate = view.rate?;
    let per_second = rate.count() as f64 / rate.period().as_secs_f64();
    let offered: u64 = view.trend.iter().map(|point| point.offered).sum();
    let refused: u64 = view.trend.iter().map(|point| point.refused).sum();
    let thin = offered < LEAST || view.trend.len() < LEAST_SECONDS;
    // The trend counts jobs, the bound counts cost: they have to be the same.
    let other_costs = view.depth != view.ledger.queued + view.ledger.reserved;
    if thin || other_costs || view.paused.is_some() || is_few(refused, offered) {
        return None;
    }
    let for_room = ["full", "overloaded", "waiters_full"];
    let for_room = for_room
        .iter()
        .filter_map(|why| view.refused_by_reason.get(*why));
    if 2 * for_room.sum::<u64>() < view.ledger.refused {
        return None;
    }
    let demand: Vec<f64> = view
        .trend
        .iter()
        .map(|point| point.offered as f64)
        .collect();
    let mean = demand.iter().sum::<f64>() / demand.len() as f64;
    if mean > BUSY * per_second {
        // More is offered than may leave: a deeper queue would only be a later refusal.
        return None;
    }
    let wanted = rounded_up(backlog(&demand, per_second) / HIGH_MARK)?;
    let wait = wanted as f64 / per_second;
    if wanted <= view.max_depth || wait > LONGEST_WAIT {
        return None;
    }
    let share = 100.0 * refused as f64 / offered as f64;
    Some(Advice {
        name: view.name.clone(),
        subject: String::new(),
        setting: Setting::MaxDepth,
        current: view.max_depth.to_string(),
        suggested: wanted.to_string(),
        reason: format!(
            "{share:.0} % refused over {} while {mean:.1}/s were offered at {rate}: it is bursts that do not fit, and a \
             full queue would be a wait of {wait:.1} s",
            span(demand.len())
        ),
        confidence: confidence(offered, demand.len(), mean, mean).min(Confidence::Medium),
    })
}

/// The same kind of limit, for this demand; `None` if that is no more than it has, or cannot be told.
fn suggested(limit: &Limit, demand: &[f64], per_minute: f64) -> Option<Limit> {
    let window = limit.window();
    let bucket = |old: Rate| {
        let per_second = old.count() as f64 / old.period().as_secs_f64();
        let wanted = rounded_up(per_minute)?;
        let rate = match wanted % 60 {
            0 => Rate::per_second(wanted / 60),
            _ => Rate::per_minute(wanted),
        };
        (wanted as f64 > per_second * 60.0).then(|| {
            let burst = backlog(demand, wanted as f64 / 60.0);
            (
                rate,
                rounded_up(burst)
                    .unwrap_or(1)
                    .max(limit.quota().min(wanted)),
            )
        })
    };
    let in_window = || {
        let seconds = window.as_secs_f64().ceil() as usize;
        // Of a window there have to be some to look at.
        if seconds == 0 || seconds * 2 > demand.len() {
            return None;
        }
        let parts = window.as_secs_f64() / seconds as f64;
        rounded_up(quantile(&sums(demand, seconds), 0.99) * parts)
            .filter(|wanted| *wanted > limit.quota())
    };
    Some(match limit {
        Limit::TokenBucket(rule) => {
            let (rate, burst) = bucket(rule.rate())?;
            TokenBucket::new(rate, burst).ok()?.into()
        }
        Limit::LeakyBucket(rule) => {
            let (rate, _) = bucket(rule.rate())?;
            LeakyBucket::new(rate, rule.quota()).ok()?.into()
        }
        Limit::FixedWindow(_) => FixedWindow::new(in_window()?, window).ok()?.into(),
        Limit::SlidingLog(_) => SlidingLog::new(in_window()?, window).ok()?.into(),
        Limit::SlidingCounter(_) => SlidingCounter::new(in_window()?, window).ok()?.into(),
    })
}

/// Sums of every so many neighbours.
fn sums(values: &[f64], width: usize) -> Vec<f64> {
    let width = width.clamp(1, values.len().max(1));
    values
        .windows(width)
        .map(|window| window.iter().sum())
        .collect()
}

/// What would have piled up at a rate, all but a hundredth of the time.
fn backlog(demand: &[f64], per_second: f64) -> f64 {
    let mut piled = 0.0;
    let levels: Vec<f64> = demand
        .iter()
        .map(|offered| {
            // Seconds are not looked into: all of one may have come at its start.
            let top = piled + offered;
            piled = (top - per_second).max(0.0);
            top
        })
        .collect();
    quantile(&levels, 0.99)
}

/// The value below which a share of the values lies; 0 of none.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// Up to two digits that count; `None` if that is nothing.
fn rounded_up(value: f64) -> Option<u64> {
    // Sums of fractions are off by a little.
    let value = (value - 1e-6).ceil();
    if !(1.0..1e15).contains(&value) {
        return None;
    }
    let mut step = 1;
    let value = value as u64;
    while value / step >= 100 {
        step *= 10;
    }
    Some(value.div_ceil(step) * step)
}

fn is_few(refused: u64, offered: u64) -> bool {
    refused * 20 < offered
}

fn confidence(offered: u64, seconds: usize, peak: f64, typical: f64) -> Confidence {
    match (offered, seconds) {
        (10_000.., 540..) if peak < 2.0 * typical.max(1.0) => Confidence::High,
        (1_000.., 240..) => Confidence::Medium,
        _ => Confidence::Low,
    }
}

fn span(seconds: usize) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        _ => format!("{} min", seconds / 60),
    }
}

/// A number with as many digits as say something.
fn short(value: f64) -> String {
    if value.fract() < 0.05 || value >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

/// Requests below which nothing is said.
const LEAST: u64 = 100;
/// Seconds below which nothing is said.
const LEAST_SECONDS: usize = 120;
/// Keys below which the refusals of a level are the doing of a few.
const LEAST_KEYS: usize = 5;
/// Refusals of a key that may be chance.
const FEW: u64 = 3;
/// A raise beyond this is no longer a correction.
const LARGE_STEP: f64 = 2.0;
/// Share of a rate beyond which it is simply too low.
const BUSY: f64 = 0.95;
/// Up to here a queue is filled by those who cannot wait.
const HIGH_MARK: f64 = 0.8;
/// A queue that waits longer is no answer to a burst, in seconds.
const LONGEST_WAIT: f64 = 60.0;
/// Share of the refusals beyond which one caller makes them.
pub(super) const DOMINANT: f64 = 0.5;
/// The same among the keys of a level that are told apart.
pub(super) const DOMINANT_KEY: f64 = 0.25;
pub(super) const MINUTE: Duration = Duration::from_secs(60);
