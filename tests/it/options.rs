//! The command line of the main example: what it takes, and how it refuses the rest.

use std::ffi::OsString;
use std::path::Path;

use parser::{HELP, MOST_JOBS, Options};

#[path = "../../examples/protect_database/options.rs"]
mod parser;

fn parse(line: &str) -> Result<Option<Options>, String> {
    Options::parse(line.split_whitespace().map(OsString::from))
}

#[test]
fn what_is_left_out_has_a_default_that_the_help_states() {
    let options = parse("")
        .expect("nothing is needed")
        .expect("no help wanted");
    assert_eq!(
        (options.burst, options.producers, options.rate),
        (2_000, 64, None)
    );
    assert!(HELP.contains("[default: 2000]") && HELP.contains("[default: 64]"));
    assert!(HELP.contains(&format!("at most {MOST_JOBS} arrivals")));
    assert!(HELP.lines().all(|line| line.chars().count() <= 80));
}

#[test]
fn every_option_is_read() {
    let line =
        "--json --keep --rate 40 --producers=7 --trace a.csv --speedup 0.5 --metrics [::1]:9000";
    let options = parse(line).expect("well formed").expect("no help wanted");
    assert!(options.json && options.keep);
    assert_eq!(
        (options.rate, options.producers, options.speedup),
        (Some(40), 7, 0.5)
    );
    assert_eq!(options.trace.as_deref(), Some(Path::new("a.csv")));
    assert_eq!(options.metrics, "[::1]:9000".parse().ok());
    assert_eq!(parse("--burst 3 -h"), Ok(None));
}

#[test]
fn bad_calls_are_refused_by_option_and_value() {
    for (line, message) in [
        (
            "--rate 0",
            "--rate is a whole number from 1 to 100000, got \"0\"",
        ),
        ("--burst 0", "--burst is a whole number"),
        ("--burst 10000000", "got \"10000000\""),
        ("--burst -1", "got \"-1\""),
        ("--producers 1e3", "--producers is a whole number"),
        (
            "--trace f --speedup 0",
            "--speedup is a number above 0, got \"0\"",
        ),
        ("--trace f --speedup NaN", "--speedup is"),
        ("--trace f --speedup inf", "--speedup is"),
        ("--speedup 2", "--speedup needs --trace FILE"),
        ("--trace f --burst 2", "exclude each other"),
        ("--metrics 9000", "--metrics is an address and a port"),
        ("--rate", "missing argument"),
        ("--json=no", "unexpected argument"),
        ("--fast", "invalid option '--fast'"),
        ("file", "unexpected argument \"file\""),
    ] {
        let refusal = parse(line).expect_err(line);
        assert!(refusal.contains(message), "{line}: {refusal}");
    }
}
