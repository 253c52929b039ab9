//! Callers who come back, a downstream that suffers, an edge in front: every arrival ends in one count.

use std::time::Duration;

use sluicegate::queue::Builder;
use sluicegate::sim::{
    Arrival, Callers, Downstream, Form, Latency, Outage, Pattern, Per, Refuser, Report, Return,
    Simulation,
};
use sluicegate::{Rate, TokenBucket};

fn poisson(rate: u64, seconds: u64) -> impl Iterator<Item = Arrival> {
    let end = Duration::from_secs(seconds);
    let pattern = Pattern::Poisson {
        rate: Rate::per_second(rate),
    };
    pattern
        .arrivals(rate)
        .take_while(move |arrival| arrival.offset < end)
}

fn simulate(queue: Builder) -> Simulation {
    Simulation::new(queue).expect("the settings are valid")
}

#[track_caller]
fn settled(report: &Report) {
    assert_eq!(report.outcomes.unfinished, 0);
    assert!(report.ledger.is_balanced());
    assert_eq!(
        report.ledger.queued + report.ledger.in_flight + report.ledger.waiting,
        0
    );
}

#[test]
fn a_lone_caller_who_obeys_gets_in_at_the_second_try() {
    let queue = Builder::new(Rate::per_second(10))
        .max_depth(5)
        .watermarks(4, 5);
    let mut arrivals: Vec<Arrival> = (0..8).map(|_| Arrival::default()).collect();
    arrivals.truncate(7);
    let report = simulate(queue)
        .callers(Callers::new(Form::Try).retries(1))
        .run_all(arrivals);
    // One leaves at once, five fit, the seventh is refused and comes back as told.
    assert_eq!((report.outcomes.served, report.offers), (7, 8));
    settled(&report);
}

#[test]
fn the_refused_who_obey_return_as_a_trickle_and_the_stubborn_do_not() {
    let spike = || (0..400).map(|_| Arrival::default());
    let run = |comes_back| {
        let queue = Builder::new(Rate::per_second(100)).max_depth(50);
        let callers = Callers::new(Form::Try).retries(10).comes_back(comes_back);
        let report = simulate(queue).callers(callers).run_all(spike());
        settled(&report);
        assert_eq!(report.outcomes.total(), 400);
        report
    };
    let obedient = run(Return::Told);
    assert!(obedient.outcomes.served > 370, "{:?}", obedient.outcomes);
    let stubborn = run(Return::After(Duration::from_millis(10)));
    assert!(stubborn.outcomes.served < 200, "{:?}", stubborn.outcomes);
    assert!(
        obedient.offers * 3 < stubborn.offers * 2,
        "{} {}",
        obedient.offers,
        stubborn.offers
    );
}

#[test]
fn retries_keep_an_outage_alive_until_a_bound_ends_it() {
    // 280/s into 300/s, one second of patience, one retry, ten seconds away.
    let run = |depth: u64| {
        let queue = Builder::new(Rate::per_second(300))
            .max_depth(depth)
            .watermarks(depth - 1, depth)
            .max_in_flight(30);
        let downstream = Downstream::new(Latency::Fixed(Duration::from_millis(10))).outage(
            Outage::new(Duration::from_secs(10), Duration::from_secs(10)),
        );
        let patience = Duration::from_secs(1);
        let callers = Callers::new(Form::Try)
            .patience(patience)
            .retries(1)
            .comes_back(Return::After(patience));
        let report = simulate(queue)
            .downstream(downstream)
            .callers(callers)
            .run_all(poisson(280, 60));
        settled(&report);
        report
    };
    let (endless, bounded) = (run(1_000_000), run(150));
    // Of the 50 s in which the database is there.
    assert!(endless.outcomes.served < 280 * 20, "{:?}", endless.outcomes);
    assert!(bounded.outcomes.served > 280 * 48, "{:?}", bounded.outcomes);
    assert!(endless.wasted > bounded.wasted * 10);
}

#[test]
fn who_waits_in_line_leaves_when_its_patience_ends() {
    let queue = Builder::new(Rate::per_second(100))
        .max_depth(10)
        .watermarks(5, 10);
    let patience = Duration::from_millis(500);
    let report = simulate(queue)
        .callers(Callers::new(Form::Wait).patience(patience))
        .run_all(poisson(200, 20));
    settled(&report);
    let timed_out = report
        .outcomes
        .refused_by
        .iter()
        .find(|(by, _)| by.label() == "queue timed_out");
    assert!(
        timed_out.is_some_and(|(_, count)| *count > 1000),
        "{:?}",
        report.outcomes
    );
    assert!(report.max_waiting > 10);
    assert!(report.wait.max() < patience + Duration::from_millis(120));
}

#[test]
fn the_edge_refuses_by_level_and_the_queue_behind_it_does_not_fill() {
    let bucket = |rate, burst| {
        TokenBucket::new(Rate::per_second(rate), burst)
            .expect("valid")
            .into()
    };
    let arrivals = poisson(300, 20)
        .enumerate()
        .map(|(index, arrival)| Arrival {
            key: Some(if index % 3 == 0 {
                "a".into()
            } else {
                format!("{index}").into()
            }),
            ..arrival
        });
    let report = simulate(Builder::new(Rate::per_second(200)).max_depth(60))
        .level("all", bucket(180, 30), Per::All)
        .level("key", bucket(20, 5), Per::Key)
        .run_all(arrivals);
    settled(&report);
    let by = |name: &str| {
        let level = report.outcomes.refused_by.get(&Refuser::Edge(name.into()));
        level.copied().unwrap_or(0)
    };
    // "a" offers 100/s and gets 20; then 220/s are left for 180.
    assert!((1500..1640).contains(&by("key")), "{:?}", report.outcomes);
    assert!((500..1100).contains(&by("all")), "{:?}", report.outcomes);
    assert_eq!(report.outcomes.refused(), by("key") + by("all"));
    assert!(report.max_depth <= 30 + 5, "{}", report.max_depth);
}

#[test]
fn a_downstream_that_degrades_is_held_by_the_bound_in_flight() {
    let run = |in_flight: u64| {
        let downstream =
            Downstream::new(Latency::Fixed(Duration::from_millis(100))).degrading(10, 2.0);
        let queue = Builder::new(Rate::per_second(150))
            .max_depth(100)
            .max_in_flight(in_flight);
        let callers = Callers::new(Form::Try).patience(Duration::from_secs(2));
        simulate(queue)
            .downstream(downstream)
            .callers(callers)
            .run_all(poisson(150, 20))
    };
    let (free, held) = (run(1000), run(10));
    settled(&free);
    settled(&held);
    // Ten at 100 ms each are 100/s; let alone, they crowd until nobody is done in time.
    assert!(held.goodput() > 90.0, "{}", held.goodput());
    assert!(free.goodput() < 40.0, "{}", free.goodput());
    assert_eq!(held.max_in_flight, 10);
}

#[test]
fn failures_are_tried_again_as_often_as_the_queue_allows() {
    let downstream = || {
        Downstream::new(Latency::Fixed(Duration::from_millis(5)))
            .outage(Outage::new(Duration::from_secs(2), Duration::from_millis(250)).failing())
    };
    let queue = || Builder::new(Rate::per_second(200)).max_depth(200);
    let once = simulate(queue())
        .downstream(downstream())
        .run_all(poisson(100, 5));
    let again = simulate(queue().max_attempts(4))
        .downstream(downstream())
        .run_all(poisson(100, 5));
    settled(&once);
    settled(&again);
    assert!(
        (10..45).contains(&once.outcomes.failed),
        "{:?}",
        once.outcomes
    );
    assert_eq!(again.outcomes.failed, 0);
    assert!(again.ledger.requeued > 10);
}

#[test]
fn a_change_of_rate_takes_effect_when_it_is_due() {
    let changes =
        [(10, 50), (20, 200)].map(|(at, rate)| (Duration::from_secs(at), Rate::per_second(rate)));
    let report = simulate(Builder::new(Rate::per_second(200)).max_depth(10_000))
        .rates(changes)
        .expect("the rates are valid")
        .run_all(poisson(100, 30));
    settled(&report);
    // 50/s too much for ten seconds stand at their end.
    assert!(
        (430..570).contains(&report.max_depth),
        "{}",
        report.max_depth
    );
    assert_eq!(report.outcomes.served, report.outcomes.total());
}

#[test]
fn the_critical_pass_and_tenants_share() {
    let arrivals = poisson(200, 20)
        .enumerate()
        .map(|(index, arrival)| Arrival {
            key: Some(match index % 10 {
                0 => "health".into(),
                1 => "small".into(),
                _ => "big".into(),
            }),
            ..arrival
        });
    let queue = Builder::new(Rate::per_second(100))
        .max_depth(100)
        .tenant_max_depth(50);
    let report = simulate(queue)
        .lane("health", sluicegate::queue::Priority::Critical)
        .fair()
        .run_all(arrivals);
    settled(&report);
    assert!(report.outcomes.served > 1_950);
}

#[test]
fn costs_are_charged_and_what_can_never_fit_is_refused() {
    let costly = |cost| Arrival {
        cost: Some(cost),
        ..Arrival::default()
    };
    let report = simulate(Builder::new(Rate::per_second(100)).max_depth(10)).run_all([
        costly(0),
        costly(8),
        costly(11),
    ]);
    settled(&report);
    assert_eq!(report.outcomes.served, 2);
    let by = report.outcomes.refused_by.keys().next().map(Refuser::label);
    assert_eq!(by.as_deref(), Some("queue too_costly"));
}
