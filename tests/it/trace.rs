//! The trace reader that the examples share: arrivals in order, whatever the file holds.

use std::io::{BufReader, Cursor, Read};
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;

use reader::{Arrival, Bound, Columns, Trace, TraceError};

#[allow(dead_code, unreachable_pub, reason = "as the examples include it")]
#[path = "../../src/sim/trace/mod.rs"]
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
    let trace = |columns: &[&str]| {
        let none = Columns::new();
        let columns = columns
            .iter()
            .fold(none, |columns, name| columns.cost(*name));
        Trace::with(Cursor::new(text), columns)
    };
    let costs = |columns: &[&str]| -> Vec<_> {
        trace(columns)
            .expect("the columns exist")
            .filter_map(Result::ok)
            .map(|arrival| arrival.cost)
            .collect()
    };
    assert_eq!(costs(&["ContextTokens", "3"]), [Some(4818), Some(3)]);
    let error = trace(&["Tokens"]).map(|_| ()).expect_err("no such column");
    assert_eq!(
        error.to_string(),
        "has no column \"Tokens\"; it has TIMESTAMP, ContextTokens, GeneratedTokens"
    );
    let mut plain = trace(&[]).expect("a trace");
    assert_eq!(plain.next().and_then(Result::ok), Some(Arrival::default()));
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
    let columns = Columns::new().cost("c");
    let mut trace = Trace::with(Cursor::new(text), columns).expect("the column exists");
    let costs: Vec<_> = trace
        .by_ref()
        .filter_map(|arrival| arrival.ok()?.cost)
        .collect();
    assert_eq!(costs, [3, 1, 2, 4]);
    assert_eq!(trace.notes().out_of_order, 1);
}

#[test]
fn clocks_that_were_put_back_are_told_by_how_far() {
    let mut trace = Trace::new(Cursor::new("7200\n7300\n3700\n3800\n")).expect("a trace");
    assert_eq!(trace.by_ref().filter_map(Result::ok).count(), 4);
    assert_eq!(trace.notes().furthest_back, Duration::from_secs(3600));
}

/// Offset in ms, cost and key of every arrival, with these columns.
fn read(text: &str, columns: Columns) -> Vec<(u128, Option<u64>, Option<String>)> {
    let trace = Trace::with(Cursor::new(text.to_owned()), columns).expect(text);
    let arrivals = trace.map(|arrival| arrival.expect(text));
    arrivals
        .map(|Arrival { offset, cost, key }| (offset.as_millis(), cost, key.map(String::from)))
        .collect()
}

#[test]
fn json_lines_are_read_whatever_else_they_hold() {
    let text = r#"{"msg":"a \"ts\": 5","ts":"2024-01-01T00:00:00.5Z","n":{"bytes":7,"deep":[{"}":1}]},"who":"ad\u0061"}
{"ts":"2024-01-01T00:00:02Z", "n":{"bytes": 8}, "who" : "b"}
{"ts":"soon"}
not json
"#;
    let columns = Columns::new().key("who").cost("n.bytes");
    let expected = [
        (0, Some(7), Some("ada".into())),
        (1500, Some(8), Some("b".into())),
    ];
    assert_eq!(read(text, columns), expected);
    let text = "{\"at\":1700000000123,\"t\":5}\n{\"at\":1700000001123,\"t\":6}\n";
    assert_eq!(
        read(text, Columns::new().time("at")),
        [(0, None, None), (1000, None, None)]
    );
    assert_eq!(read(text, Columns::new())[1].0, 1000);
    let wrong = Trace::with(Cursor::new(text), Columns::new().time("when"));
    let wrong = wrong.map(|_| ()).expect_err("no such field").to_string();
    assert!(wrong.contains("no column \"when with a time\""), "{wrong}");
}

#[test]
fn the_time_may_stand_in_any_column() {
    let text = "id,user,when\n7,a,2024-01-01 00:00:00\n8,b,2024-01-01 00:00:01\n";
    let keyed = Columns::new().key("user");
    assert_eq!(read(text, keyed.clone())[1], (1000, None, Some("b".into())));
    let text = "id,user,ts\n7a,a,1700000000\n8a,b,1700000001\n";
    assert_eq!(read(text, keyed.clone())[1].0, 1000);
    let text = "a,b,user\n1,5,x\n2,9,y\n";
    assert_eq!(read(text, keyed.clone().time("b"))[1].0, 4000);
    assert_eq!(read(text, keyed.time("2"))[1].0, 4000);
}

#[test]
fn an_access_log_gives_client_status_and_bytes() {
    let text = "::1 - jo [17/May/2015:10:05:00 +0000] \"GET /a \\\"b HTTP/1.1\" 200 5 \"-\" \"agent\"\n\
                ::2 - - [17/May/2015:10:05:01 +0000] \"GET /c HTTP/1.1\" 304 -\n";
    let of = |key: &str| -> Vec<String> {
        let columns = Columns::new().key(key).cost("bytes");
        let arrivals = read(text, columns).into_iter();
        arrivals.filter_map(|(_, _, key)| key).collect()
    };
    assert_eq!(of("client"), ["::1", "::2"]);
    assert_eq!(of("status"), ["200", "304"]);
    assert_eq!(of("user"), ["jo", "-"]);
    assert_eq!(of("path"), ["/a", "/c"]);
    let costs: Vec<_> = read(text, Columns::new().cost("bytes"));
    assert_eq!(costs[0].1, Some(5));
    assert_eq!(costs[1].1, Some(0));
    let wrong = Trace::with(Cursor::new(text), Columns::new().key("agent"));
    assert!(wrong.is_err());
}

#[test]
fn only_the_part_asked_for_is_read() {
    let text =
        "2024-01-01 00:00:00\n2024-01-01 00:00:10\n2024-01-01 00:00:20\n2024-01-01 00:00:30\n";
    let bound = |text: &str| text.parse::<Bound>().expect(text);
    for (from, to) in [
        ("10s", "25s"),
        ("2024-01-01 00:00:05", "2024-01-01T00:00:30Z"),
    ] {
        let columns = Columns::new().from(bound(from)).to(bound(to));
        let mut trace = Trace::with(Cursor::new(text), columns).expect("a trace");
        let kept: Vec<_> = trace
            .by_ref()
            .map(|arrival| arrival.expect(text).offset.as_secs())
            .collect();
        assert_eq!(kept, [0, 10]);
        assert_eq!((trace.notes().arrivals, trace.notes().outside), (4, 2));
        assert_eq!(trace.began(), Some(1_704_067_210_000_000_000));
    }
    assert!("soon".parse::<Bound>().is_err());
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
    fn any_bytes_give_ordered_arrivals_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400), digits in "[0-9 .:,\n\"\\[/Z+-]{0,400}",
        json in "(\\{\"ts\":[0-9]{1,4}[\"\\\\,:a\\[\\]{}]{0,8}\n){0,20}") {
        for bytes in [bytes, digits.into_bytes(), json.into_bytes()] {
            // Chunks of three bytes: a line may be cut anywhere.
            let Ok(trace) = Trace::new(BufReader::with_capacity(3, Cursor::new(bytes))) else { continue };
            let offsets: Vec<_> = trace.map(|arrival| arrival.expect("memory cannot fail").offset).collect();
            prop_assert!(offsets.is_sorted());
            prop_assert!(offsets.first().is_none_or(Duration::is_zero));
        }
    }
}
