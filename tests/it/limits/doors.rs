//! Limits at a door: whatever can be asked, and wherever its state lives.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use sluicegate::{
    Admission, Charge, FixedWindow, Hierarchy, Key, KeyedLimiter, ManualClock, Rate, RateLimiter,
    Ruling, Store,
};

#[test]
fn a_charge_that_keeps_half_cuts_bursts_of_buckets_only() {
    let window = FixedWindow::new(50, Duration::from_secs(60)).expect("it is a limit");
    let bucket = Rate::per_second(10).burst(50);
    for (limit, expected) in [(window.into(), 50), (sluicegate::Limit::from(bucket), 25)] {
        let clock = ManualClock::new();
        let limiter = RateLimiter::with_clock(limit, clock.clone());
        let keyed = KeyedLimiter::<u64>::builder(limit)
            .clock(clock.clone())
            .build();
        let hierarchy = Hierarchy::<()>::builder()
            .level("one", limit, |()| ())
            .clock(clock)
            .build();
        let drained = [
            drained(&limiter, &()),
            drained(&keyed.expect("it is valid"), &7),
            drained(&hierarchy.expect("it is valid"), &()),
        ];
        assert_eq!(drained, [expected; 3], "{limit}");
    }
}

/// Units that a door grants one by one, keeping half; the first one is given back.
fn drained<A: Admission>(door: &A, context: &A::Context) -> u64 {
    let mut granted = 0;
    loop {
        let charge = door.charge(context, 1).keep_half();
        assert!(charge.keeps_half());
        let ruling = door
            .admit(charge)
            .now_or_never()
            .expect("a local decision does not wait");
        if !ruling.is_granted() {
            return granted - 1;
        }
        if granted == 0 {
            door.give_back(ruling.charge());
        }
        granted += 1;
    }
}

#[tokio::test]
async fn limiters_that_stand_alone_are_doors_too() {
    let clock = ManualClock::new();
    let keyed = KeyedLimiter::<String>::builder(Rate::per_second(10).burst(2))
        .clock(clock)
        .build();
    let keyed = keyed.expect("it is valid");
    let ada = String::from("ada");
    let ruling = keyed.admit(Admission::charge(&keyed, &ada, 2)).await;
    assert!(ruling.is_granted());
    assert!(
        !keyed
            .admit(Admission::charge(&keyed, &ada, 1))
            .await
            .is_granted()
    );
    keyed.give_back(ruling.charge());
    assert_eq!(keyed.peek("ada", 0).remaining, 2);
    // A decision that is dropped before it is polled has charged nothing.
    drop(keyed.admit(Admission::charge(&keyed, &ada, 2)));
    assert_eq!(keyed.peek("ada", 0).remaining, 2);
}

/// What is charged in one step is what is charged in two: the same decisions, limits and keys on record, to be given
/// back all the same.
#[test]
fn a_charge_in_one_step_leaves_the_record_of_one_in_two() {
    let clock = ManualClock::new();
    let limiter = || {
        KeyedLimiter::<Key>::builder(Rate::per_second(10).burst(5))
            .limit_for(|key| {
                let own = FixedWindow::new(3, Duration::from_secs(60)).expect("it is a limit");
                (*key == Key::from("grace")).then(|| own.into())
            })
            .clock(clock.clone())
            .build()
            .expect("it is valid")
    };
    let (one, two) = (limiter(), limiter());
    for (step, cost) in [1, 2, 0, 9, 2, 1, 1, 3].into_iter().enumerate() {
        for key in ["ada", "grace", "a key that is too long to be kept in place"] {
            let key = Key::from(key);
            let solo = one.charge_now(&key, cost).expect("it has one level");
            let charge = Admission::charge(&two, &key, cost);
            let ruling = two.admit_now(charge).expect("it decides at once");
            assert_eq!(format!("{:?}", solo.to_ruling()), format!("{ruling:?}"));
            assert_eq!(solo.decision().is_granted(), ruling.is_granted());
            if step % 3 == 0 {
                one.give_back(solo.to_ruling().charge());
                two.give_back(ruling.charge());
                assert_eq!(one.peek(&key, 0), two.peek(&key, 0));
            }
        }
        clock.advance(Duration::from_millis(70));
    }
    let by_name = KeyedLimiter::<String>::builder(Rate::per_second(1).burst(1)).build();
    let by_name = by_name.expect("it is valid");
    let ada = String::from("ada");
    assert!(by_name.charge_now(&ada, 1).is_none(), "it has no such key");
    assert_eq!(by_name.peek("ada", 0).remaining, 1, "nothing was charged");
}

/// A store that keeps its state elsewhere stands behind the same type.
#[derive(Clone, Default)]
struct Elsewhere(Arc<Mutex<Vec<Charge>>>);

impl Store for Elsewhere {
    type Deciding = std::future::Ready<Ruling>;

    fn decide(&self, charge: Charge) -> Self::Deciding {
        let limiter = RateLimiter::with_clock(Rate::per_second(1).burst(1), ManualClock::new());
        let names: Vec<String> = charge.levels().map(|(name, ..)| name.to_owned()).collect();
        let decisions = names.into_iter().map(|name| (name, limiter.check(1)));
        let ruling = Ruling::new(charge, decisions.collect::<Vec<_>>());
        std::future::ready(ruling.degraded())
    }

    fn refund(&self, charge: Charge) {
        self.0.lock().expect("nobody panicked").push(charge);
    }
}

#[tokio::test]
async fn a_store_of_another_kind_stands_behind_the_same_type() {
    let store = Elsewhere::default();
    let hierarchy = Hierarchy::<u64>::builder()
        .level("one", Rate::per_second(1).burst(1), |key| *key)
        .build_on(store.clone())
        .expect("it is valid");
    let ruling = hierarchy.decide(&7, 1).await;
    assert!(ruling.is_granted() && ruling.is_degraded());
    hierarchy.refund(ruling.charge());
    let refunded = store.0.lock().expect("nobody panicked");
    assert_eq!(refunded.len(), 1);
    assert_eq!(refunded[0].cost(), 1);
}
