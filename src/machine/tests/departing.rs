//! When jobs leave, and in which order.

use std::sync::Arc;
use std::time::Duration;

use crate::machine::tests::{cost, critical, machine, ms, put, spec, take};
use crate::machine::{Ask, Effects, NotTaken, Offered, Settled};
use crate::rate::Rate;
use crate::tick::Tick;
use crate::words::{Health, Priority};

#[test]
fn fifty_at_ten_a_second_leave_in_five_seconds_evenly() {
    let mut machine = machine(&spec(Rate::per_second(10)));
    // The derived bound is what departs in five seconds: exactly the fifty of the worked example.
    assert_eq!(machine.settings().max_depth, 50);
    let mut fx = Effects::new();
    for item in 0..50 {
        let Offered::Admitted(place) = machine.offer(ms(0), &critical(1), None, &mut fx) else {
            panic!("fifty fit")
        };
        machine.send(ms(0), place, item, &mut fx);
    }
    for item in 0..50 {
        let due = ms(item * 100);
        if item > 0 {
            let early = Tick::from_nanos(due.as_nanos() - 1);
            assert_eq!(
                machine.take(early, &mut fx).unwrap_err(),
                NotTaken::NotDue(due)
            );
        }
        assert_eq!(take(&mut machine, due).payload, item);
    }
}

#[test]
fn an_arrival_at_an_idle_queue_leaves_at_once_and_idleness_earns_nothing() {
    let mut machine = machine(&spec(Rate::per_second(10)));
    let now = Tick::ZERO + Duration::from_secs(3600);
    for item in 0..3 {
        put(&mut machine, now, &cost(1), item);
    }
    assert_eq!(take(&mut machine, now).run.waited, Duration::ZERO);
    let next = machine.take(now, &mut Effects::new()).unwrap_err();
    assert_eq!(next, NotTaken::NotDue(now + Duration::from_millis(100)));
}

#[test]
fn a_job_of_cost_c_takes_c_departures() {
    let mut machine = machine(&spec(Rate::per_second(10)));
    put(&mut machine, ms(0), &cost(5), 0);
    put(&mut machine, ms(0), &cost(1), 1);
    take(&mut machine, ms(0));
    let next = machine.take(ms(1), &mut Effects::new()).unwrap_err();
    assert_eq!(next, NotTaken::NotDue(ms(500)));
}

#[test]
fn a_faster_rate_wakes_a_sleeping_drain_at_once() {
    let mut spec = spec(Rate::per_hour(1));
    spec.max_depth = Some(10);
    let mut machine = machine(&spec);
    put(&mut machine, ms(0), &cost(1), 0);
    put(&mut machine, ms(0), &cost(1), 1);
    take(&mut machine, ms(0));
    assert_eq!(
        machine.next_event(true),
        Some(Tick::ZERO + Duration::from_secs(3600))
    );
    spec.rate = Some(Rate::per_second(1000));
    let settings = spec.resolve().expect("valid");
    machine.apply(ms(500), settings, &mut Effects::new());
    let due = machine.next_event(true).expect("a job waits");
    assert!(due <= ms(501), "{due:?}");
}

#[test]
fn a_pause_forgives_what_is_owed_and_never_shortens_the_gap() {
    let mut machine = machine(&spec(Rate::per_second(100)));
    for item in 0..50 {
        put(&mut machine, ms(0), &cost(1), item);
    }
    take(&mut machine, ms(0));
    let mut fx = Effects::new();
    machine.pause(ms(1), Arc::from("backup"), &mut fx);
    assert_eq!(machine.take(ms(20), &mut fx).unwrap_err(), NotTaken::Held);
    machine.resume(ms(3), &mut fx);
    assert_eq!(
        machine.next_event(true),
        Some(ms(20)),
        "the clock does not go back"
    );
    machine.pause(ms(20), Arc::from("backup"), &mut fx);
    machine.resume(ms(30_000), &mut fx);
    assert_eq!(machine.owed(ms(30_000)), 0);
    take(&mut machine, ms(30_000));
    let next = machine.take(ms(30_000), &mut fx).unwrap_err();
    assert_eq!(next, NotTaken::NotDue(ms(30_010)));
    assert_eq!(
        machine.ledger().expired,
        0,
        "a lossless queue expires nothing"
    );
}

#[test]
fn health_is_red_when_a_backlog_is_due_and_nothing_starts() {
    let mut machine = machine(&spec(Rate::per_second(10)));
    put(&mut machine, ms(0), &cost(1), 0);
    assert_eq!(machine.health(ms(1000)), Health::Green);
    assert_eq!(machine.health(ms(1001)), Health::Red);
    machine.pause(ms(1001), Arc::from("known"), &mut Effects::new());
    assert_eq!(machine.health(ms(9000)), Health::Green);
}

#[test]
fn a_clock_that_goes_back_counts_as_the_latest() {
    let mut machine = machine(&spec(Rate::per_second(10)));
    for item in 0..2 {
        put(&mut machine, ms(5000), &cost(1), item);
    }
    assert_eq!(take(&mut machine, ms(1)).run.departed_at, ms(5000));
    let next = machine.take(ms(2), &mut Effects::new()).unwrap_err();
    assert_eq!(next, NotTaken::NotDue(ms(5100)));
}

#[test]
fn the_lowest_lane_starts_within_its_stated_wait_under_a_critical_flood() {
    let mut spec = spec(Rate::per_second(10));
    spec.max_depth = Some(50);
    let mut machine = machine(&spec);
    let low = Ask {
        priority: Priority::Low,
        ..Ask::default()
    };
    put(&mut machine, ms(0), &low, 999);
    // Four times the time in which a full queue drains, and the queue itself: 20 s + 5 s.
    for step in 0..250 {
        let now = ms(step * 100);
        put(&mut machine, now, &critical(1), step);
        let taken = take(&mut machine, now);
        machine.settle(now, taken.run, Settled::Acked, &mut Effects::new());
        if taken.payload == 999 {
            return;
        }
    }
    panic!("the low job never started");
}

#[test]
fn a_hundred_low_then_one_high_and_high_is_next() {
    let mut spec = spec(Rate::per_second(100));
    spec.max_depth = Some(1000);
    let mut machine = machine(&spec);
    for item in 0..100 {
        put(
            &mut machine,
            ms(item),
            &Ask {
                priority: Priority::Low,
                ..Ask::default()
            },
            item,
        );
    }
    put(
        &mut machine,
        ms(200),
        &Ask {
            priority: Priority::High,
            ..Ask::default()
        },
        500,
    );
    assert_eq!(take(&mut machine, ms(200)).payload, 500);
}

#[test]
fn a_plain_queued_job_costs_at_most_64_bytes() {
    assert!(size_of::<crate::machine::places::Slot<()>>() <= 64);
}
