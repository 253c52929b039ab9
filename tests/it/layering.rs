//! The shape of the sources: imports point down the layers, pure code is pure, nothing is unsafe, no file grows long.
//!
//! | layer | rooms | |
//! |---|---|---|
//! | 0 words | `tick rate decision key error ledger refusal tally words` | pure |
//! | 1 rules | `policy` | pure |
//! | 2 machine | `machine` | pure |
//! | 3 ground | `clock timer sync telemetry` | reads time, names lock types, publishes numbers |
//! | 4 engine | `limiter queue gate` | |
//! | 5 rim | `observe http redis broker config sim bin` | no rim imports another, except `observe` and `config` |
//!
//! A room is a file or folder right under `src`. `lib.rs` is the front door: it may name every room, and no room may
//! import from it, as that would hide where things come from. Programs under `bin` use the crate from outside, so only
//! the rules on `unsafe` and length are for them. Unit tests obey every rule, but for conveniences: they may `unwrap`,
//! and use the locks and atomics of std directly.

mod source;

use std::fs;
use std::path::{Path, PathBuf};

use source::{Source, UsePath};

const LAYERS: [&[&str]; 6] = [
    &[
        "tick", "rate", "decision", "key", "error", "ledger", "refusal", "tally", "words",
    ],
    &["policy"],
    &["machine"],
    &["clock", "timer", "sync", "telemetry"],
    &["limiter", "queue", "gate"],
    &["observe", "http", "redis", "broker", "config", "sim", "bin"],
];
const MACHINE: usize = 2;
const RIM: usize = 5;

/// What pure code may not so much as name.
const IMPURE: [&str; 11] = [
    "tokio",
    "tokio_util",
    "async",
    "await",
    "CancellationToken",
    "SystemTime",
    "Mutex",
    "RwLock",
    "Condvar",
    "Waker",
    "thread",
];
const LOCKS: [&str; 4] = ["Mutex", "RwLock", "Condvar", "atomic"];
const LONGEST: usize = 400;

/// Everything wrong with one file, as `path:line: what`.
fn violations(path: &str, text: &str) -> Vec<String> {
    let source = Source::parse(path, text);
    let mut found = Vec::new();
    let mut report = |line: usize, what: String| found.push(format!("{path}:{line}: {what}"));

    let lines = text.lines().count();
    if lines > LONGEST {
        report(lines, format!("{lines} lines, at most {LONGEST}"));
    }
    for token in source.named("unsafe") {
        report(token.line, "unsafe".into());
    }
    let room = source.room();
    if room == "bin" {
        return found;
    }
    for name in ["unwrap", "todo", "unimplemented", "dbg"] {
        for token in source.named(name).filter(|token| !token.in_test) {
            report(token.line, format!("{name} outside tests"));
        }
    }
    if room != "sync" {
        for import in source.paths("std").iter().filter(|path| !path.in_test) {
            if import.starts_with(&["std", "sync"]) && LOCKS.contains(&import.segment(2)) {
                report(import.line, format!("{import} outside sync.rs"));
            }
        }
    }
    if room == "lib" {
        return found;
    }
    let Some(layer) = layer_of(room) else {
        report(1, format!("{room} is in no layer"));
        return found;
    };
    for import in source.crate_paths() {
        if let Some(what) = wrong_import(room, layer, &import) {
            report(import.line, what);
        }
    }
    if layer <= MACHINE {
        for name in IMPURE {
            for token in source.named(name) {
                report(token.line, format!("{name} in layer {layer}"));
            }
        }
        for line in source.sequence(&["Instant", "::", "now"]) {
            report(line, format!("Instant::now in layer {layer}"));
        }
    }
    found
}

fn layer_of(room: &str) -> Option<usize> {
    LAYERS.iter().position(|rooms| rooms.contains(&room))
}

/// Why a room may not import from this path; segments are counted from the root of the crate.
fn wrong_import(room: &str, layer: usize, import: &UsePath) -> Option<String> {
    let target = import.segment(0);
    match layer_of(target) {
        _ if target == room => None,
        None => Some(format!(
            "{import} is no room: name the one where it is defined"
        )),
        Some(above) if above > layer => Some(format!("{import} points up to layer {above}")),
        Some(RIM) if ["observe", "config"].contains(&target) => None,
        // The Redis queue is one of the brokers.
        Some(RIM) if room == "redis" && target == "broker" => None,
        Some(RIM) => Some(format!("{import} is another rim")),
        Some(_) => None,
    }
}

/// All `.rs` files under a folder, in a steady order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn the_sources_keep_to_their_layers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = files(&root.join("src"));
    assert!(files.len() > 5, "the sources were not found");
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a source is text");
        let path = file.strip_prefix(root).expect("it was found under it");
        let path = path.to_str().expect("a source has a plain name");
        found.extend(violations(&path.replace('\\', "/"), &text));
    }
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[track_caller]
fn check(path: &str, text: &str, expected: &[&str]) {
    let found: Vec<String> = violations(path, text)
        .iter()
        .map(|violation| violation.replacen(&format!("{path}:"), "", 1))
        .collect();
    assert_eq!(found, expected, "in {path}:\n{text}");
}

#[test]
fn an_import_that_points_up_is_found_in_every_form() {
    let up = "1: crate::queue::Sender points up to layer 4";
    check("src/policy/limit.rs", "use crate::queue::Sender;", &[up]);
    check("src/machine/mod.rs", "use super::queue::Sender;", &[up]);
    check("src/tick.rs", "fn f(_: crate::queue::Sender<u8>) {}", &[up]);
    check(
        "src/machine/lanes.rs",
        "mod tests {\n    use super::super::super::queue::Sender;\n}",
        &["2: crate::queue::Sender points up to layer 4"],
    );
    check(
        "src/clock.rs",
        "use crate::{tick::Tick, gate::{self, Gate as Door}, sync::*};",
        &[
            "1: crate::gate points up to layer 4",
            "1: crate::gate::Gate points up to layer 4",
        ],
    );
    check(
        "src/queue/sink.rs",
        "#[cfg(test)]\nmod tests { use crate::sim::Trace; }",
        &["2: crate::sim::Trace points up to layer 5"],
    );
}

#[test]
fn imports_down_and_within_a_layer_are_fine() {
    check(
        "src/queue/sink.rs",
        "use super::sender::Sender; use crate::{gate::Gate, machine, tick::Tick}; pub(crate) struct S;",
        &[],
    );
    check("src/policy/mod.rs", "use self::limit::Limit;", &[]);
    check(
        "src/rate.rs",
        "/// [`Limit`](crate::policy::Limit)\nmod tests { use super::*; }",
        &[],
    );
    check(
        "src/lib.rs",
        "pub use crate::queue::Sender; pub use sim::Trace;",
        &[],
    );
}

#[test]
fn the_front_door_and_unknown_rooms_are_not_imported() {
    check(
        "src/queue/job.rs",
        "use crate::Tick;",
        &["1: crate::Tick is no room: name the one where it is defined"],
    );
    check(
        "src/gate.rs",
        "use super::*;",
        &["1: crate is no room: name the one where it is defined"],
    );
    check("src/helpers.rs", "", &["1: helpers is in no layer"]);
}

#[test]
fn a_rim_imports_no_other_rim_but_observe_and_config() {
    check(
        "src/http/layer.rs",
        "use crate::redis::Store;\nuse crate::{observe::Snapshot, config::File};",
        &["1: crate::redis::Store is another rim"],
    );
    check("src/redis/queue.rs", "use crate::broker::Broker;", &[]);
    check("src/bin/sluicegate.rs", "use crate::broker::Broker;", &[]);
}

#[test]
fn pure_code_names_no_clock_lock_runtime_or_await() {
    check(
        "src/machine/queue.rs",
        "use std::sync::{Arc, Mutex};\nuse std::time::Instant;\nfn f() { Instant::now(); x.await; }\n\
         use tokio::time;\n/// tokio::time\nconst S: &str = \"tokio\"; use std::thread;",
        &[
            "1: std::sync::Mutex outside sync.rs",
            "4: tokio in layer 2",
            "3: await in layer 2",
            "1: Mutex in layer 2",
            "6: thread in layer 2",
            "3: Instant::now in layer 2",
        ],
    );
    check("src/timer.rs", "fn f() { Instant::now(); }", &[]);
}

#[test]
fn locks_unsafe_unwraps_and_long_files_are_found() {
    check(
        "src/limiter/direct.rs",
        "use std::sync::atomic::AtomicU64;\n#[cfg(test)]\nmod tests { use std::sync::Mutex; fn f() { x.unwrap() } }",
        &["1: std::sync::atomic::AtomicU64 outside sync.rs"],
    );
    check(
        "src/bin/sluicegate.rs",
        "// unsafe\nfn f() { unsafe {} }",
        &["2: unsafe"],
    );
    check(
        "src/lib.rs",
        "#[cfg(not(test))]\nfn f() { x.unwrap() }\n#[cfg(test)]\nfn g() { x.unwrap() }\nfn h() { todo!() }",
        &["2: unwrap outside tests", "5: todo outside tests"],
    );
    check(
        "src/lib.rs",
        "const S: &str = r#\"unsafe \" unsafe\"#; /* unsafe /* */ unsafe */ const C: char = '\\''; unsafe fn f<'a>() {}",
        &["1: unsafe"],
    );
    check("src/lib.rs", &"\n".repeat(400), &[]);
    check(
        "src/lib.rs",
        &"\n".repeat(401),
        &["401: 401 lines, at most 400"],
    );
}
