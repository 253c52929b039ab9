//! Jobs a second through a queue and its workers, without a rate: the counterpart of `bottleneck/jobs.js`.

use std::time::Instant;

use sluicegate::queue::workers::Workers;
use sluicegate::queue::{Builder, Job};
use tokio_util::sync::CancellationToken;

const JOBS: u64 = 200_000;
const AT_ONCE: usize = 64;
const DEPTH: u64 = 1024;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (tx, rx) = Builder::unpaced()
        .max_depth(DEPTH)
        .watermarks(DEPTH / 2, DEPTH)
        .build()?;
    let start = Instant::now();
    let producer = tokio::spawn(async move {
        for job in 0..JOBS {
            if tx.send(job).await.is_err() {
                return;
            }
        }
    });
    let handle = |_: Job<u64>| async { tokio::task::yield_now().await };
    Workers::new(rx)
        .concurrency(AT_ONCE)
        .run(handle, CancellationToken::new())
        .await;
    producer.await?;
    println!("{:.0}", JOBS as f64 / start.elapsed().as_secs_f64());
    Ok(())
}
