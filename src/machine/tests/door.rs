//! Who gets in, who waits, who is refused, who is evicted.

use std::sync::Arc;
use std::time::Duration;

use crate::machine::tests::{
    GRAIN, SECOND, bounded, cost, critical, machine, ms, put, refused, spec, take, unpaced, waits,
};
use crate::machine::{Ask, Collected, Effects, Offered};
use crate::rate::Rate;
use crate::refusal::Reason;
use crate::words::{Exit, Pressure, WhenFull};

#[test]
fn while_paused_the_ladder_admits_and_a_refusal_says_paused() {
    let mut spec = spec(Rate::per_second(10));
    spec.max_depth = Some(2);
    let mut machine = machine(&spec);
    machine.pause(ms(0), Arc::from("migration"), &mut Effects::new());
    put(&mut machine, ms(0), &cost(1), 0);
    put(&mut machine, ms(0), &cost(1), 1);
    let refusal = machine
        .try_offer(ms(0), &cost(1), &mut Effects::new())
        .unwrap_err();
    assert_eq!(refusal.reason(), Reason::Paused);
    assert_eq!(refusal.retry_after(), None);
}

#[test]
fn the_ladder_goes_up_and_down_its_rungs() {
    let mut machine = bounded(10, 4, 8, 2);
    for item in 0..8 {
        put(&mut machine, ms(0), &cost(1), item);
    }
    assert_eq!(machine.pressure(), Pressure::Elevated);
    assert_eq!(refused(&mut machine, ms(0), &cost(1)), Reason::Overloaded);
    assert_eq!(refused(&mut machine, ms(0), &cost(3)), Reason::Full);
    let first = waits(&mut machine, ms(0), &cost(1), None);
    waits(&mut machine, ms(0), &cost(1), None);
    assert_eq!(machine.pressure(), Pressure::Overloaded);
    match machine.offer(ms(0), &cost(1), None, &mut Effects::new()) {
        Offered::Refused(refusal) => assert_eq!(refusal.reason(), Reason::WaitersFull),
        other => panic!("{other:?}"),
    }
    let mut fx = Effects::new();
    machine.take(ms(0), &mut fx).expect("unpaced");
    assert_eq!(
        fx.wake,
        [first],
        "one departure, one grant, first come first"
    );
    assert_eq!(fx.pressure, Some(Pressure::Elevated), "the line is at half");
    for _ in 0..4 {
        take(&mut machine, ms(0));
    }
    assert_eq!(
        machine.pressure(),
        Pressure::Elevated,
        "five is above the low mark"
    );
    take(&mut machine, ms(0));
    assert_eq!(machine.pressure(), Pressure::Healthy);
    assert!(machine.ledger().is_balanced());
}

#[test]
fn critical_uses_the_room_above_the_high_mark() {
    let mut machine = bounded(10, 4, 8, 2);
    for item in 0..8 {
        put(&mut machine, ms(0), &cost(1), item);
    }
    put(&mut machine, ms(0), &critical(1), 100);
    put(&mut machine, ms(0), &critical(1), 101);
    assert_eq!(refused(&mut machine, ms(0), &critical(1)), Reason::Full);
    assert_eq!(take(&mut machine, ms(0)).payload, 100, "and goes first");
}

#[test]
fn a_big_head_is_not_starved_by_small_or_critical_ones() {
    let mut machine = bounded(10, 2, 10, 4);
    for item in 0..10 {
        put(&mut machine, ms(0), &cost(1), item);
    }
    let big = waits(&mut machine, ms(0), &cost(8), None);
    take(&mut machine, ms(0));
    assert_eq!(
        refused(&mut machine, ms(0), &critical(1)),
        Reason::Overloaded,
        "kept for the head"
    );
    waits(&mut machine, ms(0), &cost(1), None);
    for _ in 0..6 {
        take(&mut machine, ms(0));
    }
    let mut fx = Effects::new();
    machine.take(ms(0), &mut fx).expect("unpaced");
    assert_eq!(fx.wake[0], big);
}

#[test]
fn evicting_names_its_victim_and_makes_room_or_nothing() {
    for (rule, victims) in [
        (WhenFull::EvictOldest, vec![0, 1]),
        (WhenFull::EvictNewest, vec![2, 1]),
        (WhenFull::EvictLowest, vec![0, 1]),
    ] {
        let mut spec = unpaced();
        spec.max_depth = Some(4);
        spec.when_full = rule;
        let mut machine = machine(&spec);
        put(&mut machine, ms(0), &critical(1), 9);
        for item in 0..3 {
            put(&mut machine, ms(item + 1), &cost(1), item);
        }
        // Under EvictOldest the critical job is the oldest of all.
        let victims = if rule == WhenFull::EvictOldest {
            vec![9, 0]
        } else {
            victims
        };
        let fx = put(&mut machine, ms(9), &cost(2), 50);
        let gone: Vec<u64> = fx.gone.iter().map(|gone| gone.payload).collect();
        assert_eq!(gone, victims, "{rule:?}");
        assert!(fx.gone.iter().all(|gone| gone.exit == Exit::Evicted));
        assert_eq!(machine.depth(), 4);
    }
}

#[test]
fn evict_lowest_spares_the_more_urgent() {
    let mut spec = unpaced();
    spec.max_depth = Some(2);
    spec.when_full = WhenFull::EvictLowest;
    let mut machine = machine(&spec);
    put(&mut machine, ms(0), &critical(2), 0);
    assert_eq!(refused(&mut machine, ms(0), &cost(1)), Reason::Full);
    assert_eq!(
        machine.ledger().evicted,
        0,
        "who cannot make enough room evicts nobody"
    );
}

#[test]
fn a_place_not_collected_in_time_goes_to_the_next() {
    let mut machine = bounded(1, 0, 1, 4);
    put(&mut machine, ms(0), &cost(1), 0);
    let shelved = waits(&mut machine, ms(0), &cost(1), None);
    let keen = waits(&mut machine, ms(0), &cost(1), None);
    let mut fx = Effects::new();
    machine.take(ms(10), &mut fx).expect("unpaced");
    assert_eq!(fx.wake, [shelved]);
    assert_eq!(machine.next_event(false), Some(ms(1010)));
    let mut fx = Effects::new();
    machine.advance(ms(1010), &mut fx);
    assert_eq!(fx.wake, [keen]);
    let Collected::Ready(place) = machine.collect(ms(1010), keen, &mut fx) else {
        panic!()
    };
    assert!(matches!(
        machine.collect(ms(1010), shelved, &mut fx),
        Collected::Waiting
    ));
    machine.give_back(ms(1011), place, &mut fx);
    assert!(matches!(
        machine.collect(ms(1011), shelved, &mut fx),
        Collected::Ready(_)
    ));
}

#[test]
fn a_waiter_leaves_at_its_deadline_unpolled() {
    let mut machine = bounded(1, 0, 1, 1);
    put(&mut machine, ms(0), &cost(1), 0);
    let waiter = waits(
        &mut machine,
        ms(0),
        &cost(1),
        Some(Duration::from_millis(50)),
    );
    let mut fx = Effects::new();
    machine.advance(ms(49), &mut fx);
    assert!(fx.wake.is_empty());
    assert_eq!(machine.next_event(false), Some(ms(50)));
    machine.advance(ms(50), &mut fx);
    assert_eq!(machine.ledger().waiting, 0);
    match machine.collect(ms(60), waiter, &mut fx) {
        Collected::Refused(refusal) => assert_eq!(refusal.reason(), Reason::TimedOut),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cancelled_waiter_frees_its_rank_at_once() {
    let mut machine = bounded(1, 0, 1, 1);
    put(&mut machine, ms(0), &cost(1), 0);
    let waiter = waits(&mut machine, ms(0), &cost(1), None);
    assert_eq!(machine.pressure(), Pressure::Overloaded);
    machine.leave(ms(0), waiter, &mut Effects::new());
    waits(&mut machine, ms(0), &cost(1), None);
}

#[test]
fn a_deadline_in_the_past_is_too_late_at_once() {
    for mut machine in [machine(&unpaced()), machine(&spec(Rate::per_second(1000)))] {
        let ask = Ask {
            expires_at: Some(ms(5)),
            ..Ask::default()
        };
        assert_eq!(refused(&mut machine, ms(6), &ask), Reason::TooLate);
    }
}

#[test]
fn hopeless_waits_are_refused_at_the_door() {
    let mut spec = spec(Rate::per_second(10));
    spec.max_wait = Some(SECOND);
    let mut machine = machine(&spec);
    for item in 0..10 {
        put(&mut machine, ms(0), &cost(1), item);
    }
    // Ten ahead are exactly a second, and the timer may be late by a grain.
    let refusal = machine
        .try_offer(ms(0), &cost(1), &mut Effects::new())
        .unwrap_err();
    assert_eq!(refusal.reason(), Reason::TooLate);
    let back = refusal.retry_after().expect("it helps to come back");
    assert!(back >= GRAIN && back <= 3 * GRAIN, "{back:?}");
}

#[test]
fn standing_delay_overloads_and_clears() {
    let mut spec = unpaced();
    spec.max_depth = Some(100);
    spec.standing_delay = Some((Duration::from_millis(5), Duration::from_millis(100)));
    spec.watermarks = Some((1, 90));
    let mut machine = machine(&spec);
    for item in 0..10 {
        put(&mut machine, ms(0), &cost(1), item);
    }
    machine.advance(ms(100), &mut Effects::new());
    assert_eq!(
        machine.pressure(),
        Pressure::Overloaded,
        "nothing left within the interval"
    );
    assert_eq!(refused(&mut machine, ms(100), &cost(1)), Reason::Overloaded);
    while machine.depth() > 1 {
        take(&mut machine, ms(101));
    }
    assert_eq!(
        machine.pressure(),
        Pressure::Healthy,
        "it acts only above the low mark"
    );
}

#[test]
fn a_smaller_bound_evicts_nothing_and_refuses_who_can_never_fit() {
    let mut spec = unpaced();
    spec.max_depth = Some(10);
    spec.watermarks = Some((4, 8));
    let mut machine = machine(&spec);
    for item in 0..8 {
        put(&mut machine, ms(0), &cost(1), item);
    }
    let big = waits(&mut machine, ms(0), &cost(9), None);
    spec.max_depth = Some(5);
    spec.watermarks = None;
    let mut fx = Effects::new();
    machine.apply(ms(1), spec.resolve().expect("valid"), &mut fx);
    assert_eq!(machine.ledger().queued, 8);
    assert_eq!(fx.wake, [big]);
    match machine.collect(ms(1), big, &mut fx) {
        Collected::Refused(refusal) => assert_eq!(refusal.reason(), Reason::TooCostly),
        other => panic!("{other:?}"),
    }
    assert_eq!(refused(&mut machine, ms(1), &cost(1)), Reason::Full);
}

#[test]
fn refused_callers_are_told_successive_times() {
    let mut spec = spec(Rate::per_second(50));
    spec.max_depth = Some(1000);
    spec.watermarks = Some((500, 1000));
    let mut machine = machine(&spec);
    for item in 0..1000 {
        put(&mut machine, ms(0), &cost(1), item);
    }
    let told: Vec<Duration> = (0..100)
        .map(|_| {
            let refusal = machine
                .try_offer(ms(0), &cost(1), &mut Effects::new())
                .unwrap_err();
            refusal.retry_after().expect("told")
        })
        .collect();
    // Five hundred must leave at 50/s: the first at once, so 499 intervals, and the grain.
    assert_eq!(told[0], Duration::from_millis(9980) + GRAIN);
    assert!(
        told.windows(2)
            .all(|pair| pair[1] - pair[0] == Duration::from_millis(20))
    );
}
