//! A database that an outage leaves behind, and which controls bring it back: never, in minutes, or at once.
//!
//! After Bronson and others, "Metastable failures in distributed systems" (HotOS 2021). The database answers 300 calls a
//! second and stands still for 10 s. Callers wait a second for their answer and try once more, a second after the first.

use std::collections::VecDeque;

use crate::machine::tests::{cost, machine, ms, spec};
use crate::machine::{Effects, Machine, Settled};
use crate::rate::Rate;
use crate::tick::Tick;

struct Setting {
    callers: u64,
    retries: bool,
    /// Retries that a caller's library allows for each call.
    budget: f64,
    cap: Option<u64>,
    seconds: u64,
}

/// Seconds from the end of the outage until answers in time keep up with the callers for good.
fn recovery(setting: &Setting) -> Option<u64> {
    let mut spec = spec(Rate::per_second(300));
    let cap = setting.cap.unwrap_or(1 << 40);
    spec.max_depth = Some(cap);
    spec.watermarks = Some((cap - 1, cap));
    spec.max_waiters = Some(0);
    let mut machine: Machine<u64> = machine(&spec);
    let mut fx = Effects::new();
    let mut answers = vec![0_u64; setting.seconds as usize];
    // Calls by number, when they were made; a second one for each number at most.
    let mut made: Vec<(u64, bool)> = Vec::new();
    let mut retries: VecDeque<(u64, usize)> = VecDeque::new();
    let mut tokens = 0.0;
    let step = 1_000_000_000 / setting.callers;
    let mut next_call = 0;
    while next_call < setting.seconds * 1_000_000_000 {
        let now = retries
            .front()
            .map_or(next_call, |(at, _)| next_call.min(*at));
        while let Some(due) = machine.next_event(true).filter(|due| due.as_nanos() <= now) {
            let outage = ms(OUTAGE_AT * 1000)..ms((OUTAGE_AT + OUTAGE) * 1000);
            let due = if outage.contains(&due) {
                outage.end
            } else {
                due
            };
            if due.as_nanos() > now {
                break;
            }
            let Ok(taken) = machine.take(due, &mut fx) else {
                continue;
            };
            let (asked, answered) = &mut made[taken.payload as usize];
            if due.as_nanos() - *asked <= PATIENCE {
                *answered = true;
                answers[(due.as_nanos() / 1_000_000_000) as usize] += 1;
            }
            machine.settle(due, taken.run, Settled::Acked, &mut fx);
        }
        let (number, fresh) = if now == next_call {
            next_call += step;
            made.push((now, false));
            tokens += setting.budget;
            (made.len() - 1, true)
        } else {
            let (_, number) = retries.pop_front().expect("it is its time");
            if made[number].1 || tokens < 1.0 {
                continue;
            }
            tokens -= 1.0;
            made.push((now, false));
            (made.len() - 1, false)
        };
        if fresh && setting.retries {
            retries.push_back((now + PATIENCE, number));
        }
        let now = Tick::from_nanos(now);
        if let Ok(place) = machine.try_offer(now, &cost(1), &mut fx) {
            machine.send(now, place, number as u64, &mut fx);
        }
    }
    let mends = (OUTAGE_AT + OUTAGE) as usize;
    let keeps_up = |answers: &u64| *answers * 100 >= setting.callers * 95;
    let seconds = &answers[mends..];
    let slow = seconds.iter().rposition(|second| !keeps_up(second));
    let recovered = slow.map_or(0, |last| last as u64 + 1);
    (recovered + 5 < seconds.len() as u64).then_some(recovered)
}

/// Nothing is done about it.
fn none(callers: u64) -> Setting {
    Setting {
        callers,
        retries: true,
        budget: 1.0,
        cap: None,
        seconds: 170,
    }
}

#[test]
fn without_a_bound_the_outage_never_ends() {
    assert_eq!(recovery(&none(280)), None);
    assert_eq!(recovery(&none(160)), None);
}

#[test]
fn without_a_bound_it_ends_in_minutes_if_the_load_is_low_or_nobody_retries() {
    // (2,800 - 300) / 20 s: what has piled up, at what is left of the rate.
    let low = recovery(&none(140));
    assert!(
        low.is_some_and(|after| (100..=140).contains(&after)),
        "{low:?}"
    );
    let single = Setting {
        retries: false,
        ..none(280)
    };
    let single = recovery(&single);
    assert!(
        single.is_some_and(|after| (100..=140).contains(&after)),
        "{single:?}"
    );
}

#[test]
fn a_budget_of_retries_alone_is_not_enough() {
    for budget in [0.1, 0.05] {
        let setting = Setting {
            budget,
            ..none(280)
        };
        assert_eq!(recovery(&setting), None, "{budget}");
    }
}

#[test]
fn a_bound_within_the_callers_patience_ends_it_at_once() {
    for (cap, budget) in [(299, 1.0), (150, 1.0), (150, 0.1)] {
        let setting = Setting {
            cap: Some(cap),
            budget,
            seconds: 60,
            ..none(280)
        };
        let after = recovery(&setting);
        assert!(
            after.is_some_and(|after| after <= 2),
            "{cap}, {budget}: {after:?}"
        );
    }
}

const OUTAGE_AT: u64 = 10;
const OUTAGE: u64 = 10;
const PATIENCE: u64 = 1_000_000_000;
