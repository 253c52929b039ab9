//! A service behind a layer.

use std::fmt;
use std::mem;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::admitted::Record;
use super::body::EdgeBody;
use super::future::EdgeFuture;
use super::head::Head;
use super::settings::{Asking, Payer, Shared};
use super::slow::{self, Asked, Stage};
use crate::limiter::Admission;
use crate::sync::Arc;

/// A service that requests reach through limits, a queue, or both; made by one of the layers.
///
/// Clones share limits and queue. Readiness is that of the inner service, whom nobody waits for in vain: the one that
/// was readied is the one that is called, and on a refusal it is let go, with whatever it held ready. Behind a queue it
/// is readied after the request's turn has come.
pub struct EdgeService<S, A: Admission> {
    inner: S,
    shared: Arc<Shared<A>>,
}

impl<S, A: Admission> EdgeService<S, A> {
    pub(super) const fn new(inner: S, shared: Arc<Shared<A>>) -> Self {
        Self { inner, shared }
    }

    /// The service behind it.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, A, B, R> Service<Request<B>> for EdgeService<S, A>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    A: Admission,
    R: Body<Data: From<String>>,
{
    type Response = Response<EdgeBody<R>>;
    type Error = S::Error;
    type Future = EdgeFuture<S, A, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        match self.shared.queue {
            Some(_) => Poll::Ready(Ok(())),
            None => self.inner.poll_ready(cx),
        }
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = &*self.shared;
        let head = Head::of(&request);
        if shared.is_exempt(&head) {
            return EdgeFuture::new(self.asked(request).exempt());
        }
        let (Some(edge), None) = (&shared.edge, &shared.queue) else {
            return EdgeFuture::new(self.asked(request).open());
        };
        // What passes at once takes no detour: the service that is ready is called where it is.
        EdgeFuture::new(match edge.ask(&head, &shared.telling) {
            Asking::Spent => {
                shared.telling.counters.allowed.add();
                return EdgeFuture::new(Stage::calling(self.inner.call(request)));
            }
            Asking::Charged(solo) => {
                let (payer, record) = (Payer::Caller, Record::of(solo));
                slow::served(&self.shared, &mut self.inner, request, payer, record)
            }
            Asking::Ruled(payer, ruling) if ruling.is_granted() => {
                let record = Record::Ruled(ruling);
                slow::served(&self.shared, &mut self.inner, request, payer, record)
            }
            Asking::Ruled(payer, ruling) => self.asked(request).ruled(payer, ruling),
            Asking::Decide(payer, charge) => self.asked(request).deciding(payer, charge),
        })
    }
}

impl<S: Clone, A: Admission> EdgeService<S, A> {
    /// The request with a service of its own: the one that was readied, if one was.
    fn asked<B>(&mut self, request: Request<B>) -> Box<Asked<S, A, B>>
    where
        S: Service<Request<B>>,
    {
        let fresh = self.inner.clone();
        let service = match self.shared.queue {
            Some(_) => (fresh, false),
            None => (mem::replace(&mut self.inner, fresh), true),
        };
        Asked::new(Arc::clone(&self.shared), service, request)
    }
}

impl<S: Clone, A: Admission> Clone for EdgeService<S, A> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<S: fmt::Debug, A: Admission> fmt::Debug for EdgeService<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EdgeService")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
