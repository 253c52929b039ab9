//! What the machine promises, one test a promise.

use std::sync::Arc;
use std::time::Duration;

use crate::machine::tests::{GRAIN, cost, critical, machine, ms, place, put, spec, take, unpaced};
use crate::machine::{Ask, Collected, Effects, Machine, NotTaken, Offered, Settled};
use crate::rate::Rate;
use crate::refusal::Reason;
use crate::tick::Tick;
use crate::words::{Exit, Health, Pressure, Priority, WhenFull};

const SECOND: Duration = Duration::from_secs(1);

#[track_caller]
fn refused(machine: &mut Machine<u64>, now: Tick, ask: &Ask) -> Reason {
    let refusal = machine
        .try_offer(now, ask, &mut Effects::new())
        .expect_err("no room");
    refusal.reason()
}

#[track_caller]
fn waits(
    machine: &mut Machine<u64>,
    now: Tick,
    ask: &Ask,
    stay: Option<Duration>,
) -> crate::machine::WaiterKey {
    match machine.offer(now, ask, stay, &mut Effects::new()) {
        Offered::Waiting(key) => key,
        other => panic!("did not wait: {other:?}"),
    }
}

fn bounded(max: u64, low: u64, high: u64, waiters: u64) -> Machine<u64> {
    let mut spec = unpaced();
    spec.max_depth = Some(max);
    spec.watermarks = Some((low, high));
    spec.max_waiters = Some(waiters);
    machine(&spec)
}

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
fn taken_exactly_at_its_expiry_is_in_time_and_later_is_not() {
    let mut machine = bounded(10, 5, 8, 1);
    let ask = Ask {
        expires_in: Some(Duration::from_millis(10)),
        ..Ask::default()
    };
    put(&mut machine, ms(0), &ask, 0);
    put(&mut machine, ms(0), &ask, 1);
    assert_eq!(
        machine.next_event(false),
        Some(ms(10) + Duration::from_nanos(1))
    );
    assert_eq!(take(&mut machine, ms(10)).payload, 0);
    let mut fx = Effects::new();
    machine.advance(ms(10) + Duration::from_nanos(1), &mut fx);
    assert_eq!(fx.gone[0].exit, Exit::Expired);
    assert_eq!(fx.gone[0].payload, 1);
}

#[test]
fn a_requeued_job_is_bound_by_its_absolute_expiry_only() {
    let mut machine = bounded(10, 5, 8, 1);
    let relative = Ask {
        expires_in: Some(Duration::from_millis(10)),
        ..Ask::default()
    };
    let both = Ask {
        expires_at: Some(ms(500)),
        ..relative
    };
    put(&mut machine, ms(0), &relative, 0);
    put(&mut machine, ms(0), &both, 1);
    let mut fx = Effects::new();
    for _ in 0..2 {
        let taken = take(&mut machine, ms(5));
        machine
            .retry(ms(6), taken.run, taken.payload, SECOND, &mut fx)
            .expect("goes back");
    }
    machine.advance(ms(501), &mut fx);
    let gone: Vec<u64> = fx.gone.iter().map(|gone| gone.payload).collect();
    assert_eq!(gone, [1]);
    let taken = take(&mut machine, ms(1006));
    assert_eq!(
        (taken.payload, taken.run.attempt, taken.run.waited),
        (0, 2, Duration::ZERO)
    );
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
fn attempts_count_failures_and_not_deferrals() {
    let mut spec = unpaced();
    spec.max_attempts = Some(3);
    let mut machine = machine(&spec);
    put(&mut machine, ms(0), &cost(1), 7);
    let mut fx = Effects::new();
    for _ in 0..100 {
        let taken = take(&mut machine, ms(0));
        assert_eq!(taken.run.attempt, 1);
        machine
            .defer(ms(0), taken.run, 7, Duration::ZERO, &mut fx)
            .expect("goes back");
    }
    for attempt in 1..=3 {
        let taken = take(&mut machine, ms(0));
        assert_eq!(taken.run.attempt, attempt);
        let back = machine.retry(ms(0), taken.run, 7, Duration::ZERO, &mut fx);
        assert_eq!(back.is_err(), attempt == 3);
    }
    assert_eq!(machine.ledger().failed, 1);
    assert_eq!(machine.ledger().requeued, 102);
}

#[test]
fn requeue_always_has_room() {
    let mut machine = bounded(2, 0, 2, 0);
    put(&mut machine, ms(0), &cost(2), 0);
    let first = take(&mut machine, ms(0));
    put(&mut machine, ms(0), &cost(2), 1);
    machine
        .retry(ms(0), first.run, 0, Duration::ZERO, &mut Effects::new())
        .expect("room");
    assert_eq!(machine.depth(), 4);
    assert_eq!(refused(&mut machine, ms(0), &cost(1)), Reason::Full);
}

#[test]
fn a_retry_after_close_is_returned() {
    let mut machine = bounded(2, 0, 2, 0);
    put(&mut machine, ms(0), &cost(1), 0);
    let taken = take(&mut machine, ms(0));
    let mut fx = Effects::new();
    assert!(machine.close(ms(0), &mut fx));
    assert!(!machine.close(ms(0), &mut fx), "closing is idempotent");
    let back = machine.retry(ms(0), taken.run, 0, Duration::ZERO, &mut fx);
    assert_eq!(back.unwrap_err(), (Exit::Returned, 0));
    assert_eq!(machine.take(ms(0), &mut fx).unwrap_err(), NotTaken::Closed);
}

#[test]
fn a_permit_outlives_close_and_not_the_end() {
    let mut machine = bounded(4, 0, 4, 0);
    let mut fx = Effects::new();
    let (early, late) = (
        place(&mut machine, ms(0), &cost(1)),
        place(&mut machine, ms(0), &cost(1)),
    );
    machine.close(ms(0), &mut fx);
    assert_eq!(
        machine.take(ms(0), &mut fx).unwrap_err(),
        NotTaken::Empty,
        "reserved: not over"
    );
    assert!(machine.send(ms(0), early, 1, &mut fx).key.is_some());
    assert_eq!(take(&mut machine, ms(0)).payload, 1);
    machine.end(ms(0), &mut fx);
    assert!(machine.send(ms(0), late, 2, &mut fx).key.is_none());
    assert_eq!((fx.gone[0].payload, fx.gone[0].exit), (2, Exit::Returned));
}

#[test]
fn a_drain_gives_back_at_its_deadline_what_is_left_oldest_first() {
    let mut machine = machine(&spec(Rate::per_second(10)));
    for item in 0..5 {
        put(&mut machine, ms(item), &cost(1), item);
    }
    let mut fx = Effects::new();
    machine.drain(ms(10), ms(200), &mut fx);
    assert_eq!(take(&mut machine, ms(10)).payload, 0);
    assert_eq!(take(&mut machine, ms(110)).payload, 1);
    machine.advance(ms(200), &mut fx);
    let returned: Vec<u64> = fx.returned.iter().map(|gone| gone.payload).collect();
    assert_eq!(returned, [2, 3, 4]);
    assert!(fx.gone.is_empty(), "given back by value, not dead-lettered");
    assert!(machine.is_drained());
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

#[test]
fn a_plain_queued_job_costs_at_most_64_bytes() {
    assert!(size_of::<crate::machine::places::Slot<()>>() <= 64);
}
