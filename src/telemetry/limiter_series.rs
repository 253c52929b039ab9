//! The series of one label of watched limiters.

use std::collections::HashMap;

use metrics::{Label, Recorder};

use super::catalogue as named;
use super::catalogue::Metric;
use super::ink::{Series, Value};
use super::meter::{LevelTotals, Meter, Totals, Verdict};
use super::roll::{self, Sum};
use crate::sync::Arc;

/// All that is published of a label, summed where it stands for several limiters.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    totals: Totals,
    levels: Vec<LevelGauges>,
}

/// A level as it stands.
#[derive(Clone, Debug)]
struct LevelGauges {
    name: Arc<str>,
    per_second: f64,
    burst: f64,
    /// Of a level that everybody shares.
    available: Option<f64>,
    keys: Option<(f64, f64)>,
    hottest: f64,
}

impl State {
    /// A label without a living limiter.
    pub(super) fn of(ended: Totals) -> Self {
        Self {
            totals: ended,
            levels: Vec::new(),
        }
    }

    /// Adds a living limiter. Calls whoever knows its levels, so no lock is held.
    pub(super) fn add(&mut self, meter: &Meter) {
        let status = meter.status();
        let counts = meter.counts();
        let hottest = meter.hottest();
        self.totals.add(&meter.totals(&counts, &status));
        for (at, level) in status.into_iter().enumerate() {
            let counted = counts.levels.get(at);
            let shared = counted.filter(|counts| counts.is_shared());
            self.levels.push(LevelGauges {
                per_second: level.per_second(),
                burst: level.limit.quota() as f64,
                available: shared.map(|counts| counts.remaining as f64),
                keys: level.keys.map(|keys| (keys.held as f64, keys.max as f64)),
                hottest: hottest.get(at).copied().unwrap_or(0) as f64,
                name: level.name,
            });
        }
    }

    /// Shows every series to `visit`: its metric, the values of its labels after the first, and what it is at.
    fn each(&self, visit: &mut Visit<'_>) {
        let mut errors = [0; 2];
        for (endpoint, verdicts) in &self.totals.endpoints {
            for (verdict, count) in Verdict::ALL.into_iter().zip(verdicts) {
                match verdict {
                    Verdict::ErrorAllowed => errors[0] += count,
                    Verdict::ErrorRejected => errors[1] += count,
                    _ => {}
                }
                let labels = [
                    Some(Name::Own(endpoint)),
                    Some(Name::Fixed(verdict.as_str())),
                ];
                visit(&named::REQUESTS, labels, Value::Count(*count));
            }
        }
        for (mode, count) in ["open", "closed"].into_iter().zip(errors) {
            let labels = [Some(Name::Fixed(mode)), None];
            visit(&named::BACKEND_ERRORS, labels, Value::Count(count));
        }
        for (name, totals) in &self.totals.levels {
            // What no level was counted under is told of once there is something.
            if **name != *roll::OTHER || *totals != LevelTotals::default() {
                each_level(name, totals, visit);
            }
        }
        for level in &self.levels {
            let mut set = |metric, value| {
                visit(
                    metric,
                    [Some(Name::Own(&level.name)), None],
                    Value::Level(value),
                );
            };
            set(&named::LIMIT, level.per_second);
            set(&named::BURST, level.burst);
            if let Some(available) = level.available {
                set(&named::AVAILABLE, available);
            }
            if let Some((held, max)) = level.keys {
                set(&named::KEYS, held);
                set(&named::MAX_KEYS, max);
            }
            set(&named::HOTTEST, level.hottest);
        }
    }
}

fn each_level(name: &Arc<str>, totals: &LevelTotals, visit: &mut Visit<'_>) {
    let mut count = |metric, reason: Option<&'static str>, count| {
        let labels = [Some(Name::Own(name)), reason.map(Name::Fixed)];
        visit(metric, labels, Value::Count(count));
    };
    count(&named::REFUSED, Some("quota"), totals.over_quota);
    count(&named::REFUSED, Some("cost_too_large"), totals.too_large);
    count(&named::CONSUMED, None, totals.consumed);
    count(&named::REFUNDED, None, totals.refunded);
    count(&named::KEYS_GONE, Some("idle"), totals.forgotten);
    count(&named::KEYS_GONE, Some("capacity"), totals.turned_away);
    let labels = [Some(Name::Own(name)), None];
    visit(&named::RETRY_AFTER, labels, Value::Spread(&totals.retries));
}

/// Takes a metric, the values of its labels after the first, and what it is at.
type Visit<'v> = dyn FnMut(&'static Metric, [Option<Name<'_>>; 2], Value<'_>) + 'v;

/// Value of a label.
#[derive(Clone, Copy)]
enum Name<'a> {
    Own(&'a Arc<str>),
    Fixed(&'static str),
}

impl Name<'_> {
    fn label(self, metric: &'static Metric, at: usize) -> Label {
        let name = metric.labels[at].name;
        match self {
            Self::Own(value) => Label::new(name, roll::clean(value)),
            Self::Fixed(value) => Label::from_static_parts(name, value),
        }
    }

    fn owned(self) -> Arc<str> {
        match self {
            Self::Own(value) => Arc::clone(value),
            Self::Fixed(value) => Arc::from(value),
        }
    }
}

/// One label in a recorder's book.
pub(super) struct Page {
    label: Arc<str>,
    series: HashMap<Place, Series>,
    told: bool,
}

/// A metric by its name, and the values of its labels after the first.
type Place = (&'static str, [Option<Arc<str>>; 2]);

impl Page {
    /// A page of a label of which `ended` is not to be told.
    pub(super) fn new(label: &Arc<str>, ended: &Totals) -> Self {
        let mut page = Self {
            label: Arc::clone(label),
            series: HashMap::new(),
            told: false,
        };
        State::of(ended.clone()).each(&mut |metric, names, floor| {
            page.series(metric, names, &floor);
        });
        page
    }

    pub(super) fn write(&mut self, recorder: &dyn Recorder, state: &State) {
        let first = !std::mem::replace(&mut self.told, true);
        state.each(&mut |metric, names, value| {
            let floor = match value {
                Value::Count(_) => Value::Count(0),
                Value::Level(level) => Value::Level(level),
                Value::Spread(_) => Value::Spread(&NOTHING),
            };
            let series = self.series(metric, names, &floor);
            series.write(recorder, metric, &value, first);
        });
    }

    fn series(
        &mut self,
        metric: &'static Metric,
        names: [Option<Name<'_>>; 2],
        floor: &Value<'_>,
    ) -> &mut Series {
        let place = (metric.name, names.map(|name| name.map(Name::owned)));
        let label = &self.label;
        self.series.entry(place).or_insert_with(|| {
            let mut labels = vec![Label::new(metric.labels[0].name, Arc::clone(label))];
            let more = names.into_iter().flatten().enumerate();
            labels.extend(more.map(|(at, name)| name.label(metric, at + 1)));
            Series::new(metric, labels, floor)
        })
    }
}

static NOTHING: crate::tally::Histogram = crate::tally::Histogram::EMPTY;
