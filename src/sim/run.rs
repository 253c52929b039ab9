//! One run: the next thing that happens, until nothing is left to happen.
//!
//! Four sources say when their next thing happens: the arrivals, the machine, the agenda (jobs that end, callers who
//! come back or give up), and the changes of rate. At equal instants what ends goes first, then what is due, then what
//! changes, then what comes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use super::callers::Form;
use super::calls::{Calls, Token};
use super::dice::Dice;
use super::edge::Edge;
use super::model::Simulation;
use super::report::{Book, Refuser, Report};
use super::timeline::Level;
use super::trace::Arrival;
use crate::key::Key;
use crate::machine::{
    Ask, Collected, Effects, InFlight, Machine, Offered, Place, Settled, Taken, WaiterKey,
};
use crate::refusal::Refusal;
use crate::tick::Tick;
use crate::words::{Exit, Pressure};

#[derive(Debug)]
pub(crate) struct Run<'a> {
    plan: &'a Simulation,
    machine: Machine<Token>,
    fx: Effects<Token>,
    edge: Edge,
    dice: Dice,
    calls: Calls,
    waiting: HashMap<WaiterKey, Token>,
    agenda: BinaryHeap<Reverse<Entry>>,
    entries: u64,
    changes: usize,
    busy: u64,
    book: Book,
    now: Tick,
}

#[derive(Debug)]
struct Entry {
    at: Tick,
    /// Of two entries for one instant the older goes first.
    rank: u64,
    event: Event,
}

#[derive(Debug)]
enum Event {
    /// A caller comes back.
    Offer(Token),
    /// A caller's patience ends.
    Timeout(Token),
    /// A job ends.
    Done {
        run: InFlight,
        token: Token,
        succeeds: bool,
    },
}

impl<'a> Run<'a> {
    pub(crate) fn new(plan: &'a Simulation) -> Self {
        Self {
            plan,
            machine: Machine::new(plan.settings.clone(), Tick::ZERO),
            fx: Effects::new(),
            edge: Edge::new(&plan.levels),
            dice: Dice::new(plan.seed),
            calls: Calls::default(),
            waiting: HashMap::new(),
            agenda: BinaryHeap::new(),
            entries: 0,
            changes: 0,
            busy: 0,
            book: Book::new(),
            now: Tick::ZERO,
        }
    }

    pub(crate) fn through<E>(
        mut self,
        mut arrivals: impl Iterator<Item = Result<Arrival, E>>,
    ) -> Result<Report, E> {
        let mut next = arrivals.next().transpose()?;
        let mut handled = None;
        loop {
            let comes = next.as_ref().map(|arrival| Tick::ZERO + arrival.offset);
            if comes.is_none() && self.agenda.is_empty() && self.is_empty() {
                break;
            }
            let ends = self.agenda.peek().map(|Reverse(entry)| entry.at);
            let takes = self.busy < self.plan.consumers;
            let due = self.machine.next_event(takes).map(|at| {
                // What the machine could not do at an instant it can do at the next.
                let again = handled == Some(self.now) && at <= self.now;
                at.max(self.now + Duration::from_nanos(u64::from(again)))
            });
            let changes = self.plan.changes.get(self.changes).map(|(at, _)| *at);
            let soonest = [ends, due, changes, comes].into_iter().flatten().min();
            let Some(now) = soonest else { break };
            self.now = self.now.max(now);
            if ends == Some(now) {
                if let Some(Reverse(entry)) = self.agenda.pop() {
                    self.happen(entry.event);
                }
            } else if due == Some(now) {
                handled = Some(now);
                self.machine.advance(now, &mut self.fx);
            } else if changes == Some(now) {
                let (_, settings) = &self.plan.changes[self.changes];
                self.changes += 1;
                self.machine.apply(now, settings.clone(), &mut self.fx);
            } else if let Some(arrival) = next {
                next = arrivals.next().transpose()?;
                self.book.report.arriving = arrival.offset;
                self.arrive(arrival);
            }
            self.carry_out();
            self.hand_out();
            let level = Level {
                depth: self.machine.depth(),
                waiting: self.waiting.len() as u64,
                in_flight: self.busy,
            };
            self.book.level(self.now, level);
        }
        let (unfinished, ledger) = (self.calls.len(), self.machine.ledger());
        Ok(self.book.close(self.now, unfinished, ledger))
    }

    fn is_empty(&self) -> bool {
        let ledger = self.machine.ledger();
        ledger.waiting + ledger.reserved + ledger.queued + ledger.in_flight == 0
    }

    fn arrive(&mut self, arrival: Arrival) {
        let lane = arrival
            .key
            .as_ref()
            .and_then(|key| self.plan.lanes.get(key));
        let lane = lane.copied().unwrap_or_default();
        let key = arrival.key.map(|key| Key::from(&*key));
        // A job without a cost, or with none, costs one unit as any other.
        let cost = arrival.cost.unwrap_or(1).max(1);
        let token = self.calls.open(self.now, cost, key, lane);
        self.offer(token);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Offer(token) => self.offer(token),
            Event::Timeout(token) => {
                if self.calls.get(token).is_some() {
                    self.book.report.timeouts += 1;
                    let token = self.calls.again(token);
                    let delay = self.plan.callers.delay_after_timeout();
                    self.note(delay, Event::Offer(token));
                }
            }
            Event::Done {
                run,
                token,
                succeeds,
            } => self.finish(run, token, succeeds),
        }
    }

    fn note(&mut self, after: Duration, event: Event) {
        self.entries += 1;
        self.agenda.push(Reverse(Entry {
            at: self.now + after,
            rank: self.entries,
            event,
        }));
    }

    fn offer(&mut self, token: Token) {
        let now = self.now;
        let Some(call) = self.calls.get(token) else {
            return;
        };
        call.offered_at = now;
        let tenant = call.key.clone().filter(|_| self.plan.tenants);
        let ask = Ask {
            cost: call.cost,
            priority: call.priority,
            tenant: tenant.map(|key| {
                let weight = self.plan.spec.weight(&key);
                (key, weight)
            }),
            ..Ask::default()
        };
        self.book.offered(now);
        let callers = &self.plan.callers;
        let tries = callers.form == Form::Try;
        // As behind a gate: what the queue would refuse is not charged at the edge.
        if !self.edge.is_open() && self.machine.would_refuse(now, &ask, tries).is_none() {
            let keep_half = self.machine.pressure() == Pressure::Elevated;
            let key = call.key.as_ref();
            match self.edge.check(now, call.cost, key, keep_half) {
                Ok(()) => call.charged_at = Some(now),
                Err(refusal) => {
                    let by = Refuser::Edge(self.plan.levels[refusal.level].name.clone());
                    self.refused(token, &by, refusal.retry_after);
                    return;
                }
            }
        }
        if tries {
            match self.machine.try_offer(now, &ask, &mut self.fx) {
                Ok(place) => self.send(token, place),
                Err(refusal) => self.turned_away(token, &refusal),
            }
            return;
        }
        match self
            .machine
            .offer(now, &ask, callers.patience, &mut self.fx)
        {
            Offered::Admitted(place) => self.send(token, place),
            Offered::Refused(refusal) => self.turned_away(token, &refusal),
            Offered::Waiting(key) => {
                self.waiting.insert(key, token);
            }
        }
    }

    fn send(&mut self, token: Token, place: Place) {
        let callers = &self.plan.callers;
        if token.attempt < callers.retries
            && let Some(patience) = callers.patience
            && let Some(call) = self.calls.get(token)
        {
            let left = (call.offered_at + patience) - self.now;
            self.note(left, Event::Timeout(token));
        }
        self.machine.send(self.now, place, token, &mut self.fx);
    }

    fn turned_away(&mut self, token: Token, refusal: &Refusal) {
        let by = Refuser::queue(refusal.reason());
        self.refused(token, &by, refusal.retry_after());
    }

    fn refused(&mut self, token: Token, by: &Refuser, told: Option<Duration>) {
        self.book.refused(self.now, by);
        let Some(call) = self.calls.get(token) else {
            return;
        };
        if let Some(charged_at) = call.charged_at.take() {
            let (cost, key) = (call.cost, call.key.as_ref());
            self.edge.refund(charged_at, cost, key, self.now);
        }
        let callers = &self.plan.callers;
        match callers.delay(told) {
            Some(delay) if token.attempt < callers.retries => {
                let token = self.calls.again(token);
                self.note(delay, Event::Offer(token));
            }
            _ => {
                self.book.refused_for_good(by);
                self.calls.end(token);
            }
        }
    }

    /// Does what the machine asks for.
    fn carry_out(&mut self) {
        while !self.fx.wake.is_empty() || !self.fx.gone.is_empty() {
            for key in std::mem::take(&mut self.fx.wake) {
                match self.machine.collect(self.now, key, &mut self.fx) {
                    Collected::Waiting => {}
                    Collected::Ready(place) => {
                        if let Some(token) = self.waiting.remove(&key) {
                            self.send(token, place);
                        }
                    }
                    Collected::Refused(refusal) => {
                        if let Some(token) = self.waiting.remove(&key) {
                            self.turned_away(token, &refusal);
                        }
                    }
                }
            }
            for gone in std::mem::take(&mut self.fx.gone) {
                self.left(gone.payload, gone.exit);
            }
        }
    }

    /// A job left the queue without a start, or failed for good. Its caller, if it is patient enough to come again, does
    /// so when its patience ends.
    fn left(&mut self, token: Token, exit: Exit) {
        let callers = &self.plan.callers;
        let comes_again = token.attempt < callers.retries && callers.patience.is_some();
        if !comes_again && self.calls.get(token).is_some() {
            self.book.gone(exit);
            self.calls.end(token);
        }
    }

    /// Consumers take what is due.
    fn hand_out(&mut self) {
        while self.busy < self.plan.consumers {
            let taken = self.machine.take(self.now, &mut self.fx);
            self.carry_out();
            let Ok(Taken { payload, run }) = taken else {
                break;
            };
            self.book.started(self.now, run.waited);
            self.busy += 1;
            let served = (self.plan.downstream).serve(self.now, self.busy, &mut self.dice);
            let (latency, succeeds) = served;
            let token = payload;
            if latency.is_zero() {
                self.finish(run, token, succeeds);
            } else {
                self.note(
                    latency,
                    Event::Done {
                        run,
                        token,
                        succeeds,
                    },
                );
            }
        }
    }

    fn finish(&mut self, run: InFlight, token: Token, succeeds: bool) {
        self.busy -= 1;
        if !succeeds {
            let settings = self.machine.settings();
            if settings.max_attempts < u32::MAX && self.calls.get(token).is_some() {
                let delay = FIRST_BACKOFF * (1 << run.attempt.clamp(1, 7)) / 2;
                let again = self
                    .machine
                    .retry(self.now, run, token, delay, &mut self.fx);
                if let Err((exit, token)) = again {
                    self.left(token, exit);
                }
            } else {
                self.machine
                    .settle(self.now, run, Settled::Failed, &mut self.fx);
                self.left(token, Exit::Failed);
            }
            return;
        }
        self.machine
            .settle(self.now, run, Settled::Acked, &mut self.fx);
        let Some(call) = self.calls.get(token) else {
            self.book.report.wasted += 1;
            return;
        };
        let response = self.now - call.first_at;
        let patience = self.plan.callers.patience.unwrap_or(Duration::MAX);
        if self.now - call.offered_at <= patience {
            self.book.served(self.now, response);
        } else {
            self.book.report.outcomes.late += 1;
            self.book.report.wasted += 1;
        }
        self.calls.end(token);
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.rank).cmp(&(other.at, other.rank))
    }
}

/// Delay before the second start of a job that failed; it doubles with every further one, up to 64 times.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
