//! A run as a picture: what came, what left, what was refused, and the depth, over time.

use std::fmt::Write as _;

use sluicegate::sim::{Step, Timeline};

use crate::simulate::Run;
use crate::table::{brief, thousands};

struct Panel {
    title: &'static str,
    height: f64,
    curves: &'static [Curve],
}

struct Curve {
    name: &'static str,
    colour: &'static str,
    is_filled: bool,
    /// Value of a step that takes so many seconds.
    value: fn(&Step, f64) -> f64,
}

/// One chart for each run, below each other, on the same scales.
pub(crate) fn page(runs: &[Run]) -> String {
    let timelines: Vec<Timeline> = (runs.iter())
        .map(|run| run.report.timeline.columns(COLUMNS))
        .collect();
    let each = PANELS.iter().map(|panel| panel.height + GAP).sum::<f64>() + HEAD + FOOT;
    let (width, height) = (LEFT + PLOT + RIGHT, each * runs.len() as f64);
    let mut text = String::new();
    let _ = writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
    );
    for (index, (run, timeline)) in runs.iter().zip(&timelines).enumerate() {
        let mut top = each * index as f64 + HEAD;
        let _ = writeln!(
            text,
            "<text x=\"{LEFT}\" y=\"{}\" font-size=\"15\" font-weight=\"600\">{}</text>",
            top - 22.0,
            escaped(&format!(
                "{}: {} arrivals in {}",
                run.name,
                thousands(run.report.outcomes.total()),
                brief(run.report.arriving)
            ))
        );
        for panel in &PANELS {
            let most = timelines.iter().map(|timeline| peak(panel, timeline));
            draw(&mut text, panel, timeline, most.fold(0.0, f64::max), top);
            top += panel.height + GAP;
        }
        axis(&mut text, timeline, top - GAP + 16.0);
    }
    text.push_str("</svg>\n");
    text
}

fn peak(panel: &Panel, timeline: &Timeline) -> f64 {
    let seconds = timeline.width().as_secs_f64();
    let values = timeline.steps().iter().flat_map(|step| {
        let lines = panel.curves.iter();
        lines.map(move |curve| (curve.value)(step, seconds))
    });
    values.fold(0.0, f64::max)
}

fn draw(text: &mut String, panel: &Panel, timeline: &Timeline, most: f64, top: f64) {
    let bottom = top + panel.height;
    let most = if most > 0.0 { most } else { 1.0 };
    let number = if most < 10.0 {
        format!("{most:.2}")
    } else {
        thousands(most.round() as u64)
    };
    let _ = writeln!(
        text,
        "<path d=\"M{LEFT} {top}h{PLOT}M{LEFT} {bottom}h{PLOT}\" stroke=\"#ddd\" fill=\"none\"/>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#666\">{number}</text>\n\
         <text x=\"{}\" y=\"{bottom}\" text-anchor=\"end\" fill=\"#666\">0</text>\n\
         <text x=\"{LEFT}\" y=\"{}\" fill=\"#333\">{}</text>",
        LEFT - 6.0,
        top + 10.0,
        LEFT - 6.0,
        top - 6.0,
        panel.title
    );
    let seconds = timeline.width().as_secs_f64();
    let steps = timeline.steps();
    let step = PLOT / steps.len().max(1) as f64;
    let mut legend = LEFT + PLOT;
    for curve in panel.curves {
        let Curve { name, colour, .. } = curve;
        let mut path = format!("M{LEFT} {bottom}");
        for (index, at) in steps.iter().enumerate() {
            let y = bottom - (curve.value)(at, seconds) / most * panel.height;
            let _ = write!(path, "V{y:.1}H{:.1}", LEFT + step * (index + 1) as f64);
        }
        let _ = write!(path, "V{bottom}");
        let paint = if curve.is_filled {
            format!("fill=\"{colour}\" fill-opacity=\"0.35\"")
        } else {
            format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.2\"")
        };
        let _ = writeln!(text, "<path d=\"{path}\" {paint}/>");
        if panel.curves.len() > 1 {
            let _ = writeln!(
                text,
                "<text x=\"{legend}\" y=\"{}\" text-anchor=\"end\" fill=\"{colour}\" font-weight=\"600\">{name}</text>",
                top - 6.0
            );
            legend -= 16.0 + 7.2 * name.len() as f64;
        }
    }
}

fn axis(text: &mut String, timeline: &Timeline, y: f64) {
    let total = timeline.width().as_secs_f64() * timeline.steps().len() as f64;
    for mark in 0..=MARKS {
        let share = f64::from(mark) / f64::from(MARKS);
        let label =
            brief(std::time::Duration::try_from_secs_f64(total * share).unwrap_or_default());
        let x = LEFT + PLOT * share;
        let _ = writeln!(
            text,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#666\">{label}</text>"
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

const PANELS: [Panel; 3] = [
    Panel {
        title: "per second",
        height: 200.0,
        curves: &[
            Curve {
                name: "offered",
                colour: "#7a8ba6",
                is_filled: true,
                value: |step, seconds| step.offered as f64 / seconds,
            },
            Curve {
                name: "started",
                colour: "#0b6e4f",
                is_filled: false,
                value: |step, seconds| step.started as f64 / seconds,
            },
            Curve {
                name: "refused",
                colour: "#c0392b",
                is_filled: false,
                value: |step, seconds| step.refused as f64 / seconds,
            },
        ],
    },
    Panel {
        title: "jobs",
        height: 120.0,
        curves: &[
            Curve {
                name: "queued",
                colour: "#8e5ea2",
                is_filled: true,
                value: |step, _| step.depth as f64,
            },
            Curve {
                name: "in line",
                colour: "#2471a3",
                is_filled: false,
                value: |step, _| step.waiting as f64,
            },
        ],
    },
    Panel {
        title: "in flight",
        height: 70.0,
        curves: &[Curve {
            name: "in flight",
            colour: "#d68910",
            is_filled: true,
            value: |step, _| step.in_flight as f64,
        }],
    },
];
const COLUMNS: usize = 512;
const PLOT: f64 = 860.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 40.0;
const HEAD: f64 = 56.0;
const FOOT: f64 = 24.0;
const GAP: f64 = 34.0;
const MARKS: u32 = 6;
