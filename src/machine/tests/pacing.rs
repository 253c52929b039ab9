//! Rates that move, retries on a budget, newest first: what keeps a hurt downstream alive.

use std::sync::Arc;
use std::time::Duration;

use crate::machine::tests::{SECOND, cost, machine, ms, put, spec, take, unpaced};
use crate::machine::{Ask, Effects, Machine, NotTaken, Settled};
use crate::policy::aimd::Aimd;
use crate::rate::Rate;
use crate::tick::Tick;
use crate::words::{Exit, Priority};

/// Departures of a standing backlog in each second, and the rate at its end.
fn seconds(machine: &mut Machine<u64>, from: u64, to: u64) -> Vec<u64> {
    let mut counts = Vec::new();
    for second in from..to {
        let end = ms((second + 1) * 1000);
        let mut count = 0;
        while let Some(event) = machine.next_event(true).filter(|event| *event < end) {
            let mut fx = Effects::new();
            if let Ok(taken) = machine.take(event, &mut fx) {
                count += 1;
                machine.settle(event, taken.run, Settled::Acked, &mut fx);
                let place = machine
                    .try_offer(event, &cost(1), &mut fx)
                    .expect("one just left");
                machine.send(event, place, 0, &mut fx);
            }
        }
        counts.push(count);
    }
    counts
}

fn backlog(rate: u64, slow_start: Option<Duration>) -> Machine<u64> {
    let mut spec = spec(Rate::per_second(rate));
    spec.max_depth = Some(1000);
    spec.watermarks = Some((900, 1000));
    spec.slow_start = slow_start;
    let mut machine = machine(&spec);
    for item in 0..500 {
        put(&mut machine, ms(0), &cost(1), item);
    }
    machine
}

#[test]
fn a_ramp_reaches_its_rate_in_its_time() {
    let mut machine = backlog(10, None);
    let mut to = spec(Rate::per_second(110));
    to.max_depth = Some(1000);
    to.watermarks = Some((900, 1000));
    let settings = to.resolve().expect("valid");
    machine.ramp(ms(0), settings, 10 * SECOND, &mut Effects::new());
    let counts = seconds(&mut machine, 0, 12);
    assert!((13..=17).contains(&counts[0]), "{counts:?}");
    assert!((63..=67).contains(&counts[5]), "{counts:?}");
    assert_eq!(counts[11], 110, "{counts:?}");
    assert_eq!(machine.rate(), Some(Rate::per_second(110)));
}

#[test]
fn a_new_rate_ends_a_ramp() {
    let mut machine = backlog(10, None);
    let settings = |rate| {
        let mut spec = spec(Rate::per_second(rate));
        spec.max_depth = Some(1000);
        spec.resolve().expect("valid")
    };
    machine.ramp(ms(0), settings(100), 10 * SECOND, &mut Effects::new());
    machine.apply(ms(5000), settings(20), &mut Effects::new());
    assert_eq!(machine.rate(), Some(Rate::per_second(20)));
    machine.advance(ms(20_000), &mut Effects::new());
    assert_eq!(
        machine.rate(),
        Some(Rate::per_second(20)),
        "the last word wins"
    );
}

#[test]
fn after_a_pause_the_rate_climbs_from_a_tenth() {
    let mut machine = backlog(100, Some(10 * SECOND));
    assert_eq!(
        seconds(&mut machine, 0, 1),
        [100],
        "a fresh queue is not slow"
    );
    machine.pause(ms(1000), Arc::from("failover"), &mut Effects::new());
    machine.resume(ms(2000), &mut Effects::new());
    let counts = seconds(&mut machine, 2, 14);
    assert!((10..=20).contains(&counts[0]), "{counts:?}");
    assert!(
        counts.windows(2).all(|pair| pair[0] <= pair[1]),
        "{counts:?}"
    );
    assert_eq!(counts[11], 100, "{counts:?}");
}

#[test]
fn after_an_outage_of_the_consumers_the_rate_climbs_too() {
    let mut machine = backlog(100, Some(10 * SECOND));
    // Nobody takes anything for a minute: red. Then a consumer is back.
    let counts = seconds_after(&mut machine, 60, 73);
    assert!((10..=20).contains(&counts[0]), "{counts:?}");
    assert_eq!(counts[12], 100, "{counts:?}");
}

fn seconds_after(machine: &mut Machine<u64>, from: u64, to: u64) -> Vec<u64> {
    machine.advance(ms(from * 1000), &mut Effects::new());
    seconds(machine, from, to)
}

#[test]
fn retries_beyond_the_budget_wait_and_fresh_work_goes_on() {
    let mut spec = unpaced();
    spec.max_depth = Some(10_000);
    spec.retry_budget = Some((0.1, Rate::per_second(1)));
    let mut machine = machine(&spec);
    let mut fx = Effects::new();
    let (mut fresh, mut retried) = (0, 0);
    for item in 0..1000 {
        put(&mut machine, ms(0), &cost(1), item);
        while let Ok(taken) = machine.take(ms(0), &mut fx) {
            if taken.run.attempt == 1 {
                fresh += 1;
            } else {
                retried += 1;
            }
            let again = machine.retry(ms(0), taken.run, taken.payload, Duration::ZERO, &mut fx);
            again.expect("no bound on attempts");
        }
    }
    assert_eq!(fresh, 1000);
    // A tenth of the fresh work, and the one that passes in any case.
    assert!((100..=101).contains(&retried), "{retried}");
    // Nothing is lost: they pass one a second from here on.
    assert_eq!(machine.take(ms(999), &mut fx).unwrap_err(), NotTaken::Empty);
    assert!(machine.take(ms(1000), &mut fx).is_ok());
    assert_eq!(machine.ledger().queued, 999);
}

#[test]
fn a_retry_that_expires_while_it_waits_for_the_budget_spends_nothing() {
    let mut spec = unpaced();
    spec.retry_budget = Some((0.0, Rate::per_second(1)));
    let mut machine = machine(&spec);
    let mut fx = Effects::new();
    let mut taken = Vec::new();
    for (item, expires_at) in [(0, None), (1, Some(ms(500))), (2, None)] {
        let ask = Ask {
            expires_at,
            ..Ask::default()
        };
        put(&mut machine, ms(0), &ask, item);
        taken.push(take(&mut machine, ms(0)));
    }
    for job in taken {
        let back = machine.retry(ms(0), job.run, job.payload, Duration::ZERO, &mut fx);
        back.expect("goes back");
    }
    assert_eq!(take(&mut machine, ms(0)).payload, 0);
    machine.advance(ms(600), &mut fx);
    assert_eq!((fx.gone[0].payload, fx.gone[0].exit), (1, Exit::Expired));
    assert_eq!(take(&mut machine, ms(1000)).payload, 2);
}

#[test]
fn while_overloaded_the_newest_goes_first_and_when_calm_the_oldest() {
    let mut spec = unpaced();
    spec.max_depth = Some(10);
    spec.watermarks = Some((2, 8));
    spec.max_waiters = Some(0);
    spec.newest_first = true;
    let mut machine = machine(&spec);
    for item in 0..8 {
        put(&mut machine, ms(0), &cost(1), item);
    }
    let order: Vec<u64> = (0..8).map(|_| take(&mut machine, ms(0)).payload).collect();
    assert_eq!(
        order,
        [7, 6, 5, 4, 3, 2, 0, 1],
        "calm again at the low mark"
    );
}

#[test]
fn a_job_that_could_not_end_in_time_is_not_started() {
    let mut machine = machine(&unpaced());
    let ask = Ask {
        expires_in: Some(Duration::from_millis(100)),
        run_estimate: Some(Duration::from_millis(30)),
        ..Ask::default()
    };
    put(&mut machine, ms(0), &ask, 0);
    put(&mut machine, ms(0), &ask, 1);
    assert_eq!(take(&mut machine, ms(70)).payload, 0);
    let mut fx = Effects::new();
    assert_eq!(machine.take(ms(71), &mut fx).unwrap_err(), NotTaken::Empty);
    assert_eq!(fx.gone[0].exit, Exit::Expired);
    let hopeless = Ask {
        run_estimate: Some(SECOND),
        ..ask
    };
    assert!(machine.try_offer(ms(71), &hopeless, &mut fx).is_err());
}

#[test]
fn the_rate_follows_the_downstream_and_returns_when_told() {
    let mut machine = backlog(100, None);
    let mut fx = Effects::new();
    let config = Aimd::between(Rate::per_second(10), Rate::per_second(100));
    machine.adapt(ms(0), Some(config), &mut fx).expect("valid");
    for second in 0..30 {
        let now = ms(second * 1000);
        for _ in 0..10 {
            if let Ok(taken) = machine.take(now, &mut fx) {
                machine.settle(now, taken.run, Settled::Failed, &mut fx);
            }
        }
    }
    assert_eq!(
        machine.rate(),
        Some(Rate::per_second(10)),
        "cut, and never below the floor"
    );
    assert!(machine.rate_changes() >= 5);
    machine.adapt(ms(30_000), None, &mut fx).expect("valid");
    assert_eq!(machine.rate(), Some(Rate::per_second(100)));
}

#[test]
fn no_rate_no_adaptation() {
    let mut machine = machine(&unpaced());
    let config = Aimd::between(Rate::per_second(10), Rate::per_second(100));
    let error = machine
        .adapt(Tick::ZERO, Some(config), &mut Effects::new())
        .unwrap_err();
    assert!(error.to_string().contains("paced"), "{error}");
    let upside = Aimd::between(Rate::per_second(100), Rate::per_second(10));
    let error = machine
        .adapt(Tick::ZERO, Some(upside), &mut Effects::new())
        .unwrap_err();
    assert!(error.to_string().contains("floor is 100/s"), "{error}");
}

/// Callers give up after 100 ms; the queue sends 1,000/s; offers come at twice that. Share of the rate that was of use.
fn goodput(mut configure: impl FnMut(&mut crate::machine::Spec), seed: u64) -> f64 {
    let mut spec = spec(Rate::per_second(1000));
    configure(&mut spec);
    let mut machine = machine(&spec);
    let mut dice = crate::machine::tests::dice::Dice(seed | 1);
    let (mut arrival, mut useful) = (0_u64, 0);
    let patience = Duration::from_millis(100);
    let end = 20_000_000_000;
    while arrival < end {
        // Poisson arrivals, by the inverse of the exponential distribution.
        let chance = (dice.roll(1 << 31) + 1) as f64 / (1_u64 << 31) as f64;
        arrival += (-chance.ln() * 500_000.0) as u64;
        let now = Tick::from_nanos(arrival);
        while let Some(due) = machine.next_event(true).filter(|due| *due <= now) {
            let mut fx = Effects::new();
            if let Ok(taken) = machine.take(due, &mut fx) {
                useful += u64::from(taken.run.waited <= patience);
                machine.settle(due, taken.run, Settled::Acked, &mut fx);
            }
        }
        let mut fx = Effects::new();
        let ask = Ask {
            priority: Priority::Normal,
            ..Ask::default()
        };
        if let Ok(place) = machine.try_offer(now, &ask, &mut fx) {
            machine.send(now, place, 0, &mut fx);
        }
    }
    useful as f64 / 20_000.0
}

fn capped(spec: &mut crate::machine::Spec, cap: u64) {
    spec.max_depth = Some(cap);
    spec.watermarks = Some((cap - 1, cap));
    spec.max_waiters = Some(0);
}

#[test]
fn under_twice_the_load_a_cap_within_patience_is_all_of_use_and_beyond_it_is_none() {
    for seed in [1, 77, 4242] {
        let within = goodput(|spec| capped(spec, 99), seed);
        assert!(within > 0.97, "cap 99: {within}");
        let beyond = goodput(|spec| capped(spec, 200), seed);
        assert!(beyond < 0.033, "cap 200: {beyond}");
        let expiring = goodput(
            |spec| {
                capped(spec, 200);
                spec.expire_after = Some(Duration::from_millis(100));
            },
            seed,
        );
        assert!(expiring >= 0.98, "with expiry: {expiring}");
        let newest = goodput(
            |spec| {
                spec.max_depth = Some(200);
                spec.watermarks = Some((120, 160));
                spec.max_waiters = Some(0);
                spec.newest_first = true;
                spec.when_full = crate::words::WhenFull::EvictOldest;
            },
            seed,
        );
        assert!(newest > 0.964, "newest first: {newest}");
        let folly = goodput(
            |spec| {
                spec.max_depth = Some(1 << 20);
                spec.max_waiters = Some(0);
                spec.watermarks = Some(((1 << 20) - 2, (1 << 20) - 1));
                spec.standing_delay = Some((Duration::from_millis(5), Duration::from_millis(100)));
                spec.drop_stale = true;
            },
            seed,
        );
        assert!(folly > 0.97, "folly's rule: {folly}");
    }
}
