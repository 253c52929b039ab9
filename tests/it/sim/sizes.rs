//! What `size` foretells, `simulate` finds.

use std::time::Duration;

use sluicegate::queue::Builder;
use sluicegate::sim::{Arrival, Pattern, Report, Simulation, Size, Sizing};
use sluicegate::{BuildError, Rate};

const RATE: Rate = Rate::per_second(1000);

fn sizing() -> Sizing {
    Sizing::new(RATE, Duration::from_millis(110), Duration::from_millis(10))
}

fn found(size: &Size, offered: u64, count: usize) -> Report {
    let queue = Builder::new(RATE)
        .max_depth(size.max_depth)
        .watermarks(size.low, size.high);
    let pattern = Pattern::Poisson {
        rate: Rate::per_second(offered),
    };
    let simulation = Simulation::new(queue).expect("the size is valid");
    simulation.run_all(pattern.arrivals(offered + 1).take(count))
}

#[track_caller]
fn agree(what: &str, told: Duration, found: Duration) {
    let off = found.as_secs_f64() / told.as_secs_f64() - 1.0;
    assert!(off.abs() < 0.05, "{what}: told {told:?}, found {found:?}");
}

#[test]
fn size_and_simulation_agree_on_independent_arrivals() {
    for offered in [500, 700, 800] {
        let size = sizing().offered(Rate::per_second(offered));
        let report = found(&size, offered, 80_000);
        agree("mean", size.mean_wait, report.wait.mean());
        agree("p99", size.p99_wait, report.wait.quantile(0.99));
        assert_eq!(report.outcomes.refused(), 0);
    }
}

#[test]
fn they_agree_on_overload_too() {
    for offered in [1300, 1500, 2000] {
        let size = sizing().offered(Rate::per_second(offered));
        let report = found(&size, offered, 50_000);
        agree("mean", size.mean_wait, report.wait.mean());
        agree("p50", size.p50_wait, report.wait.quantile(0.5));
        agree("p99", size.p99_wait, report.wait.quantile(0.99));
        let refused = report.outcomes.refused() as f64 / 50_000.0;
        assert!(
            (refused / size.refused - 1.0).abs() < 0.05,
            "{refused} {}",
            size.refused
        );
        assert!(size.warnings[0].contains("above the rate"));
    }
}

#[test]
fn a_small_room_with_marks_refuses_what_is_foretold() {
    let sizing = sizing().max_depth(20);
    for offered in [900, 950] {
        let size = sizing.offered(Rate::per_second(offered));
        let report = found(&size, offered, 150_000);
        let refused = report.outcomes.refused() as f64 / 150_000.0;
        assert!(
            (refused / size.refused - 1.0).abs() < 0.12,
            "{offered}: {refused} {}",
            size.refused
        );
        agree("mean", size.mean_wait, report.wait.mean());
    }
}

#[test]
fn the_depth_follows_from_the_deadline_and_a_deeper_one_is_warned_of() {
    let size = sizing().offered(Rate::per_second(800));
    assert_eq!(
        (size.max_depth, size.low, size.high, size.catch_up),
        (99, 49, 79, 100)
    );
    assert!(size.warnings.is_empty(), "{:?}", size.warnings);
    assert!(size.lines.iter().all(|line| !line.because.is_empty()));
    let warned = |size: Size, of: &str| {
        assert!(
            size.warnings.iter().any(|warning| warning.contains(of)),
            "{of}: {:?}",
            size.warnings
        );
    };
    warned(
        sizing().max_depth(200).offered(Rate::per_second(800)),
        "beyond rate x deadline",
    );
    warned(sizing().offered(Rate::per_second(950)), "above 90 %");
    warned(sizing().offered(Rate::per_second(1000)), "never clears");
    warned(sizing().edge(Rate::per_second(900), 200), "does not fit");
    let late = Duration::from_millis(120);
    warned(
        Sizing::new(RATE, Duration::from_millis(110), late).offered(RATE),
        "leaves nothing",
    );
}

#[test]
fn the_worst_case_of_an_edge_is_network_calculus() {
    let size = sizing().edge(Rate::per_second(800), 50);
    let line = |name: &str| {
        let line = size.lines.iter().find(|line| line.name == name);
        line.map(|line| line.value.clone()).unwrap_or_default()
    };
    assert_eq!(line("worst backlog"), "52");
    assert_eq!(line("worst wait"), "53ms");
    assert_eq!(line("burst cleared in"), "250 ms");
}

#[test]
fn a_trace_is_sized_by_replay() {
    #[derive(Debug)]
    struct Never;
    impl From<BuildError> for Never {
        fn from(_: BuildError) -> Self {
            Self
        }
    }
    let burst = (0..100).map(|_| Arrival::default());
    let last = Arrival {
        offset: Duration::from_secs(10),
        ..Arrival::default()
    };
    let arrivals = burst.chain([last]).map(Ok::<_, Never>);
    let size = sizing().max_depth(200).trace(arrivals).expect("no errors");
    // The hundredth waits for 99 before it.
    assert_eq!(size.refused, 0.0);
    let line = |name: &str| {
        size.lines
            .iter()
            .find(|line| line.name == name)
            .map(|line| &*line.value)
    };
    assert_eq!(line("burst for an edge"), Some("100 at 900.0/s"));
    assert_eq!(line("busiest second"), Some("100 in cost"));
}
