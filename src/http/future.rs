//! The future of a request that goes through a layer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::admitted::{Granted, Record};
use super::body::EdgeBody;
use super::notice::Notice;
use super::slow::{Stage, StageProjection};
use crate::limiter::Admission;

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
                    until_body_ends,
                } => {
                    let response = ready!(future.poll(cx));
                    let turn = turn.take().filter(|_| *until_body_ends);
                    let mut response = response?;
                    if let Some(granted) = told.take() {
                        tell(&granted, &mut response);
                    }
                    let response = response.map(|body| EdgeBody::passed(body, turn));
                    return Poll::Ready(Ok(response));
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
                } => {
                    ready!(sleep.as_mut().poll(cx));
                    let mut asked = asked.take().expect(ONCE);
                    let charge = asked.again.take().expect(ONCE);
                    asked.decide(*payer, charge)
                }
                StageProjection::Entering { enter, asked, pass } => {
                    let entered = ready!(Pin::new(&mut **enter).poll(cx));
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

/// Adds what clients are told.
fn tell<A: Admission, R>(granted: &Granted<A>, response: &mut Response<R>) {
    let telling = &granted.shared.telling;
    if !telling.speech.speaks_on(response.status()) {
        return;
    }
    let headers = response.headers_mut();
    match &granted.record {
        Record::Solo(solo, _) => {
            let standing = telling.standing(solo.level(), solo.limit(), solo.decision());
            let notice = Notice::granted(standing.as_slice(), solo.cost(), solo.decision().at);
            telling.speech.write(&notice, headers);
        }
        Record::Ruled(ruling) => {
            let at = ruling.decisions().map(|(_, decision)| decision.at).max();
            let Some(at) = at else { return };
            let standings = telling.standings(ruling);
            let notice = Notice::granted(&standings, ruling.charged().cost(), at);
            telling.speech.write(&notice, headers);
        }
    }
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
