//! The worked examples: every number that a client is told, as the reference works it out.

use std::collections::BTreeMap;
use std::time::Duration;

use http::HeaderMap;
use sluicegate::http::{
    AdmissionLayer, HeaderDialect, Notice, ResetSemantics, ResetUnit, Standing,
};
use sluicegate::{
    FixedWindow, Hierarchy, Limit, ManualClock, Policy, Rate, SlidingCounter, SlidingLog, Tick,
};

use crate::kit::{field, from, list, send, text};

/// 12:00:00 on some day, in Unix time.
const NOON: u64 = 1_764_590_400;

/// What was charged before, in milliseconds since noon, whether it fitted or not.
type History<'a> = &'a [(u64, u64)];

fn at(millis: u64) -> Tick {
    Tick::from_nanos(NOON * 1_000_000_000 + millis * 1_000_000)
}

fn encode(dialect: HeaderDialect, notice: &Notice<'_>, reset: ResetSemantics) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in dialect.encode(notice, reset) {
        headers.append(name, value);
    }
    headers
}

struct Told {
    list: HeaderMap,
    legacy: HeaderMap,
    next: HeaderMap,
    wait: Option<Duration>,
}

/// Charges a limit as told, asks it, and writes the answer in every dialect of interest.
fn told(limit: impl Into<Limit>, name: &str, history: History<'_>, now: u64, cost: u64) -> Told {
    let limit = limit.into();
    let start = history.first().map_or(now, |(first, _)| *first);
    let mut state = limit.start(at(start));
    for (millis, cost) in history {
        limit.charge(&mut state, at(*millis), *cost);
    }
    let decision = limit.check(&mut state, at(now), cost);
    let standings = [Standing::of(name, &limit, &decision)];
    let notice = if decision.is_granted() {
        Notice::granted(&standings, cost, decision.at)
    } else {
        Notice::refused(&standings, cost, decision.at, decision.retry_after())
    };
    let legacy = HeaderDialect::Legacy(ResetUnit::UnixSeconds);
    Told {
        list: encode(HeaderDialect::ListDraft, &notice, ResetSemantics::Full),
        legacy: encode(legacy, &notice, ResetSemantics::Full),
        next: encode(HeaderDialect::ListDraft, &notice, ResetSemantics::NextUnit),
        wait: decision.retry_after(),
    }
}

/// Checks the text, and that a structured-fields parser reads the same out of it.
#[track_caller]
fn reads(headers: &HeaderMap, name: &str, expected: Option<&str>) {
    assert_eq!(field(headers, name), expected, "{name}");
    let Some(expected) = expected else { return };
    let members = expected.split(", ").map(|member| {
        let mut parts = member.split(';');
        let name = parts.next().expect("a name").trim_matches('"').to_owned();
        let parameters = parts.map(|part| {
            let (key, value) = part.split_once('=').expect("a value");
            (key.to_owned(), value.trim_matches('"').to_owned())
        });
        (name, parameters.collect::<BTreeMap<_, _>>())
    });
    assert_eq!(list(headers, name), members.collect::<Vec<_>>(), "{name}");
}

impl Told {
    #[track_caller]
    fn granted(&self, limit: &str) {
        reads(&self.list, "ratelimit", Some(limit));
        assert_eq!(
            field(&self.list, "retry-after"),
            None,
            "only refusals say when to come back"
        );
        assert_eq!(self.wait, None);
    }

    #[track_caller]
    fn refused(&self, limit: &str, seconds: &str, wait: Duration) {
        reads(&self.list, "ratelimit", Some(limit));
        assert_eq!(field(&self.list, "retry-after"), Some(seconds));
        assert_eq!(field(&self.legacy, "retry-after"), Some(seconds));
        assert_eq!(self.wait, Some(wait), "exactly");
    }
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn token_bucket() {
    let bucket = Rate::per_second(10).burst(100);
    let emptied: History<'_> = &[(0, 100)];
    // 37.4 tokens.
    let told_ = told(bucket, "user", emptied, 3740, 1);
    told_.granted("\"user\";r=36;t=7");
    reads(&told_.list, "ratelimit-policy", Some("\"user\";q=100;w=10"));
    assert_eq!(field(&told_.legacy, "x-ratelimit-limit"), Some("100"));
    assert_eq!(field(&told_.legacy, "x-ratelimit-remaining"), Some("36"));
    // 0.35 tokens.
    told(bucket, "user", emptied, 35, 1).refused("\"user\";r=0;t=1", "1", ms(65));
    // 3.2 tokens, cost 5: some is left on a refusal.
    told(bucket, "user", emptied, 320, 5).refused("\"user\";r=3;t=1", "1", ms(180));
    // Slow: 5 in 5 minutes, 0.2 and 2.6 tokens.
    let slow = Rate::new(5, ms(300_000)).expect("a rate").burst(5);
    told(slow, "user", &[(0, 5)], 12_000, 1).refused("\"user\";r=0;t=48", "48", ms(48_000));
    told(slow, "user", &[(0, 5)], 156_000, 1).granted("\"user\";r=1;t=204");
}

#[test]
fn cost_above_the_capacity_has_no_time_to_come_back() {
    let told = told(Rate::per_second(10).burst(100), "user", &[], 0, 101);
    reads(&told.list, "ratelimit", Some("\"user\";r=100"));
    assert_eq!(field(&told.list, "retry-after"), None);
    assert_eq!(field(&told.legacy, "x-ratelimit-reset"), None);
    assert_eq!(told.wait, None);
}

#[test]
fn gcra() {
    let gcra = Rate::per_second(10).burst(10);
    // The theoretical arrival time is 650 ms ahead after the charge.
    told(gcra, "user", &[(0, 10)], 450, 1).granted("\"user\";r=3;t=1");
    // 1000 ms ahead.
    told(gcra, "user", &[(0, 10)], 0, 1).refused("\"user\";r=0;t=1", "1", ms(100));
}

#[test]
fn fixed_window() {
    let window = FixedWindow::new(100, ms(60_000))
        .expect("a limit")
        .aligned(Duration::ZERO);
    let end = (NOON + 60).to_string();
    let now = told(window, "ip", &[(1_000, 57)], 42_300, 1);
    now.granted("\"ip\";r=42;t=18");
    reads(&now.list, "ratelimit-policy", Some("\"ip\";q=100;w=60"));
    assert_eq!(field(&now.legacy, "x-ratelimit-reset"), Some(&*end));
    for millis in [1_001, 20_000, 42_299, 59_999] {
        let other = told(window, "ip", &[(1_000, 57)], millis, 1);
        assert_eq!(
            field(&other.legacy, "x-ratelimit-reset"),
            Some(&*end),
            "does not flicker"
        );
    }
    told(window, "ip", &[(1_000, 100)], 42_300, 1).refused("\"ip\";r=0;t=18", "18", ms(17_700));
}

#[test]
fn sliding_log() {
    let log = SlidingLog::new(100, ms(60_000)).expect("a limit");
    let full: History<'_> = &[(5_200, 1), (10_000, 4), (20_000, 95)];
    told(log, "ip", full, 42_300, 1).refused("\"ip\";r=0;t=23", "23", ms(22_900));
    // Of cost 3 it is the entry that frees enough, not the oldest.
    told(log, "ip", full, 42_300, 3).refused("\"ip\";r=0;t=28", "28", ms(27_700));
    let some = told(log, "ip", &[(5_200, 40)], 42_300, 1);
    some.granted("\"ip\";r=59;t=60");
}

#[test]
fn sliding_counter() {
    let counter = SlidingCounter::new(100, ms(60_000)).expect("a limit");
    // Previous 80, current 70, 30 s in: the estimate is 110.
    let busy: History<'_> = &[(0, 80), (60_000, 70)];
    told(counter, "ip", busy, 90_000, 1).refused("\"ip\";r=0;t=9", "9", ms(8_250));
    assert_eq!(
        told(counter, "ip", busy, 99_000, 1).wait,
        None,
        "at 39 s it is 99"
    );
    // Previous 0, current 100, 45 s in: this window can never admit it.
    let current = told(counter, "ip", &[(0, 100)], 45_000, 1);
    current.refused("\"ip\";r=0;t=16", "16", ms(15_600));
    assert!(
        told(counter, "ip", &[(0, 100)], 60_000, 1).wait.is_some(),
        "15 s are too few"
    );
    assert_eq!(told(counter, "ip", &[(0, 100)], 61_000, 1).wait, None);
    // Previous 40, current 30, 15 s in.
    let some = told(counter, "ip", &[(0, 40), (60_000, 30)], 75_000, 1);
    let limits = list(&some.list, "ratelimit");
    assert_eq!(limits[0].1["r"], "39");
}

#[test]
fn concurrency() {
    let standing = Standing::in_flight("inflight", 50, 20);
    let notice = Notice::granted(std::slice::from_ref(&standing), 1, at(0));
    let headers = encode(HeaderDialect::ListDraft, &notice, ResetSemantics::Full);
    let policy = "\"inflight\";q=50;qu=\"concurrent-requests\"";
    reads(&headers, "ratelimit-policy", Some(policy));
    reads(&headers, "ratelimit", Some("\"inflight\";r=30"));
    // Full: the smoothed service time is told.
    let full = Standing::in_flight("inflight", 50, 50).refusing();
    for (takes, seconds) in [(ms(40), "1"), (ms(1_200), "2")] {
        let notice = Notice::refused(std::slice::from_ref(&full), 1, at(0), Some(takes));
        let headers = encode(HeaderDialect::ListDraft, &notice, ResetSemantics::Full);
        assert_eq!(field(&headers, "retry-after"), Some(seconds));
        reads(&headers, "ratelimit-policy", Some(policy));
    }
}

#[test]
fn leaky_bucket_as_a_queue() {
    let standing = Standing::queue("queue", 200, 80, Rate::per_second(20));
    let notice = Notice::granted(std::slice::from_ref(&standing), 1, at(0));
    let headers = encode(HeaderDialect::ListDraft, &notice, ResetSemantics::Full);
    reads(&headers, "ratelimit", Some("\"queue\";r=120;t=4"));
    // Full: not the 0.05 s to the next place, but the time to half full.
    let full = Standing::queue("queue", 200, 200, Rate::per_second(20)).refusing();
    let notice = Notice::refused(std::slice::from_ref(&full), 1, at(0), Some(ms(5_000)));
    let headers = encode(HeaderDialect::ListDraft, &notice, ResetSemantics::Full);
    assert_eq!(field(&headers, "retry-after"), Some("5"));
    reads(&headers, "ratelimit", Some("\"queue\";r=0;t=5"));
}

#[test]
fn the_next_unit_is_a_second_away_while_any_is_left() {
    let told = told(
        Rate::per_second(10).burst(100),
        "user",
        &[(0, 100)],
        3740,
        1,
    );
    reads(&told.next, "ratelimit", Some("\"user\";r=36;t=1"));
    let slow = Rate::per_minute(1).burst(1);
    reads(
        &self::told(slow, "user", &[], 0, 1).next,
        "ratelimit",
        Some("\"user\";r=0;t=60"),
    );
}

#[tokio::test]
async fn hierarchy() {
    let clock = ManualClock::new();
    let limits = Hierarchy::<u64>::builder()
        .level(
            "tenant",
            FixedWindow::new(1000, ms(60_000)).expect("a limit"),
            |_| (),
        )
        .level("user", Rate::per_second(10).burst(100), |user: &u64| *user)
        .clock(clock.clone())
        .build()
        .expect("levels");
    // Nine users take 100 each and one 3; then user 0 takes the last 97, 12.2 s before the tenant's window ends.
    clock.set(at(0));
    for user in 1..=9 {
        assert!(limits.check(&user, 100).is_granted());
    }
    assert!(limits.check(&10, 3).is_granted());
    clock.set(at(47_800));
    assert!(limits.check(&0, 97).is_granted());

    let layer = AdmissionLayer::builder(limits, |_| Ok(0))
        .headers([
            HeaderDialect::ListDraft,
            HeaderDialect::Legacy(ResetUnit::DeltaSeconds),
        ])
        .exact_retry_after()
        .build()
        .expect("a layer");
    let refused = send(&layer, from("192.0.2.1")).await;
    assert_eq!(refused.status(), 429);
    let headers = refused.headers().clone();
    let policies = "\"tenant\";q=1000;w=60, \"user\";q=100;w=10";
    reads(&headers, "ratelimit-policy", Some(policies));
    reads(&headers, "ratelimit", Some("\"tenant\";r=0;t=13"));
    assert_eq!(field(&headers, "retry-after"), Some("13"));
    assert_eq!(field(&headers, "x-ratelimit-limit"), Some("1000"));
    assert_eq!(field(&headers, "x-ratelimit-remaining"), Some("0"));
    assert_eq!(field(&headers, "x-ratelimit-reset"), Some("13"));
    let body: serde_json::Value = serde_json::from_str(&text(refused).await).expect("JSON");
    assert_eq!(body["violated-policies"], serde_json::json!(["tenant"]));
    assert_eq!(body["retry_after_ms"], 12_200);
    assert_eq!(body["status"], 429);
}
