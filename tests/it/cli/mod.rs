//! The command: what it prints, and how it refuses what is wrong.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

mod wrong;

/// A folder of its own that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("sluicegate-cli-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        Self(folder)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        fs::write(&path, bytes).expect("a temporary file");
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sluicegate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluicegate"))
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("the command starts")
}

#[track_caller]
fn prints(arguments: &[&str]) -> String {
    let output = sluicegate(arguments);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {told}");
    String::from_utf8(output.stdout).expect("text")
}

#[track_caller]
fn refuses(arguments: &[&str], parts: &[&str]) {
    let output = sluicegate(arguments);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
    assert!(output.stdout.is_empty(), "half an answer");
    for part in parts {
        assert!(told.contains(part), "{part:?} is not in {told}");
    }
    assert!(!told.contains("panicked"), "{told}");
}

const GATE: &str = "examples/gate.toml";

fn simulated(arguments: &[&str]) -> Value {
    let all: Vec<&str> = ["simulate", "--json"]
        .iter()
        .chain(arguments)
        .copied()
        .collect();
    serde_json::from_str(&prints(&all)).expect("JSON")
}

#[test]
fn check_prints_what_takes_effect() {
    let text = prints(&["check", GATE]);
    assert!(
        text.contains("queue orders-db") && text.contains("watermarks       50, 80"),
        "{text}"
    );
}

#[test]
fn size_names_the_assumption_behind_every_number() {
    let text = prints(&[
        "size",
        "--rate",
        "1000/s",
        "--offered",
        "900/s",
        "--deadline",
        "110ms",
        "--downstream-p99",
        "10ms",
    ]);
    for part in [
        "max_depth                          99",
        "4.50 ms",
        "M/D/1",
        "full queue cleared in",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let json = prints(&[
        "size",
        "--rate",
        "1000",
        "--edge",
        "950/s,200",
        "--deadline",
        "110ms",
        "--json",
    ]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["max_depth"], 109);
    assert_eq!(json["warnings"].as_array().map(Vec::len), Some(2));
    let text = prints(&[
        "size",
        "--rate",
        "200/s",
        "--generate",
        "poisson 150/s",
        "--length",
        "20s",
        "--deadline",
        "1s",
    ]);
    assert!(
        text.contains("replayed") && text.contains("seed 1"),
        "{text}"
    );
}

#[test]
fn simulate_counts_every_line_once() {
    let folder = Folder::new("lines");
    let mut text = String::from("time,who,units\n");
    for index in 0..2000 {
        text.push_str(&format!(
            "2024-01-01 00:00:{:02}.{:03},{},{}\n",
            index / 100,
            index % 100 * 10,
            index % 7,
            1 + index % 2
        ));
    }
    text.push_str("what?\n");
    let trace = folder.file("trace.csv", text);
    let json = simulated(&[
        "--config",
        GATE,
        "--trace",
        &trace,
        "--key",
        "who",
        "--cost",
        "units",
        "--patience",
        "1s",
        "--retries",
        "1",
    ]);
    let run = &json["runs"][0];
    assert_eq!(run["arrivals"], 2000);
    let outcomes = run["outcomes"].as_object().expect("an object");
    let sum: u64 = outcomes
        .values()
        .flat_map(|value| match value.as_object() {
            Some(by) => by.values().filter_map(Value::as_u64).collect(),
            None => vec![value.as_u64().unwrap_or(0)],
        })
        .sum();
    assert_eq!(sum, 2000);
    let steps = run["timeline"]["steps"].as_array().expect("steps");
    let offered: u64 = steps.iter().filter_map(|step| step[0].as_u64()).sum();
    assert_eq!(Some(offered), run["offers"].as_u64());

    let part = simulated(&[
        "--config",
        GATE,
        "--trace",
        &trace,
        "--from",
        "5s",
        "--to",
        "2024-01-01 00:00:10",
    ]);
    assert_eq!(part["runs"][0]["arrivals"], 500);
    let fast = simulated(&["--config", GATE, "--trace", &trace, "--speedup", "10"]);
    assert!(fast["runs"][0]["arriving_s"].as_f64().expect("a number") < 2.0);
    let text = prints(&["simulate", "--config", GATE, "--trace", &trace]);
    assert!(
        text.contains("1 lines could not be read:\n  line 2002: no time in \"what?\""),
        "{text}"
    );
    assert!(
        text.contains("note: a level counts by key") && text.contains("depth, the greatest"),
        "{text}"
    );
}

#[test]
fn simulate_compares_sweeps_and_shares() {
    let poisson = [
        "--generate",
        "poisson 300/s",
        "--length",
        "20s",
        "--seed",
        "9",
    ];
    let with = |more: &[&'static str]| -> String {
        let all = ["simulate", "--config", GATE]
            .iter()
            .chain(&poisson)
            .chain(more)
            .copied();
        prints(&all.collect::<Vec<_>>())
    };
    let text = with(&[
        "--compare",
        "examples/lossless.toml",
        "--callers",
        "wait",
        "--no-chart",
    ]);
    assert!(
        text.contains("gate") && text.contains("lossless") && text.contains("seed 9"),
        "{text}"
    );
    let text = with(&["--sweep", "rate=100..300:100"]);
    assert!(
        ["100/s", "200/s", "300/s"]
            .iter()
            .all(|rate| text.contains(rate)),
        "{text}"
    );
    let text = with(&["--nodes", "4", "--no-chart"]);
    assert!(
        text.contains("over in any span") && text.contains("global"),
        "{text}"
    );
    let json = simulated(
        &[
            &["--config", GATE][..],
            &poisson,
            &["--nodes", "4", "--lease", "5"],
        ]
        .concat(),
    );
    let fleet = &json["fleet"][0];
    assert!(fleet["most_over"].as_u64() <= fleet["bound_over"].as_u64());
    assert_eq!(fleet["lease"], 5);
}

#[test]
fn the_calendar_is_followed_in_the_time_of_the_trace() {
    let folder = Folder::new("calendar");
    let file = folder.file("c.toml", "[queue]\nrate = \"10/s\"\nmax_depth = 1000\n[[calendar]]\nname = \"b\"\nfrom = \"02:00\"\nto = \"03:00\"\nrate = \"1/s\"\n");
    let trace = |hour: u32| -> String {
        let line = |index| {
            format!(
                "2024-01-01 {hour:02}:00:{:02}.{:03}\n",
                index / 5,
                index % 5 * 200
            )
        };
        (0..300).map(line).collect()
    };
    for (hour, depth) in [(1, 0..10), (2, 230..250)] {
        let trace = folder.file("t.csv", trace(hour));
        let json = simulated(&["--config", &file, "--trace", &trace]);
        let max = json["runs"][0]["depth"]["max"].as_u64().expect("a number");
        assert!(depth.contains(&max), "{hour}: {max}");
    }
}

#[test]
fn a_chart_is_written_whole_or_not_at_all() {
    let folder = Folder::new("svg");
    let path = folder.0.join("out.svg").display().to_string();
    let base = [
        "simulate",
        "--config",
        GATE,
        "--generate",
        "poisson 100/s",
        "--length",
        "5s",
        "--svg",
    ];
    prints(&[&base[..], &[&path]].concat());
    let svg = fs::read_to_string(&path).expect("it was written");
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    assert_eq!(fs::read_dir(&folder.0).expect("the folder").count(), 1);
    refuses(
        &[&base[..], &["no/such/folder/out.svg"]].concat(),
        &["no/such/folder/out.svg cannot be written"],
    );
    refuses(
        &[&base[..], &[&path, "--outage", "whenever"]].concat(),
        &["30s for 10s"],
    );
}
