//! Forty callers, and a service that breaks when five call at once.
//!
//! The callers use a client library of their own, so there is nothing to hand over: each waits for its turn and calls
//! itself. The turnstile lets 50 in a second through, four of them at the same time, in the order in which they came.
//!
//! Look at the calls that broke, at the most calls at once, and at who gave up in line: its turn went to the next. Time
//! is virtual, and every run prints the same. Threads that block use `blocking_enter`.
//!
//! ```sh
//! cargo run --release --example turnstile
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluicegate::Rate;
use sluicegate::queue::{Builder, Reason, Turnstile};
use tokio::time::{Instant, sleep, timeout};

use chart::{Colour, Timeline, brief, paint, strip, table};

#[path = "support/chart.rs"]
#[allow(dead_code, reason = "shared with an example that shows more")]
mod chart;

/// The service behind it all: fine with a few calls at once, and no more.
#[derive(Clone, Default)]
struct Service(Arc<Calls>);

#[derive(Default)]
struct Calls {
    now: AtomicU64,
    most: AtomicU64,
    broken: AtomicU64,
}

impl Service {
    async fn call(&self) {
        let Calls { now, most, broken } = &*self.0;
        let at_once = now.fetch_add(1, Ordering::Relaxed) + 1;
        most.fetch_max(at_once, Ordering::Relaxed);
        if at_once > BEARABLE {
            broken.fetch_add(1, Ordering::Relaxed);
        }
        sleep(CALL).await;
        now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a run came to.
struct Run {
    most: u64,
    broken: u64,
    gave_up: u64,
    took: Duration,
    starts: Timeline,
}

/// All callers come within a second; each third one has no patience.
async fn run(turnstile: Option<Turnstile>) -> Result<Run, Box<dyn Error>> {
    let (service, start) = (Service::default(), Instant::now());
    let callers = (0..CALLERS).map(|caller| {
        let (service, turnstile) = (service.clone(), turnstile.clone());
        tokio::spawn(async move {
            sleep(caller * BETWEEN).await;
            let Some(turnstile) = turnstile else {
                let at = start.elapsed();
                service.call().await;
                return Ok(Some(at));
            };
            let patience = if caller % 3 == 2 {
                PATIENCE
            } else {
                Duration::MAX
            };
            // Dropped in line, `enter` leaves it.
            let Ok(turn) = timeout(patience, turnstile.enter()).await else {
                return Ok(None);
            };
            let turn = turn?;
            let at = start.elapsed();
            service.call().await;
            drop(turn);
            Ok::<_, sluicegate::queue::Refusal>(Some(at))
        })
    });
    let callers: Vec<_> = callers.collect();
    let (mut starts, mut gave_up) = (Timeline::new(STEP), 0);
    for caller in callers {
        match caller.await?? {
            Some(at) => starts.add(at),
            None => gave_up += 1,
        }
    }
    Ok(Run {
        most: service.0.most.load(Ordering::Relaxed),
        broken: service.0.broken.load(Ordering::Relaxed),
        gave_up,
        took: start.elapsed(),
        starts,
    })
}

async fn perform() -> Result<bool, Box<dyn Error>> {
    let free = run(None).await?;
    let turnstile = Builder::new(Rate::per_second(RATE))
        .max_in_flight(BEARABLE)
        .catch_up(0)
        .name("service")
        .turnstile()?;
    let held = run(Some(turnstile.clone())).await?;
    let ledger = turnstile.snapshot().ledger;

    let row =
        |name: &str, cell: &dyn Fn(&Run) -> String| [name.to_owned(), cell(&free), cell(&held)];
    let rows = [
        [
            "".to_owned(),
            "free for all".to_owned(),
            "turnstile".to_owned(),
        ],
        row("most calls at once", &|run| run.most.to_string()),
        row("calls that broke", &|run| run.broken.to_string()),
        row("callers that gave up in line", &|run| {
            run.gave_up.to_string()
        }),
        row("all done after", &|run| brief(run.took)),
    ];
    println!(
        "{CALLERS} callers, one every {}; a call takes {}; more than {BEARABLE} at once break\n",
        brief(BETWEEN),
        brief(CALL),
    );
    for (name, run, colour) in [
        ("free for all: calls begun per 40 ms", &free, Colour::Red),
        ("turnstile: calls begun per 40 ms", &held, Colour::Green),
    ] {
        let counts: Vec<f64> = run
            .starts
            .counts()
            .iter()
            .map(|count| *count as f64)
            .collect();
        println!("{}\n{}", paint(name, colour), strip("", &counts, 8.0));
    }
    print!("{}", table(&rows));
    println!(
        "\nledger of the turnstile: {} offered = {} done + {} gave up",
        ledger.offered,
        ledger.acked,
        ledger.cancelled + ledger.cancelled_waiting
    );
    turnstile.close();
    let refusal = turnstile.enter().await.expect_err("it is closed");
    println!("after the close: {refusal}");
    Ok(held.broken == 0
        && held.most == BEARABLE
        && free.broken > 0
        && held.gave_up > 0
        && ledger.offered == ledger.acked + ledger.cancelled + ledger.cancelled_waiting
        && refusal.reason() == Reason::Closed)
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> ExitCode {
    if std::env::args_os().len() > 1 {
        eprintln!("turnstile: takes no arguments");
        return ExitCode::from(2);
    }
    match perform().await {
        Ok(true) => ExitCode::SUCCESS,
        // Virtual time holds no surprises: if the point is not made, something is broken.
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("turnstile: {error}");
            ExitCode::FAILURE
        }
    }
}

const CALLERS: u32 = 40;
/// One caller comes after the other.
const BETWEEN: Duration = Duration::from_millis(10);
const CALL: Duration = Duration::from_millis(90);
/// Calls at once that the service bears.
const BEARABLE: u64 = 4;
const RATE: u64 = 50;
const PATIENCE: Duration = Duration::from_millis(300);
const STEP: Duration = Duration::from_millis(40);
