//! `sluicegate size`: which numbers to set.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use sluicegate::Rate;
use sluicegate::sim::{Size, Sizing};

use crate::arrivals::{Broken, Source};
use crate::values::{edge, rate, span};

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Rate at which jobs leave
    #[arg(long, value_parser = rate)]
    rate: Rate,
    /// Time within which a job must end
    #[arg(long, value_name = "SPAN", value_parser = span)]
    deadline: Duration,
    /// Of which the downstream takes this long (its p99)
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "0ms")]
    downstream_p99: Duration,
    /// Mean rate of independent arrivals
    #[arg(long, value_name = "RATE", value_parser = rate, conflicts_with_all = ["edge", "trace", "generate"])]
    offered: Option<Rate>,
    /// Rate and burst of the edge before the queue, like "180/s,50"
    #[arg(long, value_name = "RATE,BURST", value_parser = edge, conflicts_with_all = ["trace", "generate"])]
    edge: Option<(Rate, u64)>,
    /// Keep this depth instead of the one that follows from the deadline
    #[arg(long, value_name = "COST", value_parser = clap::value_parser!(u64).range(1..))]
    max_depth: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    source: Source,
}

pub(crate) fn run(options: &Options) -> Result<String, String> {
    let mut sizing = Sizing::new(options.rate, options.deadline, options.downstream_p99);
    if let Some(depth) = options.max_depth {
        sizing = sizing.max_depth(depth);
    }
    let mut told = String::new();
    let size = match (options.offered, options.edge) {
        (Some(offered), _) => sizing.offered(offered),
        (None, Some((rate, burst))) => sizing.edge(rate, burst),
        (None, None) if options.source.trace.is_none() && options.source.generate.is_none() => {
            return Err("what is offered? --offered RATE, --edge RATE,BURST, --trace FILE or --generate PATTERN is needed".into());
        }
        (None, None) => {
            let mut arrivals = options.source.open()?;
            let size = sizing.trace(&mut arrivals);
            told = arrivals.told(options.source.seed);
            size.map_err(|Broken(message)| message)?
        }
    };
    Ok(if options.json {
        format!("{:#}\n", as_json(&size))
    } else {
        table(options, &told, &size)
    })
}

fn table(options: &Options, told: &str, size: &Size) -> String {
    let mut text = told.to_owned();
    let _ = writeln!(
        text,
        "rate {}, deadline {:?}, downstream p99 {:?}\n",
        options.rate, options.deadline, options.downstream_p99
    );
    let _ = write!(text, "{size}");
    text
}

fn as_json(size: &Size) -> serde_json::Value {
    let lines: Vec<_> = (size.lines.iter())
        .map(|line| json!({ "name": line.name, "value": line.value, "because": line.because }))
        .collect();
    json!({
        "max_depth": size.max_depth,
        "watermarks": [size.low, size.high],
        "catch_up": size.catch_up,
        "mean_wait_s": size.mean_wait.as_secs_f64(),
        "p50_wait_s": size.p50_wait.as_secs_f64(),
        "p99_wait_s": size.p99_wait.as_secs_f64(),
        "refused": size.refused,
        "lines": lines,
        "warnings": size.warnings,
    })
}
