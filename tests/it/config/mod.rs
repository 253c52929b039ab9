//! The configuration file: what it says, what it refuses and how, and how it changes under a running queue.

use std::time::Duration;

use proptest::prelude::*;
use sluicegate::config::Config;
use sluicegate::queue::Priority;
use sluicegate::{Key, ManualClock, Rate, Tick};

mod live;

const GATE: &str = include_str!("../../../examples/gate.toml");

fn config(text: &str) -> Config {
    Config::from_toml(text).unwrap_or_else(|error| panic!("{error}"))
}

/// A file, and the place and a part of the message with which it is refused.
#[track_caller]
fn refused(text: &str, line: usize, column: usize, part: &str) {
    let error = Config::from_toml(text).expect_err(text);
    let place = (error.line(), error.column());
    assert_eq!(place, (Some(line), Some(column)), "{error}");
    assert!(error.message().contains(part), "{error}");
}

#[test]
fn the_samples_are_valid_and_say_what_they_say() {
    let gate = config(GATE);
    let (tx, _rx) = gate.builder().build::<u8>().expect("it was checked");
    let snapshot = tx.snapshot();
    assert_eq!(
        (snapshot.max_depth, snapshot.rate),
        (100, Some(Rate::per_second(200)))
    );
    assert_eq!(gate.levels().len(), 2);
    assert!(gate.levels()[1].per_key && gate.is_fair());
    assert_eq!(gate.lane_of("health-check"), Priority::Critical);
    assert_eq!(gate.lane_of("anybody"), Priority::Normal);
    let text = gate.to_string();
    for part in [
        "queue orders-db",
        "max_depth        100",
        "level client: token_bucket 20/s burst 40, each key",
        "lane low: at least 0.05 of the departures",
        "tenant gold-customer: weight 4",
        "retry_budget     0.1 of fresh work, 1/s",
        "derived",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    config(include_str!("../../../examples/lossless.toml"));
}

#[test]
fn lane_shares_and_victims_reach_the_queue() {
    let text = "[queue]\nmax_depth = 4\nwhen_full = \"evict_lowest\"\n[lanes]\nshares = { low = 0.25, high = 0.5 }\n";
    let config = config(text);
    let (tx, rx) = config.builder().build::<u32>().expect("it was checked");
    for n in 0..4 {
        tx.offer(n)
            .priority(Priority::Low)
            .try_send()
            .expect("room");
    }
    let urgent = tx.offer(9).priority(Priority::High).try_send();
    urgent.expect("a low one makes room");
    assert_eq!(tx.snapshot().ledger.evicted, 1);
    // High is short of its half first; low has its quarter after that.
    let order: Vec<u32> = std::iter::from_fn(|| rx.try_recv().ok().map(|job| *job)).collect();
    assert_eq!(order.len(), 4);
    assert!(order.contains(&9));
    let shown = config.to_string();
    assert!(
        shown.contains("lane high: at least 0.5 of the departures"),
        "{shown}"
    );
    assert!(shown.contains("when_full        evict_lowest"), "{shown}");
    refused(
        "[queue]\n[lanes]\nshares = { low = 0.7, high = 0.6 }\n",
        3,
        10,
        "must not be above 1",
    );
    refused(
        "[queue]\n[lanes]\nshares = { low = -0.1 }\n",
        3,
        10,
        "from 0 to 1",
    );
    refused(
        "[queue]\n[lanes]\nshares = { lowest = 0.1 }\n",
        3,
        12,
        "expected one of",
    );
}

#[test]
fn an_edge_counts_everybody_or_each_key() {
    let edge = config(GATE)
        .hierarchy(|level, key: &&str| (level == "client").then(|| Key::from(*key)))
        .clock(ManualClock::new())
        .build()
        .expect("it was checked");
    assert!(edge.check(&"a", 40).is_granted());
    assert_eq!(edge.check(&"a", 1).binding(), Some("client"));
    assert!(edge.check(&"b", 40).is_granted());
    assert_eq!(edge.check(&"c", 1).binding(), Some("global"));
}

#[test]
fn what_does_not_read_is_shown_with_what_would() {
    refused(
        "[queue]\nrate = \"200/fortnight\"\n",
        2,
        8,
        "a rate like \"200/s\"",
    );
    refused(
        "[queue]\nrate = 200\n",
        2,
        8,
        "expected a rate like \"200/s\"",
    );
    refused("[queue]\nrate = \"0/s\"\n", 2, 8, "at least 1");
    refused("[queue]\n  max_dept = 5\n", 2, 3, "expected one of");
    refused("[queue]\npromise = \"soon\"\n", 2, 11, "\"500ms\"");
    refused("[queue]\nwatermarks = [1]\n", 2, 14, "2");
    refused("[queue]\nwhen_full = \"drop\"\n", 2, 13, "evict_oldest");
    refused("[queue]\nmax_depth = -1\n", 2, 13, "-1");
    refused("[queue\n", 1, 7, "");
    refused(
        "[[level]]\nname = \"a\"\nlimit = \"bucket\"\n[queue]\n",
        3,
        9,
        "token_bucket 10/s burst 50",
    );
    let error = Config::from_toml("name = \"x\"\n").expect_err("no queue");
    assert!(error.message().contains("queue"), "{error}");
    let error = Config::from_toml("[queue]\nrate = \"é/s\"\n").expect_err("no number");
    let shown = error.to_string();
    assert!(
        shown.contains("    2 | rate = \"é/s\"\n      |        ^^^^^"),
        "{shown}"
    );
}

#[test]
fn what_contradicts_itself_is_refused_where_it_stands() {
    refused("[queue]\npromise = \"1s\"\n", 2, 11, "needs a rate");
    refused(
        "[queue]\nrate = \"9/s\"\nmax_depth = 0\n",
        3,
        13,
        "at least 1",
    );
    refused(
        "[queue]\nrate = \"9/s\"\nmax_depth = 9\nwatermarks = [9, 5]\n",
        4,
        14,
        "low < high <= max_depth",
    );
    refused(
        "[queue]\nrate = \"9/s\"\nmax_wait = \"1ms\"\n",
        3,
        12,
        "grain",
    );
    refused(
        "[queue]\nrate = \"9/s\"\nmax_depth = 9\n[tenants]\nmax_depth = 10\n",
        5,
        13,
        "must not be above max_depth",
    );
    refused(
        "[queue]\n[tenants]\nweights = { a = 0 }\n",
        3,
        17,
        "at least 1",
    );
    refused(
        "[queue]\n[lanes]\nlow = [\"a\"]\nhigh = [\"b\", \"a\"]\n",
        4,
        14,
        "is in lane low already",
    );
    let level = "[[level]]\nname = \"a\"\nlimit = \"sliding_log 1 per 1s\"\n";
    refused(
        &format!("[queue]\n{level}{level}"),
        6,
        8,
        "a second level \"a\"",
    );
    refused(
        "[queue]\n[[level]]\nname = \"a\"\nlimit = \"token_bucket 1/s burst 2 initial 0\"\nper = \"key\"\n",
        4,
        9,
        "does not start full",
    );
}

#[test]
fn a_calendar_that_contradicts_itself_is_refused() {
    let window = |from: &str, to: &str, ramp: &str| {
        format!(
            "[[calendar]]\nname = \"{from}\"\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"30 %\"\nramp = \"{ramp}\"\n"
        )
    };
    let with = |windows: &str| format!("[queue]\nrate = \"200/s\"\n{windows}");
    refused(
        &with(&window("02:00", "02:00", "0s")),
        6,
        6,
        "ends where it starts",
    );
    refused(
        &with(&window("02:00", "03:00", "2h")),
        8,
        8,
        "longer than the window",
    );
    refused(
        &with(&window("25:00", "03:00", "0s")),
        5,
        8,
        "a time of day like",
    );
    let two = window("02:00", "03:00", "10min") + &window("03:05", "04:00", "0s");
    let error = Config::from_toml(&with(&two)).expect_err("the slope reaches into it");
    assert!(error.message().contains("claim the same time"), "{error}");
    config(&with(
        &(window("02:00", "03:00", "5min") + &window("03:05", "04:00", "0s")),
    ));
    let across = window("23:30", "00:30", "0s") + &window("00:00", "01:00", "0s");
    assert!(Config::from_toml(&with(&across)).is_err());
    refused(
        &format!("[queue]\n{}", window("02:00", "03:00", "0s")),
        2,
        1,
        "the queue has none",
    );
    refused(
        &with(&window("02:00", "03:00", "0s").replace("30 %", "0 %")),
        7,
        8,
        "from 1 to",
    );
}

#[test]
fn the_calendar_follows_clock_slope_and_day() {
    let config = config(
        "utc_offset = \"+01:00\"\n[queue]\nrate = \"200/s\"\n[[calendar]]\nname = \"backup\"\nfrom = \"02:00\"\nto = \"03:00\"\n\
         rate = \"30 %\"\nramp = \"10min\"\ndays = [\"mon\"]\n",
    );
    // 2024-01-01 was a Monday; 02:00 at +01:00 is 01:00 UTC.
    let at = |day: u64, hour: u64, minute: u64| {
        let seconds = 1_704_067_200 + day * 86_400 + hour * 3600 + minute * 60;
        config
            .rate_at(Tick::from_nanos(seconds * 1_000_000_000))
            .map(|rate| rate.to_string())
    };
    let says = |text: &str| Some(text.to_owned());
    assert_eq!(at(0, 0, 59), says("200/s"));
    assert_eq!(at(0, 1, 5), says("130/s"));
    assert_eq!(at(0, 1, 10), says("60/s"));
    assert_eq!(at(0, 1, 59), says("60/s"));
    assert_eq!(at(0, 2, 5), says("130/s"));
    assert_eq!(at(0, 2, 10), says("200/s"));
    assert_eq!(at(1, 1, 30), says("200/s"));
    assert_eq!(at(7, 1, 30), says("60/s"));
    let from = Tick::from_nanos(1_704_067_200 * 1_000_000_000);
    let usual = Rate::per_second(200);
    let day = Duration::from_secs(86_400);
    let changes: Vec<_> = config.calendar().changes(usual, from, day).collect();
    assert_eq!(changes.len(), 1 + 2 * 21);
    assert!(changes.is_sorted_by_key(|(at, _)| *at));
    assert_eq!(
        changes[21],
        (Duration::from_secs(4200), Rate::per_second(60))
    );
    assert_eq!(changes.last(), Some(&(Duration::from_secs(7800), usual)));
}

#[test]
fn what_does_not_fit_together_is_warned_of() {
    let config = config(
        "[queue]\nrate = \"100/s\"\nmax_depth = 500\nexpire_after = \"1s\"\n[[level]]\nname = \"all\"\nlimit = \"token_bucket 200/s burst 900\"\n",
    );
    let warnings = config.warnings();
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!(
        config
            .to_string()
            .contains("warning: max_depth 500 is beyond")
    );
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_with_a_place_in_it(
        text in ".{0,200}",
        keys in prop::collection::vec((prop::sample::select(vec![
            "rate", "promise", "max_depth", "watermarks", "max_wait", "catch_up_pace", "standing_delay", "dead_letters", "timer",
        ]), prop::sample::select(vec![
            "1", "0", "-1", "1e999", "nan", "true", "\"1/s\"", "\"9999999999999999999/s\"", "\"1/day\"", "\"1s\"", "\"0s\"",
            "\"18446744073709551615ns\"", "[1, 2]", "[2, 1]", "18446744073709551615", "9223372036854775807", "{}", "'''",
            "{ target = \"1s\", interval = \"0s\" }", "\"precise\"",
        ])), 0..8),
    ) {
        let mut built = String::from("[queue]\n");
        for (key, value) in keys {
            built.push_str(&format!("{key} = {value}\n"));
        }
        for text in [text, built] {
            match Config::from_toml(&text) {
                Ok(config) => drop(config.to_string()),
                Err(error) => {
                    prop_assert!(error.line().is_none_or(|line| line <= text.matches('\n').count() + 1), "{error}");
                    prop_assert!(!error.message().is_empty());
                }
            }
        }
    }
}
