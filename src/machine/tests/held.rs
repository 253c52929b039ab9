//! Places that stand ready for who may never come.

use super::dice::{Dice, random_spec};
use super::*;
use crate::machine::Collected;

const LAPSE: Duration = SECOND;

#[test]
fn a_place_that_stands_ready_counts_in_depth_and_lapses() {
    let mut queue = bounded(1, 0, 1, 8);
    let mut fx = Effects::new();
    let key = queue
        .offer_held(Tick::ZERO, &cost(1), &mut fx)
        .expect("there is room");
    assert_eq!(queue.is_ready(Tick::ZERO, key, &mut fx), Ok(true));
    assert_eq!((queue.depth(), queue.ledger().waiting), (1, 1));
    let next = waits(&mut queue, Tick::ZERO, &cost(1), None);
    let late = Tick::ZERO + LAPSE;
    let Collected::Ready(place) = queue.collect(late, next, &mut fx) else {
        panic!("the place goes to the next")
    };
    assert_eq!(queue.is_ready(late, key, &mut fx), Ok(false));
    queue.give_back(late, place, &mut fx);
    assert_eq!(queue.is_ready(late, key, &mut fx), Ok(true));
    queue.leave(late, key, &mut fx);
    assert_eq!((queue.depth(), queue.ledger().waiting), (0, 0));
}

#[test]
fn it_is_refused_as_every_offer_is() {
    let mut queue = bounded(1, 0, 1, 0);
    let mut fx = Effects::new();
    let first = queue
        .offer_held(Tick::ZERO, &cost(1), &mut fx)
        .expect("there is room");
    let full = queue.offer_held(Tick::ZERO, &cost(1), &mut fx);
    assert_eq!(full.map_err(|refusal| refusal.reason()), Err(Reason::Full));
    queue.close(Tick::ZERO, &mut fx);
    let closed = queue.is_ready(Tick::ZERO, first, &mut fx);
    assert_eq!(
        closed.map_err(|refusal| refusal.reason()),
        Err(Reason::Closed)
    );
    let ledger = queue.ledger();
    assert_eq!((ledger.offered, ledger.refused), (2, 2));
    assert!(ledger.is_balanced());
}

/// Every step checks the balance by itself; in the end nothing is held by anybody.
#[test]
fn in_random_runs_nothing_is_held_in_the_end() {
    for seed in 1..200 {
        let mut dice = Dice(seed);
        let settings = random_spec(&mut dice)
            .resolve()
            .expect("random settings are valid");
        let mut queue = Machine::new(settings, Tick::ZERO);
        let (mut now, mut keys, mut flight) = (Tick::ZERO, Vec::new(), Vec::new());
        let mut fx = Effects::new();
        for item in 0..400 {
            now = now + Duration::from_millis(dice.roll(20) * dice.roll(60));
            let picked = dice.roll(keys.len().max(1) as u64) as usize;
            match dice.roll(8) {
                0..3 => keys.extend(queue.offer_held(now, &cost(1 + dice.roll(3)), &mut fx)),
                3 if !keys.is_empty() => {
                    if queue.is_ready(now, keys[picked], &mut fx).is_err() {
                        keys.swap_remove(picked);
                    }
                }
                4 if !keys.is_empty() => match queue.collect(now, keys[picked], &mut fx) {
                    Collected::Ready(mut place) => {
                        place.idle_for(Duration::from_millis(dice.roll(500)));
                        queue.send(now, place, item, &mut fx);
                        keys.swap_remove(picked);
                    }
                    Collected::Refused(_) => drop(keys.swap_remove(picked)),
                    Collected::Waiting => {}
                },
                5 if !keys.is_empty() => queue.leave(now, keys.swap_remove(picked), &mut fx),
                6 => {
                    if let Ok(taken) = queue.take(now, &mut fx) {
                        flight.push(taken.run);
                        while dice.chance(50)
                            && let Some(along) = queue.take_along(&mut fx)
                        {
                            flight.push(along.run);
                        }
                    }
                }
                _ => {
                    for run in flight.drain(..) {
                        queue.settle(now, run, crate::machine::Settled::Acked, &mut fx);
                    }
                }
            }
        }
        for key in keys {
            queue.leave(now, key, &mut fx);
        }
        for run in flight {
            queue.settle(now, run, crate::machine::Settled::Acked, &mut fx);
        }
        queue.end(now, &mut fx);
        let ledger = queue.ledger();
        assert!(ledger.is_balanced(), "seed {seed}: {ledger:?}");
        assert_eq!(
            (
                queue.depth(),
                ledger.waiting,
                ledger.reserved,
                ledger.in_flight
            ),
            (0, 0, 0, 0),
            "seed {seed}: {ledger:?}"
        );
    }
}
