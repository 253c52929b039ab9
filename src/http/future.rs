//! The future of a request that goes through a layer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::admitted::Granted;
use super::body::EdgeBody;
use super::notice::Notice;
use super::settings::Shared;
use super::slow::{Stage, StageProjection};
use crate::limiter::Admission;
use crate::queue::Turn;

pin_project! {
    /// Response of an [`EdgeService`](super::EdgeService).
    ///
    /// # Cancel safety
    /// Dropped before the service was called, it leaves the queue, and what limits charged is given back.
    #[must_use = "futures do nothing unless polled"]
    pub struct EdgeFuture<S, A, B>
    where
        S: Service<Request<B>>,
        A: Admission,
    {
        #[pin]
        stage: Stage<S, A, B>,
    }
}

impl<S: Service<Request<B>>, A: Admission, B> EdgeFuture<S, A, B> {
    pub(super) fn new(stage: Stage<S, A, B>) -> Self {
        Self { stage }
    }
}

impl<S, A, B, R> Future for EdgeFuture<S, A, B>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    A: Admission,
    R: Body<Data: From<String>>,
{
    type Output = Result<Response<EdgeBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut stage = self.project().stage;
        loop {
            let next = match stage.as_mut().project() {
                StageProjection::Calling {
                    future,
                    told,
                    turn,
                    shared,
                } => {
                    let response = ready!(future.poll(cx));
                    let turn = turn.take();
                    return Poll::Ready(response.map(|response| {
                        let told = told.take();
                        finish(response, told.as_deref(), turn, shared)
                    }));
                }
                StageProjection::Refused { response } => {
                    let response = response.take().expect(ONCE);
                    return Poll::Ready(Ok(response.map(EdgeBody::refused)));
                }
                StageProjection::Deciding {
                    deciding,
                    asked,
                    payer,
                } => {
                    let ruling = ready!(deciding.poll(cx));
                    asked.take().expect(ONCE).ruled(*payer, ruling)
                }
                StageProjection::Waiting {
                    sleep,
                    asked,
                    payer,
                    charge,
                } => {
                    ready!(sleep.as_mut().poll(cx));
                    let charge = charge.take().expect(ONCE);
                    asked.take().expect(ONCE).decide(*payer, charge)
                }
                StageProjection::Entering { enter, asked, pass } => {
                    let entered = ready!(Pin::new(enter).poll(cx));
                    let asked = asked.take().expect(ONCE);
                    let pass = pass.take().expect(ONCE);
                    match entered {
                        Ok(turn) => asked.ready(pass, Some(turn)),
                        // The pass is dropped, and what was paid for it comes back.
                        Err(refusal) => asked.turned_away(&refusal),
                    }
                }
                StageProjection::Readying { asked, pass, turn } => {
                    let waiting = asked.as_mut().expect(ONCE);
                    ready!(waiting.service.poll_ready(cx))?;
                    let asked = asked.take().expect(ONCE);
                    asked.call(pass.take().expect(ONCE), turn.take())
                }
            };
            stage.set(next);
        }
    }
}

/// Adds what clients are told, and ends the turn, now or with the body.
fn finish<A: Admission, R>(
    response: Response<R>,
    told: Option<&Granted<A>>,
    turn: Option<Turn>,
    shared: &Shared<A>,
) -> Response<EdgeBody<R>> {
    let holds = shared
        .queue
        .as_ref()
        .is_some_and(|queue| queue.until_body_ends);
    let turn = turn.filter(|_| holds);
    let mut response = response.map(|body| EdgeBody::passed(body, turn));
    let telling = &shared.telling;
    if let Some(granted) = told.filter(|_| telling.speech.speaks_on(response.status())) {
        let ruling = &granted.ruling;
        let at = ruling.decisions().map(|(_, decision)| decision.at).max();
        if let Some(at) = at {
            let standings = telling.standings(ruling);
            let notice = Notice::granted(&standings, ruling.charged().cost(), at);
            telling.speech.write(&notice, response.headers_mut());
        }
    }
    response
}

impl<S: Service<Request<B>>, A: Admission, B> fmt::Debug for EdgeFuture<S, A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EdgeFuture(")?;
        f.write_str(match self.stage {
            Stage::Deciding { .. } => "deciding",
            Stage::Waiting { .. } => "waiting",
            Stage::Entering { .. } => "entering",
            Stage::Readying { .. } => "readying",
            Stage::Calling { .. } => "calling",
            Stage::Refused { .. } => "refused",
        })?;
        f.write_str(")")
    }
}

const ONCE: &str = "it is polled until it is done, and not again";
