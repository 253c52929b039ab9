//! Rows that go into a database one by one, and a hundred times as many in the same number of statements.
//!
//! A database takes 200 statements in a second, whatever is in them. Behind a queue of that rate, one side inserts row
//! by row, on a thread that blocks. The other takes up to 100 queued jobs as **one** departure and inserts them in one
//! statement; where there are fewer it waits up to 20 ms for more. Producers of both are slowed down to what leaves.
//!
//! Look at the statements, which are the same, and at the rows, which are not. It runs in real time, for 2 s a side
//! (`SLUICEGATE_BRIEF=1`: half a second), on an SQLite file in the folder for temporary files.
//!
//! ```sh
//! cargo run --release --example batched_inserts
//! ```

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params_from_iter};
use sluicegate::Rate;
use sluicegate::queue::{Builder, Job, Receiver, Sender};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use chart::{brief, percentile, table, thousands};

#[path = "support/chart.rs"]
#[allow(dead_code, reason = "shared with an example that shows more")]
mod chart;

/// One reading of one sensor.
struct Reading {
    sensor: u32,
    value: f64,
}

/// What a side came to.
#[derive(Default)]
struct Side {
    statements: u64,
    rows: u64,
    waits: Vec<Duration>,
    took: Duration,
}

/// An SQLite file that is gone when this is dropped.
struct Database(PathBuf);

impl Database {
    fn create(name: &str) -> Result<(Self, Connection), rusqlite::Error> {
        let file = format!("sluicegate-{name}-{}.db", std::process::id());
        let database = Self(std::env::temp_dir().join(file));
        let connection = Connection::open(&database.0)?;
        connection.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
             CREATE TABLE readings (sensor INTEGER NOT NULL, value REAL NOT NULL);",
        )?;
        Ok((database, connection))
    }

    fn rows(&self) -> Result<u64, rusqlite::Error> {
        let count = "SELECT count(*) FROM readings";
        let rows: i64 = Connection::open(&self.0)?.query_row(count, [], |row| row.get(0))?;
        Ok(rows.unsigned_abs())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        for end in ["", "-wal", "-shm"] {
            let path = format!("{}{end}", self.0.display());
            // Not there, or not ours to remove: nothing else can be done.
            let _ = std::fs::remove_file(Path::new(&path));
        }
    }
}

/// Inserts all rows in one statement.
fn insert(database: &Connection, rows: &[Job<Reading>]) -> Result<(), rusqlite::Error> {
    let values = vec!["(?, ?)"; rows.len()].join(", ");
    let sql = format!("INSERT INTO readings (sensor, value) VALUES {values}");
    let cells = rows
        .iter()
        .flat_map(|row| [f64::from(row.sensor), row.value]);
    let rows_in = database
        .prepare_cached(&sql)?
        .execute(params_from_iter(cells))?;
    debug_assert_eq!(rows_in, rows.len());
    Ok(())
}

/// Consumes on a thread that blocks, with `next` to take the jobs of one statement, until the time is up.
fn consume(
    database: &Connection,
    run: Duration,
    mut next: impl FnMut() -> Vec<Job<Reading>>,
) -> Result<Side, rusqlite::Error> {
    let (start, mut side) = (Instant::now(), Side::default());
    while start.elapsed() < run {
        let jobs = next();
        if jobs.is_empty() {
            break;
        }
        if let Err(error) = insert(database, &jobs) {
            // They are not lost: each goes back, and leaves again later.
            jobs.into_iter().for_each(|job| job.retry(RETRY));
            return Err(error);
        }
        side.statements += 1;
        side.rows += jobs.len() as u64;
        side.waits.extend(jobs.iter().map(Job::waited));
        jobs.into_iter().for_each(Job::ack);
    }
    side.took = start.elapsed();
    Ok(side)
}

/// Producers as fast as the queue lets them be, until it closes.
fn produce(tx: &Sender<Reading>) {
    for sensor in 0..SENSORS {
        let tx = tx.clone();
        tokio::spawn(async move {
            let mut value = 20.0;
            while tx.send(Reading { sensor, value }).await.is_ok() {
                value += 0.01;
            }
        });
    }
}

/// Runs one side and checks its rows against the table.
async fn play<F>(name: &str, run: Duration, taking: F) -> Result<Side, Box<dyn Error>>
where
    F: FnOnce(&Receiver<Reading>) -> Vec<Job<Reading>> + Copy + Send + 'static,
{
    let (database, connection) = Database::create(name)?;
    let (tx, rx) = Builder::new(Rate::per_second(STATEMENTS))
        .max_depth(2_000)
        .name("inserts")
        .build()?;
    produce(&tx);
    let mut side = spawn_blocking(move || consume(&connection, run, || taking(&rx))).await??;
    let stored = database.rows()?;
    if (stored, tx.snapshot().ledger.acked) != (side.rows, side.rows) {
        return Err(format!("{stored} rows stored, {} acknowledged", side.rows).into());
    }
    side.waits.sort_unstable();
    Ok(side)
}

fn report(single: &Side, batched: &Side) -> String {
    let row =
        |name: &str, cell: &dyn Fn(&Side) -> String| [name.to_owned(), cell(single), cell(batched)];
    let per_second = |count: u64, side: &Side| count as f64 / side.took.as_secs_f64();
    table(&[
        ["".to_owned(), "row by row".to_owned(), "batched".to_owned()],
        row("statements per second", &|side| {
            format!("{:.0}", per_second(side.statements, side))
        }),
        row("rows per second", &|side| {
            thousands(per_second(side.rows, side) as u64)
        }),
        row("rows per statement", &|side| {
            format!("{:.1}", side.rows as f64 / side.statements.max(1) as f64)
        }),
        row("median wait of a row", &|side| {
            percentile(&side.waits, 0.5).map_or("-".to_owned(), brief)
        }),
    ])
}

async fn perform() -> Result<bool, Box<dyn Error>> {
    let is_brief = std::env::var_os("SLUICEGATE_BRIEF").is_some_and(|value| value == "1");
    let run = Duration::from_millis(if is_brief { 500 } else { 2_000 });
    println!(
        "{SENSORS} producers, {STATEMENTS} statements per second, {} a side\n",
        brief(run)
    );
    let single = play("single", run, |rx| rx.blocking_recv().into_iter().collect()).await?;
    let batched = play("batched", run, |rx| {
        // On a thread of `spawn_blocking`, which may wait for a future.
        Handle::current().block_on(rx.recv_batch_within(BATCH, LINGER))
    })
    .await?;
    print!("{}", report(&single, &batched));
    Ok(batched.rows > 10 * single.rows)
}

#[tokio::main]
async fn main() -> ExitCode {
    if std::env::args_os().len() > 1 {
        eprintln!("batched_inserts: takes no arguments");
        return ExitCode::from(2);
    }
    match perform().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("batched_inserts: the batches were not worth it on this machine");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("batched_inserts: {error}");
            ExitCode::FAILURE
        }
    }
}

const STATEMENTS: u64 = 200;
const SENSORS: u32 = 16;
/// Rows of one statement at most.
const BATCH: usize = 100;
/// How long a statement waits for more rows.
const LINGER: Duration = Duration::from_millis(20);
const RETRY: Duration = Duration::from_secs(1);
