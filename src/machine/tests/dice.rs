//! Seeded chance, for the runs that must be repeatable.

use std::time::Duration;

use crate::key::Key;
use crate::machine::tests::{spec, unpaced};
use crate::machine::{Ask, Spec};
use crate::rate::Rate;
use crate::tick::Tick;
use crate::words::{Priority, WhenFull};

/// Small generator with a seed that is printed on failure (xorshift64*, Vigna 2016).
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % sides
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }
}

/// Settings on the edges of what is allowed.
pub(super) fn random_spec(dice: &mut Dice) -> Spec {
    let mut spec = if dice.chance(20) {
        unpaced()
    } else {
        spec(Rate::per_second(
            [1, 10, 1000, 100_000][dice.roll(4) as usize],
        ))
    };
    let depth = [1, 2, 3, 10, 40][dice.roll(5) as usize];
    spec.max_depth = Some(depth);
    let high = 1 + dice.roll(depth);
    spec.watermarks = dice.chance(70).then(|| (dice.roll(high), high));
    spec.max_waiters = Some(dice.roll(5));
    spec.max_wait = dice
        .chance(30)
        .then(|| Duration::from_millis(3 + dice.roll(3000)));
    spec.expire_after = dice
        .chance(30)
        .then(|| Duration::from_millis(3 + dice.roll(3000)));
    spec.max_in_flight = dice.chance(40).then(|| 1 + dice.roll(5));
    spec.when_full = [
        WhenFull::Refuse,
        WhenFull::EvictOldest,
        WhenFull::EvictNewest,
        WhenFull::EvictLowest,
        WhenFull::EvictLower,
    ][dice.roll(5) as usize];
    if dice.chance(30) {
        spec.max_wait = None;
        spec.standing_delay = Some((Duration::from_millis(5), Duration::from_millis(100)));
        spec.drop_stale = dice.chance(50);
    }
    if dice.chance(60) {
        spec.tenancy.max_tenants = 1 + dice.roll(4);
        spec.tenancy.max_depth = dice.chance(30).then(|| 1 + dice.roll(depth));
        spec.tenancy.rate = dice
            .chance(30)
            .then(|| Rate::per_second(1 + dice.roll(100)));
        (spec.tenancy.shared_flows, spec.tenancy.hand) = (4, 2);
    }
    if dice.chance(30) {
        spec.lane_shares = std::array::from_fn(|_| dice.roll(6) as f64 / 20.0);
    }
    spec.newest_first = dice.chance(30);
    spec.slow_start = dice
        .chance(30)
        .then(|| Duration::from_millis(dice.roll(5000)));
    spec.retry_budget = dice.chance(30).then(|| {
        (
            dice.roll(3) as f64 / 2.0,
            Rate::per_second(1 + dice.roll(9)),
        )
    });
    spec.max_attempts = dice.chance(50).then(|| 1 + dice.roll(3) as u32);
    spec
}

/// An offer that may be dear, urgent, somebody's, and short of time.
pub(super) fn random_ask(dice: &mut Dice, now: Tick) -> Ask {
    let cost = if dice.chance(70) {
        1
    } else {
        1 + dice.roll(20)
    };
    let soon = Duration::from_millis(dice.roll(2000));
    let priority = Priority::ALL[dice.roll(4) as usize];
    let named = dice.chance(60);
    let tenant = (Key::from(dice.roll(6)), 1 + dice.roll(3));
    Ask {
        cost,
        priority,
        tenant: named.then_some(tenant),
        expires_at: dice.chance(10).then(|| now + soon),
        expires_in: dice.chance(10).then_some(soon),
        run_estimate: dice.chance(5).then_some(Duration::from_millis(20)),
    }
}
