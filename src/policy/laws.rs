//! Laws that every rule keeps, checked against naive references on random histories.
//!
//! The references are as plain as the definitions: tokens as an exact fraction, every hit in a list.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::decision::Verdict;
use crate::error::LimitError;
use crate::rate::Rate;

/// What a history does next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(u64),
    Check(u64),
    /// Gives the last grant back at once.
    Undo,
}

/// Steps around one natural span of the rule: waits of nothing, of just less, exactly, just more, and of many.
fn steps(span: u64, costs: u64) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => prop::sample::select(vec![0, 1, span - 1, span, span + 1, 7 * span]).prop_map(Step::Wait),
        2 => (0..=3 * span).prop_map(Step::Wait),
        8 => (0..=costs).prop_map(Step::Check),
        1 => Just(Step::Undo),
    ];
    prop::collection::vec(step, 1..120)
}

/// Something plain that decides as the rule should.
trait Reference {
    fn left(&self, now: u64) -> u64;
    fn charge(&mut self, now: u64, cost: u64);
    fn undo(&mut self);
}

/// Tokens as a fraction with the period as denominator.
struct Tokens {
    rate: Rate,
    burst: u64,
    at: u64,
    level: u128,
    before: u128,
}

impl Tokens {
    fn level(&self, now: u64) -> u128 {
        let full = u128::from(self.burst) * self.rate.period().as_nanos();
        full.min(self.level + u128::from(now - self.at) * u128::from(self.rate.count()))
    }
}

impl Reference for Tokens {
    fn left(&self, now: u64) -> u64 {
        (self.level(now) / self.rate.period().as_nanos()) as u64
    }

    fn charge(&mut self, now: u64, cost: u64) {
        self.before = self.level(now);
        self.level = self.before - u128::from(cost) * self.rate.period().as_nanos();
        self.at = now;
    }

    fn undo(&mut self) {
        self.level = self.before;
    }
}

/// Every hit since the beginning.
struct Hits {
    limit: u64,
    window: u64,
    hits: Vec<(u64, u64)>,
    used: fn(&Self, u64) -> u64,
}

impl Hits {
    fn between(&self, from: u64, to: u64) -> u64 {
        let inside = |(at, _): &&(u64, u64)| (from..to).contains(at);
        self.hits.iter().filter(inside).map(|(_, cost)| cost).sum()
    }

    fn in_log(&self, now: u64) -> u64 {
        let inside = |(at, _): &&(u64, u64)| now - at < self.window;
        self.hits.iter().filter(inside).map(|(_, cost)| cost).sum()
    }

    /// Begin of the window that holds `now`, windows beginning at the first hit after the last one has ended.
    fn anchor(&self, now: u64) -> u64 {
        let mut start = None::<u64>;
        for (at, _) in &self.hits {
            if start.is_none_or(|start| at - start >= self.window) {
                start = Some(*at);
            }
        }
        match start {
            Some(start) if now - start < self.window => start,
            _ => now,
        }
    }

    fn in_window(&self, now: u64) -> u64 {
        self.between(self.anchor(now), now + 1)
    }

    fn in_aligned_window(&self, now: u64) -> u64 {
        self.between(now - now % self.window, now + 1)
    }

    /// `current + previous * (1 - elapsed fraction)`, rounded up.
    fn estimate(&self, now: u64) -> u64 {
        let (mut start, mut previous, mut current) = (0, 0, 0);
        for (at, cost) in self.hits.iter().copied().chain([(now, 0)]) {
            while previous + current > 0 && at - start >= self.window {
                (start, previous, current) = (start + self.window, current, 0);
            }
            if previous + current == 0 {
                start = at;
            }
            current += cost;
        }
        let left = u128::from(self.window - (now - start));
        let faded = (u128::from(previous) * left).div_ceil(u128::from(self.window));
        current + faded as u64
    }
}

impl Reference for Hits {
    fn left(&self, now: u64) -> u64 {
        self.limit.saturating_sub((self.used)(self, now))
    }

    fn charge(&mut self, now: u64, cost: u64) {
        self.hits.push((now, cost));
    }

    fn undo(&mut self) {
        self.hits.pop();
    }
}

/// Plays a history and checks every law at every step.
fn keeps_the_laws(limit: Limit, mut reference: impl Reference, steps: &[Step]) {
    let mut now = 1_000_000_007_u64;
    let mut state = limit.start(Tick::from_nanos(now));
    let mut undo: Option<(Tick, u64)> = None;
    for step in steps {
        let tick = Tick::from_nanos(now);
        match *step {
            Step::Wait(nanos) => {
                now += nanos;
                undo = None;
            }
            Step::Undo => {
                if let Some((at, cost)) = undo.take() {
                    limit.refund(&mut state, at, cost);
                    reference.undo();
                    let left = limit.peek(&state, tick, 0).remaining;
                    assert_eq!(left, reference.left(now), "after a refund");
                }
            }
            Step::Check(cost) => {
                let before = state.clone();
                let left = limit.peek(&state, tick, 0).remaining;
                assert_eq!(left, reference.left(now), "at {now}: {state:?}");
                let peeked = limit.peek(&state, tick, cost);
                let decision = limit.check(&mut state, tick, cost);
                assert_eq!(peeked, decision, "a peek says what a check does");
                assert_eq!(decision.is_granted(), cost == 0 || cost <= left);
                if !decision.is_granted() || cost == 0 {
                    assert_eq!(state, before, "refusals and costs of 0 change nothing");
                    assert_eq!(decision.remaining, left);
                } else {
                    assert_eq!(decision.remaining, left - cost);
                    reference.charge(now, cost);
                    undo = Some((decision.at, cost));
                }
                numbers_are_tight(&limit, &state, &decision, cost);
            }
        }
    }
}

/// Waits are exact to the nanosecond, for the cost, for the next unit, and for the whole limit.
#[track_caller]
fn numbers_are_tight(limit: &Limit, state: &LimitState, decision: &Decision, cost: u64) {
    let granted = |after: Duration, cost| limit.peek(state, decision.at + after, cost).is_granted();
    let nano = Duration::from_nanos(1);
    match decision.verdict {
        Verdict::Refused { retry_after } => {
            assert!(granted(retry_after, cost), "{decision:?}");
            assert!(!granted(retry_after - nano, cost), "{decision:?}");
        }
        Verdict::Never { max_cost } => {
            assert!(cost > max_cost && max_cost == limit.quota());
        }
        Verdict::Granted => {}
    }
    let next = decision.next_unit_in;
    assert!(granted(next, 1), "{decision:?}");
    assert!(next.is_zero() || !granted(next - nano, 1), "{decision:?}");
    let reset = decision.reset_after;
    let left = |after| limit.peek(state, decision.at + after, 0).remaining;
    assert_eq!(left(reset), limit.quota());
    let full = limit.is_idle(state, decision.at + reset);
    assert!(full, "idle once it is full: {state:?}");
    assert!(reset.is_zero() || !limit.is_idle(state, decision.at + (reset - nano)));
}

fn hits(limit: u64, window: u64, used: fn(&Hits, u64) -> u64) -> Hits {
    Hits {
        limit,
        window,
        hits: Vec::new(),
        used,
    }
}

/// Rates from one a day to 1e9 a second, awkward ones among them, with a burst.
fn buckets() -> impl Strategy<Value = (Rate, u64)> {
    let rate = prop_oneof![
        prop::sample::select(vec![
            Rate::per_day(1),
            Rate::per_second(3),
            Rate::per_second(7_000_000),
            Rate::per_second(300_000_000),
            Rate::per_second(999_999_937),
            Rate::per_second(1_000_000_000),
        ]),
        (1..=1_000_000_000_u64).prop_map(Rate::per_second),
        (1..=1_000_000_u64).prop_map(Rate::per_day),
    ];
    (rate, 1..50_u64)
}

proptest! {
    #[test]
    fn buckets_decide_as_the_exact_fraction_does(
        ((rate, burst), steps, leaky) in buckets().prop_flat_map(|(rate, burst)| {
            let span = (rate.period().as_nanos() as u64).div_ceil(rate.count()).max(2);
            (Just((rate, burst)), steps(span, burst + 1), any::<bool>())
        })
    ) {
        let full = u128::from(burst) * rate.period().as_nanos();
        let tokens = Tokens { rate, burst, at: 1_000_000_007, level: full, before: full };
        let limit = match leaky {
            true => LeakyBucket::new(rate, burst).expect("it is valid").into(),
            false => rate.burst(burst).into(),
        };
        keeps_the_laws(limit, tokens, &steps);
    }

    #[test]
    fn windows_decide_as_the_list_of_hits_does(
        (quota, span, steps, kind) in (1..30_u64, prop_oneof![2..20_u64, Just(60_000_000_000)])
            .prop_flat_map(|(quota, span)| (Just(quota), Just(span), steps(span, quota + 1), 0..4))
    ) {
        let window = Duration::from_nanos(span);
        let fixed = FixedWindow::new(quota, window).expect("it is valid");
        let (limit, used): (Limit, fn(&Hits, u64) -> u64) = match kind {
            0 => (fixed.into(), Hits::in_window),
            1 => (fixed.aligned(Duration::ZERO).into(), Hits::in_aligned_window),
            2 => (SlidingLog::new(quota, window).expect("it is valid").into(), Hits::in_log),
            _ => (SlidingCounter::new(quota, window).expect("it is valid").into(), Hits::estimate),
        };
        keeps_the_laws(limit, hits(quota, span, used), &steps);
    }

    #[test]
    fn every_window_keeps_its_bound(
        quota in 1..20_u64,
        kind in 0..5,
        gaps in prop::collection::vec((0..40_u64, 1..4_u64), 1..150),
    ) {
        let window = Duration::from_nanos(100);
        let rate = Rate::new(quota, window).expect("it is valid");
        let limit: Limit = match kind {
            0 => rate.burst(quota).into(),
            1 => LeakyBucket::new(rate, quota).expect("it is valid").into(),
            2 => FixedWindow::new(quota, window).expect("it is valid").into(),
            3 => SlidingLog::new(quota, window).expect("it is valid").into(),
            _ => SlidingCounter::new(quota, window).expect("it is valid").into(),
        };
        let mut now = 5_u64;
        let mut state = limit.start(Tick::from_nanos(now));
        let mut granted = Vec::new();
        for (gap, cost) in gaps {
            now += gap;
            if limit.check(&mut state, Tick::from_nanos(now), cost).is_granted() {
                granted.push((now, cost));
            }
        }
        for (first, (from, _)) in granted.iter().enumerate() {
            let mut sum = 0;
            for (to, cost) in &granted[first..] {
                sum += cost;
                let span = to - from;
                match kind {
                    0 | 1 => prop_assert!(sum * 100 <= quota * 100 + span * quota),
                    2 => prop_assert!(sum <= quota * (2 + span / 100)),
                    3 => prop_assert!(sum <= quota * (1 + span / 100)),
                    _ => prop_assert!(span >= 100 || sum < 2 * quota || quota == 1),
                }
            }
        }
    }

    #[test]
    fn no_instant_and_no_number_makes_a_rule_panic_or_wrap(
        kind in 0..5,
        count in 1..=u64::MAX,
        period in 1..=u64::MAX,
        instants in prop::collection::vec((prop_oneof![any::<u64>(), u64::MAX - 9..=u64::MAX], any::<u64>()), 1..20),
    ) {
        let window = Duration::from_nanos(period);
        let Ok(rate) = Rate::new(count, window) else { return Ok(()) };
        let limit: Result<Limit, LimitError> = match kind {
            0 => TokenBucket::new(rate, count).map(Into::into),
            1 => LeakyBucket::new(rate, count).map(Into::into),
            2 => FixedWindow::new(count, window).map(Into::into),
            3 => SlidingLog::new(count, window).map(Into::into),
            _ => SlidingCounter::new(count, window).map(Into::into),
        };
        let Ok(limit) = limit else { return Ok(()) };
        let mut state = limit.start(Tick::ZERO);
        for (now, cost) in instants {
            let decision = limit.check(&mut state, Tick::from_nanos(now), cost);
            prop_assert!(decision.remaining <= decision.limit);
            limit.refund(&mut state, Tick::from_nanos(now / 2), cost);
            let _ = limit.is_idle(&state, Tick::from_nanos(now));
        }
    }
}
