//! Charges that are corrected once the cost is known.

use proptest::prelude::*;

use crate::key::Key;
use crate::machine::tests::{cost, machine, ms, put, spec, take, unpaced};
use crate::machine::{Ask, Effects, Machine, NotTaken, Settled};
use crate::rate::Rate;
use crate::tick::Tick;

/// A backlog of jobs of cost 1 at 10/s, without catch-up.
fn backlog() -> Machine<u64> {
    let mut spec = spec(Rate::per_second(10));
    spec.max_depth = Some(1000);
    spec.catch_up = Some(0);
    let mut machine = machine(&spec);
    for item in 0..100 {
        put(&mut machine, ms(0), &cost(1), item);
    }
    machine
}

#[track_caller]
fn due(machine: &Machine<u64>, at: u64) {
    assert_eq!(machine.readiness(Tick::ZERO), Err(NotTaken::NotDue(ms(at))));
}

#[test]
fn a_debt_delays_the_next_departure_by_the_difference() {
    let mut machine = backlog();
    let mut taken = take(&mut machine, ms(0));
    due(&machine, 100);
    machine.settle_cost(ms(50), &mut taken.run, 6);
    due(&machine, 600);
}

#[test]
fn settling_twice_counts_the_last_word() {
    let mut machine = backlog();
    let mut taken = take(&mut machine, ms(0));
    for (actual, next) in [(6, 600), (6, 600), (3, 300), (9, 900), (1, 100)] {
        machine.settle_cost(ms(0), &mut taken.run, actual);
        due(&machine, next);
    }
}

#[test]
fn a_refund_hastens_the_next_departure() {
    let mut machine = backlog();
    put(&mut machine, ms(0), &cost(50), 999);
    for n in 0..100 {
        take(&mut machine, ms(n * 100));
    }
    let mut big = take(&mut machine, ms(10_000));
    assert_eq!(big.payload, 999);
    for item in 0..3 {
        put(&mut machine, ms(10_000), &cost(1), item);
    }
    due(&machine, 15_000);
    machine.settle_cost(ms(10_050), &mut big.run, 1);
    due(&machine, 10_100);
    // To nothing: as if it had not left at all.
    machine.settle_cost(ms(10_050), &mut big.run, 0);
    assert_eq!(machine.readiness(Tick::ZERO), Ok(()));
}

#[test]
fn refunds_of_jobs_long_gone_make_no_salvo() {
    let mut spec = spec(Rate::per_second(100));
    spec.max_depth = Some(100_000);
    let mut machine = machine(&spec);
    for item in 0..50 {
        put(&mut machine, ms(0), &cost(10), item);
    }
    let mut flight: Vec<_> = (0..20)
        .map(|n| take(&mut machine, ms(n * 100)).run)
        .collect();
    for run in &mut flight {
        machine.settle_cost(ms(1_950), run, 1);
    }
    // All that was charged too much is known at once; what follows still leaves at most a tenth faster than the rate.
    let mut left = Vec::new();
    for _ in 0..20 {
        let at = machine.next_event(true).expect("a backlog").max(ms(1_950));
        take(&mut machine, at);
        left.push(at);
    }
    let gaps = left.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(
        gaps.min() >= Some(std::time::Duration::from_millis(88)),
        "{left:?}"
    );
}

#[test]
fn a_correction_of_a_job_without_a_schedule_changes_no_departure() {
    let mut machine = machine(&unpaced());
    put(&mut machine, ms(0), &cost(1), 0);
    put(&mut machine, ms(0), &cost(1), 1);
    let mut taken = take(&mut machine, ms(0));
    machine.settle_cost(ms(0), &mut taken.run, u64::MAX);
    assert_eq!(take(&mut machine, ms(0)).payload, 1);
}

#[test]
fn a_tenant_pays_for_what_its_jobs_really_cost() {
    let mut machine = machine(&unpaced());
    let of = |name: &str| Ask {
        tenant: Some((Key::from(name), 1)),
        ..Ask::default()
    };
    for _ in 0..300 {
        put(&mut machine, ms(0), &of("honest"), 0);
        put(&mut machine, ms(0), &of("modest"), 1);
    }
    let mut spent = [0_u64; 2];
    for _ in 0..200 {
        let mut taken = take(&mut machine, ms(0));
        let who = taken.payload as usize;
        let actual = [1, 9][who];
        machine.settle_cost(ms(0), &mut taken.run, actual);
        machine.settle(ms(0), taken.run, Settled::Acked, &mut Effects::new());
        spent[who] += actual;
    }
    assert!(spent[0].abs_diff(spent[1]) <= 10, "{spent:?}");
}

proptest! {
    /// In costs as they are known, departures keep the peak envelope; a window may hold more than the sustained one only
    /// by what was refunded in it.
    #[test]
    fn corrections_keep_departures_within_the_envelope(
        rate in 1_u64..2_000, catch_up in 0_u64..20,
        steps in prop::collection::vec((1_u64..20, 0_u64..40, 0_u64..3_000_000, any::<bool>()), 1..60),
    ) {
        let mut spec = spec(Rate::per_second(rate));
        spec.max_depth = Some(1 << 20);
        spec.catch_up = Some(catch_up);
        let mut machine = machine(&spec);
        // When, how much, and of which departure it is a refund, if it is one.
        let mut events: Vec<(u64, u64, Option<usize>)> = Vec::new();
        let mut flight = Vec::new();
        let mut now = 0;
        for (estimate, actual, late, settles) in steps {
            put(&mut machine, Tick::from_nanos(now), &cost(estimate), 0);
            now = machine.next_event(true).map_or(now, |at| at.as_nanos()).max(now) + late;
            let taken = take(&mut machine, Tick::from_nanos(now));
            flight.push((taken.run, actual, events.len()));
            events.push((now, estimate, None));
            if settles {
                let at = if actual % 2 == 0 { 0 } else { flight.len() - 1 };
                let (mut run, actual, departure) = flight.swap_remove(at);
                let refund = run.charged.saturating_sub(actual);
                machine.settle_cost(Tick::from_nanos(now), &mut run, actual);
                events.push((now, refund, Some(departure)));
                machine.settle(Tick::from_nanos(now), run, Settled::Acked, &mut Effects::new());
            }
        }
        let grain = 2_500_000_u128;
        for from in 0..events.len() {
            let (mut charged, mut refunded, mut known) = (0_i128, 0_i128, 0_i128);
            for &(at, units, refund_of) in &events[from..] {
                let window = u128::from(at - events[from].0);
                let Some(departure) = refund_of else {
                    let sustained = (window * u128::from(rate) / 1_000_000_000) as i128 + i128::from(catch_up);
                    let peak = ((window + grain) * u128::from(rate) * 11 / 10_000_000_000) as i128;
                    prop_assert!(known <= peak, "{known} > {peak} in {window} ns");
                    prop_assert!(charged - refunded <= sustained + 1, "{charged} - {refunded} in {window} ns");
                    charged += i128::from(units);
                    known += i128::from(units);
                    continue;
                };
                refunded += i128::from(units);
                if departure >= from {
                    known -= i128::from(units);
                }
            }
        }
    }
}
