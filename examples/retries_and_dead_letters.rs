//! A database that is ill for a while, retries that do not make it worse, and letters for what never worked.
//!
//! Orders come at 40 a second to a queue of 60 a second. From 10 s to 20 s the database refuses everything, and one
//! order in fifty is malformed and always will be. Every failed attempt is put back with a growing back-off. Without a
//! budget, retries take the departures that fresh orders need; with one, they are kept to a fifth of the fresh work and
//! wait. Either way nothing is lost: an order is done, or a dead letter says why not. Orders stop at the end and the
//! queue closes: a retry from then on is given back as a letter too.
//!
//! Look at the starts of fresh orders around the outage, and at the causes at the end. Time is virtual, and every run
//! prints the same but for the jitter of the back-offs.
//!
//! ```sh
//! cargo run --release --example retries_and_dead_letters
//! ```

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate::Rate;
use sluicegate::queue::workers::Workers;
use sluicegate::queue::{Backoff, BuildError, Builder, Job, Ledger};
use tokio::time::{Instant, interval, sleep};
use tokio_util::sync::CancellationToken;

use chart::{Colour, Timeline, columns, paint, strip, table, thousands};

#[path = "support/chart.rs"]
#[allow(dead_code, reason = "shared with an example that shows more")]
mod chart;

/// Starts of fresh orders and of retries, second by second.
struct Starts {
    fresh: Timeline,
    again: Timeline,
}

/// What came of one run.
struct Played {
    starts: Starts,
    letters: BTreeMap<(String, String), u64>,
    lost: u64,
    ledger: Ledger,
}

/// The database: what it says to an order at a time.
fn write(order: u64, at: Duration) -> Result<(), &'static str> {
    if order.is_multiple_of(50) {
        Err("malformed order")
    } else if (ILL_FROM..ILL_TO).contains(&at) {
        Err("database is starting up")
    } else {
        Ok(())
    }
}

async fn play(builder: Builder, run: Duration) -> Result<Played, BuildError> {
    let (tx, rx) = builder.max_depth(5_000).max_attempts(6).build()?;
    let (start, control, letters) = (Instant::now(), tx.control(), rx.dead_letters());
    tokio::spawn(async move {
        let mut ticks = interval(SECOND / ORDERS);
        for order in 1.. {
            if ticks.tick().await >= start + run || tx.send(order).await.is_err() {
                return;
            }
        }
    });
    let starts = Arc::new(Mutex::new(Starts {
        fresh: Timeline::new(SECOND),
        again: Timeline::new(SECOND),
    }));
    let seen = Arc::clone(&starts);
    let handler = move |job: Job<u64>| {
        let seen = Arc::clone(&seen);
        async move {
            let at = start.elapsed();
            {
                let mut starts = seen.lock().expect("no holder panics");
                let Starts { fresh, again } = &mut *starts;
                if job.attempt() == 1 { fresh } else { again }.add(at);
            }
            sleep(Duration::from_millis(5)).await;
            // An error is put back by the workers, with this as its cause.
            write(*job, at)
        }
    };
    Workers::new(rx)
        .backoff(Backoff::exponential(SECOND / 2, SECOND * 8))
        .run(handler, CancellationToken::new())
        .await;
    let mut by_cause = BTreeMap::new();
    while let Some(letter) = letters.recv().await {
        let cause = letter
            .cause
            .map_or("none".to_owned(), |cause| cause.to_string());
        let exit = letter.exit.to_string();
        *by_cause.entry((cause, exit)).or_insert(0) += 1;
    }
    let snapshot = control.snapshot();
    let starts = Arc::into_inner(starts).expect("the workers are gone");
    let mut starts = starts.into_inner().expect("no holder panics");
    starts.fresh.end_at(run + SECOND * 15);
    starts.again.end_at(run + SECOND * 15);
    Ok(Played {
        starts,
        letters: by_cause,
        lost: snapshot.dead_letters_lost,
        ledger: snapshot.ledger,
    })
}

impl Played {
    /// Fresh orders started in the seconds in which the database was ill.
    fn fresh_while_ill(&self) -> u64 {
        let ill = ILL_FROM.as_secs() as usize..ILL_TO.as_secs() as usize + 10;
        self.starts
            .fresh
            .counts()
            .iter()
            .take(ill.end)
            .skip(ill.start)
            .sum()
    }

    fn report(&self) -> String {
        let fresh = self.starts.fresh.columns(1);
        let again = self.starts.again.columns(1);
        let mut rows = vec![["cause of the dead letter", "exit", "orders"].map(str::to_owned)];
        for ((cause, exit), orders) in &self.letters {
            rows.push([cause.clone(), exit.clone(), thousands(*orders)]);
        }
        format!(
            "{}{}\n{} done, {} failed, {} put back; {} letters lost\n\n{}",
            columns(&fresh, 60.0, 3, SECOND),
            strip("retries", &again, 60.0),
            thousands(self.ledger.acked),
            thousands(self.ledger.failed),
            thousands(self.ledger.requeued),
            self.lost,
            table(&rows)
        )
    }

    /// Every order that was admitted is done or has a letter.
    fn is_complete(&self) -> bool {
        let letters: u64 = self.letters.values().sum();
        self.ledger.admitted == self.ledger.acked + letters && self.lost == 0
    }
}

fn perform(run: Duration) -> Result<[Played; 2], Box<dyn std::error::Error>> {
    let virtual_time = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
    };
    let builder = Builder::new(Rate::per_second(RATE));
    let free = virtual_time()?.block_on(play(builder.clone(), run))?;
    let kept = builder.retry_budget(0.2, Rate::per_second(1));
    let kept = virtual_time()?.block_on(play(kept, run))?;
    Ok([free, kept])
}

fn main() -> ExitCode {
    let is_brief = std::env::var_os("SLUICEGATE_BRIEF").is_some_and(|value| value == "1");
    let run = SECOND * if is_brief { 30 } else { 45 };
    let [free, kept] = match perform(run) {
        Ok(played) => played,
        Err(error) => {
            eprintln!("retries_and_dead_letters: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!(
        "{ORDERS} orders/s, {RATE} starts/s; the database is ill from {} s to {} s\n",
        ILL_FROM.as_secs(),
        ILL_TO.as_secs()
    );
    println!(
        "{}",
        paint(
            "retries as they come: fresh orders started per second",
            Colour::Red
        )
    );
    println!("{}", free.report());
    println!(
        "{}",
        paint(
            "retries on a budget: fresh orders started per second",
            Colour::Green
        )
    );
    print!("{}", kept.report());
    let made =
        free.is_complete() && kept.is_complete() && kept.fresh_while_ill() > free.fresh_while_ill();
    if made {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

const SECOND: Duration = Duration::from_secs(1);
const RATE: u64 = 60;
const ORDERS: u32 = 40;
const ILL_FROM: Duration = Duration::from_secs(10);
const ILL_TO: Duration = Duration::from_secs(20);
