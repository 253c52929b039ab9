//! Limits that change while they are in use: whoever waits as told is let in, whatever the limit was before.

use std::time::Duration;

use proptest::prelude::*;
use sluicegate::{
    Decision, FixedWindow, Hierarchy, KeyedLimiter, LeakyBucket, Limit, ManualClock, Rate,
    RateLimiter, SlidingCounter, SlidingLog,
};

fn limits() -> impl Strategy<Value = Limit> {
    let rate = (1..=1000_u64, 1..=86_400_000_u64).prop_map(|(count, millis)| {
        Rate::new(count, Duration::from_millis(millis.max(count))).expect("it is a rate")
    });
    let window = (1..=86_400_000_u64).prop_map(Duration::from_millis);
    (0..6, 1..=50_u64, rate, window).prop_map(|(kind, quota, rate, window)| match kind {
        0 => rate.burst(quota).into(),
        1 => LeakyBucket::new(rate, quota).expect("it is a limit").into(),
        2 => FixedWindow::new(quota, window)
            .expect("it is a limit")
            .into(),
        3 => {
            let rule = FixedWindow::new(quota, window).expect("it is a limit");
            rule.aligned(Duration::from_secs(7)).into()
        }
        4 => SlidingLog::new(quota, window)
            .expect("it is a limit")
            .into(),
        _ => SlidingCounter::new(quota, window)
            .expect("it is a limit")
            .into(),
    })
}

/// Uses a limit, changes it, and then asks and waits as told.
fn obeys(
    (old, new): (Limit, Limit),
    (used, passed, cost): (u64, u64, u64),
    clock: &ManualClock,
    check: impl Fn(u64) -> Decision,
    change: impl FnOnce(Limit),
) -> Result<(), TestCaseError> {
    clock.advance(Duration::from_secs(1_000_000));
    prop_assert!(check(1 + used % old.quota()).is_granted());
    clock.advance(old.window().mul_f64(passed as f64 / 200.0));
    change(new);
    let cost = 1 + cost % new.quota();
    if let Some(wait) = check(cost).retry_after() {
        clock.advance(wait);
        let again = check(cost);
        prop_assert!(again.is_granted(), "told {wait:?}, then {again:?}");
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_caller_who_waits_as_told_after_a_change_is_let_in(
        limits in (limits(), limits()),
        asked in (any::<u64>(), 0..=200_u64, any::<u64>()),
    ) {
        let (old, new) = limits;
        let clock = ManualClock::new();
        let direct = RateLimiter::with_clock(old, clock.clone());
        obeys(limits, asked, &clock, |cost| direct.check(cost), |new| direct.set_limit(new))?;

        let clock = ManualClock::new();
        let keyed = KeyedLimiter::<u64>::builder(old).clock(clock.clone()).build().expect("it is valid");
        let change = |new| keyed.set_limit(new).expect("it is valid");
        obeys(limits, asked, &clock, |cost| keyed.check(&1, cost), change)?;

        let clock = ManualClock::new();
        let levels = Hierarchy::<u64>::builder()
            .level("outer", Rate::per_second(1_000_000).burst(1_000_000), |_: &u64| ())
            .level("inner", old, |key: &u64| *key)
            .clock(clock.clone())
            .build()
            .expect("it is valid");
        let inner = |cost| {
            let ruling = levels.check(&1, cost);
            let (_, decision) = ruling.decisions().last().expect("there are two");
            decision.clone()
        };
        obeys(limits, asked, &clock, inner, |new| levels.set_limit("inner", new).expect("it is valid"))?;

        // By plan: what the key's own limit was yesterday does not matter.
        let clock = ManualClock::new();
        let plan = std::sync::Arc::new(std::sync::Mutex::new(old));
        let asks = plan.clone();
        let keyed = KeyedLimiter::<u64>::builder(new)
            .limit_for(move |_| Some(*asks.lock().expect("not poisoned")))
            .clock(clock.clone())
            .build()
            .expect("it is valid");
        let change = |new| *plan.lock().expect("not poisoned") = new;
        obeys(limits, asked, &clock, |cost| keyed.check(&1, cost), change)?;
    }
}

#[test]
fn a_peek_and_a_cost_of_nothing_leave_what_was_used_of_a_larger_limit() {
    let clock = ManualClock::new();
    let limiter = KeyedLimiter::<u64>::builder(Rate::per_second(1).burst(10))
        .clock(clock.clone())
        .build()
        .expect("it is valid");
    let limit = |burst| limiter.set_limit(Rate::per_second(1).burst(burst));
    assert!(limiter.check(&1, 10).is_granted());
    limit(1).expect("it is valid");
    let told = limiter.peek(&1, 1).retry_after();
    assert_eq!(told, Some(Duration::from_secs(1)));
    assert!(limiter.check(&1, 0).is_granted());
    limit(10).expect("it is valid");
    assert_eq!(limiter.peek(&1, 0).remaining, 0, "the ten are still used");
    limit(1).expect("it is valid");
    assert!(limiter.check(&1, 1).retry_after().is_some());
    limit(10).expect("it is valid");
    assert_eq!(
        limiter.peek(&1, 0).remaining,
        9,
        "what a refusal told holds"
    );
}
