//! What a snapshot tells of watched limiters.

use std::time::Duration;

use super::advice::Advice;
use super::advisor;
use super::limiter_view::{
    EndpointView, LevelView, LimiterFlow, LimiterPoint, LimiterView, RefusedKey, TopRefused,
    Verdicts,
};
use super::snapshot::{Keys, Snapshot};
use super::take::{MOST_QUEUES, SPANS, date, per_second, share, shown};
use crate::sync::{Arc, Weak};
use crate::telemetry::meter::hot_keys::Hot;
use crate::telemetry::meter::trace::{Sample, Trace};
use crate::telemetry::meter::{
    Bound, EndpointCounts, LevelNow, Meter, SeenKey, Shard, Totals, VERDICTS, Verdict,
};
use crate::telemetry::roll::METERS;
use crate::tick::Tick;

/// Adds every watched limiter.
pub(super) fn add(snapshot: &mut Snapshot, keys: Keys) {
    let entries = METERS.entries();
    let living = entries.iter().flat_map(|entry| &entry.living);
    for meter in living.filter_map(Weak::upgrade).take(MOST_QUEUES) {
        let looked = Looked::at(&meter);
        snapshot.limiters.push(view(&looked, keys));
        snapshot.advice.extend(advice(&looked));
    }
}

/// A limiter, looked at once.
struct Looked<'a> {
    meter: &'a Meter,
    now: Tick,
    status: Vec<LevelNow>,
    counts: Shard,
    trace: Trace,
    hot: Vec<(u64, Vec<Hot>)>,
}

impl<'a> Looked<'a> {
    fn at(meter: &'a Meter) -> Self {
        Self {
            meter,
            now: meter.now(),
            status: meter.status(),
            counts: meter.counts(),
            trace: meter.trace(),
            hot: meter.hot(MOST_KEYS),
        }
    }

    /// Whether one caller made most of the refusals of the last minute, as the keys of a level tell.
    fn is_dominated(&self, level: usize, share: f64) -> bool {
        self.hot.get(level).is_some_and(|(refusals, hot)| {
            let most = hot.first().map_or(0, |hot| hot.guaranteed);
            most as f64 > share * *refusals as f64
        })
    }
}

fn advice(looked: &Looked<'_>) -> Vec<Advice> {
    let limiter = looked.meter.label();
    let names = looked.meter.endpoints();
    let mut advice = Vec::new();
    for (at, (name, counts)) in names.iter().zip(&looked.counts.endpoints).enumerate() {
        let Bound::One { level, hash } = counts.bound else {
            continue;
        };
        // Everything that was asked of this endpoint counts under this key, which is not everybody's.
        let is_its_own = counts.keys.get(level) == Some(&SeenKey::One(hash));
        let is_shared = looked.counts.levels[level].is_shared();
        let keys = counts.keys.iter().zip(&looked.counts.levels).enumerate();
        let one_caller = keys
            .filter(|(at, _)| *at != level)
            .any(|(other, (seen, told))| {
                match seen {
                    SeenKey::None => false,
                    // Nobody else asks for it, unless this level is everybody's.
                    SeenKey::One(_) => !told.is_shared(),
                    SeenKey::Several => looked.is_dominated(other, advisor::DOMINANT),
                }
            });
        let known = looked.status.get(level).zip(looked.trace.demand(at));
        let Some((status, demand)) = known.filter(|_| is_its_own && !is_shared && !one_caller)
        else {
            continue;
        };
        let seconds: Vec<_> = demand.seconds.iter().copied().collect();
        advice.extend(advisor::endpoint(&advisor::Load {
            limiter,
            endpoint: name,
            limit: status.limit,
            seconds: &seconds,
        }));
    }
    let at_levels = looked.status.iter().enumerate();
    advice.extend(at_levels.filter_map(|(at, level)| level_advice(looked, at, level)));
    advice
}

fn level_advice(looked: &Looked<'_>, at: usize, level: &LevelNow) -> Option<Advice> {
    let counts = looked.counts.levels.get(at)?;
    // Where each endpoint has a key of its own, it is advised by itself.
    let own = |endpoint: &&EndpointCounts| {
        let own = matches!(endpoint.keys.get(at), Some(SeenKey::One(_)));
        own && endpoint.bound.level() == Some(at)
    };
    let is_of_endpoints = looked
        .counts
        .endpoints
        .iter()
        .any(|endpoint| own(&endpoint));
    if counts.is_shared() || is_of_endpoints || looked.is_dominated(at, advisor::DOMINANT_KEY) {
        return None;
    }
    let before = looked.trace.before(looked.now, advisor::MINUTE)?;
    let now = Sample::of(&looked.counts, looked.now);
    let refused = |sample: &Sample| sample.levels.get(at).map_or(0, |level| level.0);
    let units: u64 = looked
        .counts
        .endpoints
        .iter()
        .map(|counts| counts.units)
        .sum();
    let (_, hot) = looked.hot.get(at)?;
    let keys: Vec<u64> = hot.iter().map(|hot| hot.guaranteed).collect();
    advisor::level(&advisor::Crowd {
        limiter: looked.meter.label(),
        level: &level.name,
        limit: level.limit,
        per_second: level.per_second(),
        offered: now.offered.saturating_sub(before.offered),
        refused: refused(&now).saturating_sub(refused(before)),
        keys: &keys,
        cost: units as f64 / now.offered.max(1) as f64,
    })
}

fn view(looked: &Looked<'_>, keys: Keys) -> LimiterView {
    let Looked {
        meter,
        now,
        status,
        counts,
        trace,
        hot,
    } = looked;
    let totals = meter.totals(counts, status);
    let mut sum = [0; VERDICTS];
    for verdicts in totals.endpoints.values() {
        sum.iter_mut().zip(verdicts).for_each(|(sum, n)| *sum += n);
    }
    let at = Sample::of(counts, *now);
    LimiterView {
        name: meter.label().as_ref().into(),
        verdicts: verdicts(&sum),
        flows: flows(trace, &at),
        levels: status
            .iter()
            .enumerate()
            .map(|(index, level)| {
                let counted = counts.levels.get(index);
                let shared = counted.is_some_and(|counts| counts.is_shared());
                let left = counted.map(|counts| counts.remaining);
                let usage = usage(trace, &at, index, level);
                level_view(level, &totals, shared.then_some((usage, left)))
            })
            .collect(),
        endpoints: endpoints(&totals),
        top_refused: top_refused(meter.levels(), hot, keys),
        trend: trend(trace),
    }
}

fn verdicts(counts: &[u64; VERDICTS]) -> Verdicts {
    let count = |verdict: Verdict| counts[verdict as usize];
    Verdicts {
        allowed: count(Verdict::Allowed),
        rejected: count(Verdict::Rejected),
        exempt: count(Verdict::Exempt),
        error_allowed: count(Verdict::ErrorAllowed),
        error_rejected: count(Verdict::ErrorRejected),
    }
}

fn level_view(
    level: &LevelNow,
    totals: &Totals,
    shared: Option<(Option<f64>, Option<u64>)>,
) -> LevelView {
    let told = totals.levels.get(&level.name).copied().unwrap_or_default();
    let (usage, available) = shared.unwrap_or_default();
    LevelView {
        name: level.name.as_ref().into(),
        limit: Some(level.limit),
        per_second: level.per_second(),
        quota: level.limit.quota(),
        consumed: told.consumed,
        refunded: told.refunded,
        refused: told.refused(),
        shared: shared.is_some(),
        usage,
        available,
        keys: level.keys.map(|keys| keys.held),
        max_keys: level.keys.map(|keys| keys.max),
        keys_forgotten: told.forgotten,
        keys_turned_away: told.turned_away,
    }
}

/// Share of a level's rate that was used in the last minute.
fn usage(trace: &Trace, now: &Sample, index: usize, level: &LevelNow) -> Option<f64> {
    let before = trace.before(now.at, Duration::from_secs(60))?;
    let consumed = |sample: &Sample| sample.levels.get(index).map_or(0, |level| level.1);
    let used = per_second(consumed(now), consumed(before), now.at - before.at);
    Some(used / level.per_second())
}

fn endpoints(totals: &Totals) -> Vec<EndpointView> {
    let seen = totals.endpoints.iter();
    let seen = seen.filter(|(_, counts)| counts.iter().any(|count| *count > 0));
    let mut seen: Vec<_> = seen.collect();
    seen.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.iter().sum::<u64>()));
    let view = |(name, counts): (&Arc<str>, &[u64; VERDICTS])| EndpointView {
        name: name.as_ref().into(),
        verdicts: verdicts(counts),
    };
    seen.into_iter().map(view).collect()
}

fn top_refused(levels: &[Arc<str>], hot: &[(u64, Vec<Hot>)], keys: Keys) -> Vec<TopRefused> {
    let told = levels.iter().zip(hot);
    told.filter(|(_, (refusals, _))| *refusals > 0)
        .map(|(level, (refusals, hot))| TopRefused {
            level: level.as_ref().into(),
            refusals: *refusals,
            keys: hot
                .iter()
                .map(|hot| RefusedKey {
                    key: shown(&hot.key, keys),
                    guaranteed: hot.guaranteed,
                    at_most: hot.at_most,
                    last_refused: date(hot.last - Tick::ZERO),
                })
                .collect(),
        })
        .collect()
}

fn flows(trace: &Trace, now: &Sample) -> Vec<LimiterFlow> {
    let flow = |before: &Sample| {
        let over = now.at - before.at;
        let refused = now.refused.saturating_sub(before.refused);
        LimiterFlow {
            over,
            offered: per_second(now.offered, before.offered, over),
            refused: per_second(now.refused, before.refused, over),
            refused_share: share(refused, now.offered.saturating_sub(before.offered)),
        }
    };
    let spans = SPANS.map(Duration::from_secs);
    let before = spans.iter().filter_map(|span| trace.before(now.at, *span));
    before.map(flow).collect()
}

fn trend(trace: &Trace) -> Vec<LimiterPoint> {
    let (from, to) = (trace.samples(), trace.samples().skip(1));
    let point = |(from, to): (&Sample, &Sample)| {
        let (offered, refused) = (to.offered - from.offered, to.refused - from.refused);
        let levels = to.levels.iter().zip(&from.levels);
        LimiterPoint {
            at: date(to.at - Tick::ZERO),
            offered,
            refused,
            refused_share: share(refused, offered),
            refused_by_level: levels.map(|(to, from)| to.0 - from.0).collect(),
        }
    };
    from.zip(to).map(point).collect()
}

/// Keys that are told of each level.
const MOST_KEYS: usize = 20;
