//! A reader that is faster than its writer, and where the difference goes.
//!
//! A pipeline reads 5,000 rows in a second and writes 1,000. Through an unbounded channel the difference piles up in
//! memory until the input ends, or memory does. Forwarded into the sink of a queue, the reader is slowed down to what
//! leaves: rows in memory stay under the bound, and every row is written in order.
//!
//! Look at the two charts: the same reader, the same writer, the same time in all. Time is virtual, and every run prints
//! the same.
//!
//! ```sh
//! cargo run --release --example pipeline
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use sluicegate::queue::Builder;
use sluicegate::{PacedExt, Rate};
use tokio::time::{Instant, sleep_until};

use chart::{Colour, brief, columns, paint, table, thousands};

#[path = "support/chart.rs"]
#[allow(dead_code, reason = "shared with an example that shows more")]
mod chart;

/// A row of the input, in memory until it is written.
struct Row {
    number: u64,
    memory: Memory,
}

/// Rows in memory.
#[derive(Clone, Default)]
struct Memory(Arc<AtomicU64>);

impl Memory {
    fn row(&self, number: u64) -> Row {
        self.0.fetch_add(1, Ordering::Relaxed);
        Row {
            number,
            memory: self.clone(),
        }
    }

    fn rows(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a run came to.
struct Run {
    read_in: Duration,
    written_in: Duration,
    in_order: bool,
    most: u64,
    /// Rows in memory, by time.
    held: Vec<f64>,
}

/// The input: as many rows, as fast as the disk gives them.
fn reader(memory: Memory) -> impl Stream<Item = Row> + Send {
    stream::iter(0..ROWS)
        .paced(Rate::per_second(READ))
        .map(move |number| memory.row(number))
}

/// Looks at the memory all the time, while the pipeline runs.
async fn watched(
    memory: Memory,
    pipeline: impl Future<Output = Result<(Duration, Duration, bool), Box<dyn Error>>>,
) -> Result<Run, Box<dyn Error>> {
    let watching = tokio::spawn(async move {
        let (start, mut held) = (Instant::now(), Vec::new());
        for step in 0.. {
            sleep_until(start + step * STEP).await;
            held.push(memory.rows() as f64);
            if held.last() == Some(&0.0) && step > 1 {
                break;
            }
        }
        held
    });
    let (read_in, written_in, in_order) = pipeline.await?;
    let held = watching.await?;
    let most = held.iter().fold(0.0_f64, |most, rows| most.max(*rows));
    Ok(Run {
        read_in,
        written_in,
        in_order,
        most: most as u64,
        held,
    })
}

/// The usual way: a channel that takes everything, and a writer that keeps to its rate.
async fn unbounded() -> Result<Run, Box<dyn Error>> {
    let memory = Memory::default();
    let rows = reader(memory.clone());
    watched(memory, async {
        let start = Instant::now();
        let (tx, rx) = tokio::sync::mpsc::unbounded_channel();
        let reading = tokio::spawn(async move {
            let mut rows = std::pin::pin!(rows);
            while let Some(row) = rows.next().await {
                if tx.send(row).is_err() {
                    break;
                }
            }
            start.elapsed()
        });
        let rows = stream::unfold(rx, async |mut rx| Some((rx.recv().await?, rx)));
        let mut rows = std::pin::pin!(rows.paced(Rate::per_second(WRITTEN)));
        let mut next = 0;
        while let Some(row) = rows.next().await {
            next += u64::from(row.number == next);
        }
        Ok((reading.await?, start.elapsed(), next == ROWS))
    })
    .await
}

/// The same rows forwarded into a queue, which the writer drains at its rate.
async fn queued() -> Result<Run, Box<dyn Error>> {
    let memory = Memory::default();
    let rows = reader(memory.clone());
    watched(memory, async {
        let start = Instant::now();
        let (tx, mut jobs) = Builder::new(Rate::per_second(WRITTEN))
            .max_depth(BOUND)
            .build()?;
        let reading = tokio::spawn(async move {
            let forwarded = rows.map(Ok).forward(tx.into_sink()).await;
            forwarded.map(|()| start.elapsed())
        });
        let mut next = 0;
        while let Some(job) = jobs.next().await {
            next += u64::from(job.into_inner().number == next);
        }
        Ok((reading.await??, start.elapsed(), next == ROWS))
    })
    .await
}

fn report(unbounded: &Run, queued: &Run) -> String {
    let most = unbounded.most as f64;
    let row = |name: &str, cell: &dyn Fn(&Run) -> String| {
        [name.to_owned(), cell(unbounded), cell(queued)]
    };
    let rows = [
        ["".to_owned(), "channel".to_owned(), "queue".to_owned()],
        row("most rows in memory", &|run| thousands(run.most)),
        row("all read after", &|run| brief(run.read_in)),
        row("all written after", &|run| brief(run.written_in)),
        row("all of them, in order", &|run| {
            if run.in_order { "yes" } else { "no" }.to_owned()
        }),
    ];
    let chart = |run: &Run| columns(&run.held, most, 5, STEP);
    format!(
        "{} rows, read at {}/s, written at {}/s\n\n{}\n{}\n{}\n{}\n{}",
        thousands(ROWS),
        thousands(READ),
        thousands(WRITTEN),
        paint("unbounded channel: rows in memory", Colour::Red),
        chart(unbounded),
        paint(&format!("queue of {BOUND}: rows in memory"), Colour::Green),
        chart(queued),
        table(&rows),
    )
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> ExitCode {
    if std::env::args_os().len() > 1 {
        eprintln!("pipeline: takes no arguments");
        return ExitCode::from(2);
    }
    let (unbounded, queued) = match (unbounded().await, queued().await) {
        (Ok(unbounded), Ok(queued)) => (unbounded, queued),
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("pipeline: {error}");
            return ExitCode::FAILURE;
        }
    };
    print!("{}", report(&unbounded, &queued));
    // Virtual time holds no surprises: if the point is not made, something is broken.
    let made = queued.in_order && queued.most <= BOUND + IN_HAND && unbounded.most > 10 * BOUND;
    if made {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

const ROWS: u64 = 20_000;
/// Rows read in a second.
const READ: u64 = 5_000;
/// Rows written in a second.
const WRITTEN: u64 = 1_000;
const BOUND: u64 = 500;
/// Rows beside those in the queue: one in the hands of the reader, one in those of the writer.
const IN_HAND: u64 = 2;
const STEP: Duration = Duration::from_millis(320);
