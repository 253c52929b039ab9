//! A rate that follows a database whose strength changes.
//!
//! The database does 200 writes a second in 10 ms each. At 30 s a vacuum begins and it can do 80, until 70 s. Whatever
//! comes faster than it can do makes every write slower, and beyond a second a write fails. At a fixed rate of 180 the
//! writes of the bad time nearly all fail. A rate that follows run times is cut within seconds to what the database
//! bears, wins it back when the vacuum is over, and never leaves the band it was given.
//!
//! Look at the rate over time, and at the failures. Time is virtual, and every run prints the same.
//!
//! ```sh
//! cargo run --release --example adaptive
//! ```

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate::Rate;
use sluicegate::queue::{Aimd, Builder};
use tokio::time::{Instant, sleep, sleep_until};

use chart::{Colour, Timeline, brief, columns, paint, percentile, strip, table, thousands};

#[path = "support/chart.rs"]
#[allow(dead_code, reason = "shared with an example that shows more")]
mod chart;

/// A database that works off one write after the other; waiting for it is part of the run time.
struct Database {
    start: Instant,
    free_at: Mutex<Instant>,
}

impl Database {
    async fn write(&self) -> Result<(), &'static str> {
        let done = {
            let mut free_at = self.free_at.lock().expect("no holder panics");
            let now = Instant::now();
            let begins = now.max(*free_at);
            if begins > now + PATIENCE {
                None
            } else {
                let vacuum = (VACUUM_FROM..VACUUM_TO).contains(&(begins - self.start));
                *free_at = begins + SECOND / if vacuum { WEAK } else { STRONG };
                Some(*free_at)
            }
        };
        let Some(done) = done else {
            sleep(PATIENCE).await;
            return Err("timed out");
        };
        sleep_until(done + Duration::from_millis(5)).await;
        Ok(())
    }
}

/// What came of one run.
struct Played {
    done: Timeline,
    failed: Timeline,
    run_times: Vec<Duration>,
    /// Rate at the end of each second.
    rates: Vec<f64>,
    changes: u64,
}

async fn play(follow: Option<Aimd>, run: Duration) -> Result<Played, Box<dyn std::error::Error>> {
    let (tx, rx) = Builder::new(Rate::per_second(RATE)).build()?;
    let control = tx.control();
    if let Some(follow) = follow {
        control.adapt(follow)?;
    }
    let start = Instant::now();
    // Producers that can wait: the queue never runs dry.
    tokio::spawn(async move { while start.elapsed() < run && tx.send(()).await.is_ok() {} });
    let database = Arc::new(Database {
        start,
        free_at: Mutex::new(start),
    });
    let played = Arc::new(Mutex::new(Played {
        done: Timeline::new(SECOND),
        failed: Timeline::new(SECOND),
        run_times: Vec::new(),
        rates: Vec::new(),
        changes: 0,
    }));
    let mut second = 1;
    while let Ok(Some(job)) = tokio::time::timeout_at(start + run, rx.recv()).await {
        while start.elapsed() >= SECOND * second {
            let rate = control.snapshot().rate.expect("it is paced");
            let rate = rate.count() as f64 / rate.period().as_secs_f64();
            played.lock().expect("no holder panics").rates.push(rate);
            second += 1;
        }
        let (database, played) = (Arc::clone(&database), Arc::clone(&played));
        tokio::spawn(async move {
            let began = Instant::now();
            let result = database.write().await;
            let mut played = played.lock().expect("no holder panics");
            played.run_times.push(began.elapsed());
            match result {
                Ok(()) => {
                    played.done.add(start.elapsed());
                    job.ack();
                }
                Err(error) => {
                    played.failed.add(start.elapsed());
                    job.fail_because(error);
                }
            }
        });
    }
    rx.drain(SECOND).await;
    sleep(SECOND * 3).await;
    let played = Arc::into_inner(played).expect("all writes have ended");
    let mut played = played.into_inner().expect("no holder panics");
    played.changes = control.rate_changes();
    played.run_times.sort();
    played.done.end_at(run);
    played.failed.end_at(run);
    Ok(played)
}

impl Played {
    fn sum(timeline: &Timeline) -> u64 {
        timeline.counts().iter().sum()
    }

    fn chart(&self) -> String {
        let steps = self.done.steps_per_column();
        let mean = |chunk: &[f64]| chunk.iter().sum::<f64>() / chunk.len() as f64;
        let rates: Vec<f64> = self.rates.chunks(steps).map(mean).collect();
        columns(&rates, STRONG.into(), 5, SECOND * steps as u32)
            + &strip("failed", &self.failed.columns(steps), STRONG.into())
    }
}

fn report(fixed: &Played, followed: &Played) -> String {
    let mut rows = vec![["", "fixed rate", "following"].map(str::to_owned)];
    let mut row = |name: &str, value: &dyn Fn(&Played) -> String| {
        rows.push([name.to_owned(), value(fixed), value(followed)]);
    };
    row("written", &|side| thousands(Played::sum(&side.done)));
    row("failed", &|side| thousands(Played::sum(&side.failed)));
    for (name, share) in [("median run time", 0.5), ("p90 run time", 0.9)] {
        row(name, &|side| {
            percentile(&side.run_times, share).map_or("-".into(), brief)
        });
    }
    row("changes of the rate", &|side| side.changes.to_string());
    table(&rows)
}

fn perform(run: Duration) -> Result<[Played; 2], Box<dyn std::error::Error>> {
    let virtual_time = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
    };
    let fixed = virtual_time()?.block_on(play(None, run))?;
    let follow = Aimd {
        target_run_time: Some(Duration::from_millis(60)),
        ..Aimd::between(Rate::per_second(FLOOR), Rate::per_second(RATE))
    };
    let followed = virtual_time()?.block_on(play(Some(follow), run))?;
    Ok([fixed, followed])
}

fn main() -> ExitCode {
    // The brief run is the whole run: its minutes are virtual.
    let run = SECOND * 120;
    let [fixed, followed] = match perform(run) {
        Ok(played) => played,
        Err(error) => {
            eprintln!("adaptive: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!(
        "a database of {STRONG} writes/s, and of {WEAK} from {} s to {} s; the rate may be {FLOOR} to {RATE}\n",
        VACUUM_FROM.as_secs(),
        VACUUM_TO.as_secs()
    );
    println!(
        "{}",
        paint("fixed rate, and below it what failed", Colour::Red)
    );
    println!("{}", fixed.chart());
    println!(
        "{}",
        paint("rate that follows, and below it what failed", Colour::Green)
    );
    println!("{}", followed.chart());
    print!("{}", report(&fixed, &followed));
    let back = followed
        .rates
        .iter()
        .skip(VACUUM_TO.as_secs() as usize + 40);
    let made = Played::sum(&followed.failed) * 10 < Played::sum(&fixed.failed)
        && followed
            .rates
            .iter()
            .all(|rate| *rate >= FLOOR as f64 - 1e-6)
        && back.clone().count() > 0
        && back.into_iter().all(|rate| *rate >= 0.9 * RATE as f64);
    if made {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

const SECOND: Duration = Duration::from_secs(1);
/// Writes that the database does in a second, at its best and during the vacuum.
const STRONG: u32 = 200;
const WEAK: u32 = 80;
const VACUUM_FROM: Duration = Duration::from_secs(30);
const VACUUM_TO: Duration = Duration::from_secs(70);
/// Longest line in front of the database, in time; whoever comes later fails.
const PATIENCE: Duration = SECOND;
const RATE: u64 = 180;
const FLOOR: u64 = 40;
