//! Expiry, retries, close and drain.

use std::time::Duration;

use crate::machine::tests::{
    SECOND, bounded, cost, machine, ms, place, put, refused, spec, take, unpaced,
};
use crate::machine::{Ask, Effects, NotTaken};
use crate::rate::Rate;
use crate::refusal::Reason;
use crate::words::Exit;

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
        ..relative.clone()
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
