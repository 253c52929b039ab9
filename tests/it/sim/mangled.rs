//! Every text that is read from outside, mangled: what a fuzzer starts from, and the laws that it checked.

use proptest::prelude::*;
use sluicegate::config::Config;
use sluicegate::sim::{Bound, Columns, Latency, Outage, Pattern, Trace};
use sluicegate::{Limit, Rate, Tick};

const CONFIGS: [&str; 2] = [
    include_str!("../../../examples/gate.toml"),
    include_str!("../../../examples/lossless.toml"),
];
const TRACES: [&str; 5] = [
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n",
    "198.18.0.7 - - [17/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 203023\n198.18.0.8 - - [17/May/2015:10:05:04 +0200] \"-\" 400 -\n",
    "{\"ts\":1700000000,\"client\":\"a\"}\n{\"ts\":\"2023-11-16T18:17:03Z\",\"x\":[1,{\"a\":\"\\u00e9\"}]}\n",
    "ts;client;cost\n1700000000.5;a;3\n\"1700000001\";\"b;\"\"c\";4\n",
    "1700000000\n1700000000000\n1700000000000000\n1700000000000000000\n# end\n",
];
const TEXTS: [&str; 15] = [
    "200/s",
    "5/min",
    "10/250ms",
    "token_bucket 10/s burst 50 initial 0",
    "leaky_bucket 10/s depth 5",
    "fixed_window 100 per 1min aligned 0s",
    "sliding_log 100 per 1min",
    "sliding_counter 100 per 1min",
    "poisson 900/s",
    "on_off 2000/s on 2s off 3s",
    "fixed 20ms",
    "exponential 20ms",
    "30s for 10s failing",
    "2023-11-16T18:17:03Z",
    "18446744073709551615/584y",
];

/// One change: where (as a share), how many bytes go, and what comes in their place.
type Change = (f64, usize, Vec<u8>);

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..4),
        prop::sample::select(vec![
            "\n",
            "\"",
            ",",
            "9999999999999999999",
            "-1",
            "0",
            ".",
            "\\u",
            "[",
            "+24:00",
            "é",
            "\r\n",
            "="
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ];
    prop::collection::vec((0.0..1.0, 0_usize..6, piece), 0..6)
}

fn mangled(text: &str, changes: &[Change]) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for (at, gone, put) in changes {
        let start = (at * (bytes.len() + 1) as f64) as usize;
        let end = (start + gone).min(bytes.len());
        bytes.splice(start..end, put.iter().copied());
    }
    bytes
}

proptest! {
    #[test]
    fn a_mangled_configuration_is_whole_or_refused_with_a_place(seed in 0..CONFIGS.len(), changes in changes()) {
        let bytes = mangled(CONFIGS[seed], &changes);
        let text = String::from_utf8_lossy(&bytes);
        match Config::from_toml(&text) {
            Ok(config) => {
                prop_assert!(!config.to_string().is_empty());
                for nanos in [0, 1_700_000_000_000_000_000, u64::MAX] {
                    let built = config.builder_at(Tick::from_nanos(nanos)).build::<u8>();
                    prop_assert!(built.is_ok(), "{:?}", built.err());
                }
            }
            Err(error) => {
                prop_assert!(!error.message().is_empty());
                prop_assert!(error.line().is_none_or(|line| line <= text.matches('\n').count() + 1), "{error}");
            }
        }
    }

    #[test]
    fn a_mangled_trace_comes_in_order_and_every_line_is_accounted_for(
        seed in 0..TRACES.len(),
        changes in changes(),
        how in 0_u8..16,
    ) {
        let bytes = mangled(TRACES[seed], &changes);
        let mut columns = Columns::new();
        if how & 1 != 0 { columns = columns.key("client"); }
        if how & 2 != 0 { columns = columns.cost("2"); }
        if how & 4 != 0 { columns = columns.time("ts"); }
        if how & 8 != 0 { columns = columns.key("2"); }
        let lines = bytes.split(|byte| *byte == b'\n').count() as u64;
        let Ok(mut trace) = Trace::with(&bytes[..], columns) else { return Ok(()) };
        let (mut last, mut count) = (None, 0);
        for arrival in trace.by_ref() {
            let Ok(arrival) = arrival else { return Ok(()) };
            prop_assert!(last <= Some(arrival.offset));
            last = Some(arrival.offset);
            count += 1;
        }
        let notes = trace.notes();
        prop_assert!(count + notes.skipped <= lines, "{count} {} {lines}", notes.skipped);
        prop_assert_eq!(count + notes.outside, notes.arrivals);
    }

    #[test]
    fn a_mangled_text_is_refused_or_means_what_it_prints(seed in 0..TEXTS.len(), changes in changes()) {
        let bytes = mangled(TEXTS[seed], &changes);
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(rate) = text.parse::<Rate>() {
            prop_assert_eq!(rate.to_string().parse::<Rate>(), Ok(rate));
        }
        if let Ok(limit) = text.parse::<Limit>() {
            prop_assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit));
        }
        if let Ok(pattern) = text.parse::<Pattern>() {
            prop_assert!(pattern.to_string().parse::<Pattern>().is_ok(), "{pattern}");
            prop_assert!(pattern.arrivals(1).take(50).is_sorted_by_key(|arrival| arrival.offset));
        }
        let _ = (text.parse::<Bound>(), text.parse::<Latency>(), text.parse::<Outage>());
    }
}
