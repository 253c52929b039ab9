//! One call that carries many decisions: each is judged by itself, in their order, and all by one reading of the
//! server's clock.
//!
//! A server spends as much on a call as on what a decision does in it, so together they take half of what they take one
//! by one. What fails within a call fails alone; only what becomes of the call as a whole becomes of all.

use futures_util::future::join_all;
use tokio::time::Instant;

use super::asking::Shared;
use super::error::Error;
use super::flights::Answer;
use super::link::{Cmd, Value};
use super::outcome::Outcome;
use super::plan::Group;
use super::reply;
use super::script::Script;
use super::scripts::Numbers;
use crate::sync::Arc;

/// What is asked for in one decision: so many charges of a group.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) group: Arc<Group>,
    pub(super) charges: u64,
}

impl Shared {
    /// Whether one call may carry decisions about different keys: in a cluster all keys of a call have one tag.
    pub(super) fn goes_together(&self) -> bool {
        !self.link.is_cluster() || self.layout.has_one_tag()
    }

    /// Asks for all orders in as few calls as there are kinds of them, and a few more if they are many. Each has its own
    /// answer; none is sent twice.
    pub(super) async fn call_together(self: &Arc<Self>, orders: &[Order]) -> Vec<Answer<Outcome>> {
        let calls = self.calls(orders);
        let each = calls.iter().map(|call| self.call_one(orders, call));
        let mut answers: Vec<Option<Answer<Outcome>>> = orders.iter().map(|_| None).collect();
        for (call, told) in calls.iter().zip(join_all(each).await) {
            for (index, answer) in call.iter().zip(told) {
                answers[*index] = Some(answer);
            }
        }
        // Every order is in one call, and every call answers for each.
        let missing = || Err(Error::unexpected(&"a call without an answer"));
        let answers = answers.into_iter();
        answers
            .map(|answer| answer.unwrap_or_else(missing))
            .collect()
    }

    /// Which orders go together, by their positions.
    fn calls(&self, orders: &[Order]) -> Vec<Vec<usize>> {
        let mut calls: Vec<Vec<usize>> = Vec::new();
        for (index, order) in orders.iter().enumerate() {
            let group = &order.group;
            let fits = |call: &&mut Vec<usize>| {
                Arc::ptr_eq(&orders[call[0]].group.script, &group.script)
                    && call.len() < MOST
                    && (call.len() + 1) * group.levels.len() <= MOST_KEYS
            };
            // The last of a kind is the only one with room.
            let open = calls.iter_mut().rev().find(fits);
            match open.filter(|_| self.goes_together()) {
                Some(call) => call.push(index),
                None => calls.push(vec![index]),
            }
        }
        calls
    }

    /// Sends one call, and says what each of its orders has become.
    async fn call_one(&self, orders: &[Order], call: &[usize]) -> Vec<Answer<Outcome>> {
        let orders: Vec<_> = call.iter().map(|index| &orders[*index]).collect();
        let all = |error: Error| orders.iter().map(|_| Err(error.clone())).collect();
        if let [Order { group, charges }] = orders[..] {
            return vec![self.call_alone(group, *charges).await];
        }
        let Some(first) = orders.first() else {
            return Vec::new();
        };
        let script = first.group.script_of_many(&self.scripts);
        let command = self.command_of_many(&script, &orders);
        let asked = Instant::now();
        let reply = script.run(&self.link, &command, self.deadline).await;
        let told = reply.and_then(|reply| {
            read(&reply, &orders, asked).ok_or_else(|| Error::unexpected(&reply))
        });
        match told {
            Ok(answers) => {
                for answer in &answers {
                    self.record(answer.as_ref().err());
                }
                answers
            }
            Err(error) => {
                self.record(Some(&error));
                all(error)
            }
        }
    }

    /// Asks for one order by itself.
    pub(super) async fn call_alone(&self, group: &Group, charges: u64) -> Answer<Outcome> {
        let command = group.command(charges, self.now());
        let asked = Instant::now();
        let reply = group.script.run(&self.link, &command, self.deadline).await;
        let outcome = reply.and_then(|reply| Outcome::read(reply, group, asked));
        self.record(outcome.as_ref().err());
        outcome.map(Arc::new)
    }

    fn command_of_many(&self, script: &Script, orders: &[&Order]) -> Cmd {
        let keys = orders.iter().map(|order| order.group.levels.len()).sum();
        let mut command = script.command(keys);
        let mut numbers = Numbers::with_capacity(8 * orders.len());
        for Order { group, charges } in orders {
            for key in group.keys() {
                command.arg(key);
            }
            numbers.push(i64::try_from(*charges).unwrap_or(i64::MAX));
            numbers.extend(&group.arguments);
        }
        command.arg(numbers.as_bytes());
        if let Some(now) = self.now() {
            let mut given = Numbers::default();
            given.push(super::plan::micros(now));
            command.arg(given.as_bytes());
        }
        command
    }
}

/// The answers of a call: the packed numbers of all its orders, then the index and the text of each that failed.
fn read(reply: &Value, orders: &[&Order], asked: Instant) -> Option<Vec<Answer<Outcome>>> {
    let Value::Array(parts) = reply else {
        return None;
    };
    let (packed, failed) = parts.split_first()?;
    let Value::BulkString(packed) = packed else {
        return None;
    };
    let length = 8 * orders.first()?.group.reply_numbers;
    let (failed, rest) = failed.as_chunks::<2>();
    if packed.len() != length * orders.len() || !rest.is_empty() {
        return None;
    }
    let mut errors: Vec<Option<Error>> = orders.iter().map(|_| None).collect();
    for [index, why] in failed {
        let (Value::Int(index), Value::BulkString(why)) = (index, why) else {
            return None;
        };
        let error = errors.get_mut(usize::try_from(*index).ok()?)?;
        *error = Some(reply::told(String::from_utf8_lossy(why).into_owned()));
    }
    let each = orders.iter().zip(packed.chunks_exact(length)).zip(errors);
    each.map(|((order, numbers), error)| match error {
        Some(error) => Some(Err(error)),
        None => Outcome::parse(numbers, &order.group, asked).map(|outcome| Ok(Arc::new(outcome))),
    })
    .collect()
}

/// Decisions in one call at most, and keys: the server does nothing else meanwhile, for a fraction of a millisecond.
const MOST: usize = 64;
const MOST_KEYS: usize = 256;
