//! A run as bars in the terminal, 80 columns wide.

use std::fmt::Write as _;

use sluicegate::sim::{Step, Timeline};

use crate::simulate::Run;
use crate::table::{brief, thousands};

pub(crate) fn run(run: &Run, named: bool) -> String {
    let timeline = run.report.timeline.columns(WIDTH);
    let steps = timeline.steps();
    let seconds = timeline.width().as_secs_f64();
    let mut text = String::from("\n");
    if named {
        let _ = writeln!(text, "{}", run.name);
    }
    let rate = |count: fn(&Step) -> u64| -> Vec<f64> {
        steps
            .iter()
            .map(|step| count(step) as f64 / seconds)
            .collect()
    };
    let (offered, started, refused) = (
        rate(|step| step.offered),
        rate(|step| step.started),
        rate(|step| step.refused),
    );
    let most = peak(&offered).max(peak(&started));
    let limit = run
        .rate
        .map_or_else(String::new, |rate| format!(", the rate is {rate}"));
    let _ = writeln!(text, "offered per second");
    text += &bars(&offered, most, 6);
    let _ = writeln!(text, "started per second{limit}");
    text += &bars(&started, most, 4);
    let _ = writeln!(text, "refused per second");
    text += &bars(
        &refused,
        peak(&refused),
        if peak(&refused) > 0.0 { 2 } else { 1 },
    );
    let depth: Vec<f64> = steps.iter().map(|step| step.depth as f64).collect();
    let _ = writeln!(text, "depth, the greatest in each column");
    text += &bars(&depth, peak(&depth), 5);
    let waiting: Vec<f64> = steps.iter().map(|step| step.waiting as f64).collect();
    if peak(&waiting) > 0.0 {
        let _ = writeln!(text, "in line at the door, the most in each column");
        text += &bars(&waiting, peak(&waiting), 4);
    }
    text += &axis(&timeline);
    text
}

fn peak(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

fn bars(values: &[f64], most: f64, height: usize) -> String {
    let most = if most > 0.0 { most } else { 1.0 };
    let mut text = String::new();
    for row in (0..height).rev() {
        let label = if row + 1 == height {
            number(most)
        } else if row == 0 {
            "0".to_owned()
        } else {
            String::new()
        };
        let bars: String = values
            .iter()
            .map(|value| {
                let eighths = (value / most * (height * 8) as f64).round() as usize;
                // What is not zero shows, however small.
                let eighths = if *value > 0.0 { eighths.max(1) } else { 0 };
                BLOCKS[eighths.saturating_sub(row * 8).min(8)]
            })
            .collect();
        let _ = writeln!(text, "{label:>MARGIN$} ┤{}", bars.trim_end());
    }
    text
}

fn number(value: f64) -> String {
    if value < 100.0 && value.fract() > 0.0 {
        format!("{value:.2}")
    } else {
        thousands(value.round() as u64)
    }
}

fn axis(timeline: &Timeline) -> String {
    let columns = timeline.steps().len().max(1);
    let mut marks = String::new();
    let mut labels = String::new();
    for column in 0..columns {
        let marked = column % EVERY == 0;
        marks.push(if marked { '┬' } else { '─' });
        if marked {
            let width = u32::try_from(column).unwrap_or(u32::MAX);
            let label = brief(timeline.width() * width);
            let _ = write!(labels, "{label:<EVERY$}");
        }
    }
    format!(
        "{:MARGIN$} └{marks}\n{:MARGIN$}  {}\n",
        "",
        "",
        labels.trim_end()
    )
}

const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Columns of a chart: what 80 leave beside the scale.
const WIDTH: usize = 68;
/// Columns of the scale.
const MARGIN: usize = 7;
/// Columns from label to label.
const EVERY: usize = 17;
