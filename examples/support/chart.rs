//! What the examples print: bar charts in text, aligned tables, percentiles.
//!
//! Everything fits 80 columns and reads the same without colour; colour is added only on a terminal, and not under
//! `NO_COLOR`.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::Duration;

/// A run of equal time steps with a count each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timeline {
    step: Duration,
    counts: Vec<u64>,
}

impl Timeline {
    /// Starts an empty one.
    pub(crate) fn new(step: Duration) -> Self {
        let counts = Vec::new();
        Self { step, counts }
    }

    /// Counts one event at a time since the start.
    pub(crate) fn add(&mut self, at: Duration) {
        let index = (at.as_nanos() / self.step.as_nanos()) as usize;
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += 1;
    }

    /// Cuts or fills it so that it ends with the step before a time.
    pub(crate) fn end_at(&mut self, time: Duration) {
        let steps = time.as_nanos().div_ceil(self.step.as_nanos()) as usize;
        self.counts.resize(steps, 0);
    }

    /// Counts per step.
    pub(crate) fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Steps that one column must hold so that all fit the width.
    pub(crate) fn steps_per_column(&self) -> usize {
        self.counts.len().div_ceil(WIDTH).max(1)
    }

    /// Mean count per step in each column of so many steps.
    pub(crate) fn columns(&self, steps: usize) -> Vec<f64> {
        let mean = |chunk: &[u64]| chunk.iter().sum::<u64>() as f64 / chunk.len() as f64;
        self.counts.chunks(steps).map(mean).collect()
    }
}

/// A chart of columns `height` rows high, with the scale at its left and the seconds below.
///
/// `most` is the value at the top, given so that two charts can share a scale; `step` is the time of one column.
pub(crate) fn columns(values: &[f64], most: f64, height: usize, step: Duration) -> String {
    let most = if most > 0.0 { most } else { 1.0 };
    let mut text = String::new();
    for row in (0..height).rev() {
        let label = if row + 1 == height {
            format!("{most:.0}")
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
    text + &axis(values.len(), step)
}

/// One row of columns, for what should be rare.
pub(crate) fn strip(label: &str, values: &[f64], most: f64) -> String {
    if values.iter().all(|value| *value == 0.0) {
        return format!("{label:>MARGIN$}  none\n");
    }
    let bars: String = values
        .iter()
        .map(|value| match value {
            0.0 => '·',
            value => BLOCKS[((value / most * 8.0).round() as usize).clamp(1, 8)],
        })
        .collect();
    format!("{label:>MARGIN$}  {bars}\n")
}

fn axis(columns: usize, step: Duration) -> String {
    let columns = columns.max(1);
    let mut marks: Vec<char> = vec!['─'; columns];
    let mut labels = vec![' '; columns + 8];
    // As many labels as have room: one in every ten columns at most.
    let total = step.as_secs_f64() * columns as f64;
    let every = [
        0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 3600.0,
    ];
    let every = every
        .into_iter()
        .find(|every| every / step.as_secs_f64() >= 9.0)
        .unwrap_or(total);
    let mut at = 0.0;
    while at < total {
        let column = (at / step.as_secs_f64()).round() as usize;
        if column < columns {
            marks[column] = '┬';
            let label = if every < 1.0 {
                format!("{at:.1}s")
            } else {
                format!("{at:.0}s")
            };
            for (offset, letter) in label.chars().enumerate() {
                labels[column + offset] = letter;
            }
        }
        at += every;
    }
    let (marks, labels): (String, String) =
        (marks.into_iter().collect(), labels.into_iter().collect());
    format!(
        "{:MARGIN$} └{marks}\n{:MARGIN$}  {}\n",
        "",
        "",
        labels.trim_end()
    )
}

/// A table: the first column to the left, the others to the right, a line below the head.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = match column {
                0 => write!(line, "{cell:<width$}"),
                _ => write!(line, "   {cell:>width$}"),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
        if number == 0 {
            let _ = writeln!(
                text,
                "{}",
                "─".repeat(widths.iter().sum::<usize>() + 3 * (N - 1))
            );
        }
    }
    text
}

/// Value below which a share of the sorted values lies (nearest rank); none if there are none.
pub(crate) fn percentile(sorted: &[Duration], share: f64) -> Option<Duration> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// A duration for people: three digits and the unit they expect.
pub(crate) fn brief(duration: Duration) -> String {
    let millis = duration.as_secs_f64() * 1e3;
    match millis {
        ..10.0 => format!("{millis:.1} ms"),
        ..1000.0 => format!("{millis:.0} ms"),
        _ => format!("{:.2} s", millis / 1e3),
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

/// Colours a text for standard output: on a terminal that wants it, else not at all.
pub(crate) fn paint(text: &str, colour: Colour) -> String {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    if wanted && std::io::stdout().is_terminal() {
        format!("\x1B[{}m{text}\x1B[0m", colour as u8)
    } else {
        text.to_owned()
    }
}

/// Colours with a meaning, by their terminal codes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Colour {
    /// Something failed.
    Red = 31,
    /// All is well.
    Green = 32,
}

const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Columns of a chart: what 80 leave beside the scale.
const WIDTH: usize = 68;
/// Columns of the scale.
const MARGIN: usize = 7;
