//! Retries are load: a budget keeps them to a share of the fresh work.
//!
//! Each first start earns a share of a retry, each retry spends one; at least so many per period pass whatever the
//! share, so that a queue that has only retries moves on. What has no budget waits, first come first.
//! (After the retry budgets of Finagle, and "Addressing cascading failures" in the SRE book.)

use std::collections::VecDeque;

use crate::machine::outcome::JobKey;
use crate::rate::Rate;
use crate::tick::{Fine, Tick};

/// What retries may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Allowance {
    /// Millionths of a retry that a first start earns.
    pub(crate) share_ppm: u64,
    /// What passes in any case.
    pub(crate) at_least: Rate,
}

/// Budget, and the retries that are due and wait for it.
#[derive(Debug)]
pub(crate) struct Budget {
    allowance: Allowance,
    credit: u64,
    /// When the next one passes that nobody earned.
    floor_due: Fine,
    pub(super) waiting: VecDeque<JobKey>,
}

impl Budget {
    pub(crate) fn new(allowance: Allowance) -> Self {
        Self {
            allowance,
            credit: 0,
            floor_due: Fine::ZERO,
            waiting: VecDeque::new(),
        }
    }

    pub(crate) fn set(&mut self, allowance: Allowance) {
        self.allowance = allowance;
    }

    /// A job starts for the first time.
    pub(crate) fn earn(&mut self) {
        self.credit = (self.credit + self.allowance.share_ppm).min(MOST * RETRY);
    }

    /// Lets one retry pass, if the budget allows.
    pub(crate) fn spend(&mut self, now: Tick) -> bool {
        if self.credit >= RETRY {
            self.credit -= RETRY;
            return true;
        }
        let allowed = self.floor_due.ceil() <= now;
        if allowed {
            let interval = self.allowance.at_least.interval();
            self.floor_due = self.floor_due.max(Fine::at(now)).plus(interval);
        }
        allowed
    }

    /// When the next waiting retry passes without being earned.
    pub(crate) fn next(&self) -> Option<Tick> {
        (!self.waiting.is_empty()).then(|| self.floor_due.ceil())
    }
}

const RETRY: u64 = 1_000_000;
/// Retries that calm times can save up.
const MOST: u64 = 100;
