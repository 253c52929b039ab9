//! The series of one label: which there are, and what is written into them.

use std::time::Duration;

use metrics::{Key, Label, Recorder};

use super::catalogue as named;
use super::catalogue::Metric;
use super::ink::{METADATA, Series, Value};
use super::roll::{Look, Totals};
use crate::refusal::Reason;
use crate::sync::Arc;
use crate::tally::Processed;
use crate::words::{Exit, Pressure, Priority};

/// All that is published of a label, summed where it stands for several queues.
#[derive(Clone, Debug)]
pub(super) struct State {
    totals: Totals,
    depth: u64,
    max_depth: u64,
    pressure: Pressure,
    paused: bool,
    rate: f64,
    /// Wall time at which the oldest job came, and of the last departure; 0 = none.
    head: f64,
    last_drain: f64,
}

impl State {
    /// A label without a living queue.
    pub(super) const fn of(ended: Totals) -> Self {
        Self {
            totals: ended,
            depth: 0,
            max_depth: 0,
            pressure: Pressure::Healthy,
            paused: false,
            rate: 0.0,
            head: 0.0,
            last_drain: 0.0,
        }
    }

    pub(super) fn add(&mut self, look: &Look, wall: Duration) {
        let ago = |span: Option<Duration>| {
            span.map_or(0.0, |span| wall.saturating_sub(span).as_secs_f64())
        };
        self.totals.add(&look.totals);
        self.depth = self.depth.saturating_add(look.depth);
        self.max_depth = self.max_depth.saturating_add(look.max_depth);
        self.pressure = self.pressure.max(look.pressure);
        self.paused |= look.paused;
        self.rate += look.rate.map_or(0.0, |rate| {
            rate.count() as f64 / rate.period().as_secs_f64()
        });
        let head = ago(look.oldest_wait);
        self.head = match (self.head > 0.0, head > 0.0) {
            (true, true) => self.head.min(head),
            _ => self.head.max(head),
        };
        self.last_drain = self.last_drain.max(ago(look.since_departure));
    }

    /// Shows every series to `visit`, always in the same order.
    fn each(&self, visit: &mut dyn FnMut(&'static Metric, Option<&'static str>, Value<'_>)) {
        let Totals {
            ledger,
            tally,
            dead_letters_lost,
            lanes,
        } = &self.totals;
        let mut count = |metric, count| visit(metric, None, Value::Count(count));
        count(&named::OFFERED, ledger.offered);
        count(&named::ENQUEUED, ledger.admitted);
        count(&named::WITHDRAWN, ledger.cancelled_waiting);
        count(&named::DRAINED, tally.departed);
        count(&named::ACKED, ledger.acked);
        count(&named::FAILED, ledger.failed);
        count(&named::REQUEUED, ledger.requeued);
        count(&named::LETTERS_LOST, *dead_letters_lost);
        for (reason, refused) in Reason::ALL.iter().zip(tally.refused) {
            visit(
                &named::REJECTED,
                Some(reason.as_str()),
                Value::Count(refused),
            );
        }
        for (exit, dropped) in [
            (Exit::Expired, ledger.expired),
            (Exit::Evicted, ledger.evicted),
            (Exit::Cancelled, ledger.cancelled),
            (Exit::Abandoned, ledger.abandoned),
            (Exit::Returned, ledger.returned),
        ] {
            visit(&named::DROPPED, Some(exit.as_str()), Value::Count(dropped));
        }
        let mut level = |metric, level| visit(metric, None, Value::Level(level));
        level(&named::DEPTH, self.depth as f64);
        level(&named::CAPACITY, self.max_depth as f64);
        level(&named::WAITING, ledger.waiting as f64);
        level(&named::RESERVED, ledger.reserved as f64);
        level(&named::QUEUED, ledger.queued as f64);
        level(&named::IN_FLIGHT, ledger.in_flight as f64);
        level(&named::PAUSED, f64::from(u8::from(self.paused)));
        level(&named::PRESSURE, f64::from(self.pressure as u8));
        level(&named::RATE, self.rate);
        level(&named::HEAD, self.head);
        level(&named::LAST_DRAIN, self.last_drain);
        for (priority, lane) in Priority::ALL.iter().zip(lanes) {
            let name = Some(priority.as_str());
            visit(&named::LANE_OFFERED, name, Value::Count(lane.offered));
            visit(&named::LANE_REJECTED, name, Value::Count(lane.refused));
            visit(&named::LANE_ACKED, name, Value::Count(lane.acked));
            visit(&named::LANE_QUEUED, name, Value::Level(lane.queued as f64));
            visit(
                &named::LANE_IN_FLIGHT,
                name,
                Value::Level(lane.in_flight as f64),
            );
        }
        let mut spread = |metric, label, histogram| visit(metric, label, Value::Spread(histogram));
        spread(&named::WAIT, Some("drained"), &tally.drained);
        spread(&named::WAIT, Some("dropped"), &tally.dropped);
        spread(&named::DEPTH_ON_ENQUEUE, None, &tally.depth);
        for (how, histogram) in Processed::ALL.iter().zip(&tally.processing) {
            spread(&named::PROCESSING, Some(how.as_str()), histogram);
        }
    }
}

/// One label in a recorder's book: its keys, and what the recorder has been told.
pub(super) struct Page {
    series: Vec<Series>,
    told: bool,
}

impl Page {
    /// A page of a label of which `ended` is not to be told.
    pub(super) fn new(label: &Arc<str>, ended: &Totals) -> Self {
        let mut series = Vec::new();
        State::of(*ended).each(&mut |metric, value, floor| {
            let mut labels = vec![Label::new("queue", Arc::clone(label))];
            if let (Some(value), [_, second]) = (value, metric.labels) {
                labels.push(Label::from_static_parts(second.name, value));
            }
            series.push(Series::new(metric, labels, &floor));
        });
        Self {
            series,
            told: false,
        }
    }

    /// Writes every series. Handles are taken anew each time: a look-up is cheap, and an old handle might be one that a
    /// recorder has forgotten.
    pub(super) fn write(&mut self, recorder: &dyn Recorder, state: &State) {
        let first = !std::mem::replace(&mut self.told, true);
        let mut series = self.series.iter_mut();
        state.each(&mut |metric, _, value| {
            let series = series.next().expect("the order is always the same");
            series.write(recorder, metric, &value, first);
        });
    }
}

/// Writes what is of the whole process.
pub(super) fn write_process(recorder: &dyn Recorder, queues: u64, limiters: u64) {
    for (metric, living) in [(&named::QUEUES, queues), (&named::LIMITERS, limiters)] {
        let key = Key::from_static_name(metric.name);
        recorder.register_gauge(&key, &METADATA).set(living as f64);
    }
    let version = Label::from_static_parts("version", env!("CARGO_PKG_VERSION"));
    let key = Key::from_parts(named::BUILD_INFO.name, vec![version]);
    recorder.register_gauge(&key, &METADATA).set(1.0);
}
