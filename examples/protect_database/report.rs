//! What is said at the end: for people a table and two charts, for programs one JSON object.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::chart::{self, Colour, brief, columns, paint, strip, table, thousands};
use crate::database::Totals;
use crate::held::Held;
use crate::measure::{Counts, STEP};

/// One run, complete.
#[derive(Debug)]
pub(crate) struct Run {
    /// What was counted on the way.
    pub(crate) counts: Counts,
    /// What the file holds.
    pub(crate) stored: Totals,
    /// Most writers inside a write at once.
    pub(crate) max_writers: usize,
}

/// What only the queued run has.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Departures per second asked for.
    pub(crate) rate_set: f64,
    /// Departures per second measured.
    pub(crate) rate_held: Option<Held>,
    /// Bound of jobs in flight.
    pub(crate) max_in_flight: u64,
    /// Waits that refused producers were told, in order, by who refused.
    pub(crate) refusals: BTreeMap<String, Vec<Duration>>,
    /// Offers made again after a refusal.
    pub(crate) retried: u64,
    /// Jobs put back after the database refused them.
    pub(crate) requeued: u64,
    /// The ledger, word by word.
    pub(crate) ledger: Vec<(&'static str, u64)>,
    /// Whether its sums agree, with themselves and with what the run counted.
    pub(crate) is_balanced: bool,
}

impl Queue {
    fn refused(&self) -> u64 {
        self.refusals.values().map(|waits| waits.len() as u64).sum()
    }
}

/// Both runs.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) direct: Run,
    pub(crate) queued: Run,
    pub(crate) queue: Queue,
}

impl Report {
    /// Promises that were not kept; empty if all were.
    pub(crate) fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for (name, run) in [("direct", &self.direct), ("queued", &self.queued)] {
            let (stored, acknowledged) = (run.stored, run.counts.acknowledged);
            if stored != acknowledged {
                broken.push(format!(
                    "{name}: acknowledged {acknowledged:?}, but the file holds {stored:?}"
                ));
            }
        }
        let Counts {
            offered,
            failed,
            acknowledged,
            ..
        } = &self.queued.counts;
        if *failed > 0 || acknowledged.rows != *offered {
            broken.push(format!(
                "queued: {offered} offered, {} committed, {failed} failed",
                acknowledged.rows
            ));
        }
        if self.queued.max_writers as u64 > self.queue.max_in_flight {
            let (writers, bound) = (self.queued.max_writers, self.queue.max_in_flight);
            broken.push(format!(
                "queued: {writers} writers at once, the bound is {bound}"
            ));
        }
        if !self.queue.is_balanced {
            broken.push(format!(
                "the ledger does not balance: {:?}",
                self.queue.ledger
            ));
        }
        broken
    }

    /// The JSON object, on one line.
    pub(crate) fn json(&self) -> String {
        let run = |run: &Run| {
            let millis = |share| {
                run.counts
                    .latency(share)
                    .map(|latency| round(latency.as_secs_f64() * 1e3))
            };
            json!({
                "offered": run.counts.offered,
                "committed": run.counts.acknowledged.rows,
                "failed": run.counts.failed,
                "p50_ms": millis(0.5),
                "p99_ms": millis(0.99),
                "max_writers": run.max_writers,
                "seconds": round(run.counts.ended.as_secs_f64()),
            })
        };
        let mut queued = run(&self.queued);
        queued["refused"] = self.queue.refused().into();
        queued["retried"] = self.queue.retried.into();
        queued["rate_set"] = self.queue.rate_set.into();
        queued["rate_held"] = self
            .queue
            .rate_held
            .map_or(Value::Null, |held| round(held.rate).into());
        json!({"direct": run(&self.direct), "queued": queued, "ledger_balanced": self.queue.is_balanced}).to_string()
    }

    /// The table, the ledger and the charts.
    pub(crate) fn text(&self) -> String {
        let mut text = self.table();
        for (who, waits) in &self.queue.refusals {
            let told = |share| chart::percentile(waits, share).map_or_else(String::new, brief);
            let _ = writeln!(
                text,
                "refused by {who}: {} times, told to come back in {} to {} (median {})",
                thousands(waits.len() as u64),
                told(0.0),
                told(1.0),
                told(0.5),
            );
        }
        let _ = writeln!(
            text,
            "\nledger of the queue ({}):",
            match self.queue.is_balanced {
                true => paint("balanced", Colour::Green),
                false => paint("NOT balanced", Colour::Red),
            }
        );
        let words: Vec<_> = self
            .queue
            .ledger
            .iter()
            .map(|(word, count)| format!("{word} {count}"))
            .collect();
        for line in words.chunks(5) {
            let _ = writeln!(text, "  {}", line.join(", "));
        }
        text += &self.charts();
        if let Some(peak) = peak_memory() {
            let _ = writeln!(text, "\npeak memory of the process: {peak}");
        }
        text
    }

    fn table(&self) -> String {
        let mut rows = vec![["", "direct", "queued"].map(str::to_owned)];
        let mut row = |name: &str, value: &dyn Fn(&Run) -> String| {
            rows.push([name.to_owned(), value(&self.direct), value(&self.queued)]);
        };
        let latency = |run: &Run, share| {
            run.counts
                .latency(share)
                .map_or_else(|| "-".to_owned(), brief)
        };
        row("jobs offered", &|run| thousands(run.counts.offered));
        row("committed", &|run| thousands(run.counts.acknowledged.rows));
        row("failed", &|run| thousands(run.counts.failed));
        let errors: Vec<&String> = self
            .direct
            .counts
            .errors
            .keys()
            .chain(self.queued.counts.errors.keys())
            .collect();
        for (place, error) in errors.iter().enumerate() {
            if !errors[..place].contains(error) {
                let count =
                    |run: &Run| thousands(run.counts.errors.get(*error).copied().unwrap_or(0));
                row(&format!("writes answered {error:?}"), &count);
            }
        }
        row("p50 latency of the committed", &|run| latency(run, 0.5));
        row("p99 latency of the committed", &|run| latency(run, 0.99));
        row("most writers at once", &|run| run.max_writers.to_string());
        row("time to finish", &|run| brief(run.counts.ended));
        row("rows in the file = acknowledged", &|run| {
            let equal = run.stored == run.counts.acknowledged;
            if equal { "yes" } else { "NO" }.to_owned()
        });
        let queue = &self.queue;
        let mut only_queued =
            |name: &str, value: String| rows.push([name.to_owned(), "-".to_owned(), value]);
        only_queued("bound of writers at once", queue.max_in_flight.to_string());
        only_queued("rate set", format!("{:.1}/s", queue.rate_set));
        only_queued(
            "rate held where it was the limit",
            queue.rate_held.map_or_else(
                || "never the limit".to_owned(),
                |held| format!("{:.1}/s", held.rate),
            ),
        );
        only_queued("offers refused", thousands(queue.refused()));
        only_queued("offers made again", thousands(queue.retried));
        only_queued("jobs put back after an error", thousands(queue.requeued));
        table(&rows)
    }

    fn charts(&self) -> String {
        let timelines = [&self.direct.counts.commits, &self.queued.counts.commits];
        let steps = timelines
            .map(chart::Timeline::steps_per_column)
            .into_iter()
            .max()
            .unwrap_or(1);
        let values = timelines.map(|timeline| timeline.columns(steps));
        let most = values.iter().flatten().copied().fold(0.0, f64::max);
        let mut text = String::new();
        for (name, run, values) in [
            ("direct", &self.direct, &values[0]),
            ("queued", &self.queued, &values[1]),
        ] {
            let _ = writeln!(
                text,
                "\n{name}: writes committed per 100 ms, and below those that failed, on one scale"
            );
            text += &columns(values, most, 5, STEP * steps as u32);
            let troubles = strip("failed", &run.counts.troubles.columns(steps), most);
            let colour = if run.counts.failed > 0 {
                Colour::Red
            } else {
                Colour::Green
            };
            text += &paint(troubles.trim_end_matches('\n'), colour);
            text.push('\n');
        }
        text
    }
}

/// Most memory that the process held so far, where the system says so.
fn peak_memory() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(format!("{} MiB", kibibytes.div_ceil(1024)))
}

fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
