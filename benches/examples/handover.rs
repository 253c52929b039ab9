//! Hands jobs from a producer to a consumer of a queue without a rate, on one thread: for counting instructions.
//!
//! `handover WAY JOBS`, where WAY is `one` (`recv`, `ack`), `many` (`recv_many`, `ack`), `all` (`recv_many`, `ack_all`) or
//! `peer` (async-channel). What a job costs is the difference of two lengths:
//! `valgrind --tool=callgrind target/release/examples/handover one 30000`, less the same of 10000, by 20000.

use std::error::Error;

use sluicegate::queue::{Builder, Job};

const DEPTH: u64 = 1024;
const AT_ONCE: usize = 64;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let way = args.next().unwrap_or_default();
    let jobs: u64 = args.next().unwrap_or_default().parse()?;
    if way == "peer" {
        return peer(jobs).await;
    }
    let settle: fn(Vec<Job<u64>>) = match &*way {
        "one" | "many" => |jobs| jobs.into_iter().for_each(Job::ack),
        "all" => |jobs| Job::ack_all(jobs),
        _ => return Err("the way is one, many, all or peer".into()),
    };
    let builder = Builder::unpaced().max_depth(DEPTH);
    let (tx, rx) = builder.watermarks(DEPTH / 2, DEPTH).build()?;
    let producer = tokio::spawn(async move {
        for job in 0..jobs {
            tx.send(job).await.expect("open");
        }
    });
    if way == "one" {
        while let Some(job) = rx.recv().await {
            job.ack();
        }
    } else {
        loop {
            let jobs = rx.recv_many(AT_ONCE).await;
            if jobs.is_empty() {
                break;
            }
            settle(jobs);
        }
    }
    Ok(producer.await?)
}

async fn peer(jobs: u64) -> Result<(), Box<dyn Error>> {
    let (tx, rx) = async_channel::bounded(DEPTH as usize);
    let producer = tokio::spawn(async move {
        for job in 0..jobs {
            tx.send(job).await.expect("open");
        }
    });
    while rx.recv().await.is_ok() {}
    Ok(producer.await?)
}
