//! How a decision is asked for: from memory, together with others, from the server, or without it.
//!
//! ```text
//!   charge -> plan: one group of keys for each tag
//!     each group -> refused lately? -> server left alone? -> join the calls for the same keys and cost -> script
//!     a group refuses or fails: the groups before it are given back
//!   no answer -> the policy for that
//! ```

use std::sync::OnceLock;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::breaker::Breaker;
use super::builder::LimitsBuilder;
use super::counts::Counters;
use super::denials::Denials;
use super::error::{Error, Kind};
use super::fallback::{Fallback, WhenUnknown};
use super::flights::{Answer, Flights};
use super::gathering::Gathering;
use super::link::Link;
use super::outcome::Outcome;
use super::plan::{Group, Layout, Plan};
use super::scripts::Scripts;
use super::shape::Shapes;
use super::together::Order;
use crate::clock::Clock;
use crate::decision::Decision;
use crate::limiter::{Charge, Ruling};
use crate::sync::{Arc, Mutex};
use crate::tick::Tick;

/// What all handles of the same limits share.
pub(super) struct Shared {
    pub(super) link: Link,
    pub(super) scripts: Scripts,
    pub(super) layout: Layout,
    shapes: Shapes,
    pub(super) deadline: Duration,
    pub(super) connect_timeout: Duration,
    pause: Duration,
    unknown: WhenUnknown,
    pub(super) unknown_at: Vec<(Arc<str>, WhenUnknown)>,
    pub(super) breaker: Breaker,
    flights: Option<Flights<Outcome>>,
    pub(super) gathering: Gathering,
    pub(super) denials: Option<Denials>,
    pub(super) fallback: Fallback,
    clock: Option<Arc<dyn Clock>>,
    pub(super) counters: Counters,
    pub(super) last_error: Mutex<Option<Error>>,
    /// Where refunds run that are asked for outside of a runtime.
    pub(super) runtime: OnceLock<Handle>,
}

/// Each level's decision.
type Decisions = Vec<(Arc<str>, Decision)>;

/// What a group has decided, and when, if it was charged.
struct Seen {
    decisions: Decisions,
    /// The numbers without the charge, in case a later group refuses.
    left: Option<Decisions>,
    charged: Option<Tick>,
}

/// Instants at which the groups of a charge were charged, where there are several.
pub(super) struct Stamps(pub(super) Vec<Tick>);

impl Shared {
    pub(super) fn new(settings: LimitsBuilder, layout: Layout) -> Self {
        let given = settings.clock.is_some();
        let strict = settings.endpoint.is_cluster();
        Self {
            connect_timeout: settings.endpoint.connect_timeout,
            link: Link::new(settings.endpoint),
            scripts: Scripts::new(given, strict),
            layout,
            shapes: Shapes::default(),
            deadline: settings.deadline,
            pause: settings.pause,
            unknown: settings.unknown,
            unknown_at: settings.unknown_at,
            breaker: Breaker::new(settings.break_after, settings.pause),
            flights: settings.merges.then(Flights::new),
            gathering: Gathering::default(),
            // Time that is moved by hand is not that of the memory.
            denials: (settings.remembers && !given).then(Denials::new),
            fallback: Fallback::new(settings.fallback_keys),
            clock: settings.clock,
            counters: Counters::default(),
            last_error: Mutex::new(None),
            runtime: OnceLock::new(),
        }
    }

    pub(super) async fn decide(self: &Arc<Self>, charge: Charge) -> Ruling {
        let asked = self.ask(&charge).await;
        self.conclude(&charge, asked)
    }

    pub(super) async fn decide_many(self: &Arc<Self>, charges: Vec<Charge>) -> Vec<Ruling> {
        self.remember_runtime();
        let groups: Vec<_> = charges.iter().map(|charge| self.simple(charge)).collect();
        let order = |group: &Arc<Group>| Order {
            group: Arc::clone(group),
            charges: 1,
        };
        let orders: Vec<_> = groups.iter().flatten().map(order).collect();
        let answers: Vec<_> = match orders[..] {
            // Nobody is let through who does not ask.
            [] => Vec::new(),
            _ => match self.admit() {
                Ok(()) => self.call_together(&orders).await,
                Err(error) => orders.iter().map(|_| Err(error.clone())).collect(),
            },
        };
        let mut answers = answers.into_iter();
        let mut alone = Vec::new();
        let each = charges.iter().zip(groups).enumerate();
        let mut rulings: Vec<Option<Ruling>> = Vec::with_capacity(charges.len());
        for (index, (charge, group)) in each {
            rulings.push(
                match group.and_then(|group| Some((group, answers.next()?))) {
                    Some((group, answer)) => {
                        let seen = answer.and_then(|outcome| self.seen(&group, 0, &outcome));
                        let asked = seen.map(|seen| Ruling::new(charge.clone(), seen.decisions));
                        Some(self.conclude(charge, asked))
                    }
                    None => {
                        alone.push(async move { (index, self.decide(charge.clone()).await) });
                        None
                    }
                },
            );
        }
        for (index, ruling) in join_all(alone).await {
            rulings[index] = Some(ruling);
        }
        rulings.into_iter().flatten().collect()
    }

    /// Counts the ruling, or makes one without the server.
    fn conclude(&self, charge: &Charge, asked: Result<Ruling, Error>) -> Ruling {
        let ruling = asked.unwrap_or_else(|error| self.degrade(charge, error));
        match ruling.is_granted() {
            true => self.counters.granted.count(),
            false => self.counters.refused.count(),
        }
        ruling
    }

    fn degrade(&self, charge: &Charge, error: Error) -> Ruling {
        self.counters.unknown.count();
        let pause = match error.kind() {
            Kind::Skipped { left } => {
                self.counters.skipped.count();
                *left
            }
            _ => {
                *self.last_error.lock() = Some(error);
                self.breaker.left().unwrap_or(self.pause)
            }
        };
        let policy = |level: &str| {
            let mut own = self.unknown_at.iter().rev();
            let own = own.find(|(name, _)| **name == *level);
            own.map_or(self.unknown, |(_, choice)| *choice)
        };
        self.fallback.rule(charge, policy, pause)
    }

    async fn ask(self: &Arc<Self>, charge: &Charge) -> Result<Ruling, Error> {
        self.remember_runtime();
        let plan = self.plan(charge)?;
        if !plan.is_possible {
            self.admit()?;
            return self.look(charge, &plan).await;
        }
        if let [group] = &plan.groups[..] {
            let decisions = self.group(group).await?.decisions;
            return Ok(Ruling::new(charge.clone(), decisions));
        }
        self.ask_in_turn(charge, &plan.groups).await
    }

    /// Asks group after group; what was charged goes back once one does not grant.
    async fn ask_in_turn(
        self: &Arc<Self>,
        charge: &Charge,
        groups: &[Arc<Group>],
    ) -> Result<Ruling, Error> {
        let mut seen: Vec<Seen> = Vec::with_capacity(groups.len());
        for group in groups {
            let next = self.group(group).await;
            let refused = match &next {
                Ok(next) => next.charged.is_none(),
                Err(_) => true,
            };
            if refused {
                for (group, seen) in groups.iter().zip(&mut seen) {
                    if let Some(at) = seen.charged.take() {
                        self.give_back(group, at);
                    }
                    if let Some(left) = seen.left.take() {
                        seen.decisions = left;
                    }
                }
            }
            seen.push(next?);
            if refused {
                break;
            }
        }
        let stamps: Option<Vec<_>> = seen.iter().map(|seen| seen.charged).collect();
        let decisions = seen.into_iter().flat_map(|seen| seen.decisions).collect();
        let charge = match stamps {
            Some(stamps) => charge.clone().with_receipt(Stamps(stamps)),
            None => charge.clone(),
        };
        Ok(Ruling::new(charge.clone(), in_order(&charge, decisions)))
    }

    async fn group(self: &Arc<Self>, group: &Arc<Group>) -> Result<Seen, Error> {
        let until = Instant::now() + self.deadline;
        let identity = group.identity();
        let mut refunds = 0;
        if let Some(denials) = &self.denials {
            if let Some(decisions) = denials.get(identity, group.keys()) {
                self.counters.remembered.count();
                return Ok(Seen {
                    decisions,
                    left: None,
                    charged: None,
                });
            }
            refunds = denials.refunds(group.keys());
        }
        self.admit()?;
        let (rank, answer) = match &self.flights {
            Some(flights) => {
                let make = |charges| self.call(group, charges);
                let late = || {
                    Error::new(Kind::Timeout {
                        deadline: self.deadline,
                    })
                };
                let joined = flights.join(identity, until, make).await;
                joined.unwrap_or_else(|| (0, Err(late())))
            }
            None => (0, self.call(group, 1).await),
        };
        if rank > 0 {
            self.counters.merged.count();
        }
        let outcome = answer?;
        let seen = self.seen(group, rank, &outcome)?;
        if let (Some(denials), None) = (&self.denials, seen.charged) {
            let decisions = seen.decisions.as_slice().into();
            denials.put(identity, outcome.asked, decisions, refunds);
        }
        Ok(seen)
    }

    fn seen(&self, group: &Group, rank: u64, outcome: &Outcome) -> Result<Seen, Error> {
        let granted = outcome.is_granted(rank);
        Ok(Seen {
            decisions: outcome.decisions(group, rank)?,
            left: match self.layout.has_apart() && granted {
                true => Some(outcome.left(group, rank)?),
                false => None,
            },
            charged: granted.then_some(outcome.now),
        })
    }

    /// Asks for so many charges of a group at once.
    fn call(
        self: &Arc<Self>,
        group: &Arc<Group>,
        charges: u64,
    ) -> BoxFuture<'static, Answer<Outcome>> {
        let (shared, group) = (Arc::clone(self), Arc::clone(group));
        if self.flights.is_some() && self.goes_together() {
            let order = Order { group, charges };
            return shared.call_gathered(order).boxed();
        }
        async move { shared.call_alone(&group, charges).await }.boxed()
    }

    /// The group of a charge that can be asked for in a batch: the only one, and not refused from memory.
    fn simple(&self, charge: &Charge) -> Option<Arc<Group>> {
        let plan = self.plan(charge).ok().filter(|plan| plan.is_possible)?;
        let [group] = &plan.groups[..] else {
            return None;
        };
        let denials = self.denials.as_ref();
        let denied = denials.and_then(|denials| denials.get(group.identity(), group.keys()));
        denied.is_none().then(|| Arc::clone(group))
    }

    pub(super) async fn look(&self, charge: &Charge, plan: &Plan) -> Result<Ruling, Error> {
        let mut decisions = Vec::new();
        for group in &plan.groups {
            let command = group.command(0, self.now());
            let asked = Instant::now();
            let reply = group.script.run(&self.link, &command, self.deadline).await;
            let outcome = reply.and_then(|reply| Outcome::read(reply, group, asked));
            self.record(outcome.as_ref().err());
            decisions.extend(outcome?.peeked(group)?);
        }
        Ok(Ruling::new(charge.clone(), in_order(charge, decisions)))
    }

    pub(super) fn plan(&self, charge: &Charge) -> Result<Plan, Error> {
        let plan = Plan::new(&self.layout, &self.scripts, &self.shapes, charge);
        plan.map_err(|error| {
            let rule = error.to_string();
            Error::caused(Kind::Setting { rule }, error)
        })
    }

    pub(super) fn now(&self) -> Option<Tick> {
        self.clock.as_ref().map(|clock| clock.now())
    }

    fn admit(&self) -> Result<(), Error> {
        let admitted = self.breaker.admit();
        admitted.map_err(|left| Error::new(Kind::Skipped { left }))
    }

    /// Takes what an answer says about the server.
    pub(super) fn record(&self, error: Option<&Error>) {
        let Some(error) = error else {
            self.breaker.succeeded();
            return;
        };
        match error.kind() {
            Kind::Timeout { .. } => self.counters.timeouts.count(),
            _ => self.counters.errors.count(),
        }
        if !error.is_about_the_command() {
            self.breaker.failed();
        }
    }
}

/// Decisions in the order of the charge's levels.
fn in_order(charge: &Charge, mut decisions: Decisions) -> Decisions {
    let place = |name: &Arc<str>| charge.named().position(|(level, ..)| level == name);
    decisions.sort_by_key(|(name, _)| place(name));
    decisions
}
