//! Who goes next among tenants.

use std::time::Duration;

use proptest::prelude::*;

use crate::key::Key;
use crate::machine::tenants::hand;
use crate::machine::tests::{machine, ms, put, refused, spec, take, unpaced};
use crate::machine::{Ask, Effects, Machine, NotTaken, Settled, Spec};
use crate::rate::Rate;
use crate::refusal::Reason;
use crate::tick::Tick;

fn of(tenant: &str, weight: u64, cost: u64) -> Ask {
    Ask {
        tenant: Some((Key::from(tenant), weight)),
        cost,
        ..Ask::default()
    }
}

fn wide(mut spec: Spec) -> Machine<u64> {
    spec.max_depth = Some(1 << 40);
    machine(&spec)
}

/// Takes the next job and puts another of its tenant behind it; returns whose it was and its cost.
fn turn(
    machine: &mut Machine<u64>,
    tenants: &[(&str, u64)],
    cost: impl Fn(u64) -> u64,
    n: u64,
) -> (usize, u64) {
    let taken = take(machine, ms(0));
    let who = taken.payload as usize;
    let was = taken.run.cost;
    machine.settle(ms(0), taken.run, Settled::Acked, &mut Effects::new());
    let (name, weight) = tenants[who];
    put(machine, ms(0), &of(name, weight, cost(n)), who as u64);
    (who, was)
}

#[test]
fn weights_of_one_and_three_share_departures_by_cost() {
    for (most, rounds) in [(1, 10_000), (50, 10_000)] {
        let mut machine = wide(unpaced());
        let tenants = [("small", 1), ("large", 3)];
        let cost = |n: u64| 1 + n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % most;
        for (who, (name, weight)) in tenants.iter().enumerate() {
            for n in 0..4 {
                put(&mut machine, ms(0), &of(name, *weight, cost(n)), who as u64);
            }
        }
        let mut sent = [0_u64; 2];
        for n in 0..rounds {
            let (who, cost) = turn(&mut machine, &tenants, cost, n);
            sent[who] += cost;
        }
        let share = sent[0] as f64 / (sent[0] + sent[1]) as f64;
        assert!((share - 0.25).abs() < 0.01, "costs to {most}: {share}");
    }
}

#[test]
fn a_quiet_tenant_beside_a_flood_waits_under_three_departures() {
    let mut machine = wide(spec(Rate::per_second(100)));
    let (mut waits, mut next) = (Vec::new(), 0);
    for step in 0..20_000_u64 {
        let now = ms(step * 10);
        for _ in 0..2 {
            put(&mut machine, now, &of("flood", 1, 1), 0);
        }
        if step >= next {
            put(&mut machine, now, &of("quiet", 1, 1), 1);
            next = step + 50 + step * 7 % 100;
        }
        let taken = take(&mut machine, now);
        if taken.payload == 1 {
            waits.push(taken.run.waited);
        }
    }
    waits.sort();
    let p99 = waits[waits.len() * 99 / 100];
    assert!(waits.len() > 150, "{}", waits.len());
    assert!(p99 < Duration::from_millis(30), "{p99:?}");
}

#[test]
fn an_idle_hour_earns_nothing() {
    let mut machine = wide(spec(Rate::per_second(1)));
    for _ in 0..10_000 {
        put(&mut machine, ms(0), &of("busy", 1, 1), 0);
    }
    let hour = 3600;
    for second in 0..hour {
        take(&mut machine, ms(second * 1000));
    }
    for _ in 0..100 {
        put(&mut machine, ms(hour * 1000), &of("idle", 1, 1), 1);
    }
    let idle = (0..100)
        .filter(|n| take(&mut machine, ms((hour + n) * 1000)).payload == 1)
        .count();
    assert!((49..=51).contains(&idle), "{idle} of 100");
}

#[test]
fn a_tenant_at_its_own_bound_is_refused_and_the_others_are_not() {
    let mut spec = unpaced();
    spec.max_depth = Some(10);
    spec.tenancy.max_depth = Some(2);
    let mut machine = machine(&spec);
    put(&mut machine, ms(0), &of("a", 1, 2), 0);
    assert_eq!(refused(&mut machine, ms(0), &of("a", 1, 1)), Reason::Full);
    assert_eq!(
        refused(&mut machine, ms(0), &of("b", 1, 3)),
        Reason::TooCostly
    );
    put(&mut machine, ms(0), &of("b", 1, 1), 1);
}

#[test]
fn a_tenant_with_its_own_rate_rests_and_the_others_do_not() {
    let mut spec = spec(Rate::per_second(200));
    spec.tenancy.rate = Some(Rate::per_second(5));
    let mut machine = wide(spec);
    for _ in 0..100 {
        put(&mut machine, ms(0), &of("a", 1, 1), 0);
    }
    let mut left = [0; 3];
    let mut now = Tick::ZERO;
    while now < ms(2000) {
        if let Ok(taken) = machine.take(now, &mut Effects::new()) {
            left[taken.payload as usize] += 1;
        }
        if now == ms(1000) {
            for _ in 0..100 {
                put(&mut machine, now, &of("b", 1, 1), 1);
                put(&mut machine, now, &Ask::default(), 2);
            }
        }
        now = now + Duration::from_millis(5);
    }
    // Two seconds and one second at 5/s, and the first of each at once; who names no tenant has the queue's rate.
    assert_eq!(left, [10, 5, 100]);
    let due = machine.take(now, &mut Effects::new());
    assert!(due.is_ok() || matches!(due, Err(NotTaken::NotDue(_))));
}

#[test]
fn tenants_without_end_are_kept_in_bounded_memory_and_all_are_counted() {
    let mut spec = spec(Rate::per_second(1_000_000));
    spec.tenancy.max_tenants = 100;
    let mut machine = wide(spec);
    for n in 0..100_000_u64 {
        let ask = Ask {
            tenant: Some((Key::from(n), 1)),
            ..Ask::default()
        };
        put(&mut machine, ms(n), &ask, n);
        let taken = take(&mut machine, ms(n));
        machine.settle(ms(n), taken.run, Settled::Acked, &mut Effects::new());
    }
    assert!(machine.tenants().count() <= 100);
    assert!(machine.tenants.iter().count() <= 100 + 1 + 64);
    let named: u64 = machine.tenants().map(|(_, own)| own.acked).sum();
    assert_eq!(named + machine.others().acked, 100_000);
}

#[test]
fn weights_of_zero_and_without_measure_are_clamped() {
    let mut machine = wide(unpaced());
    put(&mut machine, ms(0), &of("zero", 0, 1), 0);
    put(&mut machine, ms(0), &of("huge", u64::MAX, 1), 1);
    put(&mut machine, ms(0), &of("zero", 0, u64::from(u32::MAX)), 0);
    for _ in 0..3 {
        take(&mut machine, ms(0));
    }
    assert_eq!(machine.depth(), 0);
}

/// Share of trials in which every flow of a mouse's hand is also in a hand of one of the elephants.
fn squashed(flows: u32, size: u32, elephants: usize, trials: u64) -> f64 {
    let mut hash = 0x1234_5678_9ABC_DEF1_u64;
    let mut deal = || {
        hash ^= hash << 13;
        hash ^= hash >> 7;
        hash ^= hash << 17;
        hand(hash, flows, size)
    };
    let lost = (0..trials).filter(|_| {
        let mut covered = vec![false; flows as usize];
        for _ in 0..elephants {
            deal()
                .into_iter()
                .for_each(|card| covered[card as usize] = true);
        }
        deal().into_iter().all(|card| covered[card as usize])
    });
    lost.count() as f64 / trials as f64
}

#[test]
fn dealt_hands_squash_a_mouse_as_rarely_as_published() {
    let few = squashed(32, 12, 4, 40_000);
    assert!((few - 0.114).abs() < 0.01, "{few}");
    let many = squashed(64, 8, 16, 40_000);
    assert!((many - 0.359).abs() < 0.01, "{many}");
}

proptest! {
    #[test]
    fn a_hand_holds_different_flows(hash: u64, flows in 1_u32..200, size in 1_u32..20) {
        let mut hand = hand(hash, flows, size);
        prop_assert_eq!(hand.len() as u32, size.min(flows));
        hand.sort_unstable();
        hand.dedup();
        prop_assert_eq!(hand.len() as u32, size.min(flows));
        prop_assert!(hand.iter().all(|card| *card < flows));
    }

    #[test]
    fn backlogged_tenants_never_lag_by_more_than_a_job_each(
        weights in prop::collection::vec(1_u64..10, 2..5), costs in prop::collection::vec(1_u64..50, 200),
    ) {
        // Goyal, Vin and Cheng, 1996: |W_f / w_f - W_m / w_m| <= c_f / w_f + c_m / w_m over any interval.
        let names = ["a", "b", "c", "d"];
        let tenants: Vec<(&str, u64)> = names.into_iter().zip(weights.iter().copied()).collect();
        let mut machine = wide(unpaced());
        let cost = |n: u64| costs[n as usize % costs.len()];
        for (who, (name, weight)) in tenants.iter().enumerate() {
            for n in 0..3 {
                put(&mut machine, ms(0), &of(name, *weight, cost(n)), who as u64);
            }
        }
        let mut sent = vec![0_f64; tenants.len()];
        for n in 0..300 {
            let (who, was) = turn(&mut machine, &tenants, cost, n);
            sent[who] += was as f64;
            for f in 0..tenants.len() {
                for m in 0..f {
                    let (wf, wm) = (tenants[f].1 as f64, tenants[m].1 as f64);
                    let lag = (sent[f] / wf - sent[m] / wm).abs();
                    prop_assert!(lag <= 50.0 / wf + 50.0 / wm, "{lag} between {f} and {m}");
                }
            }
        }
    }
}
