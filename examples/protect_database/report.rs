//! What is said at the end: for people a table and two charts, for programs one JSON object.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::account::Account;
use crate::chart::{self, Colour, brief, columns, paint, strip, table, thousands};
use crate::database::Totals;
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

/// Both runs.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) direct: Run,
    pub(crate) queued: Run,
    pub(crate) account: Account,
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
        if self.queued.max_writers as u64 > self.account.max_in_flight {
            let (writers, bound) = (self.queued.max_writers, self.account.max_in_flight);
            broken.push(format!(
                "queued: {writers} writers at once, the bound is {bound}"
            ));
        }
        if !self.account.is_balanced {
            broken.push(format!(
                "the ledger does not balance: {:?}",
                self.account.ledger
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
        let refusals = &self.account.refusals;
        queued["refused"] = (refusals.by_edge() + refusals.by_queue()).into();
        queued["retried"] = self.account.retried.into();
        queued["rate_set"] = self.account.rate_set.into();
        queued["rate_held"] = self
            .account
            .rate_held
            .map_or(Value::Null, |held| round(held.rate).into());
        json!({"direct": run(&self.direct), "queued": queued, "ledger_balanced": self.account.is_balanced}).to_string()
    }

    /// The table, the ledger and the charts.
    pub(crate) fn text(&self) -> String {
        let mut text = self.table();
        for line in self.account.refusals.lines() {
            let _ = writeln!(text, "{line}");
        }
        let _ = writeln!(
            text,
            "\nledger of the queue ({}):",
            match self.account.is_balanced {
                true => paint("balanced", Colour::Green),
                false => paint("NOT balanced", Colour::Red),
            }
        );
        let words: Vec<_> = self
            .account
            .words()
            .iter()
            .map(|(word, count)| format!("{word} {count}"))
            .collect();
        for line in words.chunks(4) {
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
        let account = &self.account;
        let mut only_queued =
            |name: &str, value: String| rows.push([name.to_owned(), "-".to_owned(), value]);
        only_queued(
            "bound of writers at once",
            account.max_in_flight.to_string(),
        );
        only_queued("rate set", format!("{:.1}/s", account.rate_set));
        only_queued(
            "rate held where it was the limit",
            account.rate_held.map_or_else(
                || "never the limit".to_owned(),
                |held| format!("{:.1}/s", held.rate),
            ),
        );
        only_queued(
            "offers refused by the edge",
            thousands(account.refusals.by_edge()),
        );
        only_queued(
            "offers refused by the queue",
            thousands(account.refusals.by_queue()),
        );
        only_queued("offers made again", thousands(account.retried));
        only_queued(
            "jobs put back after an error",
            thousands(account.ledger.requeued),
        );
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
