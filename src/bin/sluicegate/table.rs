//! Reports as tables.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use sluicegate::sim::{Refuser, Report};

use crate::simulate::Run;

/// One column for each run.
pub(crate) fn runs(runs: &[Run]) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: &str, value: &dyn Fn(&Report) -> String| {
        let values = runs.iter().map(|run| value(&run.report));
        rows.push(std::iter::once(name.to_owned()).chain(values).collect());
    };
    let counted = |count: u64, report: &Report| {
        let total = report.outcomes.total().max(1);
        let share = count as f64 / total as f64 * 100.0;
        format!("{} {share:>5.1} %", thousands(count))
    };
    row("served in time", &|report| {
        counted(report.outcomes.served, report)
    });
    let late = runs.iter().any(|run| run.report.outcomes.late > 0);
    if late {
        row("served too late", &|report| {
            counted(report.outcomes.late, report)
        });
    }
    let refusers: BTreeSet<&Refuser> = runs
        .iter()
        .flat_map(|run| run.report.outcomes.refused_by.keys())
        .collect();
    for by in refusers {
        row(&format!("refused: {}", by.label()), &|report| {
            counted(
                report.outcomes.refused_by.get(by).copied().unwrap_or(0),
                report,
            )
        });
    }
    type Outcome = (&'static str, fn(&Report) -> u64);
    let others: [Outcome; 4] = [
        ("expired", |report| report.outcomes.expired),
        ("evicted", |report| report.outcomes.evicted),
        ("failed", |report| report.outcomes.failed),
        ("unfinished", |report| report.outcomes.unfinished),
    ];
    for (name, count) in others {
        if runs.iter().any(|run| count(&run.report) > 0) {
            row(name, &|report| counted(count(report), report));
        }
    }
    row("arrivals", &|report| {
        counted(report.outcomes.total(), report)
    });
    row("", &|_| String::new());
    row("wait p50", &|report| brief(report.wait.quantile(0.5)));
    row("wait p90", &|report| brief(report.wait.quantile(0.9)));
    row("wait p99", &|report| brief(report.wait.quantile(0.99)));
    row("wait max", &|report| brief(report.wait.max()));
    row("response p50", &|report| {
        brief(report.response.quantile(0.5))
    });
    row("response p99", &|report| {
        brief(report.response.quantile(0.99))
    });
    row("depth mean, max", &|report| {
        format!("{:.2}, {}", report.mean_depth, thousands(report.max_depth))
    });
    if runs.iter().any(|run| run.report.max_waiting > 0) {
        row("in line max", &|report| thousands(report.max_waiting));
    }
    row("in flight max", &|report| thousands(report.max_in_flight));
    row("goodput", &|report| format!("{:.2}/s", report.goodput()));
    row("time", &|report| brief(report.arriving));
    let again = |report: &Report| report.offers - report.outcomes.total().min(report.offers);
    if runs.iter().any(|run| again(&run.report) > 0) {
        row("offers made again", &|report| thousands(again(report)));
        row("timeouts", &|report| thousands(report.timeouts));
    }
    if runs.iter().any(|run| run.report.wasted > 0) {
        row("work for nobody", &|report| thousands(report.wasted));
    }
    let mut head = vec![String::new()];
    head.extend(runs.iter().map(|run| run.name.clone()));
    aligned(&head, &rows)
}

/// One row for each run.
pub(crate) fn sweep(runs: &[Run]) -> String {
    let head = [
        "", "served", "late", "refused", "expired", "wait p50", "wait p99", "wait max", "depth",
        "goodput",
    ];
    let head: Vec<String> = head.into_iter().map(str::to_owned).collect();
    let rows: Vec<Vec<String>> = runs
        .iter()
        .map(|Run { name, report, .. }| {
            let outcomes = &report.outcomes;
            vec![
                name.clone(),
                thousands(outcomes.served),
                thousands(outcomes.late),
                thousands(outcomes.refused()),
                thousands(outcomes.expired),
                brief(report.wait.quantile(0.5)),
                brief(report.wait.quantile(0.99)),
                brief(report.wait.max()),
                thousands(report.max_depth),
                format!("{:.2}/s", report.goodput()),
            ]
        })
        .collect();
    aligned(&head, &rows)
}

/// The first column to the left, the others to the right, a line below the head.
pub(crate) fn aligned(head: &[String], rows: &[Vec<String>]) -> String {
    let all = || std::iter::once(head).chain(rows.iter().map(Vec::as_slice));
    let widths: Vec<usize> = (0..head.len())
        .map(|column| {
            all()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for (number, row) in all().enumerate() {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = if column == 0 {
                write!(line, "{cell:<width$}")
            } else {
                write!(line, "   {cell:>width$}")
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
        if number == 0 {
            let width = widths.iter().sum::<usize>() + 3 * (widths.len() - 1);
            let _ = writeln!(text, "{}", "─".repeat(width));
        }
    }
    text
}

/// A time for people: three digits and the unit they expect.
pub(crate) fn brief(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1e3;
    match millis {
        0.0 => "0 ms".to_owned(),
        ..10.0 => format!("{millis:.2} ms"),
        ..100.0 => format!("{millis:.1} ms"),
        ..1000.0 => format!("{millis:.0} ms"),
        ..100_000.0 => format!("{:.2} s", millis / 1e3),
        ..7_200_000.0 => format!("{:.1} min", millis / 6e4),
        ..172_800_000.0 => format!("{:.1} h", millis / 3.6e6),
        _ => format!("{:.1} days", millis / 8.64e7),
    }
}

/// A count with its thousands apart.
pub(crate) fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
