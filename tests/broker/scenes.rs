//! What is promised on every real server, whatever it is: crashes, rates, the gate.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate::broker::{Admission, Broker, Message, Received, RejectedBy, Source};
use sluicegate::queue::Health;
use sluicegate::{Rate, RateLimiter, Tick};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// A server that can be killed and started again on the same port and files.
pub(crate) trait Rig {
    type Broker: Broker;

    fn kill(&mut self);
    async fn start(&mut self);
    /// A connection to a queue or stream of this name, which stays on disk.
    async fn connect(&self, name: &str) -> Self::Broker;
    /// The test of this binary that consumes, and what tells it where.
    fn consumer(&self) -> &'static str;
    fn url(&self) -> String;
}

/// A folder that is removed when the test ends.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let unique = format!("sluicegate-{name}-{}-{}", std::process::id(), free_port());
        let path = std::env::temp_dir().join(unique);
        fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

/// Waits until the port answers.
pub(crate) async fn answers(port: u16, within: Duration) {
    let began = Instant::now();
    while tokio::net::TcpStream::connect(("127.0.0.1", port))
        .await
        .is_err()
    {
        assert!(
            began.elapsed() < within,
            "nothing on port {port} within {within:?}"
        );
        sleep(Duration::from_millis(20)).await;
    }
}

fn edge() -> RateLimiter {
    RateLimiter::new(Rate::per_second(1_000_000).burst(1_000_000))
}

/// Publishes `n` numbered messages side by side, and comes again with those that were not confirmed.
pub(crate) async fn fill<B: Broker>(broker: &B, n: usize) {
    let door = Admission::builder(edge(), broker.clone())
        .max_depth(1_000_000)
        .build()
        .expect("it is sound");
    let publishing = (0..n).map(|n| {
        let door = door.clone();
        async move {
            let message = Message::new(n.to_string()).id(format!("m-{n}"));
            let done = door.publish_within(&(), message, PATIENCE).await;
            done.expect("it is confirmed");
        }
    });
    futures_util::StreamExt::for_each_concurrent(
        futures_util::stream::iter(publishing),
        64,
        |publish| publish,
    )
    .await;
}

/// Waits until nothing is left in the broker.
pub(crate) async fn empty<B: Broker>(broker: &B) {
    let began = Instant::now();
    loop {
        let depth = broker.depth().await;
        if depth.as_ref().is_ok_and(|depth| depth.total() == 0) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "it is not drained: {depth:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Child processes that end with the test.
struct Consumer(Child);

impl Consumer {
    fn start(rig: &impl Rig, queue: &str, log: &Path) -> Self {
        let child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--ignored", "--exact", rig.consumer()])
            .env(WHERE, rig.url())
            .env(QUEUE, queue)
            .env(LOG, log)
            .stdout(Stdio::null())
            .spawn();
        Self(child.expect("this test can be run again"))
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // SIGKILL: nothing is settled, nothing is said.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The body of a consumer process: handles at 2,000/s and writes down what it has handled, until it is killed.
pub(crate) async fn consume<B: Broker>(connect: impl AsyncFn(&str, &str) -> B) {
    let (Ok(url), Ok(queue), Ok(log)) = (
        std::env::var(WHERE),
        std::env::var(QUEUE),
        std::env::var(LOG),
    ) else {
        return; // run by hand
    };
    let log = OpenOptions::new().append(true).create(true).open(log);
    let log: Arc<File> = Arc::new(log.expect("the parent's folder"));
    let source = Source::builder(connect(&url, &queue).await)
        .rate(Rate::per_second(2_000))
        .max_in_flight(32)
        .build()
        .expect("it is sound");
    let handler = move |received: Received| {
        let line = format!("{}\n", String::from_utf8_lossy(received.message.payload()));
        let wrote = (&*log).write_all(line.as_bytes());
        async move { wrote }
    };
    source.run(handler, CancellationToken::new()).await;
}

/// How often each was handled.
fn handled(log: &Path) -> BTreeMap<String, u32> {
    let mut seen = BTreeMap::new();
    for line in fs::read_to_string(log).unwrap_or_default().lines() {
        *seen.entry(line.to_owned()).or_default() += 1;
    }
    seen
}

/// 10,000 messages at 2,000/s, while a consumer is killed, and the server too: none is lost.
pub(crate) async fn kills(rig: &mut impl Rig) {
    const MESSAGES: usize = 10_000;
    let folder = Folder::new("kills");
    let log = folder.path().join("handled");
    let broker = rig.connect("kills").await;
    fill(&broker, MESSAGES).await;
    assert_eq!(
        broker.depth().await.expect("it answers").total(),
        MESSAGES as u64
    );

    let past = async |share: usize| {
        let began = Instant::now();
        while handled(&log).len() < MESSAGES * share / 100 {
            assert!(
                began.elapsed() < PATIENCE,
                "{} were handled",
                handled(&log).len()
            );
            sleep(Duration::from_millis(50)).await;
        }
    };
    let began = Instant::now();
    let first = Consumer::start(rig, "kills", &log);
    past(20).await;
    drop(first);
    let second = Consumer::start(rig, "kills", &log);
    past(50).await;
    rig.kill();
    sleep(Duration::from_secs(1)).await;
    rig.start().await;
    let broker = rig.connect("kills").await;
    empty(&broker).await;
    // Not every broker tells what another process holds.
    past(100).await;
    let took = began.elapsed();
    drop(second);

    let seen = handled(&log);
    let lost: Vec<_> = (0..MESSAGES)
        .filter(|n| !seen.contains_key(&n.to_string()))
        .collect();
    let twice: u32 = seen.values().map(|times| times - 1).sum();
    assert!(
        lost.is_empty(),
        "{} lost: {:?}",
        lost.len(),
        &lost[..lost.len().min(20)]
    );
    let dead = broker
        .dead_letters()
        .depth()
        .await
        .expect("it answers")
        .total();
    assert_eq!(dead, 0, "a kill is no failure of the message");
    println!("kills: {MESSAGES} messages, 0 lost, {twice} handled again, in {took:.1?}");
}

/// A backlog of 2,100 at 200/s: what leaves in 10 s is 2,000 within 1 %.
pub(crate) async fn steady(rig: &impl Rig) {
    let broker = rig.connect("steady").await;
    fill(&broker, 2_200).await;
    let source = Source::builder(broker).rate(Rate::per_second(200));
    let source = source.build().expect("it is sound");
    let seen: Arc<Mutex<Vec<Tick>>> = Arc::default();
    let log = Arc::clone(&seen);
    let stop = CancellationToken::new();
    let handler = move |received: Received| {
        log.lock()
            .expect("nobody panics")
            .push(received.departed_at);
        async {}
    };
    let running = tokio::spawn(source.run(handler, stop.clone()));
    while seen.lock().expect("nobody panics").len() < 2_100 {
        sleep(Duration::from_millis(50)).await;
    }
    stop.cancel();
    let report = running.await.expect("it does not panic");
    assert_eq!((report.redelivered, report.lost), (0, 0), "{report:?}");
    let seen = seen.lock().expect("nobody panics");
    // From the fiftieth, when the flow stands.
    let span = seen[2_050] - seen[50];
    let rate = 2_000.0 / span.as_secs_f64();
    println!("steady: {rate:.2}/s over {span:.2?}");
    assert!((198.0..=202.0).contains(&rate), "{rate}/s");
}

/// Producers at ten times the drain for 20 s: the depth keeps its bound, and the surplus is told when to come.
///
/// Judges the memory of its process, so it needs one of its own: see [`alone`].
pub(crate) async fn gate(rig: &impl Rig, window: u64) {
    const BOUND: u64 = 300;
    let broker = rig.connect("gate").await;
    let source = Source::builder(broker.clone()).rate(Rate::per_second(100));
    let source = source.build().expect("it is sound");
    let stop = CancellationToken::new();
    let draining = tokio::spawn(source.run(|_| async {}, stop.clone()));
    let door = Admission::builder(edge(), broker.clone())
        .max_depth(BOUND)
        .max_unconfirmed(window)
        .build()
        .expect("it is sound");

    // An eye of its own on the broker.
    let eye = rig.connect("gate").await;
    let most = Arc::new(Mutex::new(0));
    let (highest, ended) = (Arc::clone(&most), stop.clone());
    let watching = tokio::spawn(async move {
        while !ended.is_cancelled() {
            if let Ok(depth) = eye.depth().await {
                let mut most = highest.lock().expect("nobody panics");
                *most = depth.total().max(*most);
            }
            sleep(Duration::from_millis(20)).await;
        }
    });
    let (mut accepted, mut refused, mut early) = (0_u64, 0_u64, 0);
    let start = Instant::now();
    let mut due = start;
    while start.elapsed() < Duration::from_secs(20) {
        due += Duration::from_millis(1);
        tokio::time::sleep_until(due).await;
        match door.publish(&(), Message::new(vec![b'x'; 256])).await {
            Ok(_) => accepted += 1,
            Err(rejected) => {
                assert!(
                    matches!(rejected.by(), RejectedBy::Depth(_)),
                    "{rejected:?}"
                );
                assert!(rejected.retry_after().is_some(), "{rejected:?}");
                refused += 1;
            }
        }
        if early == 0 && start.elapsed() > Duration::from_secs(5) {
            early = resident();
        }
    }
    let grown = resident().saturating_sub(early);
    stop.cancel();
    watching.await.expect("it does not panic");
    let report = draining.await.expect("it does not panic");
    let most = *most.lock().expect("nobody panics");
    println!(
        "gate: {accepted} accepted, {refused} refused, depth at most {most} of {BOUND}, {} drained, {grown} KiB more \
         resident after 15 s",
        report.acked
    );
    assert!(most <= BOUND + window, "{most} of {BOUND} + {window}");
    assert!(most > BOUND / 2, "the bound is used: {most}");
    assert!(
        refused > 4 * accepted,
        "{refused} of {}",
        refused + accepted
    );
    assert!(grown < 16 * 1024, "{grown} KiB");
}

/// Runs this test of this binary again, in a process where no other test uses memory; whether this is that process.
pub(crate) fn alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let run = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, "1")
        .status();
    let status = run.expect("this test can be run again");
    assert!(status.success(), "{test} by itself: {status}");
    false
}

/// Memory of this process, in KiB.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|kib| kib.parse().ok()).unwrap_or_default()
}

/// The server goes away and comes back under a running source and a publishing door: both go on by themselves.
pub(crate) async fn outage(rig: &mut impl Rig) {
    let broker = rig.connect("outage").await;
    let source = Source::builder(broker.clone()).rate(Rate::per_second(200));
    let source = source.build().expect("it is sound");
    let health = source.health();
    let seen: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    let log = Arc::clone(&seen);
    let stop = CancellationToken::new();
    let handler = move |received: Received| {
        let text = String::from_utf8_lossy(received.message.payload()).into_owned();
        *log.lock().expect("nobody panics").entry(text).or_default() += 1;
        async {}
    };
    let running = tokio::spawn(source.run(handler, stop.clone()));
    let filling = broker.clone();
    let publishing = tokio::spawn(async move {
        let door = Admission::builder(edge(), filling)
            .build()
            .expect("it is sound");
        for n in 0..1_000 {
            // Under one name until it is confirmed: what an unknown outcome stored twice is handled twice at most.
            let mut message = Message::new(n.to_string()).id(format!("o-{n}"));
            let began = Instant::now();
            loop {
                assert!(
                    began.elapsed() < 2 * PATIENCE,
                    "number {n} is not confirmed"
                );
                match door.publish_within(&(), message, PATIENCE).await {
                    Ok(_) => break,
                    Err(rejected) => message = rejected.into_inner(),
                }
                sleep(Duration::from_millis(50)).await;
            }
            sleep(Duration::from_millis(2)).await;
        }
    });
    let began = Instant::now();
    while seen.lock().expect("nobody panics").len() < 100 {
        assert!(began.elapsed() < PATIENCE, "it drains");
        sleep(Duration::from_millis(20)).await;
    }
    rig.kill();
    let down = Instant::now();
    while health.health() == Health::Green {
        assert!(down.elapsed() < PATIENCE, "the outage is seen");
        sleep(Duration::from_millis(20)).await;
    }
    assert!(health.last_error().is_some());
    sleep(Duration::from_secs(1)).await;
    rig.start().await;
    publishing.await.expect("all are confirmed in the end");
    empty(&broker).await;
    assert_eq!(health.health(), Health::Green);
    stop.cancel();
    let report = running.await.expect("it does not panic");
    let seen = seen.lock().expect("nobody panics");
    let twice: u32 = seen.values().map(|times| times - 1).sum();
    println!(
        "outage: 1000 published, {} handled, {twice} again, {report:?}",
        seen.len()
    );
    assert_eq!(seen.len(), 1_000, "nothing that was confirmed is lost");
    assert!(health.outages() >= 1);
}

/// A message that always fails is dead-lettered after exactly the bound, by the broker's own count.
pub(crate) async fn bound<B: Broker>(broker: B, deliveries: u32) {
    broker
        .publish(&Message::new("always fails"))
        .await
        .expect("there is room");
    let runs = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&runs);
    let source = Source::builder(broker.clone())
        .max_deliveries(deliveries)
        .build();
    let stop = CancellationToken::new();
    let handler = move |received: Received| {
        log.lock().expect("nobody panics").push(received.attempt);
        async { Err::<(), _>("no such tenant") }
    };
    let running = tokio::spawn(source.expect("it is sound").run(handler, stop.clone()));
    let dead = broker.dead_letters();
    let began = Instant::now();
    while dead.depth().await.map_or(0, |depth| depth.total()) == 0 {
        assert!(began.elapsed() < PATIENCE, "{runs:?}");
        sleep(Duration::from_millis(20)).await;
    }
    sleep(Duration::from_millis(300)).await;
    stop.cancel();
    let report = running.await.expect("it does not panic");
    let expected: Vec<_> = (1..=deliveries).collect();
    assert_eq!(*runs.lock().expect("nobody panics"), expected);
    assert_eq!(
        (report.dead_lettered, report.retried),
        (1, u64::from(deliveries) - 1)
    );
    assert_eq!(broker.depth().await.expect("it answers").total(), 0);
}

const PATIENCE: Duration = Duration::from_secs(60);
const WHERE: &str = "SLUICEGATE_TEST_BROKER";
const QUEUE: &str = "SLUICEGATE_TEST_QUEUE";
const LOG: &str = "SLUICEGATE_TEST_LOG";
const ALONE: &str = "SLUICEGATE_TEST_ALONE";
