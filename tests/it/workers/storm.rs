//! Everything at once: jobs that panic, fail, are retried, cancelled, and a shutdown in the middle.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate::Rate;
use sluicegate::queue::workers::{Outcome, Workers};
use sluicegate::queue::{Builder, Job};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::panic_quietly;
use crate::queue::{SECOND, assert_balanced};

const JOBS: usize = 100_000;
const PRODUCERS: usize = 50;

/// Random numbers that depend on nothing but the seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Where every item turned up.
#[derive(Clone)]
struct Seen(Arc<Mutex<Vec<u8>>>);

impl Seen {
    fn mark(&self, item: usize) {
        self.0.lock().expect("no test panics with it")[item] += 1;
    }
}

/// What a handler does with an item; the same at every attempt, but for the retries.
async fn handle(job: Job<usize>, acked: Seen) -> Outcome {
    let mut dice = Dice(*job as u64 * 2 + 1);
    for _ in 0..8 {
        dice.roll(2);
    }
    let chance = dice.roll(100);
    if dice.roll(4) == 0 {
        sleep(Duration::from_micros(dice.roll(3_000))).await;
    }
    let item = *job;
    match chance {
        0..3 => panic_quietly("at random"),
        3..6 => Outcome::Fail,
        6..9 if job.attempt() < 3 => Outcome::Retry(Duration::from_millis(5).into()),
        9..12 => Outcome::Error("at random".into()),
        12..15 => {
            job.fail();
            Outcome::Ack
        }
        15..18 => {
            // Moved elsewhere, and left unsettled there.
            drop(tokio::spawn(async move {
                sleep(Duration::from_millis(1)).await;
                drop(job);
            }));
            Outcome::Ack
        }
        _ => {
            acked.mark(item);
            Outcome::Ack
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_hundred_thousand_jobs_every_one_turns_up_exactly_once() {
    let (tx, rx) = Builder::new(Rate::per_second(20_000))
        .max_depth(500)
        .max_attempts(4)
        .dead_letters(JOBS)
        .build()
        .expect("valid settings");
    let (control, letters) = (tx.control(), rx.dead_letters());
    let seen = Seen(Arc::new(Mutex::new(vec![0; JOBS])));
    let sent = Arc::new(AtomicUsize::new(0));
    let shutdown = CancellationToken::new();

    let producers = (0..PRODUCERS).map(|producer| {
        let (tx, seen, sent) = (tx.clone(), seen.clone(), Arc::clone(&sent));
        let shutdown = shutdown.clone();
        tokio::spawn(async move {
            let mut dice = Dice(producer as u64 + 1);
            for item in (producer..JOBS).step_by(PRODUCERS) {
                let offer = tx.offer(item);
                let (offer, token) = if dice.roll(10) == 0 {
                    let token = CancellationToken::new();
                    (offer.cancelled_by(token.clone()), Some(token))
                } else {
                    (offer, None)
                };
                let cancel_after = Duration::from_micros(dice.roll(50_000));
                if let Some(token) = token {
                    drop(tokio::spawn(async move {
                        sleep(cancel_after).await;
                        token.cancel();
                    }));
                }
                if let Err(refused) = offer.send().await {
                    seen.mark(refused.into_inner());
                }
                if sent.fetch_add(1, Ordering::Relaxed) == JOBS / 2 {
                    shutdown.cancel();
                }
            }
        })
    });
    let producers: Vec<_> = producers.collect();
    drop(tx);

    let acked = seen.clone();
    let workers = Workers::new(rx).concurrency(64).finish_within(SECOND / 100);
    let report = workers
        .run(move |job| handle(job, acked.clone()), shutdown)
        .await;
    for producer in producers {
        producer.await.expect("producers do not panic");
    }
    assert!(
        !report.returned.is_empty(),
        "the shutdown came in the middle"
    );
    for letter in report.returned {
        seen.mark(letter.item);
    }
    let mut dead = 0;
    while let Some(letter) = letters.recv().await {
        seen.mark(letter.item);
        dead += 1;
    }
    let snapshot = control.snapshot();
    assert_balanced(&snapshot);
    let ledger = snapshot.ledger;
    assert_eq!(ledger.offered, JOBS as u64);
    assert_eq!(
        (ledger.in_flight, ledger.queued, snapshot.dead_letters_lost),
        (0, 0, 0)
    );
    assert!(
        ledger.acked > 10_000
            && ledger.abandoned > 100
            && ledger.failed > 100
            && ledger.cancelled > 100,
        "{ledger:?}"
    );
    assert!(dead > 1_000, "{dead} letters");
    let seen = seen.0.lock().expect("no test panics with it");
    let odd: Vec<_> = seen
        .iter()
        .enumerate()
        .filter(|(_, times)| **times != 1)
        .collect();
    assert!(
        odd.is_empty(),
        "seen otherwise than once: {odd:?} of {ledger:?}"
    );
}

/// A handler returns while another thread drops its job: one of the two settles it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_job_dropped_on_another_thread_as_its_handler_returns_is_settled_once() {
    let (tx, rx) = Builder::unpaced()
        .dead_letters(20_000)
        .build()
        .expect("valid settings");
    let (control, letters) = (tx.control(), rx.dead_letters());
    let handler = |job: Job<usize>| async move {
        drop(tokio::spawn(async move { drop(job) }));
        if waits_a_moment() {
            tokio::task::yield_now().await;
        }
    };
    let workers = Workers::new(rx).concurrency(16);
    let running = tokio::spawn(workers.run(handler, CancellationToken::new()));
    for item in 0..20_000 {
        tx.send(item).await.expect("the workers are there");
    }
    drop(tx);
    running.await.expect("the workers end");
    let ledger = control.snapshot().ledger;
    assert!(ledger.is_balanced());
    assert_eq!(ledger.acked + ledger.abandoned, 20_000, "{ledger:?}");
    let mut dead = 0;
    while letters.recv().await.is_some() {
        dead += 1;
    }
    assert_eq!(dead, ledger.abandoned);
}

/// Every other time.
fn waits_a_moment() -> bool {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(2)
}
