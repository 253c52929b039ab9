//! The rows: who asks what, and for how long.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sluicegate::Limit;
use sluicegate::redis::LimitsBuilder;
use tokio::runtime::Runtime;

use crate::gauge::{Row, Work};
use crate::ours::{Caller, Ours, ample, scarce};
use crate::peers::{BARE, COMMANDS, LEAST, Peer};
use crate::server::Server;

/// What all rows share.
pub(crate) struct Bench {
    pub(crate) server: Server,
    runtime: Runtime,
}

impl Bench {
    pub(crate) fn new(server: Server) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        Self {
            server,
            runtime: runtime.expect("threads can be started"),
        }
    }

    /// Decisions a second of so many callers at once, each asking one after the other for so long.
    fn throughput<O: Operation>(
        &self,
        callers: usize,
        length: f64,
        operation: impl Fn() -> O,
    ) -> f64 {
        let operations = (0..callers).map(|_| operation()).collect();
        // Connections, scripts and pages of memory that are new are not what a row is about.
        let (_, operations) = self.run(operations, WARM_UP);
        self.run(operations, RUN.mul_f64(length)).0
    }

    fn run<O: Operation>(&self, operations: Vec<O>, time: Duration) -> (f64, Vec<O>) {
        let over = Arc::new(AtomicBool::new(false));
        let begun = Instant::now();
        let task = |mut operation: O| {
            let over = Arc::clone(&over);
            self.runtime.spawn(async move {
                let mut done = 0;
                while !over.load(Ordering::Relaxed) {
                    done += operation.once().await;
                }
                (done, operation)
            })
        };
        let tasks: Vec<_> = operations.into_iter().map(task).collect();
        std::thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        let done = tasks.into_iter().map(|task| {
            let done = self.runtime.block_on(task);
            done.expect("no caller panics")
        });
        let (done, operations): (Vec<u64>, _) = done.unzip();
        let done: u64 = done.iter().sum();
        (done as f64 / begun.elapsed().as_secs_f64(), operations)
    }
}

/// What a caller does again and again.
trait Operation: Send + 'static {
    /// Does it, and tells how many decisions that was.
    fn once(&mut self) -> impl Future<Output = u64> + Send;
}

struct Decide(Ours, Keys);

impl Operation for Decide {
    async fn once(&mut self) -> u64 {
        self.0.decide(self.1.draw()).await;
        1
    }
}

struct DecideBatch(Ours, Keys);

impl Operation for DecideBatch {
    async fn once(&mut self) -> u64 {
        let callers: Vec<Caller> = (0..BATCH).map(|_| self.1.draw()).collect();
        self.0.decide_many(&callers).await;
        BATCH
    }
}

struct Run(Peer, Keys);

impl Operation for Run {
    async fn once(&mut self) -> u64 {
        self.0.run(self.1.draw()).await;
        1
    }
}

/// Keys drawn at random, from a seed of each caller's own.
struct Keys {
    state: u64,
    among: u64,
}

impl Keys {
    fn new(among: u64) -> Self {
        static SEEDS: AtomicU64 = AtomicU64::new(1);
        let state = SEEDS.fetch_add(1, Ordering::Relaxed) << 32;
        Self { state, among }
    }

    /// SplitMix64.
    fn draw(&mut self) -> Caller {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % self.among
    }
}

pub(crate) fn rows(bench: &Rc<Bench>) -> Vec<Row> {
    let [token, ..] = ample();
    let [_, leaky, fixed, log, counter] = ample();
    let [scarce_token, ..] = scarce();
    let [_, scarce_leaky, scarce_fixed, scarce_log, scarce_counter] = scarce();
    let same = |settings: LimitsBuilder| settings;
    let one = || decide(bench, &[token.1], true, CALLERS, KEYS, same);
    let least = || {
        (
            "least script",
            peer(bench, LEAST, &[1_000_000, 1_000_000_000_000]),
        )
    };
    let bare = || ("bare EVALSHA", peer(bench, BARE, &[]));
    let lone = || {
        let settings = LimitsBuilder::never_merge;
        decide(bench, &[token.1], true, CALLERS, KEYS, settings)
    };
    let refused = |limit| {
        let settings = LimitsBuilder::forget_refusals;
        decide(bench, &[limit], false, CALLERS, KEYS, settings)
    };
    let refused_alone = |limit| {
        let settings = |limits: LimitsBuilder| limits.forget_refusals().never_merge();
        decide(bench, &[limit], false, CALLERS, KEYS, settings)
    };
    let row = |name, target, ours, peers| Row {
        name,
        unit: "decisions/s",
        more_is_better: true,
        target,
        ours,
        peers,
    };
    let granted = |name, limit| {
        let ours = decide(bench, &[limit], true, CALLERS, KEYS, same);
        row(name, 0.0, ours, vec![least()])
    };
    let denied = |name, limit| row(name, 0.0, refused(limit), vec![bare()]);
    let fleet =
        |name, target, limit, grants, script: (&'static str, &'static str, &'static [u64])| {
            let settings = LimitsBuilder::forget_refusals;
            let ours = fleet_decides(bench, limit, grants, settings);
            row(
                name,
                target,
                ours,
                vec![(script.0, fleet_peer(bench, script.1, script.2))],
            )
        };
    let time = |name, ours, peers| Row {
        name,
        unit: "us of the server's script",
        more_is_better: false,
        target: 0.0,
        ours,
        peers,
    };
    vec![
        row("granted", 0.9, one(), vec![least()]),
        row(
            "refused by the server",
            0.85,
            refused(scarce_token.1),
            vec![bare()],
        ),
        row("granted, a call each", 0.0, lone(), vec![least()]),
        row(
            "refused by the server, a call each",
            0.0,
            refused_alone(scarce_token.1),
            vec![bare()],
        ),
        row(
            "6 levels beside one",
            0.25,
            decide(bench, &[token.1; 6], true, CALLERS, KEYS, same),
            vec![("one level", one())],
        ),
        row(
            "batches of 64 beside one by one, 1 caller",
            6.0,
            batches(bench, token.1),
            vec![("one by one", decide(bench, &[token.1], true, 1, KEYS, same))],
        ),
        row(
            "hot key, 500 callers, merged beside unmerged",
            3.0,
            decide(bench, &[token.1], true, CROWD, 1, same),
            vec![(
                "unmerged",
                decide(
                    bench,
                    &[token.1],
                    true,
                    CROWD,
                    1,
                    LimitsBuilder::never_merge,
                ),
            )],
        ),
        row(
            "refused from memory",
            0.0,
            decide(bench, &[scarce_token.1], false, CALLERS, KEYS, same),
            vec![bare()],
        ),
        fleet(
            "granted, 64 processes' connections",
            0.9,
            token.1,
            true,
            ("least script", LEAST, &[1_000_000, 1_000_000_000_000]),
        ),
        fleet(
            "refused by the server, 64 processes' connections",
            0.85,
            scarce_token.1,
            false,
            ("bare EVALSHA", BARE, &[]),
        ),
        row(
            "least script beside a bare one",
            0.0,
            least().1,
            vec![bare()],
        ),
        row(
            "least script beside a bare one, 64 processes' connections",
            0.0,
            fleet_peer(bench, LEAST, &[1_000_000, 1_000_000_000_000]),
            vec![("bare EVALSHA", fleet_peer(bench, BARE, &[]))],
        ),
        row(
            "granted beside three bare commands",
            0.0,
            one(),
            vec![("TIME, GET, SET", peer(bench, COMMANDS, &[1_000_000]))],
        ),
        granted("granted, leaky bucket", leaky.1),
        granted("granted, fixed window", fixed.1),
        granted("granted, sliding log", log.1),
        granted("granted, sliding counter", counter.1),
        denied("refused by the server, leaky bucket", scarce_leaky.1),
        denied("refused by the server, fixed window", scarce_fixed.1),
        denied("refused by the server, sliding log", scarce_log.1),
        denied("refused by the server, sliding counter", scarce_counter.1),
        time(
            "script of a granted decision",
            script_time(bench, lone()),
            vec![("least script", script_time(bench, least().1))],
        ),
        time(
            "script of a refused decision",
            script_time(bench, refused_alone(scarce_token.1)),
            vec![("bare EVALSHA", script_time(bench, bare().1))],
        ),
        time(
            "script of 6 levels",
            script_time(
                bench,
                decide(
                    bench,
                    &[token.1; 6],
                    true,
                    CALLERS,
                    KEYS,
                    LimitsBuilder::never_merge,
                ),
            ),
            vec![("one level", script_time(bench, lone()))],
        ),
    ]
}

/// So many callers at once, each deciding about one key after the other.
fn decide(
    bench: &Rc<Bench>,
    levels: &[Limit],
    grants: bool,
    callers: usize,
    keys: u64,
    settings: impl Fn(LimitsBuilder) -> LimitsBuilder + 'static,
) -> Work {
    let (bench, levels) = (Rc::clone(bench), levels.to_vec());
    Box::new(move |length| {
        bench.server.empty();
        let ours = Ours::new(&bench.server, &levels, grants, &settings);
        if !grants {
            bench.runtime.block_on(ours.exhaust(keys));
        }
        bench.throughput(callers, length, || Decide(ours.clone(), Keys::new(keys)))
    })
}

/// One caller, deciding about so many keys in one go.
fn batches(bench: &Rc<Bench>, limit: Limit) -> Work {
    let bench = Rc::clone(bench);
    Box::new(move |length| {
        bench.server.empty();
        let ours = Ours::new(&bench.server, &[limit], true, |settings| settings);
        bench.throughput(1, length, || DecideBatch(ours.clone(), Keys::new(KEYS)))
    })
}

/// A script run by the driver alone.
fn peer(bench: &Rc<Bench>, script: &'static str, arguments: &'static [u64]) -> Work {
    let bench = Rc::clone(bench);
    Box::new(move |length| {
        bench.server.empty();
        let peer = bench
            .runtime
            .block_on(Peer::new(&bench.server, script, arguments));
        bench.throughput(CALLERS, length, || Run(peer.clone(), Keys::new(KEYS)))
    })
}

/// As many connections as callers, as of processes that share a limit.
fn fleet_decides(
    bench: &Rc<Bench>,
    limit: Limit,
    grants: bool,
    settings: impl Fn(LimitsBuilder) -> LimitsBuilder + 'static,
) -> Work {
    let bench = Rc::clone(bench);
    Box::new(move |length| {
        bench.server.empty();
        let ours = || Ours::new(&bench.server, &[limit], grants, &settings);
        if !grants {
            bench.runtime.block_on(ours().exhaust(KEYS));
        }
        bench.throughput(CALLERS, length, || Decide(ours(), Keys::new(KEYS)))
    })
}

/// The same of a script run by the driver alone.
fn fleet_peer(bench: &Rc<Bench>, script: &'static str, arguments: &'static [u64]) -> Work {
    let bench = Rc::clone(bench);
    Box::new(move |length| {
        bench.server.empty();
        let peer = || {
            bench
                .runtime
                .block_on(Peer::new(&bench.server, script, arguments))
        };
        bench.throughput(CALLERS, length, || Run(peer(), Keys::new(KEYS)))
    })
}

/// What the server says a call has taken it, while this was done.
fn script_time(bench: &Rc<Bench>, work: Work) -> Work {
    let bench = Rc::clone(bench);
    Box::new(move |length| {
        let before = bench.server.scripts();
        work(length);
        let after = bench.server.scripts();
        (after.micros - before.micros) / (after.calls - before.calls)
    })
}

/// Callers at once over one connection.
const CALLERS: usize = 64;
const CROWD: usize = 500;
/// Decisions in a batch.
const BATCH: u64 = 64;
const KEYS: u64 = 10_000;
const WARM_UP: Duration = Duration::from_millis(200);
/// One repetition.
const RUN: Duration = Duration::from_secs(2);
