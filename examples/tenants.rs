//! One tenant floods the queue, and what that does to the others.
//!
//! A database takes 100 writes in a second. A bulk import offers ten times that, a shop and a cron job offer a few each.
//! Where jobs are anybody's, the import fills the queue and everybody waits behind it. Where each job names its tenant,
//! the database is shared by weight: the import gets what the others leave, and waits for its own backlog alone.
//!
//! Look at the waits of the shop and the cron job, and at who is refused. Time is virtual, and every run prints the same.
//!
//! ```sh
//! cargo run --release --example tenants
//! ```

use std::process::ExitCode;
use std::time::Duration;

use sluicegate::Rate;
use sluicegate::queue::{BuildError, Builder, Sender};
use tokio::time::{Instant, interval};

use chart::{Colour, brief, paint, percentile, table, thousands};

#[path = "support/chart.rs"]
#[allow(dead_code, reason = "shared with an example that shows more")]
mod chart;

struct Tenant {
    name: &'static str,
    /// Time between two of its jobs.
    every: Duration,
    weight: u64,
}

#[derive(Clone, Default)]
struct Seen {
    offered: u64,
    refused: u64,
    waits: Vec<Duration>,
}

/// Offers jobs for a while, without waiting for anything.
async fn produce(tx: Sender<usize>, number: usize, is_named: bool, run: Duration) -> (u64, u64) {
    let Tenant { name, every, .. } = TENANTS[number];
    let (mut ticks, end) = (interval(every), Instant::now() + run);
    let (mut offered, mut refused) = (0, 0);
    while ticks.tick().await < end {
        let offer = tx.offer(number);
        let offer = if is_named { offer.tenant(name) } else { offer };
        offered += 1;
        refused += u64::from(offer.try_send().is_err());
    }
    (offered, refused)
}

async fn play(is_named: bool, run: Duration) -> Result<Vec<Seen>, BuildError> {
    let mut builder = Builder::new(Rate::per_second(RATE)).max_depth(DEPTH);
    if is_named {
        for tenant in TENANTS {
            builder = builder.tenant_weight(tenant.name, tenant.weight);
        }
        // The import may fill half of the queue up to its high mark, not all of it.
        builder = builder.tenant_max_depth(DEPTH * 4 / 10);
    }
    let (tx, rx) = builder.build()?;
    let producers: Vec<_> = (0..TENANTS.len())
        .map(|number| tokio::spawn(produce(tx.clone(), number, is_named, run)))
        .collect();
    drop(tx);
    let mut seen = vec![Seen::default(); TENANTS.len()];
    let end = Instant::now() + run;
    while let Some(job) = rx.recv().await {
        if Instant::now() < end {
            seen[*job].waits.push(job.waited());
        }
        job.ack();
    }
    for (seen, producer) in seen.iter_mut().zip(producers) {
        (seen.offered, seen.refused) = producer.await.expect("it does not panic");
        seen.waits.sort();
    }
    Ok(seen)
}

fn report(seen: &[Seen], run: Duration) -> String {
    let head = [
        "",
        "weight",
        "offered/s",
        "refused",
        "served/s",
        "median wait",
        "p99 wait",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    for (tenant, seen) in TENANTS.iter().zip(seen) {
        let a_second = |count: u64| format!("{:.1}", count as f64 / run.as_secs_f64());
        let wait = |share| percentile(&seen.waits, share).map_or("-".into(), brief);
        rows.push([
            tenant.name.to_owned(),
            tenant.weight.to_string(),
            a_second(seen.offered),
            thousands(seen.refused),
            a_second(seen.waits.len() as u64),
            wait(0.5),
            wait(0.99),
        ]);
    }
    table(&rows)
}

fn perform(run: Duration) -> Result<[Vec<Seen>; 2], Box<dyn std::error::Error>> {
    let virtual_time = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
    };
    let anybody = virtual_time()?.block_on(play(false, run))?;
    let named = virtual_time()?.block_on(play(true, run))?;
    Ok([anybody, named])
}

fn main() -> ExitCode {
    let is_brief = std::env::var_os("SLUICEGATE_BRIEF").is_some_and(|value| value == "1");
    let run = Duration::from_secs(if is_brief { 20 } else { 120 });
    let [anybody, named] = match perform(run) {
        Ok(played) => played,
        Err(error) => {
            eprintln!("tenants: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!(
        "{RATE} writes/s for all, {DEPTH} may be queued; {} s\n",
        run.as_secs()
    );
    println!("{}", paint("jobs are anybody's", Colour::Red));
    println!("{}", report(&anybody, run));
    println!("{}", paint("each job names its tenant", Colour::Green));
    print!("{}", report(&named, run));
    // Virtual time holds no surprises: if the point is not made, something is broken.
    let p99 = |seen: &Seen| percentile(&seen.waits, 0.99).unwrap_or_default();
    let quiet = |seen: &[Seen]| p99(&seen[1]).max(p99(&seen[2]));
    let made = quiet(&named) * 20 < quiet(&anybody) && named[1].refused + named[2].refused == 0;
    if made {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

const RATE: u64 = 100;
const DEPTH: u64 = 500;
const TENANTS: [Tenant; 3] = [
    Tenant {
        name: "import",
        every: Duration::from_millis(1),
        weight: 1,
    },
    Tenant {
        name: "shop",
        every: Duration::from_millis(25),
        weight: 3,
    },
    Tenant {
        name: "cron",
        every: Duration::from_millis(400),
        weight: 1,
    },
];
