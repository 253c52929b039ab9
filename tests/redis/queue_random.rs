//! Whatever is done in whatever order by two processes: every job is somewhere, and none twice.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sluicegate::redis::queue::{Job, Queue};

use crate::queue::{assert_balanced, fast, open};
use crate::server::Server;

#[derive(Clone, Debug)]
enum Step {
    Send,
    SendNamed(u8),
    Receive(bool),
    Ack(u8),
    Retry(u8, u16),
    Defer(u8),
    Fail(u8),
    Redrive,
    Flush,
    Pause,
    Resume,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => Just(Step::Send),
        2 => (0..20_u8).prop_map(Step::SendNamed),
        8 => any::<bool>().prop_map(Step::Receive),
        4 => any::<u8>().prop_map(Step::Ack),
        3 => (any::<u8>(), 0..30_u16).prop_map(|(of, delay)| Step::Retry(of, delay)),
        2 => any::<u8>().prop_map(Step::Defer),
        2 => any::<u8>().prop_map(Step::Fail),
        1 => Just(Step::Redrive),
        1 => Just(Step::Flush),
        1 => Just(Step::Pause),
        2 => Just(Step::Resume),
    ];
    prop::collection::vec(step, 1..120)
}

/// What became of the items, as the handles said.
#[derive(Default)]
struct Told {
    sent: u64,
    named: BTreeMap<u8, String>,
    acked: BTreeMap<u64, u32>,
    held: Vec<Job<u64>>,
}

async fn play(server: &Server, queues: [&Queue; 2], steps: Vec<Step>) {
    let [one, two] = queues;
    let tx = one.sender::<u64>();
    let receivers = [one.receiver::<u64>(), two.receiver::<u64>()];
    let letters = two.dead_letters::<u64>();
    let mut told = Told::default();
    for step in steps {
        let pick = |held: &mut Vec<Job<u64>>, of: u8| {
            (!held.is_empty()).then(|| held.swap_remove(usize::from(of) % held.len()))
        };
        match step {
            Step::Send => {
                if tx.try_send(told.sent).await.is_ok() {
                    told.sent += 1;
                }
            }
            Step::SendNamed(name) => {
                let offer = tx.offer(told.sent).id(name.to_string());
                if let Ok(taken) = offer.try_send().await {
                    let before = told.named.get(&name).cloned();
                    assert_eq!(taken.is_duplicate, before.is_some());
                    assert_eq!(before.unwrap_or_else(|| taken.id.clone()), taken.id);
                    if told.named.insert(name, taken.id).is_none() {
                        told.sent += 1;
                    }
                }
            }
            Step::Receive(by) => {
                told.held
                    .extend(receivers[usize::from(by)].try_recv().await.ok());
            }
            Step::Ack(of) => {
                if let Some(job) = pick(&mut told.held, of) {
                    let item = job.into_inner().await.expect("it is held");
                    *told.acked.entry(item).or_default() += 1;
                }
            }
            Step::Retry(of, delay) => {
                if let Some(job) = pick(&mut told.held, of) {
                    let delay = Duration::from_millis(delay.into());
                    job.retry(delay).await.expect("it is held");
                }
            }
            Step::Defer(of) => {
                if let Some(job) = pick(&mut told.held, of) {
                    job.defer(Duration::ZERO).await.expect("it is held");
                }
            }
            Step::Fail(of) => {
                if let Some(job) = pick(&mut told.held, of) {
                    job.fail().await.expect("it is held");
                }
            }
            Step::Redrive => drop(letters.redrive_all().await),
            Step::Flush => drop(server.ask(&["SCRIPT", "FLUSH"])),
            Step::Pause => one.pause("a test").await.expect("it answers"),
            Step::Resume => two.resume().await.expect("it answers"),
        }
        let seen = two.snapshot().await.expect("it answers");
        assert_balanced(&seen);
        assert_eq!(seen.in_flight, told.held.len() as u64);
        assert_eq!(
            seen.dead_letters,
            letters.list(1_000).await.expect("it answers").len() as u64
        );
    }
    one.resume().await.expect("it answers");
    for job in told.held.drain(..) {
        job.defer(Duration::ZERO).await.expect("it is held");
    }
    loop {
        let _ = letters.redrive_all().await;
        let seen = one.snapshot().await.expect("it answers");
        if seen.depth + seen.in_flight + seen.dead_letters == 0 {
            break;
        }
        let job = receivers[0]
            .recv()
            .await
            .expect("it answers")
            .expect("open");
        let item = job.into_inner().await.expect("it is held");
        *told.acked.entry(item).or_default() += 1;
    }
    let once: BTreeMap<u64, u32> = (0..told.sent).map(|item| (item, 1)).collect();
    assert_eq!(told.acked, once, "each once, as nobody was silent");
    for key in ["jobs", "dead", "later", "parked"] {
        let command = match key {
            "jobs" | "dead" => "XLEN",
            "later" => "ZCARD",
            _ => "HLEN",
        };
        assert_eq!(
            server.number(&[command, &format!("sluicegate:{{q}}:{key}")]),
            0
        );
    }
}

#[test]
fn whatever_happens_every_job_is_somewhere_and_ends_once() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = Server::start();
    let builder = || {
        fast()
            .max_depth(12)
            .watermarks(4, 10)
            .max_attempts(3)
            .max_in_flight(6)
    };
    let (one, two) = runtime.block_on(async {
        (
            open(&server, builder()).await,
            open(&server, builder()).await,
        )
    });
    let mut runner = TestRunner::new(Config {
        cases: 40,
        failure_persistence: None,
        ..Config::default()
    });
    let tried = runner.run(&steps(), |steps| {
        runtime.block_on(async {
            server.ask(&["FLUSHALL"]);
            play(&server, [&one, &two], steps).await;
        });
        Ok(())
    });
    if let Err(error) = tried {
        panic!("{error}");
    }
}
