//! A request on its way through a layer, wherever it does not pass at once.

use futures_util::future::BoxFuture;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::admitted::{Admitted, Granted, Record};
use super::head::Head;
use super::refused;
use super::settings::{AdmissionMode, Payer, Shared};
use crate::limiter::{Admission, Charge, Ruling};
use crate::queue::{Enter, Refusal, Terms, Turn};
use crate::sync::{Arc, Ordering};
use crate::tick::Tick;
use crate::words::Pressure;

pin_project! {
    /// Where a request is.
    ///
    /// ```text
    ///   deciding --granted--> entering --turn--> readying --> calling --> response
    ///    |  ^  \                  |                              ^
    ///    v  |   refused           refused: given back            +-- what the limits grant at once starts here
    ///   waiting
    /// ```
    #[project = StageProjection]
    pub(super) enum Stage<S, A, B>
    where
        S: Service<Request<B>>,
        A: Admission,
    {
        Deciding { #[pin] deciding: A::Deciding, asked: Option<Box<Asked<S, A, B>>>, payer: Payer },
        Waiting { sleep: BoxFuture<'static, ()>, asked: Option<Box<Asked<S, A, B>>>, payer: Payer },
        Entering { enter: Box<Enter>, asked: Option<Box<Asked<S, A, B>>>, pass: Option<Pass<A>> },
        Readying { asked: Option<Box<Asked<S, A, B>>>, pass: Option<Pass<A>>, turn: Option<Turn> },
        Calling { #[pin] future: S::Future, told: Option<Arc<Granted<A>>>, turn: Option<Turn>, until_body_ends: bool },
        Refused { response: Option<Response<String>> },
    }
}

/// A request with the service that is to have it; in a box, so that a request which passes at once has a small future.
pub(super) struct Asked<S, A: Admission, B> {
    pub(super) shared: Arc<Shared<A>>,
    pub(super) service: S,
    /// Whether the service has said that it is ready for this one request.
    pub(super) is_ready: bool,
    pub(super) request: Request<B>,
    terms: Option<Terms>,
    /// What it asks for again after a wait.
    pub(super) again: Option<Charge>,
    until: Option<Tick>,
    seat: Option<Seat<A>>,
}

/// Leave to be served.
pub(super) struct Pass<A: Admission> {
    verdict: Verdict,
    paid: Option<Paid<A>>,
}

/// Why it may be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Allowed,
    Shadow,
    Degraded,
    Exempt,
}

/// What the limits charged; given back when dropped.
struct Paid<A: Admission>(Option<Arc<Granted<A>>>);

/// One of the places of those who wait for a limit.
struct Seat<A: Admission>(Arc<Shared<A>>);

impl<S: Service<Request<B>>, A: Admission, B> Stage<S, A, B> {
    /// Served, with nothing to tell afterwards.
    pub(super) const fn calling(future: S::Future) -> Self {
        Self::Calling {
            future,
            told: None,
            turn: None,
            until_body_ends: false,
        }
    }
}

impl<S, A, B> Asked<S, A, B>
where
    S: Service<Request<B>> + Clone,
    A: Admission,
{
    pub(super) fn new(
        shared: Arc<Shared<A>>,
        (service, is_ready): (S, bool),
        request: Request<B>,
    ) -> Box<Self> {
        Box::new(Self {
            shared,
            service,
            is_ready,
            request,
            terms: None,
            again: None,
            until: None,
            seat: None,
        })
    }

    /// First step of a request that no rule exempts: the queue is asked before anybody is charged.
    pub(super) fn open(mut self: Box<Self>) -> Stage<S, A, B> {
        let shared = Arc::clone(&self.shared);
        let head = Head::of(&self.request);
        if let Some(queue) = &shared.queue {
            let cost = shared.edge.as_ref().map_or(1, |edge| edge.cost(&head));
            let terms = queue.terms(&head, cost);
            // Without limits there is nothing to charge too early, and the queue refuses by itself.
            let charged = shared.edge.is_some();
            let hopeless = charged
                .then(|| queue.turnstile.refused_now(&terms))
                .flatten();
            if let Some(refusal) = hopeless {
                return self.turned_away(&refusal);
            }
            self.terms = Some(terms);
        }
        let Some(edge) = &shared.edge else {
            let verdict = Verdict::Allowed;
            return self.passed(Pass {
                verdict,
                paid: None,
            });
        };
        let (payer, charge) = edge.charge(&head, &shared.telling.counters);
        self.decide(payer, charge)
    }

    /// A request that a rule exempts from limits and queue.
    pub(super) fn exempt(self: Box<Self>) -> Stage<S, A, B> {
        let verdict = Verdict::Exempt;
        self.ready(
            Pass {
                verdict,
                paid: None,
            },
            None,
        )
    }

    pub(super) fn decide(self: Box<Self>, payer: Payer, charge: Charge) -> Stage<S, A, B> {
        let shared = Arc::clone(&self.shared);
        let edge = shared.edge.as_ref().expect("only an edge decides");
        let strained = shared
            .queue
            .as_ref()
            .is_some_and(|queue| queue.turnstile.pressure() != Pressure::Healthy);
        // Bursts are cut while the queue is strained, the rate is not.
        let charge = if strained { charge.keep_half() } else { charge };
        match edge.admit_now(payer, charge) {
            Ok(ruling) => self.ruled(payer, ruling),
            Err(charge) => self.deciding(payer, charge),
        }
    }

    pub(super) fn deciding(self: Box<Self>, payer: Payer, charge: Charge) -> Stage<S, A, B> {
        let edge = self.shared.edge.as_ref().expect("only an edge decides");
        Stage::Deciding {
            deciding: edge.admission.admit(charge),
            asked: Some(self),
            payer,
        }
    }

    /// The limits have decided.
    pub(super) fn ruled(self: Box<Self>, payer: Payer, ruling: Ruling) -> Stage<S, A, B> {
        let mode = self.shared.edge.as_ref().map(|edge| edge.mode);
        let granted = ruling.is_granted();
        if granted || mode == Some(AdmissionMode::DryRun) {
            let verdict = match (granted, ruling.is_degraded()) {
                (false, _) => Verdict::Shadow,
                (true, true) => Verdict::Degraded,
                (true, false) => Verdict::Allowed,
            };
            let record = Record::Ruled(ruling);
            let granted = Granted::new(record, payer, Arc::clone(&self.shared));
            let paid = Some(Paid(Some(Arc::new(granted))));
            return self.passed(Pass { verdict, paid });
        }
        match mode {
            Some(AdmissionMode::Wait(most)) => self.wait(payer, &ruling, most),
            _ => self.refused(&ruling),
        }
    }

    /// Waits where the wait ends in time, and there is a seat.
    fn wait(
        mut self: Box<Self>,
        payer: Payer,
        ruling: &Ruling,
        most: std::time::Duration,
    ) -> Stage<S, A, B> {
        let shared = Arc::clone(&self.shared);
        let edge = shared.edge.as_ref().expect("only an edge decides");
        let now = edge.clock.now();
        let until = *self.until.get_or_insert_with(|| now + most);
        let again = ruling.retry_after().map(|wait| now + wait);
        let Some(again) = again.filter(|again| *again <= until && !ruling.is_degraded()) else {
            return self.refused(ruling);
        };
        if self.seat.is_none() {
            self.seat = Seat::take(&shared);
            if self.seat.is_none() {
                return self.refused(ruling);
            }
            // Who waits here holds nothing that the service has given to who is ready.
            self.service = self.service.clone();
            self.is_ready = false;
        }
        self.again = Some(ruling.charged().again(ruling.charged().cost()));
        Stage::Waiting {
            sleep: edge.clock.sleep_until(again),
            asked: Some(self),
            payer,
        }
    }

    fn passed(mut self: Box<Self>, pass: Pass<A>) -> Stage<S, A, B> {
        self.seat = None;
        match (&self.shared.queue, self.terms.take()) {
            (Some(queue), Some(terms)) => Stage::Entering {
                enter: Box::new(queue.turnstile.enter_with(terms)),
                asked: Some(self),
                pass: Some(pass),
            },
            _ => self.ready(pass, None),
        }
    }

    pub(super) fn ready(self: Box<Self>, pass: Pass<A>, turn: Option<Turn>) -> Stage<S, A, B> {
        if self.is_ready {
            return self.call(pass, turn);
        }
        Stage::Readying {
            asked: Some(self),
            pass: Some(pass),
            turn,
        }
    }

    pub(super) fn call(self, pass: Pass<A>, turn: Option<Turn>) -> Stage<S, A, B> {
        let Self {
            shared,
            mut service,
            request,
            ..
        } = self;
        let granted = pass.paid.and_then(Paid::keep);
        serve(
            &shared,
            &mut service,
            request,
            (pass.verdict, granted, turn),
        )
    }

    fn refused(&self, ruling: &Ruling) -> Stage<S, A, B> {
        let telling = &self.shared.telling;
        if ruling.is_degraded() {
            telling.counters.error_rejected.add();
        } else {
            telling.counters.rejected.add();
        }
        let response = refused::of_ruling(ruling, telling, Some(Head::of(&self.request)));
        Stage::Refused {
            response: Some(response),
        }
    }

    pub(super) fn turned_away(&self, refusal: &Refusal) -> Stage<S, A, B> {
        let telling = &self.shared.telling;
        telling.counters.queue_rejected.add();
        let response = refused::of_refusal(refusal, telling, Some(Head::of(&self.request)));
        Stage::Refused {
            response: Some(response),
        }
    }
}

/// A request that limits have let through at once, given to the service that is ready.
#[inline(always)] // Else the record is copied from hand to hand.
pub(super) fn served<S, A, B>(
    shared: &Arc<Shared<A>>,
    service: &mut S,
    request: Request<B>,
    payer: Payer,
    record: Record,
) -> Stage<S, A, B>
where
    S: Service<Request<B>>,
    A: Admission,
{
    let verdict = match &record {
        Record::Ruled(ruling) if ruling.is_degraded() => Verdict::Degraded,
        _ => Verdict::Allowed,
    };
    let granted = Arc::new(Granted::new(record, payer, Arc::clone(shared)));
    serve(shared, service, request, (verdict, Some(granted), None))
}

#[inline]
fn serve<S, A, B>(
    shared: &Arc<Shared<A>>,
    service: &mut S,
    mut request: Request<B>,
    (verdict, granted, turn): (Verdict, Option<Arc<Granted<A>>>, Option<Turn>),
) -> Stage<S, A, B>
where
    S: Service<Request<B>>,
    A: Admission,
{
    let counters = &shared.telling.counters;
    match verdict {
        Verdict::Allowed => counters.allowed.add(),
        Verdict::Shadow => counters.shadow_rejected.add(),
        Verdict::Degraded => counters.error_allowed.add(),
        Verdict::Exempt => counters.exempt.add(),
    }
    let is_held = shared.edge.as_ref().is_some_and(|edge| edge.held);
    if let Some(granted) = granted.as_ref().filter(|_| is_held) {
        let admitted = Admitted::new(Arc::clone(granted));
        request.extensions_mut().insert(admitted);
    }
    Stage::Calling {
        future: service.call(request),
        // A dry run says nothing, and a decision made without its store knows nothing.
        told: granted.filter(|_| verdict == Verdict::Allowed && !shared.telling.speech.is_quiet()),
        turn,
        until_body_ends: shared
            .queue
            .as_ref()
            .is_some_and(|queue| queue.until_body_ends),
    }
}

impl<A: Admission> Paid<A> {
    /// What was charged stays charged.
    fn keep(mut self) -> Option<Arc<Granted<A>>> {
        self.0.take()
    }
}

impl<A: Admission> Drop for Paid<A> {
    fn drop(&mut self) {
        if let Some(granted) = self.0.take() {
            granted.return_once();
        }
    }
}

impl<A: Admission> Seat<A> {
    fn take(shared: &Arc<Shared<A>>) -> Option<Self> {
        let edge = shared.edge.as_ref()?;
        // Relaxed: it bounds a number, and orders nothing else.
        let before = edge.waiting.fetch_add(1, Ordering::Relaxed);
        // Dropped if it is one too many.
        Some(Self(Arc::clone(shared))).filter(|_| before < edge.most_waiting)
    }
}

impl<A: Admission> Drop for Seat<A> {
    fn drop(&mut self) {
        if let Some(edge) = &self.0.edge {
            edge.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
