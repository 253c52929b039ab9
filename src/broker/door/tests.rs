//! The door alone, with a broker made up of a number.

use super::*;
use proptest::prelude::*;

fn settings(max_depth: u64, low: u64, window: u64, processes: u64) -> Settings {
    Settings {
        max_depth,
        low,
        high: max_depth,
        max_unconfirmed: window,
        processes,
        poll_every: Duration::from_millis(100),
        drain: None,
    }
}

fn holds(queued: u64) -> Depth {
    Depth {
        queued,
        ..Depth::default()
    }
}

#[test]
fn nothing_is_let_in_before_the_first_answer() {
    let mut door = Door::new(settings(10, 5, 10, 1));
    assert_eq!(
        door.enter().expect_err("nothing is known").reason,
        Reason::Full
    );
    door.poll_begins();
    door.poll_answers(Instant::now(), holds(9));
    assert!(door.enter().is_ok());
    assert_eq!(door.enter().expect_err("ten of ten").depth, 10);
}

#[test]
fn it_opens_at_the_low_mark_and_not_before() {
    let mut door = Door::new(settings(10, 5, 10, 1));
    door.poll_answers(Instant::now(), holds(10));
    for depth in [9, 8, 6] {
        door.poll_begins();
        door.poll_answers(Instant::now(), holds(depth));
        let turned = door.enter().expect_err("above the low mark");
        assert_eq!(turned.reason, Reason::Overloaded);
    }
    door.poll_answers(Instant::now(), holds(5));
    assert!(door.enter().is_ok());
}

#[test]
fn what_is_confirmed_while_a_poll_runs_is_counted_on_its_answer() {
    let mut door = Door::new(settings(10, 5, 10, 1));
    door.poll_begins();
    door.poll_answers(Instant::now(), holds(0));
    door.enter().expect("there is room");
    door.leave(true);
    door.poll_begins();
    door.enter().expect("there is room");
    door.leave(true);
    door.poll_answers(Instant::now(), holds(1));
    assert_eq!(door.estimate(), 2);
}

#[test]
fn a_window_of_unconfirmed_publishes_is_pressure_not_a_hang() {
    let mut door = Door::new(settings(100, 50, 2, 1));
    door.poll_answers(Instant::now(), holds(0));
    assert!(door.enter().is_ok() && door.enter().is_ok());
    assert_eq!(door.pressure(), Pressure::Overloaded);
    assert_eq!(
        door.enter().expect_err("two of two").reason,
        Reason::Overloaded
    );
    door.leave(false);
    assert_eq!(door.pressure(), Pressure::Healthy);
    assert!(door.enter().is_ok());
}

#[test]
fn a_drain_that_is_known_gives_the_time_and_the_refused_come_as_a_trickle() {
    let mut door = Door::new(Settings {
        drain: Some(10.0),
        ..settings(100, 50, 10, 1)
    });
    door.poll_answers(Instant::now(), holds(100));
    let times: Vec<_> = (0..3)
        .map(|_| door.enter().expect_err("full").retry_after.as_millis())
        .collect();
    assert_eq!(times, [5_100, 5_200, 5_300]);
}

proptest! {
    /// One publisher, a broker that drains as it likes, polls that answer late: the bound holds at every step.
    #[test]
    fn one_publisher_never_passes_the_bound(
        max_depth in 1_u64..30, window in 1_u64..10,
        steps in prop::collection::vec((0_u8..6, 0_u64..4), 1..300),
    ) {
        let mut door = Door::new(settings(max_depth, max_depth / 2, window, 1));
        let (mut broker, mut under_way, mut answer) = (0_u64, 0_u64, None);
        for (step, n) in steps {
            match step {
                0 | 1 => under_way += u64::from(door.enter().is_ok()),
                2 if under_way > 0 => {
                    under_way -= 1;
                    let stored = n > 0;
                    broker += u64::from(stored);
                    door.leave(stored);
                }
                3 => broker = broker.saturating_sub(n),
                4 if answer.is_none() => {
                    door.poll_begins();
                    answer = Some(broker);
                }
                5 => if let Some(depth) = answer.take() {
                    door.poll_answers(Instant::now(), holds(depth));
                },
                _ => {}
            }
            prop_assert!(under_way <= window);
            prop_assert!(broker + under_way <= max_depth, "{broker} + {under_way} > {max_depth}");
        }
    }

    /// Several processes, each with the answers of its own polls, however old: the bound and the stated overshoot.
    #[test]
    fn several_publishers_overshoot_by_less_than_the_bound(
        max_depth in 4_u64..40, processes in 2_u64..5,
        steps in prop::collection::vec((0_usize..4, 0_u8..4), 1..400),
    ) {
        let of = settings(max_depth, max_depth / 2, 100, processes);
        let mut doors: Vec<_> = (0..processes).map(|_| Door::new(of)).collect();
        let mut broker = 0_u64;
        for (who, step) in steps {
            let who = who % doors.len();
            let door = &mut doors[who];
            match step {
                0 | 1 => if door.enter().is_ok() {
                    broker += 1;
                    door.leave(true);
                },
                2 => {
                    door.poll_begins();
                    door.poll_answers(Instant::now(), holds(broker));
                }
                _ => broker = broker.saturating_sub(1),
            }
            let overshoot = max_depth * (processes - 1) / processes;
            prop_assert!(broker <= max_depth + overshoot, "{broker} > {max_depth} + {overshoot}");
        }
    }
}
