//! Several processes on one queue: one rate, and nothing lost whoever dies.
//!
//! The sizes are those of a quick run; `SLUICEGATE_LONG=1` takes those of the published figures and prints them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use sluicegate::Rate;
use sluicegate::queue::Exit;
use sluicegate::redis::queue::Builder;

use crate::queue::{assert_balanced, open};
use crate::queue_worker::{Note, POISON, Worker, notes, wait_for};
use crate::server::{Options, Server};

fn is_long() -> bool {
    std::env::var_os("SLUICEGATE_LONG").is_some()
}

fn started(notes: &[Note]) -> Vec<(u64, u32, u64, u64)> {
    let all = notes.iter().filter_map(|note| match *note {
        Note::Started(item, attempt, departed, seen) => Some((item, attempt, departed, seen)),
        _ => None,
    });
    all.collect()
}

fn done(notes: &[Note]) -> BTreeSet<u64> {
    let all = notes.iter().filter_map(|note| match *note {
        Note::Done(item) => Some(item),
        _ => None,
    });
    all.collect()
}

/// No closed window of the stamps holds more than the envelope of the two meters allows.
#[track_caller]
fn assert_within_envelope(stamps: &[u64], rate: f64, catch_up: f64, pace: f64, grain: f64) {
    for (first, from) in stamps.iter().enumerate() {
        for (last, to) in stamps.iter().enumerate().skip(first).take(2_000) {
            let span = (to - from) as f64 / 1e6;
            let count = (last - first + 1) as f64;
            // Stamps are whole microseconds: half of one at each end.
            let sustained = (span * rate + catch_up + 2e-6 * rate).floor() + 1.0;
            let peak = ((span + grain + 2e-6) * rate * pace).floor() + 1.0;
            let most = sustained.min(peak);
            assert!(
                count <= most,
                "{count} in {span} s from {from}, at most {most}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn four_processes_keep_one_rate_between_them() {
    let server = Server::start();
    let seconds = if is_long() { 20 } else { 5 };
    let jobs = 200 * seconds;
    let builder = Builder::new("q", Rate::per_second(200)).max_depth(2 * jobs);
    let queue = open(&server, builder).await;
    let tx = queue.sender::<u64>();
    for item in 0..jobs {
        tx.try_send(item).await.expect("room");
    }
    let workers: Vec<_> = (0..4)
        .map(|_| Worker::start(&server, Duration::from_millis(5)))
        .collect();
    wait_for(&server, |notes| done(notes).len() as u64 == jobs);
    drop(workers);
    let all = started(&notes(&server));
    let mut stamps: Vec<u64> = all.iter().map(|of| of.2).collect();
    stamps.sort_unstable();
    assert_within_envelope(&stamps, 200.0, 20.0, 1.1, 0.0025);
    // What was owed when the first of them came is made up for in the first second. A machine that stops for a while may
    // fall behind after that, so the rate is told and not judged; the envelope is.
    let steady: Vec<u64> = stamps
        .iter()
        .copied()
        .filter(|at| *at >= stamps[0] + 2_000_000)
        .collect();
    let span = (steady[steady.len() - 1] - steady[0]) as f64 / 1e6;
    let rate = (steady.len() - 1) as f64 / span;
    // What handlers see in any window is what departed in it, and what was on its way to them.
    let mut seen: Vec<u64> = all.iter().map(|of| of.3).collect();
    seen.sort_unstable();
    let window = |of: &[u64], span: u64| {
        let counts = of
            .iter()
            .enumerate()
            .map(|(at, from)| of[at..].iter().take_while(|to| **to <= from + span).count());
        counts.max().unwrap_or(0)
    };
    println!(
        "{rate:.2}/s over {span:.2} s; most departures in 100 ms {}, 1 s {}; most seen by handlers {}, {}",
        window(&stamps, 100_000),
        window(&stamps, 1_000_000),
        window(&seen, 100_000),
        window(&seen, 1_000_000)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_killed_in_the_middle_of_their_jobs_lose_none() {
    const CLAIM: Duration = Duration::from_millis(1_500);
    let server = Server::start();
    let (jobs, kills) = if is_long() { (10_000, 20) } else { (3_000, 8) };
    let builder = Builder::new("q", Rate::per_second(1_000))
        .max_depth(1_000)
        .claim_after(CLAIM);
    let queue = open(&server, builder).await;
    let tx = queue.sender::<u64>();
    let producer = tokio::spawn(async move {
        for item in 0..jobs {
            tx.send(item).await.expect("it is taken in the end");
        }
    });
    let work = Duration::from_millis(10);
    let mut workers: Vec<_> = (0..4).map(|_| Worker::start(&server, work)).collect();
    for kill in 0..kills {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let worker = &mut workers[kill % 4];
        worker.kill();
        *worker = Worker::start(&server, work);
    }
    producer.await.expect("no panic");
    // An acknowledgement may be known to the server and not to the notes of whoever was killed then.
    let patience = Instant::now();
    loop {
        let now = queue.snapshot().await.expect("it answers");
        if now.depth + now.in_flight == 0 {
            break;
        }
        assert!(patience.elapsed() < Duration::from_secs(120), "{now:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let all = started(&notes(&server));
    let mut starts: BTreeMap<u64, Vec<(u32, u64)>> = BTreeMap::new();
    for (item, attempt, departed, _) in all {
        starts.entry(item).or_default().push((attempt, departed));
    }
    let end = queue.snapshot().await.expect("it answers");
    assert_eq!((end.acked, end.dead_letters_written), (jobs, 0));
    assert_balanced(&end);
    assert_eq!(starts.len() as u64, jobs, "every job was started");
    let (mut again, mut longest) = (0, 0);
    for of in starts.values_mut() {
        of.sort_unstable();
        for pair in of.windows(2) {
            // The server counts; a start that was killed before it was noted is missing here.
            assert!(pair[1].0 > pair[0].0, "{pair:?}");
            let gap = pair[1].1 - pair[0].1;
            assert!(
                gap >= CLAIM.as_micros() as u64,
                "never before the claim time"
            );
            if pair[1].0 == pair[0].0 + 1 {
                longest = longest.max(gap);
            }
            again += 1;
        }
    }
    assert!(again > 0, "nobody was killed in the middle of a job");
    assert_eq!(server.number(&["XLEN", "sluicegate:{q}:jobs"]), 0);
    println!(
        "{jobs} jobs, {kills} kills: 0 lost, {} redelivered, {again} of them seen twice; claim time {CLAIM:?}, longest from start to \
         start {} ms",
        end.redelivered,
        longest / 1_000
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_always_kills_its_worker_is_buried_after_exactly_its_starts() {
    let server = Server::start();
    let builder = Builder::new("q", Rate::per_second(100))
        .max_depth(10)
        .max_attempts(3)
        .claim_after(Duration::from_millis(500));
    let queue = open(&server, builder).await;
    queue.sender::<u64>().try_send(POISON).await.expect("room");
    for _ in 0..3 {
        Worker::start(&server, Duration::ZERO).wait();
    }
    // The fourth lives, and does what is behind it.
    let fourth = Worker::start(&server, Duration::ZERO);
    queue.sender::<u64>().try_send(1).await.expect("room");
    wait_for(&server, |notes| done(notes).contains(&1));
    let letters = queue.dead_letters::<u64>();
    let patience = Instant::now();
    while letters.list(1).await.expect("it answers").is_empty() {
        assert!(patience.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(fourth);
    let starts: Vec<u32> = started(&notes(&server))
        .into_iter()
        .filter(|of| of.0 == POISON)
        .map(|of| of.1)
        .collect();
    assert_eq!(starts, [1, 2, 3]);
    let letter = letters.list(2).await.expect("it answers").remove(0);
    assert_eq!((letter.item, letter.death.attempts), (Some(POISON), 3));
    assert_eq!(letter.death.exit, Some(Exit::Abandoned));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_stopped_for_longer_than_the_claim_time_is_told_that_it_lost_its_job() {
    let server = Server::start();
    let builder = Builder::new("q", Rate::per_second(100))
        .max_depth(10)
        .claim_after(Duration::from_secs(1));
    let queue = open(&server, builder).await;
    let stopped = Worker::start(&server, Duration::from_secs(2));
    queue.sender::<u64>().try_send(7).await.expect("room");
    wait_for(&server, |notes| !started(notes).is_empty());
    stopped.signal("STOP");
    let _other = Worker::start(&server, Duration::ZERO);
    wait_for(&server, |notes| done(notes).contains(&7));
    stopped.signal("CONT");
    wait_for(&server, |notes| notes.contains(&Note::Lost(7)));
    let seen = queue.snapshot().await.expect("it answers");
    assert_eq!((seen.acked, seen.redelivered), (1, 1));
    assert!(seen.fenced >= 1, "{seen:?}");
    assert_balanced(&seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarts_with_its_log_has_every_job_and_the_workers_go_on() {
    let mut server = Options::default().durable().start();
    let builder = Builder::new("q", Rate::per_second(500))
        .max_depth(1_000)
        .claim_after(Duration::from_secs(1));
    let queue = open(&server, builder).await;
    let tx = queue.sender::<u64>();
    for item in 0..500 {
        tx.try_send(item).await.expect("room");
    }
    let _worker = Worker::start(&server, Duration::from_millis(5));
    wait_for(&server, |notes| done(notes).len() > 50);
    server.restart();
    wait_for(&server, |notes| {
        started(notes)
            .iter()
            .map(|of| of.0)
            .collect::<BTreeSet<_>>()
            .len()
            == 500
    });
    let patience = Instant::now();
    loop {
        match queue.snapshot().await {
            Ok(now) if now.depth + now.in_flight == 0 => {
                assert_eq!(now.acked, 500);
                assert_balanced(&now);
                break;
            }
            other => assert!(patience.elapsed() < Duration::from_secs(60), "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_times_the_rate_is_refused_at_the_bound_and_leaves_nothing_behind() {
    let server = Server::start();
    let seconds = if is_long() { 30 } else { 4 };
    let builder = Builder::new("q", Rate::per_second(200)).max_depth(100);
    let queue = open(&server, builder).await;
    let worker = Worker::start(&server, Duration::from_millis(1));
    let used = || {
        let info = server.ask(&["INFO", "memory"]);
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("used_memory:"));
        line.and_then(|bytes| bytes.trim().parse::<u64>().ok())
            .expect("it says so")
    };
    let offered = Instant::now();
    let (mut item, mut taken, mut refused, mut deepest) = (0_u64, 0_u64, 0_u64, 0);
    let mut memory = Vec::new();
    // Sixteen at once every 8 ms: a busy machine may be slower for a while, not for a minute.
    let mut every = tokio::time::interval(Duration::from_millis(8));
    let tx = queue.sender::<u64>();
    while offered.elapsed() < Duration::from_secs(seconds) || refused <= taken {
        assert!(offered.elapsed() < Duration::from_secs(90), "{taken} taken");
        every.tick().await;
        for outcome in join_all((item..item + 16).map(|item| tx.try_send(item))).await {
            match outcome {
                Ok(accepted) => {
                    deepest = deepest.max(accepted.depth);
                    taken += 1;
                }
                Err(error) => {
                    let refusal = error.refusal().expect("the server answers");
                    assert!(refusal.retry_after().is_some(), "{refusal}");
                    assert!(refusal.depth() <= 100);
                    refused += 1;
                }
            }
        }
        item += 16;
        if item % 512 == 0 {
            memory.push(used());
        }
    }
    assert!(deepest <= 100, "{deepest}");
    assert!(refused > taken, "{refused} refused, {taken} taken");
    wait_for(&server, |notes| done(notes).len() as u64 == taken);
    drop(worker);
    assert_eq!(server.number(&["XLEN", "sluicegate:{q}:jobs"]), 0);
    let half = memory.len() / 2;
    let most = |of: &[u64]| of.iter().copied().max().unwrap_or(0);
    let (first, second) = (most(&memory[..half]), most(&memory[half..]));
    // A stream without end would have grown by the payloads and stamps of the second half.
    assert!(second < first + 200_000, "{memory:?}");
    println!(
        "{item} offered in {seconds} s: {taken} taken, {refused} refused, deepest {deepest} of 100; server memory {first} B at most in \
         the first half, {second} B in the second, {} B after",
        used()
    );
}
