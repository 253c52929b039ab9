//! What decides when the server does not.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::{AnyClock, Clock as _, TokioClock};
use crate::decision::{Decision, Verdict};
use crate::error::LimitError;
use crate::limiter::{Charge, Local, Ruling, Store as _, WhenKeysFull};
use crate::policy::{FixedWindow, LeakyBucket, Limit, SlidingCounter, SlidingLog, TokenBucket};
use crate::rate::Rate;
use crate::sync::{Arc, Mutex};

/// What a level answers when the outcome of a decision is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenUnknown {
    /// Grants: better no limit than no service.
    Allow,
    /// Refuses, until the server is asked again: better no service than no limit.
    #[default]
    Refuse,
    /// Decides in this process, by this node's share of the limit: a bucket has its rate and its burst divided by the
    /// number of nodes, a window its limit.
    ///
    /// A share is at least one unit at a time: with more nodes than units each node has one in so many windows, and all
    /// of them together may let one each through at once.
    Share {
        /// Nodes that share the limit, at least 1.
        nodes: u64,
    },
}

/// Limiters of this process for the levels that have a share.
#[derive(Debug)]
pub(super) struct Fallback {
    keys: u64,
    levels: Mutex<HashMap<Arc<str>, Local>>,
}

/// What a degraded decision has charged, instead of what the server would have.
#[derive(Debug)]
pub(super) struct Receipt(Vec<(Arc<str>, Charge)>);

impl Fallback {
    pub(super) fn new(keys: u64) -> Self {
        Self {
            keys,
            levels: Mutex::new(HashMap::new()),
        }
    }

    /// Decides by each level's policy; the refusing ones say to come back after `pause`.
    pub(super) fn rule(
        &self,
        charge: &Charge,
        policy: impl Fn(&str) -> WhenUnknown,
        pause: Duration,
    ) -> Ruling {
        let mut refused = false;
        let mut shares = Vec::new();
        let mut decisions: Vec<_> = charge
            .named()
            .enumerate()
            .map(|(index, (name, limit, key))| {
                let decision = match policy(name) {
                    _ if charge.cost() > limit.quota() => never(limit),
                    // What costs nothing is granted whatever is known.
                    WhenUnknown::Refuse if charge.cost() == 0 => allowed(limit),
                    WhenUnknown::Allow => allowed(limit),
                    WhenUnknown::Refuse => refusal(limit, pause),
                    WhenUnknown::Share { nodes } => match share(limit, nodes) {
                        Ok(limit) => {
                            let levels = [(Arc::clone(name), limit, key.clone())];
                            let part = Charge::new(charge.cost(), levels);
                            let part = match charge.keeps_half() {
                                true => part.keep_half(),
                                false => part,
                            };
                            let local = self.level(name, limit);
                            let decision = first(local.peek(part.clone()));
                            shares.push((index, local, part));
                            decision.unwrap_or_else(|| refusal(&limit, pause))
                        }
                        Err(_) => refusal(limit, pause),
                    },
                };
                refused |= !decision.is_granted();
                (Arc::clone(name), decision)
            })
            .collect();
        let mut charged: Vec<(Arc<str>, Local, Charge)> = Vec::new();
        for (index, local, part) in shares.into_iter().filter(|_| !refused) {
            let ruling = local.rule(part);
            let (granted, part) = (ruling.is_granted(), ruling.charge());
            if let Some(decision) = first(ruling) {
                decisions[index].1 = decision;
            }
            if granted {
                charged.push((Arc::clone(&decisions[index].0), local, part));
                continue;
            }
            // Somebody was faster at this level: what the levels before it were charged goes back.
            for (_, local, part) in charged.drain(..) {
                local.refund(part);
            }
            break;
        }
        let receipt = charged.into_iter().map(|(name, _, part)| (name, part));
        let charge = charge.clone().with_receipt(Receipt(receipt.collect()));
        Ruling::new(charge, decisions).degraded()
    }

    /// Gives back what a degraded decision has charged.
    pub(super) fn refund(&self, receipt: &Receipt) {
        for (name, part) in &receipt.0 {
            let level = self.levels.lock().get(name).cloned();
            if let Some(level) = level {
                level.refund(part.clone());
            }
        }
    }

    fn level(&self, name: &Arc<str>, limit: Limit) -> Local {
        let mut levels = self.levels.lock();
        let make = || {
            let level = std::iter::once((Arc::clone(name), limit));
            let full = (self.keys, WhenKeysFull::Share);
            Local::new(level, full, AnyClock::of(TokioClock))
        };
        levels.entry(Arc::clone(name)).or_insert_with(make).clone()
    }
}

/// This node's part of a limit.
pub(super) fn share(limit: &Limit, nodes: u64) -> Result<Limit, LimitError> {
    let nodes = nodes.max(1);
    let rate = |rate: Rate| {
        let period = u128::from(nodes) * rate.period().as_nanos();
        Rate::new(rate.count(), duration(period))
    };
    let units = (limit.quota() / nodes).max(1);
    // Of fewer units than nodes, each node has one in so many windows.
    let windows = u128::from(nodes.div_ceil(limit.quota().max(1)));
    let window = || duration(limit.window().as_nanos() * windows);
    Ok(match limit {
        Limit::TokenBucket(rule) => TokenBucket::new(rate(rule.rate())?, units)?.into(),
        Limit::LeakyBucket(rule) => LeakyBucket::new(rate(rule.rate())?, units)?.into(),
        Limit::FixedWindow(rule) => {
            let share = FixedWindow::new(units, window())?;
            match rule.offset() {
                Some(offset) => share.aligned(offset).into(),
                None => share.into(),
            }
        }
        Limit::SlidingLog(_) => SlidingLog::new(units, window())?.into(),
        Limit::SlidingCounter(_) => SlidingCounter::new(units, window())?.into(),
    })
}

fn duration(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

fn first(ruling: Ruling) -> Option<Decision> {
    let mut decisions = ruling.decisions();
    decisions.next().map(|(_, decision)| decision.clone())
}

fn never(limit: &Limit) -> Decision {
    let max_cost = limit.quota();
    with(limit, Verdict::Never { max_cost }, Duration::ZERO)
}

fn allowed(limit: &Limit) -> Decision {
    with(limit, Verdict::Granted, Duration::ZERO)
}

fn refusal(limit: &Limit, pause: Duration) -> Decision {
    let retry_after = pause.max(Duration::from_millis(1));
    with(limit, Verdict::Refused { retry_after }, retry_after)
}

/// What is left is not known: nothing when it is refused, everything otherwise.
fn with(limit: &Limit, verdict: Verdict, wait: Duration) -> Decision {
    let remaining = match verdict {
        Verdict::Refused { .. } => 0,
        Verdict::Granted | Verdict::Never { .. } => limit.quota(),
    };
    Decision {
        at: TokioClock.now(),
        verdict,
        limit: limit.quota(),
        remaining,
        next_unit_in: wait,
        reset_after: wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy as _;
    use crate::tick::Tick;
    use proptest::prelude::*;

    fn limits() -> impl Strategy<Value = Limit> {
        let minute = Duration::from_secs(60);
        (0..5_u8, 1..500_u64, 1..2_000_u64).prop_map(move |(kind, count, units)| {
            let rate = Rate::per_second(count);
            match kind {
                0 => rate.burst(units).into(),
                1 => LeakyBucket::new(rate, units).unwrap().into(),
                2 => FixedWindow::new(units, minute).unwrap().into(),
                3 => SlidingLog::new(units, minute).unwrap().into(),
                _ => SlidingCounter::new(units, minute).unwrap().into(),
            }
        })
    }

    proptest! {
        #[test]
        fn the_shares_of_all_nodes_admit_no_more_than_the_limit_together(
            limit in limits(), nodes in 1..20_u64, gaps in prop::collection::vec(0..3_000_000_000_u64, 1..20),
        ) {
            prop_assume!(limit.quota() >= nodes);
            let share = share(&limit, nodes).unwrap();
            let mut states: Vec<_> = (0..nodes).map(|_| share.start(Tick::ZERO)).collect();
            let mut whole = limit.start(Tick::ZERO);
            let mut now = 0;
            for gap in gaps {
                now += gap;
                let mut admitted = 0;
                for state in &mut states {
                    while share.check(state, Tick::from_nanos(now), 1).is_granted() {
                        admitted += 1;
                    }
                }
                // Whoever takes one unit at a time from the limit itself gets at least as many.
                for unit in 0..admitted {
                    let decision = limit.check(&mut whole, Tick::from_nanos(now), 1);
                    prop_assert!(decision.is_granted(), "unit {} of {} at {}", unit, admitted, now);
                }
            }
        }
    }

    #[test]
    fn a_share_of_less_than_a_unit_is_one_in_so_many_windows() {
        let limit = FixedWindow::new(10, Duration::from_secs(1)).unwrap().into();
        let expected = FixedWindow::new(1, Duration::from_secs(10)).unwrap();
        assert_eq!(share(&limit, 100), Ok(expected.into()));
        let expected = Rate::new(10, Duration::from_secs(100)).unwrap().burst(1);
        assert_eq!(
            share(&Rate::per_second(10).burst(5).into(), 100),
            Ok(expected.into())
        );
    }
}
