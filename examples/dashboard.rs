//! A live load to look at, in a browser and in a terminal: bursts, a noisy tenant, an outage now and then.
//!
//! ```sh
//! cargo run --release --features page --example dashboard
//! cargo run --release --features cli --bin sluicegate -- top --url http://127.0.0.1:7878
//! ```
//! Open the address that it prints. Every minute is the same: at 15 s and 35 s a burst doubles what comes, from 20 s on
//! a bulk import floods the queue for 10 s, and at 45 s the database stands still for 6 s. Look at the state of the
//! ladder, at what is refused and to whom, and at the depth, which stays below its bound through all of it.
//!
//! `--port N` takes another port (0 = a free one), `--seconds N` ends by itself; else Ctrl-C ends it.

use std::process::ExitCode;
use std::time::Duration;

use sluicegate::observe::{Keys, Watched, serve_page, snapshot_with};
use sluicegate::queue::{Builder, Priority, Receiver, Sender};
use sluicegate::{Hierarchy, Rate};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

struct Call {
    tenant: &'static str,
    route: &'static str,
}

type Edge = Watched<Hierarchy<Call>>;

/// Where in its minute the load is.
fn second(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() % 60.0
}

/// Calls through the edge into the queue, `usual` a second and more in bursts.
async fn call(
    edge: Edge,
    tx: Sender<&'static str>,
    tenant: &'static str,
    usual: f64,
    start: Instant,
) {
    let routes = ["GET /orders", "POST /orders", "GET /stock"];
    let mut owed = 0.0;
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut number: usize = 0;
    loop {
        ticks.tick().await;
        let factor = match second(start) {
            15.0..20.0 | 35.0..40.0 => 2.2,
            _ => 1.0,
        };
        owed += usual * factor * TICK.as_secs_f64();
        while owed >= 1.0 {
            owed -= 1.0;
            number += 1;
            let route = routes[number % routes.len()];
            if !edge.check(&Call { tenant, route }, 1).is_granted() {
                continue;
            }
            let priority = if number.is_multiple_of(10) {
                Priority::High
            } else {
                Priority::Normal
            };
            let offer = tx.offer(route).tenant(tenant).priority(priority);
            // A refusal says when to come back; these callers do not.
            let _ = offer.try_send();
        }
    }
}

/// An import that is idle for most of the minute, and then offers all it has.
async fn import(tx: Sender<&'static str>, start: Instant) {
    loop {
        if (20.0..30.0).contains(&second(start)) {
            for _ in 0..8 {
                let offer = tx
                    .offer("row")
                    .tenant("bulk-import")
                    .priority(Priority::Low);
                let _ = offer.try_send();
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// A connection of the database: 25 ms a job, unless it stands still.
async fn work(rx: Receiver<&'static str>, start: Instant) {
    while let Some(job) = rx.recv().await {
        let now = second(start);
        if (45.0..51.0).contains(&now) {
            sleep_until(Instant::now() + Duration::from_secs_f64(51.0 - now)).await;
            job.retry(Duration::from_millis(200));
            continue;
        }
        sleep(Duration::from_millis(25)).await;
        job.ack();
    }
}

/// A second queue, which loses nothing: its producers wait.
async fn mail(tx: Sender<u64>) {
    for number in 0.. {
        if tx.send(number).await.is_err() {
            return;
        }
        sleep(Duration::from_millis(number % 7 * 20)).await;
    }
}

async fn run(port: u16, seconds: Option<u64>) -> Result<(), Box<dyn std::error::Error>> {
    let start = Instant::now();
    let (tx, rx) = Builder::shedding(Rate::per_second(120), Duration::from_secs(2))
        .name("orders-db")
        .max_in_flight(16)
        .tenant_max_depth(80)
        .tenant_weight("gold", 3)
        .max_attempts(5)
        .build()?;
    let edge = Hierarchy::<Call>::builder()
        .level("everybody", Rate::per_second(160).burst(200), |_| ())
        .level("tenant", Rate::per_second(60).burst(80), |call| call.tenant)
        .build()?;
    let edge = Watched::new("api", edge).by_endpoint(|call: &Call| Some(call.route));
    for (tenant, usual) in [
        ("gold", 40.0),
        ("silver", 25.0),
        ("bronze", 15.0),
        ("trial", 8.0),
    ] {
        tokio::spawn(call(edge.clone(), tx.clone(), tenant, usual, start));
    }
    tokio::spawn(import(tx.clone(), start));
    for _ in 0..16 {
        tokio::spawn(work(rx.clone(), start));
    }
    let (post, outbox) = Builder::new(Rate::per_second(12))
        .name("mail")
        .max_depth(60)
        .build()?;
    for _ in 0..3 {
        tokio::spawn(mail(post.clone()));
    }
    tokio::spawn(async move {
        while let Some(letter) = outbox.recv().await {
            letter.ack();
        }
    });

    // Their names are made up, so they are shown as they are.
    let served = serve_page(("127.0.0.1", port), Keys::Cut).await?;
    println!("http://{}", served.addr());
    match seconds {
        Some(seconds) => sleep(Duration::from_secs(seconds)).await,
        None => tokio::signal::ctrl_c().await?,
    }
    for queue in snapshot_with(Keys::Cut).queues {
        println!(
            "{}: {} offered, {} refused, {} done, depth {} of {}, {}",
            queue.name,
            queue.ledger.offered,
            queue.ledger.refused,
            queue.ledger.acked,
            queue.depth,
            queue.max_depth,
            queue.pressure.as_str()
        );
    }
    Ok(())
}

fn options() -> Result<(u16, Option<u64>), lexopt::Error> {
    use lexopt::prelude::*;
    let is_brief = std::env::var_os("SLUICEGATE_BRIEF").is_some_and(|value| value == "1");
    let (mut port, mut seconds) = if is_brief { (0, Some(4)) } else { (7878, None) };
    let mut parser = lexopt::Parser::from_env();
    while let Some(option) = parser.next()? {
        match option {
            Long("port") => port = parser.value()?.parse()?,
            Long("seconds") => seconds = Some(parser.value()?.parse()?),
            other => return Err(other.unexpected()),
        }
    }
    Ok((port, seconds))
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match options() {
        Ok((port, seconds)) => run(port, seconds).await,
        Err(error) => Err(error.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dashboard: {error}");
            ExitCode::FAILURE
        }
    }
}

const TICK: Duration = Duration::from_millis(10);
