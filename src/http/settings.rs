//! What a layer was told, shared by all of its services.

use std::future::{Ready, ready};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use http::StatusCode;

use super::caller::Unidentified;
use super::counts::Counters;
use super::dialect::{HeaderDialect, ResetSemantics};
use super::fields::Speech;
use super::grpc;
use super::head::Head;
use super::notice::{Standing, ceil};
use super::problem::RefusalBody;
use crate::clock::Clock;
use crate::decision::Decision;
use crate::key::Key;
use crate::limiter::{Admission, Charge, RateLimiter, Ruling, Solo};
use crate::policy::Limit;
use crate::queue::{Terms, Turnstile};
use crate::sync::Arc;
use crate::sync::process::AtomicU64;

/// What becomes of a request that a limit refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdmissionMode {
    /// It is refused at once. The default.
    #[default]
    Refuse,
    /// It waits where the limit would let it pass within so long, and asks again then; else it is refused at once.
    ///
    /// Who asks first then is first: for a line with an order, take a [`QueueLayer`](super::QueueLayer).
    Wait(Duration),
    /// It passes, and is counted as refused: to try limits out before they bind.
    DryRun,
}

/// Extension of a request that says until when its answer is of use.
///
/// A queue refuses it at the door if its turn would come later. gRPC clients say so themselves, by `grpc-timeout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(pub tokio::time::Instant);

pub(super) struct Shared<A: Admission> {
    pub(super) edge: Option<Edge<A>>,
    pub(super) queue: Option<Queue>,
    pub(super) exempt: Vec<Rule>,
    pub(super) telling: Telling,
}

/// The limits, and how they are asked.
pub(super) struct Edge<A: Admission> {
    pub(super) admission: A,
    pub(super) identify: Identify<A::Context>,
    pub(super) cost: Option<CostOf>,
    /// What all those share of whom nobody knows who they are.
    pub(super) strangers: RateLimiter,
    pub(super) mode: AdmissionMode,
    /// Whether handlers are given a hold on what was charged.
    pub(super) held: bool,
    pub(super) clock: Box<dyn Clock>,
    pub(super) most_waiting: u64,
    pub(super) waiting: AtomicU64,
}

/// The turnstile, and how it is entered.
pub(super) struct Queue {
    pub(super) turnstile: Turnstile,
    pub(super) terms: Option<TermsOf>,
    pub(super) until_body_ends: bool,
}

pub(super) type Identify<C> = Box<dyn Fn(&Head<'_>) -> Result<C, Unidentified> + Send + Sync>;
pub(super) type CostOf = Box<dyn Fn(&Head<'_>) -> u64 + Send + Sync>;
pub(super) type TermsOf = Box<dyn Fn(&Head<'_>, Terms) -> Terms + Send + Sync>;
pub(super) type Rule = Box<dyn Fn(&Head<'_>) -> bool + Send + Sync>;

/// What clients are told.
pub(super) struct Telling {
    pub(super) speech: Speech,
    pub(super) body: RefusalBody,
    pub(super) too_costly: StatusCode,
    pub(super) longest_retry_after: u64,
    pub(super) spread: Option<RandomState>,
    pub(super) shared_levels: Vec<Arc<str>>,
    pub(super) counters: Counters,
}

/// How far a request has come by being asked about once.
pub(super) enum Asking {
    /// Granted, and no record was kept.
    Spent,
    /// Granted by a single level.
    Charged(Solo),
    Ruled(Payer, Ruling),
    /// It has to be waited for.
    Decide(Payer, Charge),
}

/// Who was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Payer {
    Caller,
    Stranger,
}

impl<A: Admission> Shared<A> {
    pub(super) fn is_exempt(&self, head: &Head<'_>) -> bool {
        head.is_preflight() || self.exempt.iter().any(|rule| rule(head))
    }
}

impl<A: Admission> Edge<A> {
    pub(super) fn cost(&self, head: &Head<'_>) -> u64 {
        self.cost.as_ref().map_or(1, |cost| cost(head))
    }

    /// Works out who pays, and charges at once what can be charged at once.
    pub(super) fn ask(&self, head: &Head<'_>, telling: &Telling) -> Asking {
        let context = match (self.identify)(head) {
            Ok(context) => context,
            Err(why) => return self.asked(self.stranger(why, head, &telling.counters)),
        };
        let cost = self.cost(head);
        // Where nobody will ask for a record of the charge, a single limit keeps none.
        let unrecorded = !self.held && telling.speech.is_quiet();
        if unrecorded && self.admission.spend_now(&context, cost) {
            return Asking::Spent;
        }
        match self.admission.charge_now(&context, cost) {
            Some(solo) if solo.decision().is_granted() => return Asking::Charged(solo),
            Some(solo) => return Asking::Ruled(Payer::Caller, solo.to_ruling()),
            None => {}
        }
        self.asked((Payer::Caller, self.admission.charge(&context, cost)))
    }

    fn asked(&self, (payer, charge): (Payer, Charge)) -> Asking {
        match self.admit_now(payer, charge) {
            Ok(ruling) => Asking::Ruled(payer, ruling),
            Err(charge) => Asking::Decide(payer, charge),
        }
    }

    pub(super) fn charge(&self, head: &Head<'_>, counters: &Counters) -> (Payer, Charge) {
        match (self.identify)(head) {
            Ok(context) => {
                let charge = self.admission.charge(&context, self.cost(head));
                (Payer::Caller, charge)
            }
            Err(why) => self.stranger(why, head, counters),
        }
    }

    /// The charge of who is not known.
    #[cold]
    fn stranger(&self, why: Unidentified, head: &Head<'_>, counters: &Counters) -> (Payer, Charge) {
        counters.unidentified(why);
        let limit = self.strangers.limit();
        let cost = self.cost(head).min(limit.quota());
        let level = (STRANGERS, limit, Key::from(()));
        (Payer::Stranger, Charge::new(cost, [level]))
    }

    pub(super) fn admit_now(&self, payer: Payer, charge: Charge) -> Result<Ruling, Charge> {
        match payer {
            Payer::Caller => self.admission.admit_now(charge),
            Payer::Stranger => {
                let decision = self.strangers.check(charge.cost());
                Ok(Ruling::new(charge, [(STRANGERS, decision)]))
            }
        }
    }

    pub(super) fn give_back(&self, payer: Payer, charge: Charge) {
        match (payer, charge.at()) {
            (Payer::Caller, _) => self.admission.give_back(charge),
            (Payer::Stranger, Some(at)) => self.strangers.refund(at, charge.cost()),
            (Payer::Stranger, None) => {}
        }
    }
}

impl Queue {
    /// Terms of a request: its deadline and its cost, and what the program adds.
    pub(super) fn terms(&self, head: &Head<'_>, cost: u64) -> Terms {
        let mut terms = Terms::new().cost(cost);
        let own = head.extension::<Deadline>().map(|Deadline(at)| *at);
        let grpc = head
            .is_grpc()
            .then(|| grpc::timeout(head.headers()))
            .flatten()
            .and_then(|after| tokio::time::Instant::now().checked_add(after));
        if let Some(at) = own.into_iter().chain(grpc).min() {
            terms = terms.expires_at(at);
        }
        match &self.terms {
            Some(add) => add(head, terms),
            None => terms,
        }
    }
}

impl Default for Telling {
    fn default() -> Self {
        Self {
            speech: Speech {
                dialects: vec![HeaderDialect::ListDraft],
                reset: ResetSemantics::default(),
                on_redirects: false,
            },
            body: RefusalBody::default(),
            too_costly: StatusCode::TOO_MANY_REQUESTS,
            longest_retry_after: A_DAY,
            spread: Some(RandomState::new()),
            shared_levels: vec!["global".into()],
            counters: Counters::default(),
        }
    }
}

impl Telling {
    /// Levels that clients are told of.
    pub(super) fn standings<'a>(&self, ruling: &'a Ruling) -> Vec<Standing<'a>> {
        let mut limits = ruling.charged().levels();
        let mut standings = Vec::with_capacity(limits.len());
        for (name, decision) in ruling.decisions() {
            // Decisions come in the order of the charge's levels; one that the store did not know is skipped.
            let limit = limits.by_ref().find(|(level, ..)| *level == name);
            standings.extend(limit.and_then(|(_, limit, _)| self.standing(name, limit, decision)));
        }
        standings
    }

    /// How a level stands, if clients are told of it.
    pub(super) fn standing<'a>(
        &self,
        level: &'a str,
        limit: &Limit,
        decision: &Decision,
    ) -> Option<Standing<'a>> {
        (!self.is_shared(level)).then(|| Standing::of(level, limit, decision))
    }

    /// Whether a level is about what the service can take, not about what a client may ask for.
    pub(super) fn is_shared(&self, level: &str) -> bool {
        self.shared_levels.iter().any(|shared| **shared == *level)
    }

    /// Seconds after which to come back: rounded up, spread by the key, within bounds.
    ///
    /// The spread adds up to a tenth of the wait, and at most 30 s: always the same for one key, so that it does not
    /// wander from refusal to refusal.
    pub(super) fn seconds(&self, wait: Duration, key: &[u8]) -> u64 {
        let seconds = ceil(wait).max(1);
        let extra = self.spread.as_ref().map_or(0, |spread| {
            let most = (seconds / 10).min(MOST_SPREAD);
            spread.hash_one(key) % (most + 1)
        });
        seconds.saturating_add(extra).min(self.longest_retry_after)
    }
}

/// Admission of a layer that has no limits: everybody may enter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

impl Admission for Nobody {
    type Context = ();
    type Deciding = Ready<Ruling>;

    fn charge(&self, (): &(), cost: u64) -> Charge {
        Charge::new(cost, std::iter::empty::<(&str, _, _)>())
    }

    fn admit(&self, charge: Charge) -> Self::Deciding {
        ready(Ruling::new(charge, std::iter::empty::<(&str, _)>()))
    }

    fn give_back(&self, _: Charge) {}
}

const STRANGERS: &str = "unidentified";
/// Seconds that are added to a wait at most.
const MOST_SPREAD: u64 = 30;
/// Longest `Retry-After` in seconds unless another is set.
const A_DAY: u64 = 86_400;
