//! The first run: every producer writes for itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::database::{Database, Order};
use crate::measure::Measure;

/// Lets the producers write directly until all jobs are done or `stop` fires.
pub(crate) async fn run(
    database: &Database,
    arrivals: &Arc<[Duration]>,
    producers: usize,
    measure: &Arc<Measure>,
    stop: &CancellationToken,
) {
    let mut tasks = JoinSet::new();
    for producer in 0..producers {
        let (database, arrivals) = (database.clone(), Arc::clone(arrivals));
        let (measure, stop) = (Arc::clone(measure), stop.clone());
        tasks.spawn(async move {
            for job in (producer..arrivals.len()).step_by(producers) {
                let due = measure.due(arrivals[job]);
                // A late producer goes on at once; its lateness is part of the latency.
                let arrival = tokio::time::sleep_until(due.into());
                if stop.run_until_cancelled(arrival).await.is_none() {
                    return;
                }
                let order = Order::numbered(job);
                measure.offered();
                match database.write(order).await {
                    Ok(()) => measure.committed(order, due),
                    Err(error) => {
                        measure.refused_by_database(&error);
                        measure.failed();
                    }
                }
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("a producer does not panic");
    }
}
