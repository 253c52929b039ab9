//! Every metric, described once: name, kind, unit, closed sets of labels, meaning.
//!
//! Names are complete, suffixes and units included. No label ever holds a key, a tenant or anything else that callers
//! choose; `queue` and `limiter` hold labels of a [`roll`](super::roll), of which there are at most 257 each, and a
//! limiter has at most 258 endpoints.

use metrics::{Recorder, Unit};

use crate::tally;

/// What a metric is, and what it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// Complete name.
    pub name: &'static str,
    /// How it moves.
    pub kind: Kind,
    /// Unit of its values, in the plural; empty for plain numbers.
    pub unit: &'static str,
    /// Its labels, in their order.
    pub labels: &'static [MetricLabel],
    /// What it tells, in a sentence.
    pub meaning: &'static str,
    bounds: &'static [u64],
}

/// A label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetricLabel {
    /// Its name.
    pub name: &'static str,
    /// All values it takes; none if the program chooses them (names of queues).
    pub values: &'static [&'static str],
}

/// How a metric moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Only up.
    Counter,
    /// Up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

impl Kind {
    /// Name in lower case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl Metric {
    /// Upper bounds of the buckets of a histogram, in its unit; empty for other kinds.
    ///
    /// Set them in your exporter as they are, or some of them: counts of buckets are exact then.
    #[must_use]
    pub fn buckets(&self) -> Vec<f64> {
        let units = self.units();
        self.bounds
            .iter()
            .map(|bound| *bound as f64 / units)
            .collect()
    }

    /// What the counted values are divided by.
    pub(crate) fn units(&self) -> f64 {
        if self.unit == SECONDS { 1e9 } else { 1.0 }
    }

    pub(crate) fn describe(&self, recorder: &dyn Recorder) {
        let unit = (self.unit == SECONDS).then_some(Unit::Seconds);
        let (name, meaning) = (self.name.into(), self.meaning.into());
        match self.kind {
            Kind::Counter => recorder.describe_counter(name, unit, meaning),
            Kind::Gauge => recorder.describe_gauge(name, unit, meaning),
            Kind::Histogram => recorder.describe_histogram(name, unit, meaning),
        }
    }
}

const fn counter(
    name: &'static str,
    unit: &'static str,
    labels: &'static [MetricLabel],
    meaning: &'static str,
) -> Metric {
    Metric {
        name,
        kind: Kind::Counter,
        unit,
        labels,
        meaning,
        bounds: &[],
    }
}

const fn gauge(name: &'static str, unit: &'static str, meaning: &'static str) -> Metric {
    Metric {
        kind: Kind::Gauge,
        ..counter(name, unit, &[QUEUE], meaning)
    }
}

const fn histogram(
    name: &'static str,
    unit: &'static str,
    labels: &'static [MetricLabel],
    bounds: &'static [u64],
    meaning: &'static str,
) -> Metric {
    Metric {
        kind: Kind::Histogram,
        bounds,
        ..counter(name, unit, labels, meaning)
    }
}

const fn one_of(name: &'static str, values: &'static [&'static str]) -> MetricLabel {
    MetricLabel { name, values }
}

const QUEUE: MetricLabel = one_of("queue", &[]);
const REASON: MetricLabel = one_of(
    "reason",
    &[
        "full",
        "overloaded",
        "waiters_full",
        "too_late",
        "timed_out",
        "too_costly",
        "cancelled",
        "paused",
        "closed",
    ],
);
const EXIT: MetricLabel = one_of(
    "reason",
    &["expired", "evicted", "cancelled", "abandoned", "returned"],
);
const OUTCOME: MetricLabel = one_of("outcome", &["drained", "dropped"]);
const LANE: MetricLabel = one_of("lane", &["low", "normal", "high", "critical"]);
const RESULT: MetricLabel = one_of("result", &["ok", "error", "retry"]);
const LIMITER: MetricLabel = one_of("limiter", &[]);
const ENDPOINT: MetricLabel = one_of("endpoint", &[]);
const LEVEL: MetricLabel = one_of("level", &[]);
const DIMENSION: MetricLabel = one_of("dimension", &[]);
const DECISION: MetricLabel = one_of(
    "decision",
    &[
        "allowed",
        "rejected",
        "exempt",
        "error_allowed",
        "error_rejected",
    ],
);
const CAUSE: MetricLabel = one_of("reason", &["quota", "cost_too_large"]);
const GONE: MetricLabel = one_of("reason", &["idle", "capacity"]);
const MODE: MetricLabel = one_of("mode", &["open", "closed"]);
const VERSION: MetricLabel = one_of("version", &[env!("CARGO_PKG_VERSION")]);

const SECONDS: &str = "seconds";
const JOBS: &str = "jobs";
const COST: &str = "cost";
const UNITS: &str = "units";
const REQUESTS_MADE: &str = "requests";

macro_rules! catalogue {
    ($($ident:ident = $metric:expr;)+) => {
        $(pub(crate) static $ident: Metric = $metric;)+

        /// All of them.
        pub(crate) static METRICS: &[Metric] = &[$($metric),+];
    };
}

catalogue! {
    OFFERED = counter("sluicegate_queue_offered_total", JOBS, &[QUEUE],
        "Offers made, each counted at its first poll.");
    ENQUEUED = counter("sluicegate_queue_enqueued_total", JOBS, &[QUEUE],
        "Offers that got a place.");
    REJECTED = counter("sluicegate_queue_rejected_total", JOBS, &[QUEUE, REASON],
        "Offers refused at the door or in the line, by reason.");
    WITHDRAWN = counter("sluicegate_queue_withdrawn_total", JOBS, &[QUEUE],
        "Offers given up by their producers while they stood in line.");
    DRAINED = counter("sluicegate_queue_drained_total", JOBS, &[QUEUE],
        "Departures: jobs handed to a consumer, every retry anew.");
    ACKED = counter("sluicegate_queue_acked_total", JOBS, &[QUEUE],
        "Jobs that were done.");
    FAILED = counter("sluicegate_queue_failed_total", JOBS, &[QUEUE],
        "Jobs that failed for good.");
    DROPPED = counter("sluicegate_queue_dropped_total", JOBS, &[QUEUE, EXIT],
        "Jobs that got a place and ended neither done nor failed, by what became of them.");
    REQUEUED = counter("sluicegate_queue_requeued_total", JOBS, &[QUEUE],
        "Times that a job went back into the queue for another attempt.");
    LETTERS_LOST = counter("sluicegate_queue_dead_letters_lost_total", JOBS, &[QUEUE],
        "Dead letters dropped because nobody read them in time.");
    DEPTH = gauge("sluicegate_queue_depth", COST,
        "Cost of what is queued, waits for a retry, or is reserved.");
    CAPACITY = gauge("sluicegate_queue_capacity", COST,
        "Bound of the depth.");
    WAITING = gauge("sluicegate_queue_waiting", JOBS,
        "Offers standing in line at the door.");
    RESERVED = gauge("sluicegate_queue_reserved", JOBS,
        "Places that are paid for and not used yet.");
    QUEUED = gauge("sluicegate_queue_queued", JOBS,
        "Jobs queued or waiting for a retry.");
    IN_FLIGHT = gauge("sluicegate_queue_in_flight", JOBS,
        "Jobs handed out and not settled.");
    LANE_OFFERED = counter("sluicegate_queue_lane_offered_total", JOBS, &[QUEUE, LANE],
        "Offers made, by priority.");
    LANE_REJECTED = counter("sluicegate_queue_lane_rejected_total", JOBS, &[QUEUE, LANE],
        "Offers refused, by priority.");
    LANE_ACKED = counter("sluicegate_queue_lane_acked_total", JOBS, &[QUEUE, LANE],
        "Jobs that were done, by priority.");
    LANE_QUEUED = Metric { labels: &[QUEUE, LANE], ..gauge("sluicegate_queue_lane_queued", JOBS,
        "Jobs queued or waiting for a retry, by priority.") };
    LANE_IN_FLIGHT = Metric { labels: &[QUEUE, LANE], ..gauge("sluicegate_queue_lane_in_flight", JOBS,
        "Jobs handed out and not settled, by priority.") };
    PAUSED = gauge("sluicegate_queue_paused", "",
        "Whether departures are held: 1 or 0.");
    PRESSURE = gauge("sluicegate_queue_pressure", "",
        "State of the ladder: 0 healthy, 1 elevated, 2 overloaded.");
    RATE = gauge("sluicegate_queue_drain_items_per_second", "cost per second",
        "Rate that was set for departures; 0 if there is none.");
    HEAD = gauge("sluicegate_queue_head_enqueued_timestamp_seconds", SECONDS,
        "Unix time at which the job that waits longest came; 0 if none waits.");
    LAST_DRAIN = gauge("sluicegate_queue_last_drain_timestamp_seconds", SECONDS,
        "Unix time of the last departure; 0 if there was none.");
    WAIT = histogram("sluicegate_queue_wait_seconds", SECONDS, &[QUEUE, OUTCOME], &tally::WAITS,
        "Time from a job's offer, or from when its retry was due, to its departure or its end in the queue.");
    DEPTH_ON_ENQUEUE = histogram("sluicegate_queue_depth_on_enqueue", COST, &[QUEUE], &tally::DEPTHS,
        "Depth as an arriving job made it, its own cost included.");
    PROCESSING = histogram("sluicegate_queue_processing_seconds", SECONDS, &[QUEUE, RESULT], &tally::WORK,
        "Time in flight, from a departure to the consumer's verdict.");
    REQUESTS = counter("sluicegate_requests_total", REQUESTS_MADE, &[LIMITER, ENDPOINT, DECISION],
        "Requests to a watched limiter, each once, by what became of it.");
    REFUSED = counter("sluicegate_rejections_total", REQUESTS_MADE, &[LIMITER, LEVEL, CAUSE],
        "Requests refused, each once, by the level that refused for longest.");
    CONSUMED = counter("sluicegate_consumed_units_total", UNITS, &[LIMITER, LEVEL],
        "Units charged; what is given back later is not subtracted.");
    REFUNDED = counter("sluicegate_refunded_units_total", UNITS, &[LIMITER, LEVEL],
        "Units given back.");
    LIMIT = Metric { labels: &[LIMITER, LEVEL], ..gauge("sluicegate_limit_units_per_second", "units per second",
        "Rate that one key may have over time, unless it has a limit of its own.") };
    BURST = Metric { labels: &[LIMITER, LEVEL], ..gauge("sluicegate_burst_units", UNITS,
        "Units that one key may have at once, unless it has a limit of its own.") };
    AVAILABLE = Metric { labels: &[LIMITER, LEVEL], ..gauge("sluicegate_available_units", UNITS,
        "Units left at the last decision, of levels that everybody shares.") };
    RETRY_AFTER = histogram("sluicegate_retry_after_seconds", SECONDS, &[LIMITER, LEVEL], &tally::RETRIES,
        "Waits that refused requests were told, by the level that refused for longest.");
    KEYS = Metric { labels: &[LIMITER, LEVEL], ..gauge("sluicegate_tracked_keys", "keys",
        "Keys remembered, where they are in this process.") };
    MAX_KEYS = Metric { labels: &[LIMITER, LEVEL], ..gauge("sluicegate_tracked_keys_max", "keys",
        "Most keys that are remembered.") };
    KEYS_GONE = counter("sluicegate_key_evictions_total", "keys", &[LIMITER, LEVEL, GONE],
        "Keys forgotten because they were idle, and new ones for which there was no room.");
    HOTTEST = Metric { labels: &[LIMITER, DIMENSION],
        ..gauge("sluicegate_hottest_key_rejections_per_minute", "requests per minute",
        "Refusals of the key that was refused most in the last minute, as many as are certain.") };
    BACKEND_ERRORS = counter("sluicegate_backend_errors_total", REQUESTS_MADE, &[LIMITER, MODE],
        "Requests decided without the store that should have: let through (open) or refused (closed).");
    LIMITERS = Metric { labels: &[], ..gauge("sluicegate_limiters", "", "Watched limiters alive.") };
    QUEUES = Metric { labels: &[], ..gauge("sluicegate_queues", "", "Queues alive.") };
    BUILD_INFO = Metric { labels: &[VERSION], ..gauge("sluicegate_build_info", "",
        "Always 1; its label tells the version of this crate.") };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Reason;
    use crate::tally::Processed;
    use crate::telemetry::meter::Verdict;
    use crate::words::{Exit, Priority};

    #[test]
    fn labels_are_the_words_of_the_crate() {
        assert_eq!(REASON.values, Reason::ALL.map(Reason::as_str));
        assert_eq!(RESULT.values, Processed::ALL.map(Processed::as_str));
        assert_eq!(DECISION.values, Verdict::ALL.map(Verdict::as_str));
        assert_eq!(LANE.values, Priority::ALL.map(Priority::as_str));
        // Failures have a counter of their own.
        let mut exits = Vec::from(EXIT.values);
        exits.push(Exit::Failed.as_str());
        exits.sort_unstable();
        let mut all = Exit::ALL.map(Exit::as_str);
        all.sort_unstable();
        assert_eq!(exits, all);
    }

    #[test]
    fn names_follow_the_rules_of_naming() {
        for metric in METRICS {
            let Metric { name, kind, .. } = *metric;
            assert!(name.starts_with("sluicegate_"), "{name}");
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{name}"
            );
            assert_eq!(name.ends_with("_total"), kind == Kind::Counter, "{name}");
            assert_eq!(name.ends_with("_seconds"), metric.unit == SECONDS, "{name}");
            assert_eq!(
                metric.buckets().is_empty(),
                kind != Kind::Histogram,
                "{name}"
            );
            assert!(metric.meaning.ends_with('.'), "{name}");
            let twins = METRICS.iter().filter(|other| other.name == name);
            assert_eq!(twins.count(), 1, "{name}");
        }
        assert_eq!(WAIT.buckets()[..3], [0.001, 0.005, 0.02]);
    }
}
