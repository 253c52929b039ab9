//! What a watched limiter tells: verdicts that balance, levels, endpoints, and who was refused most.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use metrics_util::debugging::DebuggingRecorder;
use sluicegate::observe::{Keys, LimiterView, Watched, key_tag, sample, snapshot, snapshot_with};
use sluicegate::queue::Builder;
use sluicegate::{
    Admission, Charge, Decision, FixedWindow, Gate, Hierarchy, Key, KeyedLimiter, Limit,
    ManualClock, Rate, RateLimiter, Ruling, Store, Tick, Verdict,
};

use super::{Number, Series, all_told, number, sum};

pub(super) struct Request {
    pub(super) ip: &'static str,
    pub(super) user: Option<u64>,
    pub(super) route: &'static str,
}

const HOME: Request = Request {
    ip: "192.0.2.1",
    user: Some(1),
    route: "GET /",
};

pub(super) fn hierarchy(clock: &ManualClock) -> Hierarchy<Request> {
    Hierarchy::<Request>::builder()
        .level("global", Rate::per_second(50).burst(100), |_| ())
        .level("ip", Rate::per_second(5).burst(20), |request: &Request| {
            request.ip
        })
        .level(
            "user",
            Rate::per_second(2).burst(10),
            |request: &Request| request.user,
        )
        .max_keys(1_000)
        .clock(clock.clone())
        .build()
        .expect("it is valid")
}

/// A watched hierarchy that has granted and refused, so that every metric is published.
pub(super) fn busy_edge(name: &str) -> Watched<Hierarchy<Request>> {
    let edge = watched(name, &ManualClock::new());
    for _ in 0..12 {
        let _ = edge.check(&HOME, 1);
    }
    edge
}

fn watched(name: &str, clock: &ManualClock) -> Watched<Hierarchy<Request>> {
    Watched::with_clock(name, hierarchy(clock), clock.clone())
        .by_endpoint(|request: &Request| Some(request.route))
}

#[track_caller]
fn view(name: &str) -> LimiterView {
    let mut limiters = snapshot_with(Keys::Cut).limiters.into_iter();
    let found = limiters.find(|limiter| limiter.name == name);
    found.expect("the limiter lives")
}

fn told(recorder: &DebuggingRecorder, limiter: &str) -> Series {
    let mut series = all_told(recorder);
    series.retain(|name, _| name.contains(&format!("{{limiter={limiter:?}")));
    series
}

#[track_caller]
fn balance(series: &Series, retries: &mut u64) {
    let with = |metric: &str, part: &str| -> u64 {
        let prefix = format!("{metric}{{");
        let matching = series
            .keys()
            .filter(|name| name.starts_with(&prefix) && name.contains(part));
        matching.map(|name| number(series, name)).sum()
    };
    let rejected = with("sluicegate_requests_total", "decision=\"rejected\"");
    assert_eq!(rejected, sum(series, "sluicegate_rejections_total"));
    *retries += sum(series, "sluicegate_retry_after_seconds");
    assert_eq!(
        with("sluicegate_rejections_total", "reason=\"quota\""),
        *retries
    );
    for mode in ["allowed", "rejected"] {
        let label = if mode == "allowed" {
            "mode=\"open\""
        } else {
            "mode=\"closed\""
        };
        assert_eq!(
            with("sluicegate_backend_errors_total", label),
            with(
                "sluicegate_requests_total",
                &format!("decision=\"error_{mode}\"")
            )
        );
    }
}

#[test]
fn requests_balance_at_a_hundred_scrapes_while_threads_check() {
    let clock = ManualClock::new();
    let edge = watched("threads", &clock);
    let recorder = DebuggingRecorder::new();
    let (mut retries, mut before) = (0, 0);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..3_u64)
            .map(|thread| {
                let (edge, clock) = (edge.clone(), &clock);
                scope.spawn(move || {
                    let routes = ["GET /", "GET /a", "POST /b"];
                    for n in 0..20_000_u64 {
                        let route = routes[(n % 3) as usize];
                        let user = (n % 4 > 0).then_some(n % 50 + thread);
                        let cost = if n % 97 == 0 { 5_000 } else { n % 3 };
                        let ruling = edge.check(
                            &Request {
                                user,
                                route,
                                ..HOME
                            },
                            cost,
                        );
                        if ruling.is_granted() && n % 5 == 0 {
                            edge.refund(ruling.charge());
                        }
                        clock.advance(Duration::from_micros(50));
                    }
                })
            })
            .collect();
        for _ in 0..100 {
            let series = told(&recorder, "threads");
            balance(&series, &mut retries);
            let requests = sum(&series, "sluicegate_requests_total");
            assert!(requests >= before, "a counter fell");
            before = requests;
        }
        threads
            .into_iter()
            .for_each(|thread| thread.join().expect("no thread panics"));
    });
    let series = told(&recorder, "threads");
    balance(&series, &mut retries);
    assert_eq!(sum(&series, "sluicegate_requests_total"), 60_000);
    for busy in ["consumed_units", "refunded_units", "rejections"] {
        assert!(
            sum(&series, &format!("sluicegate_{busy}_total")) > 0,
            "{busy}"
        );
    }
    let never = "sluicegate_rejections_total{limiter=\"threads\",level=\"global\",reason=\"cost_too_large\"}";
    assert!(number(&series, never) > 0);
}

#[test]
fn everything_is_there_at_zero_before_the_first_request() {
    let clock = ManualClock::new();
    let edge = watched("early", &clock).endpoints(["GET /", "POST /b"]);
    let series = told(&DebuggingRecorder::new(), edge.label());
    for endpoint in ["GET /", "POST /b", "unmatched", "other"] {
        for decision in [
            "allowed",
            "rejected",
            "exempt",
            "error_allowed",
            "error_rejected",
        ] {
            let labels = format!("endpoint={endpoint:?},decision={decision:?}");
            let name = format!("sluicegate_requests_total{{limiter=\"early\",{labels}}}");
            assert_eq!(number(&series, &name), 0);
        }
    }
    for level in ["global", "ip", "user"] {
        let at = |metric: &str| number(&series, &format!("sluicegate_{metric},level={level:?}}}"));
        assert_eq!(at("consumed_units_total{limiter=\"early\""), 0);
        assert_eq!(at("tracked_keys_max{limiter=\"early\""), 1_000);
        let reason = format!("level={level:?},reason=\"quota\"}}");
        let name = format!("sluicegate_rejections_total{{limiter=\"early\",{reason}");
        assert_eq!(number(&series, &name), 0);
        let name = format!(
            "sluicegate_hottest_key_rejections_per_minute{{limiter=\"early\",dimension={level:?}}}"
        );
        assert_eq!(number(&series, &name), 0);
    }
    let per_second = "sluicegate_limit_units_per_second{limiter=\"early\",level=\"global\"}";
    assert_eq!(number(&series, per_second), 50);
}

#[test]
fn a_hundred_thousand_keys_and_endpoints_leave_the_series_as_they_are() {
    let clock = ManualClock::new();
    let limits = Hierarchy::<(u64, String)>::builder()
        .level("global", Rate::per_second(1).burst(1), |_| ())
        .level(
            "user",
            Rate::per_second(1).burst(1),
            |request: &(u64, String)| request.0,
        )
        .clock(clock.clone())
        .build()
        .expect("it is valid");
    let edge = Watched::with_clock("many", limits, clock.clone())
        .by_endpoint(|request: &(u64, String)| Some(request.1.as_str()));
    for n in 0..300 {
        let _ = edge.check(&(n, format!("GET /{n}")), 1);
    }
    let recorder = DebuggingRecorder::new();
    let before: Vec<String> = told(&recorder, "many").into_keys().collect();
    for n in 0..100_000 {
        let _ = edge.check(&(n, format!("GET /<script>\n{}", n % 1_000)), 1);
    }
    let series = told(&recorder, "many");
    assert_eq!(series.keys().cloned().collect::<Vec<_>>(), before);
    assert_eq!(sum(&series, "sluicegate_requests_total"), 100_300);
    let other =
        "sluicegate_requests_total{limiter=\"many\",endpoint=\"other\",decision=\"rejected\"}";
    assert_eq!(number(&series, other), 100_044);
    assert!(view("many").top_refused[0].keys.len() <= 20);
}

#[test]
fn who_is_refused_most_is_named_with_a_guaranteed_count_and_the_last_time() {
    let clock = ManualClock::new();
    let edge = watched("hot", &clock);
    let unix = Duration::from_secs(1_700_000_000);
    clock.set(Tick::ZERO + unix);
    for n in 0..120_u64 {
        // One hammers; others come now and then.
        let _ = edge.check(
            &Request {
                ip: "203.0.113.7",
                user: None,
                ..HOME
            },
            4,
        );
        if n % 10 == 0 {
            let _ = edge.check(
                &Request {
                    user: Some(n),
                    ..HOME
                },
                3,
            );
        }
        clock.advance(Duration::from_millis(100));
    }
    let seen = view("hot");
    let top = &seen.top_refused[0];
    assert_eq!(
        (top.level.as_str(), top.keys[0].key.as_str()),
        ("ip", "203.0.113.7")
    );
    let refused = seen.verdicts.rejected;
    assert!(top.keys[0].guaranteed > 90 && top.keys[0].guaranteed <= refused);
    assert_eq!(
        top.keys[0].at_most, top.keys[0].guaranteed,
        "there was room for all"
    );
    let ago = unix + Duration::from_secs(12) - top.keys[0].last_refused;
    assert!(ago <= Duration::from_millis(300), "{ago:?} ago");
    assert!(
        seen.top_refused.iter().all(|top| top.level != "global"),
        "that is everybody"
    );

    let gauge = "sluicegate_hottest_key_rejections_per_minute{limiter=\"hot\",dimension=\"ip\"}";
    let series = told(&DebuggingRecorder::new(), "hot");
    assert_eq!(number(&series, gauge), top.keys[0].guaranteed);
    assert!(
        !series.keys().any(|name| name.contains("203.0.113.7")),
        "no key is a label"
    );

    let hashed = snapshot().limiters;
    let hashed = hashed
        .iter()
        .find(|limiter| limiter.name == "hot")
        .expect("it lives");
    assert_eq!(hashed.top_refused[0].keys[0].key, key_tag("203.0.113.7"));

    clock.advance(Duration::from_secs(60));
    assert_eq!(
        view("hot").top_refused.len(),
        0,
        "a minute later it is over"
    );
}

#[test]
fn the_trend_and_the_usage_of_a_limiter_follow_its_clock() {
    let clock = ManualClock::new();
    let limits = Hierarchy::<Request>::builder()
        .level("global", Rate::per_second(10).burst(10), |_| ())
        .level("user", Rate::per_second(1).burst(1), |request: &Request| {
            request.user
        })
        .clock(clock.clone())
        .build()
        .expect("it is valid");
    let edge = Watched::with_clock("seconds", limits, clock.clone());
    sample();
    for second in 0..90_u64 {
        for user in 0..second % 3 * 4 {
            let _ = edge.check(
                &Request {
                    user: Some(user % 7),
                    ..HOME
                },
                1,
            );
        }
        clock.advance(Duration::from_secs(1));
        sample();
        sample();
    }
    let seen = view("seconds");
    assert_eq!(seen.trend.len(), 90);
    let point = &seen.trend[2];
    assert_eq!((point.offered, point.refused), (8, 1));
    assert_eq!(
        point.refused_by_level,
        [0, 1, 0],
        "by the user's level; last what has none"
    );
    assert_eq!(point.refused_share, 0.125);
    assert_eq!(seen.flows[2].over, Duration::from_secs(60));
    assert_eq!(seen.flows[2].offered, 4.0);
    let usage = seen.levels[0].usage.expect("everybody shares it");
    assert!((usage - 11.0 / 30.0).abs() < 1e-9, "{usage}");
    assert_eq!(
        seen.levels[0].available,
        Some(3),
        "as the last request left it"
    );
    assert_eq!((seen.levels[1].usage, seen.levels[1].keys), (None, Some(7)));

    // A clock that is set back: no sample, no point with a negative span, and on it goes.
    clock.set(Tick::ZERO);
    let _ = edge.check(&HOME, 1);
    sample();
    assert_eq!(view("seconds").trend.len(), 90);
}

#[test]
fn limiters_that_stand_alone_are_watched_the_same_way() {
    let clock = ManualClock::new();
    let one = RateLimiter::with_clock(Rate::per_second(1).burst(2), clock.clone());
    let one = Watched::with_clock("alone", one, clock.clone());
    let granted = (0..5).filter(|_| one.check(&(), 1).is_granted()).count();
    assert_eq!(granted, 2);
    let each = KeyedLimiter::<String>::builder(Rate::per_second(1).burst(2));
    let each = each
        .clock(clock.clone())
        .max_keys(1)
        .build()
        .expect("it is valid");
    let each = Watched::with_clock("alone", each, clock.clone());
    assert_eq!(each.label(), "alone#2", "both live");
    for user in ["ada", "bob", "bob", "bob"] {
        let _ = each.check(&user.to_owned(), 1);
    }
    let (one, each) = (view("alone"), view("alone#2"));
    assert_eq!((one.verdicts.allowed, one.verdicts.rejected), (2, 3));
    assert_eq!(
        (one.levels[0].name.as_str(), one.levels[0].refused),
        ("limit", 3)
    );
    assert_eq!(
        each.levels[0].limit,
        Some(Limit::from(Rate::per_second(1).burst(2)))
    );
    assert_eq!(
        (each.levels[0].keys, each.levels[0].max_keys),
        (Some(1), Some(1))
    );
    assert_eq!(each.levels[0].keys_turned_away, 3);
}

#[tokio::test(start_paused = true)]
async fn a_gate_over_a_watched_edge_still_tries_at_once() {
    let edge = RateLimiter::new(Rate::per_second(1).burst(2));
    let edge = Watched::new("gate", edge);
    let (tx, _rx) = Builder::new(Rate::per_second(1))
        .max_depth(3)
        .build()
        .expect("it is valid");
    let gate = Gate::new(edge, tx);
    gate.try_send(&(), 1).expect("there is room");
    gate.send(&(), 2).await.expect("there is room");
    assert!(gate.try_send(&(), 3).is_err());
    let seen = view("gate");
    let levels = &seen.levels[0];
    // The third was refused by the queue, before anything was charged.
    assert_eq!((seen.verdicts.allowed, levels.consumed), (2, 2));
}

/// A store that cannot be asked.
#[derive(Clone)]
struct Down {
    open: bool,
}

impl Store for Down {
    type Deciding = std::future::Ready<Ruling>;

    fn decide(&self, charge: Charge) -> Self::Deciding {
        let retry_after = Duration::from_secs(1);
        let decision = Decision {
            at: Tick::ZERO,
            verdict: if self.open {
                Verdict::Granted
            } else {
                Verdict::Refused { retry_after }
            },
            limit: 1,
            remaining: 0,
            next_unit_in: Duration::ZERO,
            reset_after: Duration::ZERO,
        };
        std::future::ready(Ruling::new(charge, [("user", decision)]).degraded())
    }

    fn refund(&self, _: Charge) {}
}

#[tokio::test]
async fn a_store_that_is_down_is_told_of_by_how_it_fails() {
    let recorder = DebuggingRecorder::new();
    for (name, open) in [("fails-open", true), ("fails-closed", false)] {
        let limits = Hierarchy::<u64>::builder()
            .level(
                "user",
                FixedWindow::new(5, Duration::from_secs(1)).expect("it is valid"),
                |user| *user,
            )
            .build_on(Down { open })
            .expect("it is valid");
        let edge = Watched::new(name, limits);
        for user in 0..3 {
            assert_eq!(edge.decide(&user, 1).await.is_granted(), open);
        }
        let series = told(&recorder, name);
        balance(&series, &mut 0);
        let mode = if open { "open" } else { "closed" };
        let errors = format!("sluicegate_backend_errors_total{{limiter={name:?},mode={mode:?}}}");
        assert_eq!(number(&series, &errors), 3);
        assert_eq!(
            sum(&series, "sluicegate_rejections_total"),
            0,
            "no level refused"
        );
    }
}

#[test]
fn a_request_that_no_level_is_for_is_exempt() {
    let clock = ManualClock::new();
    let limits = Hierarchy::<Request>::builder()
        .level("user", Rate::per_second(1).burst(1), |request: &Request| {
            request.user
        })
        .clock(clock.clone())
        .build()
        .expect("it is valid");
    let edge = Watched::with_clock("exempt", limits, clock);
    assert!(edge.check(&Request { user: None, ..HOME }, 1).is_granted());
    let verdicts = view("exempt").verdicts;
    assert_eq!((verdicts.exempt, verdicts.allowed), (1, 0));
}

#[test]
fn counts_go_on_when_a_limiter_is_built_anew_under_its_name() {
    let clock = ManualClock::new();
    let recorder = DebuggingRecorder::new();
    let mut total = BTreeMap::new();
    for round in 1..4_u64 {
        let edge = watched("again", &clock);
        let _ = told(&recorder, "again");
        for _ in 0..10 {
            let _ = edge.check(&HOME, 1);
        }
        drop(edge);
        let series = told(&recorder, "again");
        for (name, number) in series {
            if let Number::Count(count) = number {
                let before = total.insert(name.clone(), count).unwrap_or(0);
                assert!(count >= before, "{name} fell");
            }
        }
        let allowed =
            "sluicegate_requests_total{limiter=\"again\",endpoint=\"GET /\",decision=\"allowed\"}";
        assert_eq!(total[allowed], 10 * round);
        clock.advance(Duration::from_secs(60));
    }
}

#[test]
fn keys_that_would_break_a_page_are_shown_harmless() {
    let clock = ManualClock::new();
    let limits = KeyedLimiter::<Key>::builder(Rate::per_second(1).burst(1));
    let limits = limits.clock(clock.clone()).build().expect("it is valid");
    let _ = limits.status();
    let edge = Hierarchy::<String>::builder()
        .level("user", Rate::per_second(1).burst(1), |user: &String| {
            user.clone()
        })
        .clock(clock.clone())
        .build()
        .expect("it is valid");
    let edge = Watched::with_clock("markup", edge, clock);
    for user in [
        "<img src=x onerror=alert(1)>",
        "a\r\nb\u{0}\u{202e}",
        &"k".repeat(64_000),
    ] {
        for _ in 0..3 {
            let _ = edge.check(&user.to_owned(), 1);
        }
    }
    let top = &view("markup").top_refused[0];
    for key in &top.keys {
        assert!(key.key.chars().count() <= 64);
        assert!(
            !key.key.chars().any(|c| c.is_control() || c == '\u{202e}'),
            "{key:?}"
        );
    }
    assert!(
        top.keys.iter().any(|key| key.key.starts_with("<img src=x")),
        "text, not markup"
    );
    assert_eq!(top.keys.len(), 3);
}

#[test]
fn recorders_that_come_late_or_are_two_are_told_everything() {
    let clock = ManualClock::new();
    let edge = watched("recorders", &clock);
    let check = |times: u64| {
        for _ in 0..times {
            let _ = edge.check(&HOME, 1);
        }
    };
    check(15);
    let (first, second) = (DebuggingRecorder::new(), DebuggingRecorder::new());
    let told_first = told(&first, "recorders");
    check(7);
    let told_both = (told(&first, "recorders"), told(&second, "recorders"));
    let refused = "sluicegate_rejections_total";
    assert_eq!(sum(&told_first, refused), 5);
    assert_eq!(sum(&told_both.0, refused), 12);
    assert_eq!(sum(&told_both.1, refused), 12);
    // Of a histogram each is told what it has not been told yet.
    let waits = "sluicegate_retry_after_seconds";
    let counts = [&told_first, &told_both.0, &told_both.1].map(|series| sum(series, waits));
    assert_eq!(counts, [5, 7, 12]);
}
