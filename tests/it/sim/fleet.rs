//! Leases on paper keep their stated bound.

use std::time::Duration;

use proptest::prelude::*;
use sluicegate::sim::{Arrival, Fleet, Pattern};
use sluicegate::{Rate, TokenBucket};

fn bucket(rate: u64, burst: u64) -> TokenBucket {
    TokenBucket::new(Rate::per_second(rate), burst).expect("a valid limit")
}

#[test]
fn one_node_that_buys_one_at_a_time_is_the_exact_limit() {
    let pattern = Pattern::Poisson {
        rate: Rate::per_second(150),
    };
    let shares = Fleet::new(bucket(100, 20), 1, 1).run_all(pattern.arrivals(3).take(5_000));
    assert_eq!((shares.admitted, shares.most_over), (shares.exact, 0));
}

#[test]
fn bigger_leases_admit_less_and_cost_fewer_trips() {
    let pattern = Pattern::Poisson {
        rate: Rate::per_second(1500),
    };
    let run = |lease| {
        let fleet = Fleet::new(bucket(1000, 400), 8, lease).life(Duration::from_millis(200));
        fleet.run_all(pattern.arrivals(3).take(60_000))
    };
    let (small, large) = (run(2), run(50));
    let quiet = |lease| {
        let pattern = Pattern::Poisson {
            rate: Rate::per_second(600),
        };
        let fleet = Fleet::new(bucket(1000, 400), 8, lease);
        fleet.run_all(pattern.arrivals(3).take(20_000)).leases
    };
    assert!(quiet(1) > 8 * quiet(10), "{} {}", quiet(1), quiet(10));
    assert!(small.exact == large.exact && large.admitted <= large.exact);
    let advised = Fleet::advised_lease(bucket(1000, 400), 8);
    assert_eq!(advised, 12);
    let advised = run(advised);
    assert!(
        advised.admitted as f64 > 0.97 * advised.exact as f64,
        "{advised:?}"
    );
}

proptest! {
    #[test]
    fn a_fleet_never_exceeds_its_bound(
        rate in 1_u64..500, burst in 1_u64..100, nodes in 1_u64..12, lease in 1_u64..40, life in 1_u64..3000,
        gaps in prop::collection::vec((0_u64..20_000_000, 1_u64..4), 1..400),
    ) {
        let mut offset = Duration::ZERO;
        let arrivals = gaps.iter().map(|(gap, cost)| {
            offset += Duration::from_nanos(*gap);
            Arrival { offset, cost: Some(*cost), ..Arrival::default() }
        });
        let fleet = Fleet::new(bucket(rate, burst), nodes, lease).life(Duration::from_millis(life));
        let shares = fleet.run_all(arrivals);
        prop_assert!(shares.most_over <= shares.bound_over, "{shares:?}");
        // Nothing is spent that was not bought: burst and rate over the whole time bound it all.
        let all = burst + (offset.as_secs_f64() * rate as f64) as u64 + 1;
        prop_assert!(shares.admitted + shares.stranded <= all, "{shares:?} {all}");
    }
}
