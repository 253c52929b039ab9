//! A million random operations: the ledger is exact after each, nothing is lost, nothing comes twice.

mod check;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::machine::tests::GRAIN;
use crate::machine::tests::dice::{Dice, random_ask, random_spec};
use crate::machine::{
    Ask, Collected, Effects, InFlight, Machine, Offered, Place, Settled, Spec, WaiterKey,
};
use crate::policy::aimd::Aimd;
use crate::rate::Rate;
use crate::tick::Tick;
use crate::words::Exit;

/// Where an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Queue,
    Flight,
    Ended,
}

struct Run {
    dice: Dice,
    machine: Machine<u64>,
    spec: Spec,
    now: u64,
    items: HashMap<u64, At>,
    next_item: u64,
    waiters: Vec<WaiterKey>,
    places: Vec<Place>,
    flight: Vec<(u64, InFlight)>,
    exits: HashMap<Exit, u64>,
    offered: u64,
    refused: u64,
    cancelled_waiting: u64,
    given_back: u64,
    acked: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed | 1);
        let spec = random_spec(&mut dice);
        let settings = spec.resolve().expect("random settings are valid");
        Self {
            dice,
            machine: Machine::new(settings, Tick::ZERO),
            spec,
            now: 0,
            items: HashMap::new(),
            next_item: 0,
            waiters: Vec::new(),
            places: Vec::new(),
            flight: Vec::new(),
            exits: HashMap::new(),
            offered: 0,
            refused: 0,
            cancelled_waiting: 0,
            given_back: 0,
            acked: 0,
        }
    }

    fn now(&self) -> Tick {
        Tick::from_nanos(self.now)
    }

    fn ask(&mut self) -> Ask {
        let now = self.now();
        random_ask(&mut self.dice, now)
    }

    fn step(&mut self) {
        self.now += match self.dice.roll(10) {
            0 => self.dice.roll(2_000_000_000),
            1..=4 => self.dice.roll(3_000_000),
            _ => 0,
        };
        let now = self.now();
        let mut fx = Effects::new();
        match self.dice.roll(20) {
            0..=3 => {
                let ask = self.ask();
                self.offered += 1;
                match self.machine.try_offer(now, &ask, &mut fx) {
                    Ok(place) => self.places.push(place),
                    Err(refusal) => {
                        self.refused += 1;
                        assert!(refusal.retry_after() != Some(Duration::ZERO));
                    }
                }
            }
            4..=7 => {
                let ask = self.ask();
                self.offered += 1;
                let stay = self
                    .dice
                    .chance(30)
                    .then(|| Duration::from_millis(self.dice.roll(500)));
                self.machine.advance(now, &mut fx);
                let foretold = self
                    .machine
                    .refuse_hopeless(now, &ask, false, &mut fx)
                    .map(|no| no.reason());
                if foretold.is_some() {
                    (self.offered, self.refused) = (self.offered + 1, self.refused + 1);
                }
                let refused = match self.machine.offer(now, &ask, stay, &mut fx) {
                    Offered::Admitted(place) => {
                        self.places.push(place);
                        None
                    }
                    Offered::Waiting(key) => {
                        self.waiters.push(key);
                        None
                    }
                    Offered::Refused(refusal) => {
                        self.refused += 1;
                        Some(refusal.reason())
                    }
                };
                // A newcomer at the cap of tenants shares a flow, which only its entry decides.
                if ask.tenant.is_none() || self.spec.tenancy.max_tenants > 6 {
                    assert_eq!(refused, foretold, "foretold otherwise");
                }
            }
            8 if !self.waiters.is_empty() => {
                let at = self.dice.roll(self.waiters.len() as u64) as usize;
                let key = self.waiters.swap_remove(at);
                match self.machine.collect(now, key, &mut fx) {
                    Collected::Ready(place) => self.places.push(place),
                    Collected::Waiting => self.waiters.push(key),
                    Collected::Refused(_) => self.refused += 1,
                }
            }
            9 if !self.waiters.is_empty() => {
                let at = self.dice.roll(self.waiters.len() as u64) as usize;
                let key = self.waiters[at];
                if self.dice.chance(30) {
                    self.machine.cancel_waiter(now, key, &mut fx);
                } else {
                    self.waiters.swap_remove(at);
                    let before = self.machine.ledger().cancelled_waiting;
                    self.machine.leave(now, key, &mut fx);
                    let gone = self.machine.ledger().cancelled_waiting - before;
                    self.cancelled_waiting += gone;
                    // It had been refused already and never heard of it.
                    self.refused += 1 - gone;
                }
            }
            10..=12 if !self.places.is_empty() => {
                let at = self.dice.roll(self.places.len() as u64) as usize;
                let place = self.places.swap_remove(at);
                if self.dice.chance(10) {
                    self.machine.give_back(now, place, &mut fx);
                    self.given_back += 1;
                } else {
                    let item = self.next_item;
                    self.next_item += 1;
                    self.items.insert(item, At::Queue);
                    let queued = self.machine.send(now, place, item, &mut fx);
                    if let Some(key) = queued.key.filter(|_| self.dice.chance(3)) {
                        self.machine.cancel_job(now, key, &mut fx);
                    }
                }
            }
            13..=15 => {
                let before = self.flight.len() as u64;
                if let Ok(taken) = self.machine.take(now, &mut fx) {
                    assert!(before < self.machine.settings().max_in_flight);
                    self.start(taken.payload, taken.run);
                }
            }
            16 | 17 if !self.flight.is_empty() => {
                let at = self.dice.roll(self.flight.len() as u64) as usize;
                let (item, mut run) = self.flight.swap_remove(at);
                if self.dice.chance(20) {
                    let actual = self.dice.roll(30);
                    self.machine.settle_cost(now, &mut run, actual);
                }
                self.finish(now, item, run, &mut fx);
            }
            18 => match self.dice.roll(12) {
                0 => self.machine.pause(now, Arc::from("test"), &mut fx),
                1 | 2 => self.machine.resume(now, &mut fx),
                3 if self.dice.chance(30) => {
                    let mut spec = random_spec(&mut self.dice);
                    spec.grain = GRAIN;
                    self.spec = spec;
                    let settings = self.spec.resolve().expect("random settings are valid");
                    self.machine.apply(now, settings, &mut fx);
                }
                4 => self.adapt(now, &mut fx),
                5 => self.machine.strained(),
                6 => self.ramp(now, &mut fx),
                _ => self.machine.advance(now, &mut fx),
            },
            _ => self.machine.advance(now, &mut fx),
        }
        self.absorb(fx);
        self.check();
    }

    fn ramp(&mut self, now: Tick, fx: &mut Effects<u64>) {
        if self.spec.rate.is_some() {
            self.spec.rate = Some(Rate::per_second(1 + self.dice.roll(5000)));
        }
        let over = Duration::from_millis(self.dice.roll(3000));
        let settings = self.spec.resolve().expect("marks are set by hand");
        self.machine.ramp(now, settings, over, fx);
    }

    fn adapt(&mut self, now: Tick, fx: &mut Effects<u64>) {
        let (floor, ceiling) = (
            Rate::per_second(1),
            Rate::per_second(1 + self.dice.roll(5000)),
        );
        let config = self.dice.chance(70).then(|| Aimd::between(floor, ceiling));
        let paced = self.machine.settings().rate.is_some();
        let done = self.machine.adapt(now, config, fx);
        assert_eq!(done.is_ok(), paced || config.is_none());
    }

    fn start(&mut self, item: u64, run: InFlight) {
        let was = self.items.insert(item, At::Flight);
        assert_eq!(was, Some(At::Queue), "item {item} came twice");
        assert!(
            run.departed_at <= run.expires_at,
            "started after its expiry"
        );
        self.flight.push((item, run));
    }

    fn finish(&mut self, now: Tick, item: u64, run: InFlight, fx: &mut Effects<u64>) {
        let delay = Duration::from_millis(if self.dice.chance(50) {
            0
        } else {
            self.dice.roll(900)
        });
        let back = match self.dice.roll(5) {
            0 => self.machine.retry(now, run, item, delay, fx),
            1 => self.machine.defer(now, run, item, delay, fx),
            how => {
                let how = [Settled::Acked, Settled::Failed, Settled::Abandoned][how as usize - 2];
                self.machine.settle(now, run, how, fx);
                self.items.insert(item, At::Ended);
                match how {
                    Settled::Acked => self.acked += 1,
                    Settled::Failed => *self.exits.entry(Exit::Failed).or_default() += 1,
                    Settled::Abandoned => *self.exits.entry(Exit::Abandoned).or_default() += 1,
                }
                return;
            }
        };
        match back {
            Ok(_) => {
                self.items.insert(item, At::Queue);
            }
            Err((exit, item)) => {
                self.items.insert(item, At::Ended);
                *self.exits.entry(exit).or_default() += 1;
            }
        }
    }

    fn absorb(&mut self, fx: Effects<u64>) {
        for gone in fx.gone.into_iter().chain(fx.returned) {
            let was = self.items.insert(gone.payload, At::Ended);
            assert_eq!(was, Some(At::Queue), "item {} left twice", gone.payload);
            *self.exits.entry(gone.exit).or_default() += 1;
        }
    }
}

#[test]
fn a_million_random_operations_keep_the_ledger_exact() {
    let (runs, steps) = (500, 2_000);
    for seed in 0..runs {
        let seed = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed + 1);
        let mut run = Run::new(seed);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..steps {
                run.step();
            }
            run.finish_all();
        }));
        if let Err(panic) = outcome {
            eprintln!("seed {seed:#x}");
            std::panic::resume_unwind(panic);
        }
    }
}
