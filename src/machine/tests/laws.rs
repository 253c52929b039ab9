//! Laws that hold for every configuration and every history.

use std::sync::Arc;

use proptest::prelude::*;

use crate::key::Key;
use crate::machine::tests::{GRAIN, cost, machine, put, spec, unpaced};
use crate::machine::{Ask, Collected, Effects, Machine, Offered, Spec, WaiterKey};
use crate::rate::Rate;
use crate::tick::Tick;
use crate::words::{Pressure, Priority, WhenFull};

fn at(nanos: u64) -> Tick {
    Tick::from_nanos(nanos)
}

/// Configurations on the edges: bound 1, low 0, high = bound, no waiters, eviction, paced and not.
fn specs() -> impl Strategy<Value = Spec> {
    let rate = prop_oneof![Just(None), (1_u64..2000).prop_map(Some)];
    let rule = prop_oneof![
        Just(WhenFull::Refuse),
        Just(WhenFull::EvictOldest),
        Just(WhenFull::EvictNewest),
        Just(WhenFull::EvictLowest),
        Just(WhenFull::EvictLower)
    ];
    (
        prop_oneof![Just(1_u64), 2..5_u64, 5..40_u64],
        rate,
        rule,
        0_u64..6,
    )
        .prop_flat_map(|(max, rate, rule, waiters)| {
            (
                Just((max, rate, rule, waiters)),
                prop_oneof![Just(max), 1..=max],
            )
        })
        .prop_flat_map(|(fixed, high)| (Just(fixed), Just(high), 0..high))
        .prop_map(|((max, rate, rule, waiters), high, low)| {
            let mut spec = rate.map_or_else(unpaced, |rate| spec(Rate::per_second(rate)));
            spec.max_depth = Some(max);
            spec.watermarks = Some((low, high));
            spec.max_waiters = Some(waiters);
            spec.when_full = rule;
            spec
        })
}

fn asks() -> impl Strategy<Value = Ask> {
    let costs = prop_oneof![3 => Just(1_u64), 1 => 1..20_u64];
    let priority = prop_oneof![3 => Just(Priority::Normal), 1 => Just(Priority::Critical)];
    let tenant = prop_oneof![3 => Just(None), 1 => (0_u64..3).prop_map(Some)];
    (costs, priority, tenant).prop_map(|(cost, priority, tenant)| Ask {
        cost,
        priority,
        tenant: tenant.map(|tenant| (Key::from(tenant), 1 + tenant)),
        ..Ask::default()
    })
}

/// Offers in both forms; whoever gets a place sends at once. Returns those who wait.
fn fill(machine: &mut Machine<u64>, now: Tick, offers: &[(Ask, bool)]) -> Vec<WaiterKey> {
    let mut fx = Effects::new();
    let mut line = Vec::new();
    for (ask, patient) in offers {
        let place = if *patient {
            match machine.offer(now, ask, None, &mut fx) {
                Offered::Admitted(place) => Some(place),
                Offered::Waiting(key) => {
                    line.push(key);
                    None
                }
                Offered::Refused(_) => None,
            }
        } else {
            machine.try_offer(now, ask, &mut fx).ok()
        };
        if let Some(place) = place {
            machine.send(now, place, 0, &mut fx);
        }
        serve(machine, now, &mut line);
    }
    line
}

/// Whoever in line was granted a place sends at once.
fn serve(machine: &mut Machine<u64>, now: Tick, line: &mut Vec<WaiterKey>) -> usize {
    let mut served = 0;
    let mut again = true;
    while again {
        again = false;
        line.retain(|key| {
            let mut fx = Effects::new();
            match machine.collect(now, *key, &mut fx) {
                Collected::Ready(place) => {
                    machine.send(now, place, 0, &mut fx);
                    served += 1;
                    again = true;
                    false
                }
                Collected::Waiting => true,
                Collected::Refused(refusal) => panic!("nobody cancels or closes: {refusal}"),
            }
        });
    }
    served
}

/// A consumer that is never late, until an instant.
fn consume(machine: &mut Machine<u64>, line: &mut Vec<WaiterKey>, until: Tick) {
    while let Some(event) = machine.next_event(true).filter(|event| *event <= until) {
        let mut fx = Effects::new();
        machine.advance(event, &mut fx);
        while machine.take(event, &mut fx).is_ok() {
            serve(machine, event, line);
        }
        serve(machine, event, line);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_lone_caller_who_obeys_retry_after_gets_in(
        spec in specs(), offers in prop::collection::vec((asks(), any::<bool>()), 0..60),
        ask in asks(), patient: bool,
    ) {
        let mut machine = machine(&spec);
        let now = at(1_000_000_000);
        let mut line = fill(&mut machine, now, &offers);
        let mut fx = Effects::new();
        let refusal = if patient {
            match machine.offer(now, &ask, None, &mut fx) {
                Offered::Refused(refusal) => refusal,
                _ => return Ok(()),
            }
        } else {
            match machine.try_offer(now, &ask, &mut fx) {
                Err(refusal) => refusal,
                Ok(_) => return Ok(()),
            }
        };
        let Some(after) = refusal.retry_after() else { return Ok(()) };
        consume(&mut machine, &mut line, now + after);
        let back = if patient {
            !matches!(machine.offer(now + after, &ask, None, &mut fx), Offered::Refused(_))
        } else {
            machine.try_offer(now + after, &ask, &mut fx).is_ok()
        };
        prop_assert!(back, "{refusal} after {after:?}: still refused");
    }

    #[test]
    fn a_head_of_the_line_is_granted_within_a_bounded_number_of_departures(
        spec in specs(), offers in prop::collection::vec((asks(), any::<bool>()), 0..60),
        newcomers in prop::collection::vec((asks(), any::<bool>()), 0..40),
    ) {
        let mut machine = machine(&spec);
        let mut line = fill(&mut machine, at(0), &offers);
        let Some(head) = line.first().copied() else { return Ok(()) };
        // Everything in the queue may have to leave first, and nothing else: newcomers must not take its room.
        let mut allowed = machine.ledger().queued;
        let mut newcomers = newcomers.iter();
        let mut now = at(0);
        while line.first() == Some(&head) {
            prop_assert!(allowed > 0, "the head starves");
            allowed -= 1;
            now = machine.next_event(true).expect("jobs are queued").max(now);
            let mut fx = Effects::new();
            machine.take(now, &mut fx).expect("a departure is due");
            serve(&mut machine, now, &mut line);
            if let Some((ask, patient)) = newcomers.next()
                && spec.when_full == WhenFull::Refuse
            {
                let before = machine.ledger().queued;
                let late = fill(&mut machine, now, &[(ask.clone(), *patient)]);
                line.extend(late);
                // A newcomer that got in leaves before or after the head, but each is one departure more.
                allowed += machine.ledger().queued - before;
            }
        }
    }

    #[test]
    fn ordinary_and_critical_both_progress_where_high_is_below_the_bound(
        max in 3_u64..30, offers in prop::collection::vec(asks(), 10..60),
    ) {
        let mut spec = unpaced();
        spec.max_depth = Some(max);
        spec.watermarks = Some((max / 3, max - 1));
        spec.max_waiters = Some(8);
        let mut machine = machine(&spec);
        let flood: Vec<(Ask, bool)> = offers.iter().map(|ask| (Ask { cost: 1, ..ask.clone() }, true)).collect();
        let mut line = fill(&mut machine, at(0), &flood);
        line.extend(fill(&mut machine, at(0), &[(cost(1), true)]));
        // Critical offers come without end, one for each departure; the ordinary line still moves.
        let urgent = Ask { priority: Priority::Critical, ..Ask::default() };
        let mut through = 0;
        for round in 0..400 {
            // Time must pass: ordinary jobs go before newer critical ones by ageing only.
            let now = at(round * 100_000_000);
            let mut fx = Effects::new();
            let _ = machine.take(now, &mut fx);
            serve(&mut machine, now, &mut line);
            if let Ok(place) = machine.try_offer(now, &urgent, &mut fx) {
                machine.send(now, place, 0, &mut fx);
                through += 1;
            }
        }
        prop_assert!(line.is_empty(), "{} ordinary offers still wait", line.len());
        prop_assert!(through >= 300, "{through} of 400 critical offers");
    }

    #[test]
    fn the_ladder_rests_at_a_fixed_point_and_keeps_its_bound(
        spec in specs(), offers in prop::collection::vec((asks(), any::<bool>()), 0..80),
    ) {
        let mut machine = machine(&spec);
        fill(&mut machine, at(0), &offers);
        let (state, depth) = (machine.pressure(), machine.depth());
        prop_assert!(depth <= machine.settings().max_depth);
        let mut fx = Effects::new();
        machine.advance(at(0), &mut fx);
        prop_assert_eq!(machine.pressure(), state);
        prop_assert!(fx.wake.is_empty(), "somebody could have been granted before");
        if depth == 0 {
            prop_assert_eq!(state, Pressure::Healthy);
        }
    }

    #[test]
    fn depth_over_time_is_the_sum_of_waits(
        rate in 1_u64..500, arrivals in prop::collection::vec((0_u64..20_000_000, any::<bool>()), 1..120),
    ) {
        // Sample-path form of Little's law: exact for every history that starts and ends empty.
        let mut spec = spec(Rate::per_second(rate));
        spec.max_depth = Some(1000);
        spec.watermarks = Some((500, 1000));
        let mut machine = machine(&spec);
        let (mut now, mut area, mut waits) = (at(0), 0_u128, 0_u128);
        let mut step = |machine: &mut Machine<u64>, to: Tick| {
            area += u128::from(machine.depth()) * (to - now).as_nanos();
            now = now.max(to);
        };
        let mut clock = 0;
        for (gap, prompt) in arrivals {
            clock += gap;
            while let Some(due) = machine.next_event(true).filter(|due| prompt && due.as_nanos() <= clock) {
                step(&mut machine, due);
                waits += machine.take(due, &mut Effects::new()).expect("due").run.waited.as_nanos();
            }
            step(&mut machine, at(clock));
            put(&mut machine, at(clock), &cost(1), 0);
        }
        while machine.depth() > 0 {
            let due = machine.next_event(true).expect("jobs are queued").max(at(clock));
            step(&mut machine, due);
            waits += machine.take(due, &mut Effects::new()).expect("due").run.waited.as_nanos();
        }
        prop_assert_eq!(area, waits);
    }

    #[test]
    fn departures_keep_the_envelope_across_rate_changes_pauses_and_stalls(
        rates in prop::collection::vec(1_u64..2000, 1..4), catch_up in prop::option::of(0_u64..40),
        steps in prop::collection::vec((0_u8..12, 0_u64..3_000_000_000), 20..200),
    ) {
        let mut spec = spec(Rate::per_second(rates[0]));
        spec.max_depth = Some(100_000);
        spec.watermarks = Some((99_998, 99_999));
        spec.catch_up = catch_up;
        let mut machine = machine(&spec);
        let mut fx = Effects::new();
        let (mut now, mut left) = (0_u64, Vec::new());
        let (mut fastest, mut owed) = (rates[0], machine.settings().catch_up(Rate::per_second(rates[0])));
        for (what, much) in steps {
            for _ in 0..3 {
                put(&mut machine, at(now), &cost(1), 0);
            }
            match what {
                0 => machine.pause(at(now), Arc::from("law"), &mut fx),
                1 => machine.resume(at(now), &mut fx),
                2 => {
                    let rate = rates[much as usize % rates.len()];
                    spec.rate = Some(Rate::per_second(rate));
                    machine.apply(at(now), spec.resolve().expect("valid"), &mut fx);
                    fastest = fastest.max(rate);
                    owed = owed.max(machine.settings().catch_up(Rate::per_second(rate)));
                }
                3 => now += much,
                4..=6 => now += much / 1000,
                _ => now = machine.next_event(true).map_or(now, |due| due.as_nanos().max(now)),
            }
            while machine.take(at(now), &mut fx).is_ok() {
                left.push(now);
            }
        }
        for (first, from) in left.iter().enumerate() {
            for (last, to) in left.iter().enumerate().skip(first) {
                let w = u128::from(to - from);
                let units = (last - first) as u128;
                let sustained = w * u128::from(fastest) / 1_000_000_000 + u128::from(owed);
                let peak = (w + GRAIN.as_nanos()) * u128::from(fastest) * 11 / 10_000_000_000;
                // A change of rate scales what is owed to a whole unit at most once per window's edge.
                prop_assert!(units <= sustained.min(peak), "{units} beyond the first in {w} ns: {sustained} {peak}");
            }
        }
    }
}
