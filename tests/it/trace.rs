//! The trace reader that the examples share: arrivals in order, whatever the file holds.

use std::io::{BufReader, Cursor, Read};
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;

use reader::{Arrival, Trace, TraceError};

#[path = "../../examples/support/trace.rs"]
mod reader;

fn offsets(text: &str) -> Vec<Duration> {
    let trace = Trace::new(Cursor::new(text.to_owned())).expect(text);
    trace.map(|arrival| arrival.expect(text).offset).collect()
}

fn refusal(bytes: &[u8]) -> String {
    match Trace::new(Cursor::new(bytes.to_vec())) {
        Ok(trace) => trace
            .filter_map(Result::err)
            .map(|error| error.to_string())
            .collect(),
        Err(error) => error.to_string(),
    }
}

/// Two times, and the nanoseconds from the first to the second.
#[track_caller]
fn check(first: &str, second: &str, nanos: u64) {
    let expected = [Duration::ZERO, Duration::from_nanos(nanos)];
    assert_eq!(offsets(&format!("{first}\n{second}\n")), expected);
}

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;

#[test]
fn every_form_of_time_is_read() {
    let plain = "2023-11-16 18:17:03.9799600";
    check(plain, "2023-11-16 18:17:04.0319600", 52_000_000);
    check("2023-11-16T18:17:03Z", "2023-11-16t18:17:03.000000001z", 1);
    check("1700000000", "1700000000.25", SECOND / 4);
    check("1700000000000", "1700000000250.5", 250_500_000);
    check("1700000000000000", "1700000000000250", 250_000);
    check("1700000000000000000", "1700000000000000250", 250);
    check("0", "0.5,tail", SECOND / 2);
    check("\"1.5\";x", " 2 ;y", SECOND / 2);
    let log = |time: &str| format!("::1 - jo [x] hn [{time}] \"GET / HTTP/1.1\" 200 5");
    let (first, second) = ("17/May/2015:10:05:00 +0000", "17/May/2015:10:05:03 +0000");
    check(&log(first), &log(second), 3 * SECOND);
}

#[test]
fn zones_are_subtracted_and_none_means_utc() {
    check("2024-03-01 00:30:00", "2024-03-01 00:30:00Z", 0);
    check(
        "2024-03-01T00:30:00+02:00",
        "2024-02-29T23:30:00Z",
        3_600 * SECOND,
    );
    check("2024-02-29 19:00:00-0530", "2024-03-01 00:30:00 UTC", 0);
    check(
        "2024-02-29 20:30:00 -04",
        "2024-03-01 00:30:01 +0000",
        SECOND,
    );
    let log = |time: &str| format!("h - - [{time}] \"GET /\" 200 -");
    let (east, west) = ("01/Mar/2024:09:30:00 +0900", "29/Feb/2024:19:30:00 -0500");
    check(&log(east), &log(west), 0);
}

#[test]
fn the_calendar_is_gregorian() {
    check("1970-01-01 00:00:00", "1970-01-02 00:00:00", DAY);
    check("2023-02-28 12:00:00", "2023-03-01 12:00:00", DAY);
    check("2024-02-28 12:00:00", "2024-03-01 12:00:00", 2 * DAY);
    check("1900-02-28 12:00:00", "1900-03-01 12:00:00", DAY);
    check("2000-02-28 12:00:00", "2000-03-01 12:00:00", 2 * DAY);
    check("1999-12-31 23:59:59", "2000-01-01 00:00:00", SECOND);
    check("2016-12-31 23:59:60", "2017-01-01 00:00:00", 0);
    check("1969-12-31 23:59:59", "1970-01-01 00:00:00", SECOND);
    check("2001-01-01 00:00:00", "2401-01-01 00:00:00", 146_097 * DAY);
    // A date and the same instant as a Unix number, against each other by way of the first.
    for (date, unix) in [
        ("2015-05-17 10:05:00", 1_431_857_100),
        ("2100-03-01 00:00:00", 4_107_542_400),
    ] {
        let days = Duration::from_secs(unix);
        assert_eq!(offsets(&format!("1970-01-01 00:00:00\n{date}"))[1], days);
    }
    for text in [
        "2023-02-29 00:00:00",
        "2023-13-01 00:00:00",
        "2023-00-01 00:00:00",
        "2023-04-31 00:00:00",
        "2023-01-01 24:00:00",
        "2023-01-01 00:60:00",
        "2023-01-01 00:00:61",
        "2023-01-01 00:00:00 +24:00",
        "2023-01-01 00:00:00 +02:",
        "2023-01-01",
        "2023-01-01 00:00:00.",
        "1e9",
        "-1",
        "1.",
        ".5",
    ] {
        assert!(refusal(text.as_bytes()).contains("has no time"), "{text}");
    }
}

#[test]
fn headers_comments_and_blank_lines_are_no_arrivals() {
    let text = "\u{feff}TIMESTAMP,ContextTokens\r\n\r\n# note\r\n2023-11-16 18:17:03,4\r\n\r\n2023-11-16 18:17:04,5";
    let mut trace = Trace::new(Cursor::new(text)).expect("a trace");
    assert_eq!(trace.by_ref().filter_map(Result::ok).count(), 2);
    assert_eq!((trace.notes().arrivals, trace.notes().skipped), (2, 0));
}

#[test]
fn costs_are_summed_from_named_or_numbered_columns() {
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n1,4808,10\n2,\"1\",2\n3,x,2\n";
    let trace = || Trace::new(Cursor::new(text)).expect("a trace");
    let costs = |columns: &[&str]| -> Vec<_> {
        let trace = trace().cost_columns(columns).expect("the columns exist");
        trace
            .filter_map(Result::ok)
            .map(|arrival| arrival.cost)
            .collect()
    };
    assert_eq!(costs(&["ContextTokens", "3"]), [Some(4818), Some(3)]);
    let error = trace()
        .cost_columns(&["Tokens"])
        .map(|_| ())
        .expect_err("no such column");
    assert_eq!(
        error.to_string(),
        "has no column \"Tokens\"; it has TIMESTAMP, ContextTokens, GeneratedTokens"
    );
    let first = trace().next().and_then(Result::ok);
    assert_eq!(
        first,
        Some(Arrival {
            offset: Duration::ZERO,
            cost: None
        })
    );
}

#[test]
fn unreadable_lines_are_counted_and_the_first_kept() {
    let mut text = "1\n".to_owned();
    text.push_str(&"what?\n".repeat(7));
    text.push_str(&format!("2,{}\n", "x".repeat(70_000)));
    text.push_str("3\n");
    let mut trace = Trace::new(Cursor::new(text)).expect("a trace");
    assert_eq!(trace.by_ref().filter_map(Result::ok).count(), 2);
    let notes = trace.notes();
    assert_eq!((notes.skipped, notes.first_skipped.len()), (8, 5));
    assert_eq!(
        notes.first_skipped[0],
        (2, "no time in \"what?\"".to_owned())
    );
}

#[test]
fn equal_times_keep_the_order_of_lines_and_late_ones_are_put_right() {
    let text = "t,c\n5,1\n5,2\n3,3\n5,4\n";
    let trace = Trace::new(Cursor::new(text)).expect("a trace");
    let mut trace = trace.cost_columns(&["c"]).expect("the column exists");
    let costs: Vec<_> = trace
        .by_ref()
        .filter_map(|arrival| arrival.ok()?.cost)
        .collect();
    assert_eq!(costs, [3, 1, 2, 4]);
    assert_eq!(trace.notes().out_of_order, 1);
}

#[test]
fn a_file_far_out_of_order_is_refused() {
    let mut text: String = (0..70_000)
        .map(|second| format!("{}\n", 1_000 + second))
        .collect();
    text.push_str("1\n");
    let error = Trace::new(Cursor::new(text))
        .expect("starts well")
        .find_map(Result::err);
    assert!(
        matches!(error, Some(TraceError::Unsorted { line: 70_001, .. })),
        "{error:?}"
    );
}

#[test]
fn what_is_no_trace_is_refused_by_name() {
    for (bytes, message) in [
        (&b""[..], "is empty"),
        (b"\n \n# only this\n", "is empty"),
        (
            b"\x1f\x8b\x08\x00\x00",
            "is gzip data; unpack it first (gunzip)",
        ),
        (b"\x28\xb5\x2f\xfd\x00", "is zstd data"),
        (b"PK\x03\x04", "is zip data"),
        (b"\x7fELF\x02\x00\x01\n", "is binary"),
        (b"\xff\xfe1\x007\x00", "is binary (or UTF-16)"),
        (b"\xde\xad\xbe\xef", "has no time in its first 1 lines"),
        (b"time\nsoon\nlater\n", "it starts with \"time\""),
    ] {
        let refusal = refusal(bytes);
        assert!(refusal.contains(message), "{refusal}");
    }
    let open = |path: &str| Trace::open(Path::new(path)).map(|_| ()).expect_err(path);
    assert_eq!(open("no/such/file.csv").to_string(), "no such file");
    assert_eq!(
        open(env!("CARGO_MANIFEST_DIR")).to_string(),
        "is a directory; a file is needed"
    );
}

#[test]
fn an_endless_line_is_passed_over_in_bounded_memory() {
    let line = std::io::repeat(b'9').take(1 << 26);
    let reader = BufReader::new(Cursor::new("1\n").chain(line).chain(Cursor::new("\n2\n")));
    let mut trace = Trace::new(reader).expect("a trace");
    assert_eq!(trace.by_ref().filter_map(Result::ok).count(), 2);
    assert_eq!(
        trace.notes().first_skipped,
        [(2, "longer than 65536 bytes".to_owned())]
    );
}

proptest! {
    #[test]
    fn any_bytes_give_ordered_arrivals_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400), digits in "[0-9 .:,\n\"\\[/Z+-]{0,400}") {
        for bytes in [bytes, digits.into_bytes()] {
            // Chunks of three bytes: a line may be cut anywhere.
            let Ok(trace) = Trace::new(BufReader::with_capacity(3, Cursor::new(bytes))) else { continue };
            let offsets: Vec<_> = trace.map(|arrival| arrival.expect("memory cannot fail").offset).collect();
            prop_assert!(offsets.is_sorted());
            prop_assert!(offsets.first().is_none_or(Duration::is_zero));
        }
    }
}
