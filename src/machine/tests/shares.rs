//! What lanes are promised, and who pays for whom.

use proptest::prelude::*;

use crate::key::Key;
use crate::machine::tests::{bounded, cost, critical, machine, ms, put, refused, take, unpaced};
use crate::machine::{Ask, Effects, Machine, Settled, Spec};
use crate::refusal::Reason;
use crate::words::{Exit, Priority, WhenFull};

fn at(priority: Priority, cost: u64) -> Ask {
    Ask {
        priority,
        cost,
        ..Ask::default()
    }
}

fn shared(shares: [f64; 4]) -> Machine<u64> {
    let mut spec = unpaced();
    spec.max_depth = Some(1 << 40);
    spec.lane_shares = shares;
    machine(&spec)
}

/// Takes a job and puts another of its lane behind it; returns lane and cost.
fn turn(machine: &mut Machine<u64>, next_cost: u64) -> (usize, u64) {
    let taken = take(machine, ms(0));
    let (priority, was) = (taken.run.owner.priority, taken.run.cost);
    machine.settle(ms(0), taken.run, Settled::Acked, &mut Effects::new());
    put(machine, ms(0), &at(priority, next_cost), 0);
    (priority.index(), was)
}

#[test]
fn a_lane_gets_its_share_under_a_critical_flood() {
    let mut machine = shared([0.1, 0.2, 0.0, 0.0]);
    for priority in Priority::ALL {
        for _ in 0..3 {
            put(&mut machine, ms(0), &at(priority, 1), 0);
        }
    }
    let mut sent = [0_u64; 4];
    for _ in 0..10_000 {
        sent[turn(&mut machine, 1).0] += 1;
    }
    assert!(sent[0].abs_diff(1_000) <= 3, "{sent:?}");
    assert!(sent[1].abs_diff(2_000) <= 3, "{sent:?}");
    assert_eq!(sent[2], 0, "no share, and no time to age");
}

#[test]
fn without_shares_a_flood_above_takes_all_until_lanes_age() {
    let mut machine = shared([0.0; 4]);
    put(&mut machine, ms(0), &at(Priority::Low, 1), 0);
    put(&mut machine, ms(0), &critical(1), 0);
    assert!((0..1000).all(|_| turn(&mut machine, 1).0 == Priority::Critical.index()));
}

#[test]
fn an_idle_lane_earns_nothing() {
    let mut machine = shared([0.5, 0.0, 0.0, 0.0]);
    put(&mut machine, ms(0), &critical(1), 0);
    put(&mut machine, ms(0), &critical(1), 0);
    for _ in 0..1000 {
        turn(&mut machine, 1);
    }
    for _ in 0..100 {
        put(&mut machine, ms(0), &at(Priority::Low, 1), 0);
    }
    let low = (0..20).filter(|_| turn(&mut machine, 1).0 == 0).count();
    assert!((9..=10).contains(&low), "{low} of 20");
}

#[test]
fn what_urgency_gives_leaves_no_debt() {
    let mut machine = shared([0.5, 0.0, 0.0, 0.0]);
    for _ in 0..1000 {
        put(&mut machine, ms(0), &at(Priority::Low, 1), 0);
    }
    for _ in 0..500 {
        take(&mut machine, ms(0));
    }
    put(&mut machine, ms(0), &critical(1), 0);
    put(&mut machine, ms(0), &critical(1), 0);
    let low = (0..20).filter(|_| turn(&mut machine, 1).0 == 0).count();
    assert!(low >= 9, "{low} of 20");
}

#[test]
fn shares_beyond_the_whole_are_refused_by_name() {
    let check = |shares, says: &str| {
        let spec = Spec {
            lane_shares: shares,
            ..unpaced()
        };
        let error = spec.resolve().expect_err("out of range").to_string();
        assert!(
            error.contains("lane_share") && error.contains(says),
            "{error}"
        );
    };
    check([0.5, 0.0, 0.6, 0.0], "1.1");
    check([-0.1, 0.0, 0.0, 0.0], "-0.1");
    check([f64::NAN, 0.0, 0.0, 0.0], "NaN");
    let thirds = [1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 0.0];
    assert!(
        Spec {
            lane_shares: thirds,
            ..unpaced()
        }
        .resolve()
        .is_ok()
    );
}

#[test]
fn the_predicted_wait_counts_what_lanes_below_take() {
    let mut spec = crate::machine::tests::spec(crate::rate::Rate::per_second(10));
    spec.lane_shares = [0.5, 0.0, 0.0, 0.0];
    let mut machine = machine(&spec);
    for _ in 0..20 {
        put(&mut machine, ms(0), &at(Priority::Low, 1), 0);
    }
    let mut fx = Effects::new();
    for ahead in 0..5_u64 {
        let place = machine
            .try_offer(ms(0), &critical(1), &mut fx)
            .expect("room");
        let told = machine.send(ms(0), place, 1, &mut fx).expected_wait;
        // One of the lane below for each of its own, and the first.
        assert_eq!(told.as_millis() as u64, (2 * ahead + 1) * 100);
    }
    let mut now = 0;
    let mut last = 0;
    while machine.lane(Priority::Critical).queued > 0 {
        last = now;
        take(&mut machine, ms(now));
        now += 100;
    }
    assert!(last <= 900, "{last}");
}

proptest! {
    #[test]
    fn a_backlogged_lane_is_never_short_by_more_than_a_few_jobs(
        shares in prop::array::uniform4(0_u64..26), costs in prop::collection::vec(1_u64..40, 60),
    ) {
        let mut machine = shared(shares.map(|share| share as f64 / 100.0));
        for priority in Priority::ALL {
            for cost in &costs[..3] {
                put(&mut machine, ms(0), &at(priority, *cost), 0);
            }
        }
        let with = shares.iter().filter(|share| **share > 0).count() as f64;
        let (mut all, mut sent) = (0, [0_u64; 4]);
        for n in 0..600 {
            let (lane, was) = turn(&mut machine, costs[n % costs.len()]);
            all += was;
            sent[lane] += was;
            for lane in 0..4 {
                let due = all as f64 * shares[lane] as f64 / 100.0;
                let short = due - sent[lane] as f64;
                prop_assert!(short <= (with + 1.0) * 40.0, "lane {lane} is short by {short} of {all}");
            }
        }
    }
}

#[test]
fn evict_lower_spares_its_equals_and_evict_lowest_does_not() {
    for (rule, evicted) in [
        (WhenFull::EvictLower, None),
        (WhenFull::EvictLowest, Some(0)),
    ] {
        let mut spec = unpaced();
        spec.max_depth = Some(2);
        spec.when_full = rule;
        let mut machine = machine(&spec);
        put(&mut machine, ms(0), &cost(1), 0);
        put(&mut machine, ms(1), &cost(1), 1);
        match evicted {
            None => assert_eq!(refused(&mut machine, ms(2), &cost(1)), Reason::Full),
            Some(victim) => {
                let fx = put(&mut machine, ms(2), &cost(1), 2);
                assert_eq!(
                    (fx.gone[0].payload, fx.gone[0].exit),
                    (victim, Exit::Evicted)
                );
            }
        }
        // A more urgent one takes from them under both.
        let fx = put(&mut machine, ms(3), &at(Priority::High, 1), 3);
        assert_eq!(fx.gone.len(), 1, "{rule:?}");
        // And nothing ever from who is more urgent.
        assert_eq!(
            refused(&mut machine, ms(4), &at(Priority::Low, 1)),
            Reason::Full
        );
        assert_eq!(machine.depth(), 2);
    }
}

#[test]
fn all_jobs_critical_is_a_queue_of_one_lane() {
    let mut machine = bounded(10, 4, 8, 4);
    for item in 0..10 {
        put(&mut machine, ms(item), &critical(1), item);
    }
    assert_eq!(refused(&mut machine, ms(10), &critical(1)), Reason::Full);
    let order: Vec<u64> = (0..10)
        .map(|_| take(&mut machine, ms(20)).payload)
        .collect();
    assert_eq!(order, (0..10).collect::<Vec<_>>());
}

#[test]
fn costs_without_measure_are_refused_or_saturate() {
    let mut machine = shared([0.1, 0.0, 0.0, 0.0]);
    assert_eq!(
        refused(&mut machine, ms(0), &cost(u64::MAX)),
        Reason::TooCostly
    );
    let mut spec = crate::machine::tests::spec(crate::rate::Rate::per_second(1_000_000_000));
    spec.max_depth = Some(u64::MAX);
    spec.tenancy.rate = Some(crate::rate::Rate::per_day(1));
    spec.lane_shares = [0.5; 4].map(|half: f64| half / 2.0);
    let mut machine = crate::machine::tests::machine(&spec);
    let whole = Ask {
        tenant: Some((Key::from("a"), 1)),
        ..at(Priority::Low, u64::MAX)
    };
    put(&mut machine, ms(0), &whole, 0);
    assert_eq!(refused(&mut machine, ms(0), &cost(1)), Reason::Full);
    let mut taken = take(&mut machine, ms(0));
    for actual in [0, u64::MAX, 0, 1] {
        machine.settle_cost(ms(0), &mut taken.run, actual);
    }
    machine.settle(ms(0), taken.run, Settled::Acked, &mut Effects::new());
    put(&mut machine, ms(0), &at(Priority::Low, 1), 1);
    assert_eq!(machine.depth(), 1);
    assert_eq!(take(&mut machine, ms(1)).payload, 1);
}
