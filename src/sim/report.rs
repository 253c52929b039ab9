//! What came of a run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::histogram::Histogram;
use super::timeline::{Level, Timeline};
use crate::ledger::Ledger;
use crate::refusal::Reason;
use crate::tick::{Tick, nanos};
use crate::words::Exit;

/// Who said no, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Refuser {
    /// This level of the edge.
    Edge(Arc<str>),
    /// The queue, for this reason.
    Queue(&'static str),
}

/// How the arrivals ended: each of them in exactly one of these counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcomes {
    /// Done while the caller waited.
    pub served: u64,
    /// Done, but the caller's patience had ended.
    pub late: u64,
    /// Refused for good.
    pub refused_by: BTreeMap<Refuser, u64>,
    /// Expired in the queue.
    pub expired: u64,
    /// Evicted by newer jobs.
    pub evicted: u64,
    /// Failed in the downstream.
    pub failed: u64,
    /// Never ended; 0 unless the queue can never get empty.
    pub unfinished: u64,
}

/// What came of a run, in numbers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// How the arrivals ended.
    pub outcomes: Outcomes,
    /// Offers made, those of callers who came back included.
    pub offers: u64,
    /// Offers refused, by whom.
    pub refusals: BTreeMap<Refuser, u64>,
    /// Offers given up because the caller's patience ended.
    pub timeouts: u64,
    /// Jobs done for a caller who had given up.
    pub wasted: u64,
    /// Time from the offer to the start, of all jobs that started.
    pub wait: Histogram,
    /// Time from the first offer to the end, of all arrivals served in time.
    pub response: Histogram,
    /// Greatest depth, in cost.
    pub max_depth: u64,
    /// Depth over time divided by time.
    pub mean_depth: f64,
    /// Longest line at the door.
    pub max_waiting: u64,
    /// Most jobs in flight.
    pub max_in_flight: u64,
    /// Time from the first arrival to the last.
    pub arriving: Duration,
    /// Time from the first arrival to the end of everything.
    pub total: Duration,
    /// The queue's own ledger, which counts every offer that reached it.
    pub ledger: Ledger,
    /// What happened when.
    pub timeline: Timeline,
    /// Integral of the depth, in nanoseconds times jobs.
    pub(crate) depth_time: u128,
}

impl Outcomes {
    /// All of them: the number of arrivals.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self {
            served,
            late,
            expired,
            evicted,
            failed,
            unfinished,
            ..
        } = self;
        served + late + expired + evicted + failed + unfinished + self.refused()
    }

    /// Arrivals refused for good, by anybody.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused_by.values().sum()
    }
}

impl Report {
    /// Arrivals served in time, per second of the time in which they came; 0 if that is no time.
    #[must_use]
    pub fn goodput(&self) -> f64 {
        let time = self.arriving.as_secs_f64();
        if time > 0.0 {
            self.outcomes.served as f64 / time
        } else {
            0.0
        }
    }

    /// Whether the depth over time is exactly the sum of all waits, as it must be where jobs of cost 1 leave by being
    /// taken (the sample-path law of Little).
    #[must_use]
    pub fn obeys_little(&self) -> bool {
        self.depth_time == self.wait.sum_nanos()
    }
}

impl Refuser {
    /// Who it was, for a table: `edge user` or `queue full`.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::Edge(level) => format!("edge {level}"),
            Self::Queue(reason) => format!("queue {reason}"),
        }
    }

    pub(crate) const fn queue(reason: Reason) -> Self {
        Self::Queue(reason.as_str())
    }
}

/// The report while it is written.
#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) report: Report,
    since: Tick,
    stands: Level,
}

impl Book {
    pub(crate) fn new() -> Self {
        Self {
            report: Report {
                outcomes: Outcomes::default(),
                offers: 0,
                refusals: BTreeMap::new(),
                timeouts: 0,
                wasted: 0,
                wait: Histogram::new(),
                response: Histogram::new(),
                max_depth: 0,
                mean_depth: 0.0,
                max_waiting: 0,
                max_in_flight: 0,
                arriving: Duration::ZERO,
                total: Duration::ZERO,
                ledger: Ledger::default(),
                timeline: Timeline::new(),
                depth_time: 0,
            },
            since: Tick::ZERO,
            stands: Level::default(),
        }
    }

    /// The depth that stood until now is accounted for, and this level stands from now on.
    pub(crate) fn level(&mut self, now: Tick, level: Level) {
        let report = &mut self.report;
        let stood = u128::from(nanos(now - self.since));
        report.depth_time += u128::from(self.stands.depth) * stood;
        self.since = now;
        if level == self.stands {
            return;
        }
        self.stands = level;
        report.max_depth = report.max_depth.max(level.depth);
        report.max_waiting = report.max_waiting.max(level.waiting);
        report.max_in_flight = report.max_in_flight.max(level.in_flight);
        report.timeline.level(now, level);
    }

    pub(crate) fn offered(&mut self, now: Tick) {
        self.report.offers += 1;
        self.report.timeline.at(now).offered += 1;
    }

    pub(crate) fn refused(&mut self, now: Tick, by: &Refuser) {
        *count(&mut self.report.refusals, by) += 1;
        self.report.timeline.at(now).refused += 1;
    }

    pub(crate) fn refused_for_good(&mut self, by: &Refuser) {
        *count(&mut self.report.outcomes.refused_by, by) += 1;
    }

    pub(crate) fn started(&mut self, now: Tick, waited: Duration) {
        self.report.wait.record(waited);
        self.report.timeline.at(now).started += 1;
    }

    pub(crate) fn served(&mut self, now: Tick, response: Duration) {
        self.report.outcomes.served += 1;
        self.report.response.record(response);
        self.report.timeline.at(now).good += 1;
    }

    pub(crate) fn gone(&mut self, exit: Exit) {
        let outcomes = &mut self.report.outcomes;
        *match exit {
            Exit::Expired => &mut outcomes.expired,
            Exit::Evicted => &mut outcomes.evicted,
            _ => &mut outcomes.failed,
        } += 1;
    }

    pub(crate) fn close(mut self, now: Tick, unfinished: u64, ledger: Ledger) -> Report {
        self.level(now, Level::default());
        let report = &mut self.report;
        report.total = now - Tick::ZERO;
        report.outcomes.unfinished = unfinished;
        report.ledger = ledger;
        let time = nanos(report.total).max(1);
        report.mean_depth = report.depth_time as f64 / time as f64;
        self.report
    }
}

/// The count of a key, which is cloned only when it is new.
fn count<'a>(counts: &'a mut BTreeMap<Refuser, u64>, by: &Refuser) -> &'a mut u64 {
    if !counts.contains_key(by) {
        counts.insert(by.clone(), 0);
    }
    counts.get_mut(by).expect("it was just made sure of")
}
