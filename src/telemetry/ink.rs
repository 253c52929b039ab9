//! How a number gets into a recorder, and what the recorder has been told of it.

use metrics::{Key, Label, Level, Metadata, Recorder};

use super::catalogue::Metric;
use crate::tally::Histogram;

/// What a series is at.
pub(super) enum Value<'a> {
    Count(u64),
    Level(f64),
    Spread(&'a Histogram),
}

/// One series in a recorder's book.
pub(super) struct Series {
    key: Key,
    /// What is not told, or has been.
    floor: Floor,
}

enum Floor {
    None,
    Count(u64),
    Spread(Box<Histogram>),
}

impl Series {
    /// A series of which `floor` is not to be told.
    pub(super) fn new(metric: &'static Metric, labels: Vec<Label>, floor: &Value<'_>) -> Self {
        Self {
            key: Key::from_parts(metric.name, labels),
            floor: match floor {
                Value::Count(count) => Floor::Count(*count),
                Value::Level(_) => Floor::None,
                Value::Spread(histogram) => Floor::Spread(Box::new(**histogram)),
            },
        }
    }

    /// Writes it. The handle is taken anew each time: a look-up is cheap, and an old handle might be one that a recorder
    /// has forgotten.
    pub(super) fn write(
        &mut self,
        recorder: &dyn Recorder,
        metric: &'static Metric,
        value: &Value<'_>,
        first: bool,
    ) {
        let key = &self.key;
        match (value, &mut self.floor) {
            (Value::Count(count), Floor::Count(floor)) => {
                let told = count.saturating_sub(*floor);
                recorder.register_counter(key, &METADATA).absolute(told);
            }
            (Value::Spread(now), Floor::Spread(told)) => {
                let handle = recorder.register_histogram(key, &METADATA);
                if first && now.count().saturating_sub(told.count()) > LONGEST_HISTORY {
                    **told = **now;
                }
                for (now, told) in now.buckets.iter().zip(&mut told.buckets) {
                    let count = now.count.saturating_sub(told.count);
                    if count > 0 {
                        // The mean lies in the same bucket, and times the count it is the sum.
                        let mean = now.sum.saturating_sub(told.sum) as f64 / count as f64;
                        let count = usize::try_from(count).unwrap_or(usize::MAX);
                        handle.record_many(mean / metric.units(), count);
                    }
                    *told = *now;
                }
            }
            (Value::Level(level), _) => {
                recorder.register_gauge(key, &METADATA).set(*level);
            }
            _ => debug_assert!(false, "{} changed its kind", metric.name),
        }
    }
}

pub(super) static METADATA: Metadata<'static> =
    Metadata::new("sluicegate", Level::INFO, Some(module_path!()));

/// Observations from before the recorder came that are still told one by one, as recorders take them.
const LONGEST_HISTORY: u64 = 1 << 16;
