//! How the example judges the rate that its queue held.

use std::time::Duration;

use measure::{Departure, rate_held};
use sluicegate::Tick;

#[path = "../../examples/protect_database/held.rs"]
mod measure;

const MS: u64 = 1_000_000;

/// A departure at a time, after a wait, that takes a time; all in ms.
fn departure(at: f64, waited: u64, takes: u64) -> Departure {
    let departed_at = Tick::from_nanos(1_000 * MS + (at * MS as f64) as u64);
    Departure {
        departed_at,
        waited: Duration::from_millis(waited),
        settled_at: departed_at + Duration::from_millis(takes),
    }
}

#[track_caller]
fn check(departures: &[Departure], rate: f64) {
    let held = rate_held(departures, 100.0, 2).expect("there is a stretch");
    assert!((held.rate / rate - 1.0).abs() < 1e-6, "{held:?}");
}

#[test]
fn a_steady_backlog_gives_its_rate_in_any_order() {
    let mut departures: Vec<_> = (0..200)
        .map(|k| departure(f64::from(k) * 10.0, 50, 3))
        .collect();
    departures.reverse();
    check(&departures, 100.0);
    let slow: Vec<_> = (0..200)
        .map(|k| departure(f64::from(k) * 12.5, 50, 3))
        .collect();
    check(&slow, 80.0);
}

#[test]
fn spans_without_a_backlog_do_not_count() {
    // Three seconds at 100/s, then arrivals every 40 ms that leave as they come.
    let busy = (0..300).map(|k| departure(f64::from(k) * 10.0, 50, 3));
    let idle = (0..100).map(|k| departure(3_000.0 + f64::from(k) * 40.0, 0, 3));
    check(&busy.chain(idle.clone()).collect::<Vec<_>>(), 100.0);
    assert_eq!(rate_held(&idle.collect::<Vec<_>>(), 100.0, 2), None);
}

#[test]
fn spans_without_a_free_place_and_their_repayment_do_not_count() {
    let mut departures: Vec<_> = (0..100)
        .map(|k| departure(f64::from(k) * 10.0, 500, 3))
        .collect();
    // Two jobs fill both places for 60 ms; then what is owed is repaid a tenth faster than the rate.
    departures.extend([departure(1_000.0, 500, 60), departure(1_010.0, 500, 60)]);
    let mut at = 1_060.0;
    let mut due = 1_020.0;
    for _ in 0..300 {
        departures.push(departure(at, 500, 3));
        due += 10.0;
        at = (at + 10.0 / 1.1).max(due);
    }
    check(&departures, 100.0);
}

#[test]
fn short_stretches_say_nothing() {
    let departures: Vec<_> = (0..25)
        .map(|k| departure(f64::from(k) * 10.0, 50, 3))
        .collect();
    assert_eq!(rate_held(&departures, 100.0, 2), None);
    assert_eq!(rate_held(&[], 100.0, 2), None);
}
