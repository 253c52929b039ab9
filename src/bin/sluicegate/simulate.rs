//! `sluicegate simulate`: what a configuration does to arrivals.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;
use sluicegate::Rate;
use sluicegate::config::Config;
use sluicegate::sim::{Callers, Downstream, Form, Latency, Outage, Report, Return, Simulation};

use crate::arrivals::{Broken, Source};
use crate::check::load;
use crate::output::write_whole;
use crate::values::{Sweep, Swept, knee, span, sweep};
use crate::{chart, fleet, json as output, svg, table};

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// A second configuration, to be run over the same arrivals and shown beside the first
    #[arg(long, value_name = "FILE", conflicts_with = "sweep")]
    compare: Option<PathBuf>,
    /// One run for each value, like "rate=100..500:50" or "max_depth=50..200:10"
    #[arg(long, value_name = "VALUES", value_parser = sweep)]
    sweep: Option<Sweep>,
    #[command(flatten)]
    source: Source,
    /// How callers offer
    #[arg(long, value_name = "FORM", default_value = "try")]
    callers: Offering,
    /// How long a caller waits for the end of its job
    #[arg(long, value_name = "SPAN", value_parser = span)]
    patience: Option<Duration>,
    /// How often a caller comes back after a refusal or a timeout
    #[arg(long, value_name = "N", default_value_t = 0)]
    retries: u32,
    /// Callers come back after so long, instead of when they are told to
    #[arg(long, value_name = "SPAN", value_parser = span)]
    retry_after: Option<Duration>,
    /// Time that a job takes downstream: "fixed 20ms" or "exponential 20ms"
    #[arg(long, value_name = "LATENCY", conflicts_with = "latencies")]
    latency: Option<Latency>,
    /// Measured times, one a line: "12ms", or a number of milliseconds
    #[arg(long, value_name = "FILE")]
    latencies: Option<PathBuf>,
    /// Above so many jobs at once the downstream slows down by this power of their number, like "50,1"
    #[arg(long, value_name = "JOBS,POWER", value_parser = knee)]
    degrade: Option<(u64, f64)>,
    /// A time in which the downstream is away: "30s for 10s", or "30s for 10s failing"
    #[arg(long, value_name = "WHEN")]
    outage: Vec<Outage>,
    /// Jobs worked on at once; default: as many as the queue hands out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    consumers: Option<u64>,
    /// Nodes that share the limits of the edge by leases
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    nodes: Option<u64>,
    /// Units of one lease; default: what keeps the error small
    #[arg(long, value_name = "UNITS", requires = "nodes", value_parser = clap::value_parser!(u64).range(1..))]
    lease: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a chart
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print the table only
    #[arg(long)]
    no_chart: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Offering {
    /// Now or not at all
    Try,
    /// In line at the door
    Wait,
}

/// One run and what it is called.
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) report: Report,
    pub(crate) rate: Option<Rate>,
}

pub(crate) fn run(options: &Options) -> Result<String, String> {
    let plans = plans(options)?;
    // Before the work, so that a long run is not lost to a wrong path.
    if let Some(path) = &options.svg {
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        if path.is_dir() || parent.is_some_and(|parent| !parent.is_dir()) {
            return Err(format!(
                "{} cannot be written: no such folder, or it is one",
                path.display()
            ));
        }
    }
    let downstream = downstream(options)?;
    let mut told = String::new();
    let mut runs = Vec::new();
    for (name, config) in plans {
        let mut arrivals = options.source.open()?;
        let wrong = |error: sluicegate::BuildError| format!("{name}: {error}");
        let mut simulation = Simulation::of(&config)
            .map_err(wrong)?
            .callers(callers(options))
            .downstream(downstream.clone())
            .consumers(options.consumers.unwrap_or(u64::MAX))
            .seed(options.source.seed);
        if let Some(rate) = config.rate().filter(|_| !config.calendar().is_empty()) {
            let changes = config.calendar().changes(rate, arrivals.began(), LONGEST);
            simulation = simulation.rates(changes).map_err(wrong)?;
        }
        let report = simulation.run(&mut arrivals);
        let report = report.map_err(|Broken(message)| message)?;
        told = arrivals.told(options.source.seed);
        if config.levels().iter().any(|level| level.per_key) && !options.source.has_key() {
            told.push_str("note: a level counts by key, and the arrivals have none (--key COLUMN): it lets them pass\n");
        }
        runs.push(Run {
            name,
            report,
            rate: config.rate(),
        });
    }
    let shares = match options.nodes {
        Some(nodes) => fleet::run(
            nodes,
            options.lease,
            &load(&options.config)?,
            &options.source,
        )?,
        None => Vec::new(),
    };
    if let Some(path) = &options.svg {
        write_whole(path, &svg::page(&runs))?;
    }
    if options.json {
        let runs: Vec<_> = runs.iter().map(output::run).collect();
        let shares: Vec<_> = shares.iter().map(output::shares).collect();
        let all = json!({ "seed": options.source.seed, "runs": runs, "fleet": shares });
        return Ok(format!("{all:#}\n"));
    }
    let mut text = told + "\n";
    if options.sweep.is_some() {
        text += &table::sweep(&runs);
    } else {
        text += &table::runs(&runs);
    }
    if !shares.is_empty() {
        text += &fleet::table(&shares);
    }
    if !options.no_chart && options.sweep.is_none() {
        for run in &runs {
            text += &chart::run(run, runs.len() > 1);
        }
    }
    Ok(text)
}

/// The configurations to run, and what they are called.
fn plans(options: &Options) -> Result<Vec<(String, Config)>, String> {
    let name = |path: &Path| {
        path.file_stem()
            .map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
    };
    let config = load(&options.config)?;
    if let Some(Sweep { what, values }) = &options.sweep {
        let changed = values.iter().map(|&value| {
            let (name, config) = match what {
                Swept::Rate => {
                    let rate = Rate::per_second(value);
                    (rate.to_string(), config.with_rate(rate))
                }
                Swept::MaxDepth => (value.to_string(), config.with_max_depth(value)),
            };
            let config = config.map_err(|error| format!("{name}: {error}"))?;
            Ok((name, config))
        });
        return changed.collect();
    }
    let mut plans = vec![(name(&options.config), config)];
    if let Some(other) = &options.compare {
        let mut second = name(other);
        if second == plans[0].0 {
            second.push_str(" (2)");
        }
        plans.push((second, load(other)?));
    }
    Ok(plans)
}

fn callers(options: &Options) -> Callers {
    let mut callers = Callers::new(match options.callers {
        Offering::Try => Form::Try,
        Offering::Wait => Form::Wait,
    });
    if let Some(patience) = options.patience {
        callers = callers.patience(patience);
    }
    let comes_back = options.retry_after.map_or(Return::Told, Return::After);
    callers.retries(options.retries).comes_back(comes_back)
}

fn downstream(options: &Options) -> Result<Downstream, String> {
    let latency = match (&options.latency, &options.latencies) {
        (Some(latency), _) => latency.clone(),
        (None, Some(path)) => Latency::Measured(measured(path)?),
        (None, None) => Latency::Fixed(Duration::ZERO),
    };
    let mut downstream = Downstream::new(latency);
    if let Some((knee, power)) = options.degrade {
        downstream = downstream.degrading(knee, power);
    }
    for outage in &options.outage {
        downstream = downstream.outage(*outage);
    }
    Ok(downstream)
}

fn measured(path: &Path) -> Result<Vec<Duration>, String> {
    let name = path.display();
    let size = fs::metadata(path).map_or(0, |meta| meta.len());
    if size > MOST_MEASURED {
        return Err(format!(
            "{name} is longer than {MOST_MEASURED} bytes; a sample of it is enough"
        ));
    }
    let text =
        fs::read_to_string(path).map_err(|error| format!("{name} cannot be read: {error}"))?;
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let times = lines.map(|(index, line)| {
        let number = line
            .trim()
            .parse::<f64>()
            .ok()
            .filter(|millis| *millis >= 0.0);
        let millis = number.and_then(|millis| Duration::try_from_secs_f64(millis / 1e3).ok());
        let wrong = |expected| {
            format!(
                "{name}, line {}: {expected}, or a number of milliseconds",
                index + 1
            )
        };
        millis.map_or_else(|| span(line.trim()).map_err(wrong), Ok)
    });
    let times: Vec<_> = times.collect::<Result<_, _>>()?;
    if times.is_empty() {
        return Err(format!("{name} is empty: it holds no times"));
    }
    Ok(times)
}

/// Two months: a calendar repeats itself after a week.
const LONGEST: Duration = Duration::from_secs(62 * 86_400);
const MOST_MEASURED: u64 = 64 << 20;
