//! What operators see: metrics that are there from the start, balance, and tell nobody's keys.

mod advice;
mod kit;
mod limiters;
mod load;
#[cfg(feature = "prometheus")]
mod page;
mod recorders;
mod snapshot;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use sluicegate::observe::{self, Kind, Metric};

/// Series by name and labels as Prometheus writes them, without the buckets of histograms.
type Series = BTreeMap<String, Number>;

#[derive(Clone, Debug, PartialEq)]
enum Number {
    Count(u64),
    Level(f64),
    Values(Vec<f64>),
}

/// Publishes into a recorder and returns what it was told of the queue `label`.
fn told(recorder: &DebuggingRecorder, label: &str) -> Series {
    let mut series = all_told(recorder);
    series.retain(|name, _| name.contains(&format!("{{queue={label:?}")));
    series
}

/// Publishes into a recorder and returns everything that it was told.
fn all_told(recorder: &DebuggingRecorder) -> Series {
    metrics::with_local_recorder(recorder, observe::publish);
    let series = recorder.snapshotter().snapshot().into_vec();
    series
        .into_iter()
        .map(|(key, _, _, value)| {
            let (_, key) = key.into_parts();
            let labels: Vec<String> = key
                .labels()
                .map(|label| format!("{}={:?}", label.key(), label.value()))
                .collect();
            let number = match value {
                DebugValue::Counter(count) => Number::Count(count),
                DebugValue::Gauge(level) => Number::Level(level.0),
                DebugValue::Histogram(values) => {
                    Number::Values(values.into_iter().map(|value| value.0).collect())
                }
            };
            (format!("{}{{{}}}", key.name(), labels.join(",")), number)
        })
        .collect()
}

/// Value of a counter or a gauge, or how many values a histogram was told since it was last looked at.
#[track_caller]
fn number(series: &Series, name: &str) -> u64 {
    match series.get(name) {
        Some(Number::Count(count)) => *count,
        Some(Number::Level(level)) => *level as u64,
        Some(Number::Values(values)) => values.len() as u64,
        None => panic!("{name} is not among {:?}", series.keys()),
    }
}

/// All series of a metric added up.
fn sum(series: &Series, metric: &str) -> u64 {
    let prefix = format!("{metric}{{");
    series
        .keys()
        .filter(|name| name.starts_with(&prefix))
        .map(|name| number(series, name))
        .sum()
}

/// Names of all series that a queue has.
fn expected(label: &str) -> Vec<String> {
    let of_a_queue = |metric: &&Metric| metric.labels.iter().any(|label| label.name == "queue");
    let mut names: Vec<String> = observe::catalogue()
        .iter()
        .filter(of_a_queue)
        .flat_map(|metric| {
            let queue = format!("{}{{queue={label:?}", metric.name);
            match metric.labels {
                [_] => vec![format!("{queue}}}")],
                [_, second] => second
                    .values
                    .iter()
                    .map(|value| format!("{queue},{}={value:?}}}", second.name))
                    .collect(),
                _ => panic!("{} has other labels", metric.name),
            }
        })
        .collect();
    names.sort();
    names
}

/// The catalogue as the docs show it.
fn table() -> String {
    let mut table =
        String::from("//! | name | kind | unit | labels | meaning |\n//! |---|---|---|---|---|\n");
    for metric in observe::catalogue() {
        let labels: Vec<String> = metric
            .labels
            .iter()
            .map(|label| match (label.name, label.values) {
                ("version", _) | (_, []) => format!("`{}`", label.name),
                (name, values) => format!("`{name}` = {}", values.join(", ")),
            })
            .collect();
        let (kind, unit) = (metric.kind.as_str(), metric.unit);
        let (name, labels, meaning) = (metric.name, labels.join("; "), metric.meaning);
        table += &format!("//! | `{name}` | {kind} | {unit} | {labels} | {meaning} |\n");
    }
    table
}

#[test]
fn the_table_in_the_docs_is_the_catalogue() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/observe/mod.rs");
    let docs = fs::read_to_string(path).expect("the source is there");
    assert!(docs.contains(&table()), "it should be\n{}", table());
}

#[test]
fn a_histogram_offers_its_buckets_and_nothing_else_does() {
    for metric in observe::catalogue() {
        let buckets = metric.buckets();
        assert_eq!(buckets.is_empty(), metric.kind != Kind::Histogram);
        assert!(buckets.is_sorted(), "{}", metric.name);
    }
}
