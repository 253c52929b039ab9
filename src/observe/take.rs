//! Taking a snapshot: each queue is looked at once, for as long as it takes to copy its numbers.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use super::advisor;
use super::queue_view::{Flow, LaneView, QueuePoint, QueueView, TenantView, Times};
use super::snapshot::{Keys, Snapshot};
use super::take_limiter;
use crate::clock::{Clock, TokioClock};
use crate::key::Key;
use crate::refusal::Reason;
use crate::tally::{self, Buckets};
use crate::telemetry;
use crate::telemetry::history::{self, History, Sample, Spreads};
use crate::telemetry::roll::{Detail, QUEUES};
use crate::tick::Tick;
use crate::words::Priority;

/// Everything at this moment, keys [hashed](Keys::Hashed).
///
/// Read-only and cheap: each queue's lock is held for as long as it takes to copy its numbers, and for one look at each
/// of its tenants. Trends and rates come from samples that a thread takes once a second.
///
/// # Examples
/// ```
/// use sluicegate::{Rate, observe, queue::Builder};
///
/// let (tx, _rx) = Builder::new(Rate::per_second(10)).name("orders-db").build()?;
/// tx.try_send("an order")?;
/// let snapshot = observe::snapshot();
/// let orders = snapshot.queues.iter().find(|queue| queue.name == "orders-db");
/// assert_eq!(orders.map(|queue| (queue.depth, queue.max_depth)), Some((1, 50)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn snapshot() -> Snapshot {
    snapshot_with(Keys::Hashed)
}

/// As [`snapshot`], with the keys of callers shown as asked.
#[must_use]
pub fn snapshot_with(keys: Keys) -> Snapshot {
    let now = TokioClock.now();
    let mut snapshot = Snapshot {
        version: env!("CARGO_PKG_VERSION").into(),
        taken_at: date(
            SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default(),
        ),
        ..Snapshot::default()
    };
    for entry in QUEUES.entries() {
        let shared = entry.living.len() > 1;
        for queue in &entry.living {
            if snapshot.queues.len() == MOST_QUEUES {
                snapshot.queues_left_out += 1;
                continue;
            }
            // One that has just ended is not told of any more.
            let Some(detail) = queue.upgrade().map(|queue| queue.detail()) else {
                continue;
            };
            let history = match shared {
                true => History::default(),
                false => history::of(&entry.label, queue),
            };
            let view = view(&entry.label, &detail, &history, now, keys);
            snapshot.advice.extend(advisor::queue(&view));
            snapshot.queues.push(view);
        }
    }
    take_limiter::add(&mut snapshot, keys);
    snapshot
}

/// Takes the sample of this second for every trend.
///
/// A thread of this crate does it once a second: only a program whose runtime has a [paused](tokio::time::pause) clock
/// need call it. A sample is left out if the last one is less than a second old.
pub fn sample() {
    telemetry::sample();
}

/// Twelve digits that stand for a key in this process: how [`Keys::Hashed`] shows it.
///
/// They are made with a secret of the process, so nobody finds the key by trying all of them.
///
/// # Examples
/// ```
/// use sluicegate::observe::key_tag;
///
/// assert_eq!(key_tag("ada"), key_tag("ada"));
/// assert_ne!(key_tag("ada"), key_tag("bob"));
/// ```
#[must_use]
pub fn key_tag(key: impl Into<Key>) -> String {
    static SECRET: OnceLock<RandomState> = OnceLock::new();
    let secret = SECRET.get_or_init(RandomState::new);
    format!("#{:012x}", secret.hash_one(key.into()) >> 16)
}

pub(super) fn shown(key: &Key, keys: Keys) -> String {
    match keys {
        Keys::Hashed => key_tag(key),
        Keys::Cut => key.to_text(LONGEST),
    }
}

fn view(label: &str, detail: &Detail, history: &History, now: Tick, keys: Keys) -> QueueView {
    let look = &detail.look;
    let (ledger, tally) = (look.totals.ledger, &look.totals.tally);
    let (low, high) = detail.marks;
    let reasons = Reason::ALL.iter().zip(tally.refused);
    let spreads = Spreads::of(look);
    let before = history.spreads_before(now);
    QueueView {
        name: label.into(),
        pressure: look.pressure,
        pressure_for: detail.pressure_for,
        health: detail.health,
        paused: detail.pause.as_deref().map(Into::into),
        closed: detail.closed,
        depth: look.depth,
        low,
        high,
        max_depth: look.max_depth,
        waiting: ledger.waiting,
        max_waiters: detail.max_waiters,
        in_flight: ledger.in_flight,
        max_in_flight: Some(detail.max_in_flight).filter(|most| *most < u64::MAX),
        rate: look.rate,
        rate_now: detail.rate_now,
        owed: detail.owed,
        oldest_wait: look.oldest_wait,
        since_departure: look.since_departure,
        ledger,
        refused_by_reason: reasons
            .filter(|(_, refused)| *refused > 0)
            .map(|(reason, refused)| (reason.as_str().into(), refused))
            .collect(),
        departed: tally.departed,
        dead_letters: ledger.ended() - ledger.acked - ledger.cancelled,
        dead_letters_lost: look.totals.dead_letters_lost,
        flows: flows(history, &Sample::of(look, now)),
        waits: times(&tally::WAITS, &spreads.waits, &before.waits),
        processing: times(&tally::WORK, &spreads.processing, &before.processing),
        lanes: lanes(detail),
        tenants: detail
            .tenants
            .iter()
            .map(|(key, ledger)| TenantView {
                key: shown(key, keys),
                ledger: *ledger,
            })
            .collect(),
        tenants_known: detail.tenants_known,
        other_tenants: detail.others,
        trend: trend(history),
    }
}

fn lanes(detail: &Detail) -> Vec<LaneView> {
    let lanes = Priority::ALL.into_iter().zip(detail.look.totals.lanes);
    lanes
        .map(|(priority, ledger)| LaneView { priority, ledger })
        .collect()
}

fn flows(history: &History, now: &Sample) -> Vec<Flow> {
    let flow = |before: &Sample| {
        let over = now.at - before.at;
        let rate = |count: fn(&Sample) -> u64| per_second(count(now), count(before), over);
        Flow {
            over,
            offered: rate(|sample| sample.offered),
            admitted: rate(|sample| sample.admitted),
            refused: rate(|sample| sample.refused),
            departed: rate(|sample| sample.departed),
            acked: rate(|sample| sample.acked),
        }
    };
    let spans = SPANS.map(Duration::from_secs);
    let before = spans
        .iter()
        .filter_map(|span| history.before(now.at, *span));
    before.map(flow).collect()
}

fn trend(history: &History) -> Vec<QueuePoint> {
    let (from, to) = (history.samples(), history.samples().skip(1));
    let point = |(from, to): (&Sample, &Sample)| {
        let (offered, refused) = (to.offered - from.offered, to.refused - from.refused);
        QueuePoint {
            at: date(to.at - Tick::ZERO),
            offered,
            admitted: to.admitted - from.admitted,
            refused,
            departed: to.departed - from.departed,
            refused_share: share(refused, offered),
            depth: to.depth,
            waiting: to.waiting,
            in_flight: to.in_flight,
            pressure: to.pressure,
        }
    };
    from.zip(to).map(point).collect()
}

fn times(bounds: &[u64], now: &Buckets, before: &Buckets) -> Times {
    let counts = history::since(now, before);
    let quantile = |share| history::quantile(bounds, &counts, share);
    Times {
        count: counts.iter().sum(),
        p50: quantile(0.5),
        p90: quantile(0.9),
        p99: quantile(0.99),
    }
}

/// A date to the microsecond, which is what JSON keeps of it.
pub(super) fn date(since_epoch: Duration) -> Duration {
    Duration::new(since_epoch.as_secs(), since_epoch.subsec_micros() * 1000)
}

pub(super) fn per_second(now: u64, before: u64, over: Duration) -> f64 {
    let seconds = over.as_secs_f64();
    // A span of nothing has no rate.
    let count = now.saturating_sub(before) as f64;
    if seconds > 0.0 { count / seconds } else { 0.0 }
}

/// A part of a whole, from 0 to 1; of those that waited before the second began, more may be refused than were offered.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    (part as f64 / whole as f64).min(1.0)
}

/// Spans of [`Flow`], in seconds.
pub(super) const SPANS: [u64; 3] = [1, 10, 60];
/// Queues that are told of: as many as there are labels.
pub(super) const MOST_QUEUES: usize = 256;
/// Characters of a key that is shown.
const LONGEST: usize = 64;
