//! What tests of shared limits have in common: one limit of each kind, and looks at what lies on the server.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use sluicegate::redis::{Limits, LimitsBuilder};
use sluicegate::{
    Charge, FixedWindow, Hierarchy, Key, LeakyBucket, Limit, Rate, Ruling, SlidingCounter,
    SlidingLog, TokenBucket,
};

use crate::server::Server;

/// Far longer than any test: what is used up in it stays so.
pub(crate) const DAY: Duration = Duration::from_secs(86_400);
/// Far above any deadline set here, far below a hang: what a busy machine may add.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A limiter of one level.
pub(crate) type Single = Hierarchy<u64, Limits>;

/// So many units in a span, by each of the five algorithms.
pub(crate) fn five(units: u64, span: Duration) -> [(&'static str, Limit); 5] {
    let rate = Rate::new(units, span).expect("a rate");
    let bucket = TokenBucket::new(rate, units).expect("valid");
    let meter = LeakyBucket::new(rate, units).expect("valid");
    let window = FixedWindow::new(units, span).expect("valid");
    let log = SlidingLog::new(units, span).expect("valid");
    let counter = SlidingCounter::new(units, span).expect("valid");
    [
        ("token bucket", bucket.into()),
        ("leaky bucket", meter.into()),
        ("fixed window", window.into()),
        ("sliding log", log.into()),
        ("sliding counter", counter.into()),
    ]
}

/// A level `user` on this store, by the number of the user.
pub(crate) fn single(store: &Limits, limit: Limit) -> Single {
    let hierarchy = Hierarchy::<u64>::builder().level("user", limit, |user| *user);
    let hierarchy = hierarchy.build_on(store.clone());
    hierarchy.expect("the level can be kept")
}

/// Both from the store's settings.
pub(crate) fn built(store: LimitsBuilder, limit: Limit) -> (Limits, Single) {
    let store = store.build().expect("the settings are valid");
    let hierarchy = single(&store, limit);
    (store, hierarchy)
}

/// A charge of the level `user` made by hand.
pub(crate) fn charge(limit: Limit, user: u64, cost: u64) -> Charge {
    Charge::new(cost, [("user", limit, Key::from(user))])
}

/// What is left at each level.
pub(crate) fn left(ruling: &Ruling) -> Vec<u64> {
    let decisions = ruling.decisions();
    decisions.map(|(_, decision)| decision.remaining).collect()
}

/// What is left for a user, as the server has it.
pub(crate) async fn left_there(store: &Limits, limit: Limit, user: u64) -> u64 {
    let there = store.peek(charge(limit, user, 0)).await;
    left(&there.expect("the server answers"))[0]
}

/// Waits until so much is left for a user: refunds arrive by themselves.
#[track_caller]
pub(crate) fn wait_for_left(
    store: &Limits,
    limit: Limit,
    user: u64,
    expected: u64,
) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        let start = Instant::now();
        loop {
            let there = left_there(store, limit, user).await;
            if there == expected {
                return;
            }
            let late = start.elapsed() > PATIENCE;
            assert!(!late, "{place}: {there} left instead of {expected}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Asks until the answer is the server's own again.
pub(crate) async fn recovered(hierarchy: &Single, user: u64) -> Ruling {
    let start = Instant::now();
    loop {
        let ruling = hierarchy.decide(&user, 1).await;
        if !ruling.is_degraded() {
            return ruling;
        }
        assert!(start.elapsed() < PATIENCE, "it does not recover");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Everything that lies on the server: each key with its value and the instant at which it ends.
pub(crate) fn contents(server: &Server) -> Vec<(String, String, i64)> {
    let mut keys = server.keys();
    keys.sort();
    let content = |key: String| {
        let value = server.ask(&["DUMP", &key]);
        let end = server.number(&["PEXPIRETIME", &key]);
        (key, value, end)
    };
    keys.into_iter().map(content).collect()
}

/// Writes that the server counts since it started.
pub(crate) fn writes(server: &Server) -> String {
    let info = server.ask(&["INFO", "persistence"]);
    let line = info
        .lines()
        .find(|line| line.starts_with("rdb_changes_since_last_save"));
    line.expect("the server tells").to_owned()
}

/// The server's own clock, in microseconds since 1970.
pub(crate) fn server_time(server: &Server) -> u64 {
    let reply = server.ask(&["TIME"]);
    let numbers = reply.lines().filter(|line| !line.starts_with(['*', '$']));
    let numbers: Vec<u64> = numbers.filter_map(|line| line.parse().ok()).collect();
    let [seconds, micros] = numbers[..] else {
        panic!("{reply}");
    };
    seconds * 1_000_000 + micros
}

/// No key of the limits lives for ever.
#[track_caller]
pub(crate) fn assert_every_key_ends(server: &Server) {
    for key in server.keys() {
        let left = server.number(&["PTTL", &key]);
        // 0 is the last millisecond, and -2 one that has ended meanwhile.
        assert!(left != -1, "{key} has no end");
    }
}

/// Every command that the server runs, while somebody looks.
pub(crate) struct Watch {
    lines: BufReader<TcpStream>,
}

impl Watch {
    pub(crate) fn begin(server: &Server) -> Self {
        let mut stream = TcpStream::connect(server.address()).expect("it listens");
        let patience = stream.set_read_timeout(Some(PATIENCE));
        patience.expect("a timeout can be set");
        stream.write_all(b"MONITOR\r\n").expect("it listens");
        let mut lines = BufReader::new(stream);
        let mut line = String::new();
        lines.read_line(&mut line).expect("it answers");
        assert_eq!(line.trim(), "+OK");
        Self { lines }
    }

    /// The commands so far, a line each, those of scripts marked with `lua`.
    pub(crate) fn end(mut self, server: &Server) -> Vec<String> {
        let mark = "the watch has ended";
        server.ask(&["ECHO", mark]);
        let mut seen = Vec::new();
        loop {
            let mut line = Vec::new();
            self.lines.read_until(b'\n', &mut line).expect("it answers");
            assert!(!line.is_empty(), "the watch was cut off");
            let line = String::from_utf8_lossy(&line).into_owned();
            if line.contains(mark) {
                return seen;
            }
            seen.push(line);
        }
    }
}

/// The words of a watched command; escapes stay as they are shown.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (&mut word, letter) {
            (None, '"') => word = Some(String::new()),
            (None, _) => {}
            (Some(_), '"') => words.extend(word.take()),
            (Some(text), '\\') => text.extend([Some(letter), letters.next()].into_iter().flatten()),
            (Some(text), _) => text.push(letter),
        }
    }
    words
}
