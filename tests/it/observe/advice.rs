//! What the observed load suggests to change, and when it is better to say nothing.

use std::time::Duration;

use sluicegate::observe::{Advice, Confidence, Setting, Watched, sample, snapshot};
use sluicegate::{FixedWindow, Hierarchy, Limit, ManualClock, Rate};

struct Request {
    ip: u64,
    route: &'static str,
}

/// A hierarchy with a limit for each route, which is watched under `name`.
fn edge(name: &str, clock: &ManualClock, limit: impl Into<Limit>) -> Watched<Hierarchy<Request>> {
    let limits = Hierarchy::<Request>::builder()
        .level("global", Rate::per_second(1_000).burst(1_000), |_| ())
        .level(
            "ip",
            Rate::per_second(100).burst(100),
            |request: &Request| request.ip,
        )
        .level("endpoint", limit, |request: &Request| request.route)
        .clock(clock.clone())
        .build()
        .expect("it is valid");
    Watched::with_clock(name, limits, clock.clone())
        .by_endpoint(|request: &Request| Some(request.route))
}

/// Plays so many requests in each second, from callers in turn.
fn play(
    edge: &Watched<Hierarchy<Request>>,
    clock: &ManualClock,
    route: &'static str,
    seconds: impl Iterator<Item = u64>,
) {
    let mut caller = 0;
    sample();
    for requests in seconds {
        for _ in 0..requests {
            caller += 1;
            let _ = edge.check(
                &Request {
                    ip: caller % 40,
                    route,
                },
                1,
            );
        }
        clock.advance(Duration::from_secs(1));
        sample();
    }
}

fn about(name: &str) -> Vec<Advice> {
    let mut advice = snapshot().advice;
    advice.retain(|advice| advice.name == name);
    advice
}

/// Arrivals of a Poisson stream per second, from a fixed seed.
fn poisson(per_second: f64) -> impl Iterator<Item = u64> {
    let mut seed = 0x2545_F491_4F6C_DD1D_u64;
    let mut uniform = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 11) as f64 / (1_u64 << 53) as f64
    };
    std::iter::repeat_with(move || {
        let (mut count, mut left) = (0, 1.0);
        loop {
            left *= uniform();
            if left < (-per_second).exp() {
                return count;
            }
            count += 1;
        }
    })
}

fn rate_of(limit: &str) -> f64 {
    match limit.parse().expect("advice is a limit in its text form") {
        Limit::TokenBucket(bucket) => {
            bucket.rate().count() as f64 * 60.0 / bucket.rate().period().as_secs_f64()
        }
        limit => limit.quota() as f64 * 60.0 / limit.window().as_secs_f64(),
    }
}

#[test]
fn advice_is_within_a_fifth_of_a_demand_that_is_known() {
    let minute = Duration::from_secs(60);
    let fifty = FixedWindow::new(50, minute).expect("it is valid");
    let limits: [(&str, Limit); 2] = [
        ("steady-window", fifty.into()),
        ("steady-bucket", Rate::per_minute(50).burst(10).into()),
    ];
    for (name, limit) in limits {
        let clock = ManualClock::new();
        let edge = edge(name, &clock, limit);
        // Two a second: 120 a minute, of which 50 are granted.
        play(&edge, &clock, "GET /search", std::iter::repeat_n(2, 600));
        let [advice] = &about(name)[..] else {
            panic!("one limit is too low: {:?}", about(name));
        };
        assert_eq!(
            (advice.subject.as_str(), advice.setting),
            ("GET /search", Setting::Limit)
        );
        assert_eq!(advice.current, limit.to_string());
        let truth = 120.0;
        let suggested = rate_of(&advice.suggested);
        assert!((suggested / truth - 1.0).abs() < 0.2, "{advice}");
        assert!(
            advice
                .reason
                .contains("over 10 min at 50/min; p99 offered 120/min"),
            "{advice}"
        );
        assert_eq!(
            advice.confidence,
            Confidence::Low,
            "it is more than twice the limit"
        );
    }
}

#[test]
fn advice_for_random_demand_is_near_its_peak_minutes() {
    let clock = ManualClock::new();
    let limit = Rate::per_minute(400).burst(20);
    let edge = edge("random", &clock, limit);
    play(&edge, &clock, "GET /search", poisson(9.0).take(600));
    let [advice] = &about("random")[..] else {
        panic!("one limit is too low: {:?}", about("random"));
    };
    // 540 a minute on average; one minute in a hundred has 540 + 2.33 * sqrt(540) = 594 of them.
    let suggested = rate_of(&advice.suggested);
    assert!((suggested / 594.0 - 1.0).abs() < 0.2, "{advice}");
    assert!(advice.confidence >= Confidence::Medium, "{advice}");
}

#[test]
fn nothing_is_advised_on_thin_data() {
    let clock = ManualClock::new();
    let few = edge("few", &clock, Rate::per_minute(1).burst(1));
    // 99 requests over ten minutes, nearly all refused.
    play(
        &few,
        &clock,
        "GET /rare",
        (0..600).map(|second| u64::from(second % 6 == 0 && second < 594)),
    );
    let view = snapshot()
        .limiters
        .into_iter()
        .find(|limiter| limiter.name == "few");
    assert_eq!(view.expect("it lives").verdicts.rejected, 89);
    assert_eq!(about("few"), []);

    let clock = ManualClock::new();
    let short = edge("short", &clock, Rate::per_minute(1).burst(1));
    play(&short, &clock, "GET /", std::iter::repeat_n(9, 110));
    assert_eq!(about("short"), [], "less than two minutes");
}

#[test]
fn nothing_is_advised_where_nearly_all_is_granted() {
    let clock = ManualClock::new();
    let edge = edge("calm", &clock, Rate::per_minute(120).burst(10));
    play(&edge, &clock, "GET /", std::iter::repeat_n(2, 600));
    assert_eq!(about("calm"), []);
}

#[test]
fn one_caller_that_hammers_is_no_reason_to_raise_a_limit() {
    let clock = ManualClock::new();
    let edge = edge("hammer", &clock, Rate::per_minute(60).burst(10));
    sample();
    for second in 0..600_u64 {
        let _ = edge.check(
            &Request {
                ip: second % 30,
                route: "POST /login",
            },
            1,
        );
        for _ in 0..9 {
            let _ = edge.check(
                &Request {
                    ip: 99,
                    route: "POST /login",
                },
                1,
            );
        }
        clock.advance(Duration::from_secs(1));
        sample();
    }
    assert_eq!(about("hammer"), []);

    // Nor is one whom nobody else is there to be compared with.
    let clock = ManualClock::new();
    let edge = self::edge("alone there", &clock, Rate::per_minute(60).burst(10));
    sample();
    for _ in 0..300 {
        for _ in 0..5 {
            let _ = edge.check(
                &Request {
                    ip: 99,
                    route: "POST /login",
                },
                1,
            );
        }
        clock.advance(Duration::from_secs(1));
        sample();
    }
    assert_eq!(about("alone there"), []);
}

#[test]
fn what_everybody_shares_is_not_advised_to_be_raised() {
    let clock = ManualClock::new();
    let limits = Hierarchy::<u64>::builder()
        .level("global", Rate::per_second(1).burst(10), |_| ())
        .level("user", Rate::per_second(5).burst(50), |user: &u64| *user)
        .clock(clock.clone())
        .build()
        .expect("it is valid");
    let edge = Watched::with_clock("protects", limits, clock.clone());
    sample();
    for second in 0..600_u64 {
        for user in 0..5 {
            let _ = edge.check(&(second % 7 + user), 1);
        }
        clock.advance(Duration::from_secs(1));
        sample();
    }
    assert_eq!(about("protects"), []);
}

#[test]
fn a_limit_per_caller_that_many_run_into_is_told() {
    let clock = ManualClock::new();
    let limits = Hierarchy::<u64>::builder()
        .level("user", Rate::per_minute(30).burst(5), |user: &u64| *user)
        .clock(clock.clone())
        .build()
        .expect("it is valid");
    let edge = Watched::with_clock("callers", limits, clock.clone());
    sample();
    for _ in 0..180 {
        // Each of thirty asks once a second, and may once in two.
        for user in 0..30 {
            let _ = edge.check(&user, 1);
        }
        clock.advance(Duration::from_secs(1));
        sample();
    }
    let [advice] = &about("callers")[..] else {
        panic!("the limit is too low for all: {:?}", about("callers"));
    };
    assert_eq!(advice.subject, "user");
    assert!(
        (rate_of(&advice.suggested) / 60.0 - 1.0).abs() < 0.2,
        "{advice}"
    );
    assert_eq!(advice.confidence, Confidence::Low);
}
