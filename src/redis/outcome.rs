//! What a script has said.

use tokio::time::Instant;

use super::error::Error;
use super::link::Value;
use super::plan::Group;
use super::rule::Asked;
use crate::decision::Decision;
use crate::sync::Arc;
use crate::tick::Tick;

/// Answer of a script to several equal charges at once: how many fit, when, and what the levels held before them.
#[derive(Debug)]
pub(super) struct Outcome {
    fits: u64,
    pub(super) now: Tick,
    /// When it was asked, by the clock of this process.
    pub(super) asked: Instant,
    fields: Vec<u64>,
}

impl Outcome {
    /// Reads a reply of the expected shape.
    pub(super) fn read(reply: Value, group: &Group, asked: Instant) -> Result<Self, Error> {
        let outcome = match &reply {
            Value::BulkString(bytes) => Self::parse(bytes, group, asked),
            _ => None,
        };
        outcome.ok_or_else(|| Error::unexpected(&reply))
    }

    /// Reads the packed numbers of one decision; `None` if they are not of the expected shape.
    pub(super) fn parse(bytes: &[u8], group: &Group, asked: Instant) -> Option<Self> {
        let (doubles, rest) = bytes.as_chunks::<8>();
        if doubles.len() != group.reply_numbers || !rest.is_empty() {
            return None;
        }
        let mut numbers = doubles.iter().map(|double| whole(*double));
        let (fits, now) = (numbers.next()??, numbers.next()??);
        let fields = numbers.collect::<Option<_>>()?;
        Some(Self {
            fits,
            now: Tick::from_nanos(now.saturating_mul(1000)),
            asked,
            fields,
        })
    }

    /// Whether the charge with this place fitted.
    pub(super) fn is_granted(&self, rank: u64) -> bool {
        rank < self.fits
    }

    /// Each level's decision about the charge with this place, as if the charges had come one by one.
    ///
    /// An error if they contradict what the script has done.
    pub(super) fn decisions(
        &self,
        group: &Group,
        rank: u64,
    ) -> Result<Vec<(Arc<str>, Decision)>, Error> {
        let before = rank.min(self.fits);
        let mut decisions = self.all(group, group.cost, before)?;
        let granted = decisions.iter().all(|(_, decision)| decision.is_granted());
        if granted != self.is_granted(rank) {
            return Err(Error::unexpected(&self));
        }
        if !granted {
            self.withdraw(group, before, &mut decisions)?;
        }
        Ok(decisions)
    }

    /// What the levels would decide, when nothing was asked to be charged.
    pub(super) fn peeked(&self, group: &Group) -> Result<Vec<(Arc<str>, Decision)>, Error> {
        let mut decisions = self.all(group, group.cost, 0)?;
        if decisions.iter().any(|(_, decision)| !decision.is_granted()) {
            self.withdraw(group, 0, &mut decisions)?;
        }
        Ok(decisions)
    }

    /// What is left at each level without the charge with this place.
    pub(super) fn left(
        &self,
        group: &Group,
        rank: u64,
    ) -> Result<Vec<(Arc<str>, Decision)>, Error> {
        self.all(group, 0, rank.min(self.fits))
    }

    /// Another level refused: levels that would have granted say what is left, uncharged.
    fn withdraw(
        &self,
        group: &Group,
        before: u64,
        decisions: &mut [(Arc<str>, Decision)],
    ) -> Result<(), Error> {
        let left = self.all(group, 0, before)?;
        for (decision, left) in decisions.iter_mut().zip(left) {
            if decision.1.is_granted() {
                *decision = left;
            }
        }
        Ok(())
    }

    /// Each level's view of a cost after `before` of the group's charges.
    fn all(
        &self,
        group: &Group,
        cost: u64,
        before: u64,
    ) -> Result<Vec<(Arc<str>, Decision)>, Error> {
        let asked = Asked {
            now: self.now,
            cost,
            half: group.half,
            charged: group.cost.saturating_mul(before),
        };
        let mut fields = self.fields.as_slice();
        let mut decisions = Vec::with_capacity(group.levels.len());
        for (name, rule) in &group.levels {
            let (own, rest) = fields.split_at(rule.part().fields().min(fields.len()));
            fields = rest;
            let decision = rule.decide(own, asked);
            let decision = decision.ok_or_else(|| Error::unexpected(&self))?;
            decisions.push((Arc::clone(name), decision));
        }
        Ok(decisions)
    }
}

/// A number of a reply: whole, not negative and below 2^53.
fn whole(double: [u8; 8]) -> Option<u64> {
    let number = f64::from_le_bytes(double);
    let is_whole = (0.0..9_007_199_254_740_992.0).contains(&number) && number.fract() == 0.0;
    is_whole.then_some(number as u64)
}
