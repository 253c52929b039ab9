//! The second run: the same producers, now through a gate and a queue.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use sluicegate::queue::{self, Backoff, Receiver};
use sluicegate::{BuildError, Clock, Gate, KeyedLimiter, Rate, TokioClock};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::account::{Account, Refusals};
use crate::database::{Database, Order};
use crate::held::{CATCH_UP, Departure, rate_held};
use crate::measure::Measure;

/// What travels through the queue.
#[derive(Debug)]
struct Write {
    order: Order,
    /// When it arrived at its producer, before any refusal.
    due: Instant,
}

/// The door: a limit for each producer by its number, and the queue behind it.
type Door = Gate<KeyedLimiter<usize>, Write>;

/// What a stop in the middle left over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leftover {
    /// Jobs that the drain still saw done.
    pub(crate) settled: u64,
    /// Jobs that the queue gave back.
    pub(crate) returned: u64,
    /// Jobs whose producers were waiting to offer them again.
    pub(crate) kept: u64,
}

/// Everything the tasks of the run share.
struct Shared {
    database: Database,
    arrivals: Arc<[Duration]>,
    measure: Arc<Measure>,
    stop: CancellationToken,
    departures: Mutex<Vec<Departure>>,
    refusals: Mutex<Refusals>,
    retried: AtomicU64,
    kept: AtomicU64,
    settled: Notify,
}

/// Lets the producers offer their jobs until all are done or `stop` fires.
pub(crate) async fn run(
    database: &Database,
    arrivals: &Arc<[Duration]>,
    producers: usize,
    rate_set: u64,
    measure: &Arc<Measure>,
    stop: &CancellationToken,
) -> Result<(Account, Option<Leftover>), BuildError> {
    let rate = Rate::per_second(rate_set);
    let (tx, rx) = queue::Builder::new(rate)
        .name("orders-db")
        // A second of work may wait: whoever comes on top of that hears when to come again.
        .max_depth(rate_set)
        .max_in_flight(MAX_IN_FLIGHT)
        // Other programs make the machine stall: what was due meanwhile is made up for, but in no salvo.
        .catch_up(rate_set * CATCH_UP.as_secs())
        .catch_up_pace(CATCH_UP_PACE)
        .max_attempts(MOST_ATTEMPTS)
        .clock(TokioClock)
        .build::<Write>()?;
    let gate = Gate::new(edge(rate_set, producers)?, tx);
    let shared = Arc::new(Shared {
        database: database.clone(),
        arrivals: Arc::clone(arrivals),
        measure: Arc::clone(measure),
        stop: stop.clone(),
        departures: Mutex::default(),
        refusals: Mutex::default(),
        retried: AtomicU64::new(0),
        kept: AtomicU64::new(0),
        settled: Notify::new(),
    });
    let mut offering = JoinSet::new();
    for producer in 0..producers {
        offering.spawn(produce(
            Arc::clone(&shared),
            gate.clone(),
            producer,
            producers,
        ));
    }
    let mut consuming = JoinSet::new();
    for _ in 0..CONSUMERS {
        consuming.spawn(consume(Arc::clone(&shared), rx.clone()));
    }
    join(&mut offering).await;
    let all_settled = stop.run_until_cancelled(shared.all_settled()).await;
    let leftover = match all_settled {
        Some(()) => {
            rx.close();
            None
        }
        None => {
            let report = rx.drain(DRAIN).await;
            Some(Leftover {
                settled: report.settled,
                returned: report.returned.len() as u64,
                kept: shared.kept.load(Ordering::Relaxed),
            })
        }
    };
    join(&mut consuming).await;
    Ok((shared.conclude(&rx, rate_set), leftover))
}

/// Offers every job of one producer, each as often as it takes.
async fn produce(shared: Arc<Shared>, gate: Door, producer: usize, producers: usize) {
    for job in (producer..shared.arrivals.len()).step_by(producers) {
        let due = shared.measure.due(shared.arrivals[job]);
        let arrival = tokio::time::sleep_until(due.into());
        if shared.stop.run_until_cancelled(arrival).await.is_none() {
            return;
        }
        shared.measure.offered();
        let order = Order::numbered(job);
        let mut write = Write { order, due };
        while let Err(denied) = gate.try_send(&producer, write) {
            let Some(wait) = denied.retry_after() else {
                // Closed under us: only a stop does that.
                shared.kept.fetch_add(1, Ordering::Relaxed);
                return;
            };
            shared.lock_refusals().note(&denied, wait);
            write = denied.into_inner();
            // The one duty of a refused producer.
            if shared
                .stop
                .run_until_cancelled(tokio::time::sleep(wait))
                .await
                .is_none()
            {
                shared.kept.fetch_add(1, Ordering::Relaxed);
                return;
            }
            shared.retried.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Writes what leaves the queue. There are more consumers than writers allowed: the bound is the queue's doing.
async fn consume(shared: Arc<Shared>, rx: Receiver<Write>) {
    while let Some(job) = rx.recv().await {
        let (departed_at, waited) = (job.departed_at(), job.waited());
        let Write { order, due } = *job;
        match shared.database.write(order).await {
            Ok(()) => {
                job.ack();
                shared.measure.committed(order, due);
            }
            Err(error) => {
                shared.measure.refused_by_database(&error);
                if job.attempt() == MOST_ATTEMPTS {
                    shared.measure.failed();
                }
                job.retry(Backoff::exponential(FIRST_RETRY, LAST_RETRY));
            }
        }
        let departure = Departure {
            departed_at,
            waited,
            settled_at: TokioClock.now(),
        };
        shared
            .departures
            .lock()
            .expect("no holder panics")
            .push(departure);
        shared.settled.notify_one();
    }
}

impl Shared {
    /// Waits until every job has been committed or has failed.
    async fn all_settled(&self) {
        loop {
            let (committed, failed) = self.measure.settled();
            if committed + failed >= self.arrivals.len() as u64 {
                return;
            }
            self.settled.notified().await;
        }
    }

    fn conclude(&self, rx: &Receiver<Write>, rate_set: u64) -> Account {
        let ledger = rx.control().snapshot().ledger;
        let counts = self.measure.counts();
        let departures = self.departures.lock().expect("no holder panics");
        let refusals = self.lock_refusals().clone();
        Account {
            rate_set: rate_set as f64,
            rate_held: rate_held(&departures, rate_set as f64, MAX_IN_FLIGHT as usize),
            max_in_flight: MAX_IN_FLIGHT,
            retried: self.retried.load(Ordering::Relaxed),
            is_balanced: ledger.is_balanced()
                && ledger.acked == counts.acknowledged.rows
                && ledger.failed == counts.failed
                && ledger.refused == refusals.by_queue(),
            refusals,
            ledger,
        }
    }

    fn lock_refusals(&self) -> MutexGuard<'_, Refusals> {
        self.refusals.lock().expect("no holder panics")
    }
}

/// The edge: every producer may offer twice its share of what leaves, so that none crowds out the others.
fn edge(rate_set: u64, producers: usize) -> Result<KeyedLimiter<usize>, BuildError> {
    let share = Rate::new(2 * rate_set, Duration::from_secs(producers as u64))
        .expect("both lie within the bounds of the options");
    KeyedLimiter::builder(share.burst(EDGE_BURST))
        .max_keys(producers as u64)
        .build()
}

async fn join(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no task of the run panics");
    }
}

/// Writers at once: SQLite lets one in, and a few may get ready.
pub(crate) const MAX_IN_FLIGHT: u64 = 4;
/// Twice the rate is still within what the database can do, and works off what is owed where stalls are many.
const CATCH_UP_PACE: f64 = 2.0;
/// Jobs that a producer may offer at once after a pause.
const EDGE_BURST: u64 = 4;
const CONSUMERS: usize = 8;
const MOST_ATTEMPTS: u32 = 10;
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LAST_RETRY: Duration = Duration::from_millis(500);
/// Time for a drain after Ctrl-C.
const DRAIN: Duration = Duration::from_secs(2);
