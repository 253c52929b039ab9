//! A shutdown in the middle of the work, and an account of every job.
//!
//! Workers drain a backlog at 50 jobs a second. Some jobs fail and wait for a retry, one never ends, one panics. After a
//! second the order comes to stop (here from a timer; from `tokio::signal::ctrl_c()` in a service): the queue takes no
//! more offers, the workers go on at the same rate for two seconds, and what is left then comes back by value.
//!
//! Look at the account: every job is in exactly one line of it. Time is virtual, and every run prints the same.
//!
//! ```sh
//! cargo run --release --example graceful_shutdown
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use sluicegate::Rate;
use sluicegate::queue::workers::Workers;
use sluicegate::queue::{Builder, DeadLetter, Exit, Job};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// What the service does with an order.
async fn ship(order: Job<u32>) -> Result<(), &'static str> {
    sleep(Duration::from_millis(30)).await;
    match *order {
        // A lock that nobody lets go of.
        7 => std::future::pending().await,
        // As `panic!`, without the report of the panic hook.
        11 => std::panic::resume_unwind(Box::new("no such address")),
        n if n % 20 == 9 => order.fail_because("no such article"),
        // The carrier is out until tomorrow.
        n if n % 25 == 13 => order.retry(Duration::from_secs(86_400)),
        n if n % 10 == 4 => return Err("the carrier is busy"),
        _ => {}
    }
    Ok(())
}

fn numbers(letters: &[DeadLetter<u32>], exit: Exit) -> String {
    let of_exit = letters.iter().filter(|letter| letter.exit == exit);
    let mut numbers: Vec<String> = of_exit
        .map(|letter| match &letter.cause {
            Some(cause) => format!("{} ({cause})", letter.item),
            None => letter.item.to_string(),
        })
        .collect();
    let more = numbers.len().saturating_sub(SHOWN);
    numbers.truncate(SHOWN);
    if more > 0 {
        numbers.push(format!("and {more} more"));
    }
    numbers.join(", ")
}

async fn perform() -> Result<bool, Box<dyn Error>> {
    let (tx, rx) = Builder::new(Rate::per_second(RATE))
        .max_depth(u64::from(ORDERS))
        .watermarks(1, u64::from(ORDERS))
        .max_attempts(3)
        .name("orders")
        .build()?;
    for order in 0..ORDERS {
        tx.send(order).await?;
    }
    let letters = rx.dead_letters();

    let shutdown = CancellationToken::new();
    let order_to_stop = shutdown.clone();
    let late = tx.clone();
    let operator = tokio::spawn(async move {
        sleep(RUN).await;
        order_to_stop.cancel();
        sleep(Duration::from_millis(500)).await;
        // A producer that has not heard of it.
        late.send(ORDERS)
            .await
            .map_err(|refused| refused.into_parts())
    });

    let start = Instant::now();
    let report = Workers::new(rx)
        .concurrency(8)
        .backoff(Duration::from_millis(400))
        .finish_within(FINISH)
        .run(ship, shutdown)
        .await;
    let took = start.elapsed();

    let mut dead = Vec::new();
    while let Some(letter) = letters.recv().await {
        dead.push(letter);
    }
    let ledger = tx.snapshot().ledger;
    println!("{ORDERS} orders at {RATE}/s, stopped after {RUN:?}, given {FINISH:?} to finish\n");
    println!("ended after            {took:?}");
    println!("done                   {:>4}", ledger.acked);
    println!(
        "given back by value    {:>4}   from order {} on",
        report.returned.len(),
        report.returned.first().map_or(0, |letter| letter.item)
    );
    let retries = report.returned.iter().filter(|letter| letter.attempts > 0);
    println!(
        "  of these, begun      {:>4}   they wait for another attempt",
        retries.count()
    );
    let count = |exit| dead.iter().filter(|letter| letter.exit == exit).count();
    for (name, exit) in [
        ("failed for good", Exit::Failed),
        ("panicked or cut off", Exit::Abandoned),
        ("no retry after the end", Exit::Returned),
    ] {
        println!("{name:<22} {:>4}   {}", count(exit), numbers(&dead, exit));
    }
    let accounted = ledger.acked + (report.returned.len() + dead.len()) as u64;
    println!("                      {:-<5}", "");
    println!(
        "accounted for          {accounted:>4}   of {ORDERS}; still in flight: {}",
        ledger.in_flight
    );
    let (order, refusal) = operator.await?.expect_err("the queue is closed");
    println!("\nan order that came later: {order} was refused and kept, {refusal}");

    Ok(accounted == u64::from(ORDERS)
        && ledger.in_flight == 0
        && ledger.is_balanced()
        && took == RUN + FINISH
        && count(Exit::Abandoned) as u64 == 1 + report.in_flight)
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> ExitCode {
    if std::env::args_os().len() > 1 {
        eprintln!("graceful_shutdown: takes no arguments");
        return ExitCode::from(2);
    }
    match perform().await {
        Ok(true) => ExitCode::SUCCESS,
        // Virtual time holds no surprises: if the point is not made, something is broken.
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("graceful_shutdown: {error}");
            ExitCode::FAILURE
        }
    }
}

const ORDERS: u32 = 200;
const RATE: u64 = 50;
const RUN: Duration = Duration::from_secs(1);
const FINISH: Duration = Duration::from_secs(2);
/// Letters that are shown of each kind.
const SHOWN: usize = 3;
