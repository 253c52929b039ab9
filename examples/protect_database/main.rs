//! A burst that kills a database, and the queue that saves it.
//!
//! 64 producers offer 2,000 writes within 2 s to an embedded SQLite file that takes about 400 in a second: first each
//! for itself, then through a gate and a queue that lets 100 out in a second and four be in flight. Look at the first
//! run, in which the database fails by itself ("database is locked"), and at the second, in which every job is
//! committed, some later than they came.
//!
//! ```sh
//! cargo run --release --example protect_database -- --help
//! ```

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use chart::{brief, thousands};
use database::Database;
use measure::Measure;
use options::{HELP, Options};
use plan::Plan;
use progress::Progress;
use report::{Report, Run};
use stage::Stage;

mod account;
#[path = "../support/chart.rs"]
#[allow(dead_code, reason = "shared with an example that shows more")]
mod chart;
mod database;
mod direct;
mod held;
mod measure;
mod metrics;
mod options;
mod plan;
mod progress;
mod queued;
mod report;
mod stage;
#[path = "../support/trace.rs"]
#[allow(dead_code, reason = "costs are for other readers of traces")]
mod trace;

/// Why it ends early.
enum Stop {
    /// The call asks for what cannot be.
    Usage(String),
    /// Something broke.
    Broken(String),
    /// Ctrl-C; everything has been said.
    Interrupted,
}

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args_os().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => return say(HELP),
        Err(message) => {
            eprintln!("protect_database: {message}\nTry --help.");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(perform(&options)),
        Err(error) => Err(Stop::Broken(format!("cannot start the runtime: {error}"))),
    };
    match ended {
        Ok(text) => say(&text),
        Err(Stop::Interrupted) => ExitCode::from(130),
        Err(Stop::Usage(message)) => {
            eprintln!("protect_database: {message}");
            ExitCode::from(2)
        }
        Err(Stop::Broken(message)) => {
            eprintln!("protect_database: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs both halves; what is to be printed at the end.
async fn perform(options: &Options) -> Result<String, Stop> {
    let brief_run = std::env::var_os("SLUICEGATE_BRIEF").is_some_and(|value| value == "1");
    let plan = plan(options, brief_run).map_err(Stop::Usage)?;
    let serving = options.metrics.map(metrics::serve).transpose();
    let _until_the_end = serving.map_err(Stop::Usage)?;
    let stage = Stage::create(options.keep).map_err(Stop::Broken)?;
    if stage.is_kept() {
        eprintln!("the database files are in {}", stage.folder().display());
    }
    let stop = CancellationToken::new();
    stop_on_ctrl_c(
        stop.clone(),
        (!options.keep).then(|| stage.folder().to_owned()),
    );

    let rehearsal = stage.rehearse().map_err(Stop::Broken)?;
    let rate_set = options.rate.unwrap_or_else(|| rehearsal.rate());
    plan.notices.iter().for_each(|notice| eprintln!("{notice}"));
    if !options.json {
        println!("{}, from {} producers", plan.title, options.producers);
        println!(
            "one writer alone: {} a write, {:.0}/s; leaving the queue: {rate_set}/s, {} at once\n",
            brief(rehearsal.alone),
            1.0 / rehearsal.alone.as_secs_f64(),
            queued::MAX_IN_FLIGHT,
        );
    }
    let arrivals: Arc<[Duration]> = plan.arrivals.into();
    let jobs = arrivals.len() as u64;
    let database = |name: &str| {
        let database = stage.database(name, CONNECTIONS, rehearsal.history);
        database.map_err(Stop::Broken)
    };

    let fragile = database("direct.db")?;
    let measure = Arc::new(Measure::start());
    let progress = Progress::show("directly", jobs, &measure);
    direct::run(&fragile, &arrivals, options.producers, &measure, &stop).await;
    drop(progress);
    let direct = conclude(&fragile, &measure)?;
    if stop.is_cancelled() {
        interrupted("direct", &direct, jobs, None);
        return Err(Stop::Interrupted);
    }

    let guarded = database("queued.db")?;
    let measure = Arc::new(Measure::start());
    let progress = Progress::show("through the queue", jobs, &measure);
    let run = queued::run(
        &guarded,
        &arrivals,
        options.producers,
        rate_set,
        &measure,
        &stop,
    )
    .await;
    drop(progress);
    let (account, leftover) = run.map_err(|error| Stop::Broken(error.to_string()))?;
    let queued = conclude(&guarded, &measure)?;
    if let Some(leftover) = leftover {
        interrupted("queued", &queued, jobs, Some(leftover));
        return Err(Stop::Interrupted);
    }

    let report = Report {
        direct,
        queued,
        account,
    };
    let text = if options.json {
        report.json() + "\n"
    } else {
        report.text()
    };
    let broken = report.broken();
    if broken.is_empty() {
        return Ok(text);
    }
    say(&text);
    Err(Stop::Broken(broken.join("\n")))
}

fn plan(options: &Options, brief_run: bool) -> Result<Plan, String> {
    match &options.trace {
        Some(path) => Plan::trace(path, options.speedup),
        None if brief_run => Ok(Plan::burst(options.burst.min(BRIEF_JOBS), BRIEF_SPAN)),
        None => Ok(Plan::burst(options.burst, SPAN)),
    }
}

fn conclude(database: &Database, measure: &Measure) -> Result<Run, Stop> {
    let stored = database
        .totals()
        .map_err(|error| Stop::Broken(format!("cannot read the totals: {error}")))?;
    Ok(Run {
        counts: measure.counts(),
        stored,
        max_writers: database.most_writing(),
    })
}

fn interrupted(name: &str, run: &Run, jobs: u64, leftover: Option<queued::Leftover>) {
    let counts = &run.counts;
    eprintln!(
        "interrupted in the {name} run: {} of {} jobs offered, {} committed, {} failed",
        thousands(counts.offered),
        thousands(jobs),
        thousands(counts.acknowledged.rows),
        thousands(counts.failed),
    );
    if let Some(leftover) = leftover {
        eprintln!(
            "drained: {} more settled, {} returned by the queue, {} kept by producers that had been refused",
            leftover.settled, leftover.returned, leftover.kept,
        );
    }
    let equal = if run.stored == counts.acknowledged {
        "as many as"
    } else {
        "NOT what"
    };
    eprintln!(
        "{} rows in the file, {equal} was acknowledged",
        thousands(run.stored.rows)
    );
}

/// The first Ctrl-C lets everything end in order; the second does not wait for it.
fn stop_on_ctrl_c(stop: CancellationToken, folder: Option<std::path::PathBuf>) {
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_err() {
            return;
        }
        stop.cancel();
        if tokio::signal::ctrl_c().await.is_ok() {
            folder.map(std::fs::remove_dir_all);
            std::process::exit(130);
        }
    });
}

/// Prints to standard output; a reader that has gone away is no failure.
fn say(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("protect_database: cannot print: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Connections of the pool, in both runs: as many writers at once as a usual pool of a usual service.
const CONNECTIONS: usize = 64;
/// Time in which a burst is offered.
const SPAN: Duration = Duration::from_secs(2);
const BRIEF_JOBS: u64 = 500;
const BRIEF_SPAN: Duration = Duration::from_millis(500);
