//! What axum's handlers need: refusals as responses, and the hold on a charge as an extractor.

use std::convert::Infallible;
use std::sync::LazyLock;

use axum::body::Body;
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;

use super::admitted::Admitted;
use super::refused;
use super::settings::Telling;
use crate::gate::{Cause, Denied};
use crate::refusal::Refusal;

/// 503 with `Retry-After`, where coming back helps, and a problem body.
impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        refused::of_refusal(&self, &TELLING, None).map(Body::from)
    }
}

/// 429 if the caller's own limit refused, 503 if the queue or the level "global" did.
impl<T> IntoResponse for Denied<T> {
    fn into_response(self) -> Response {
        let response = match self.cause() {
            Cause::Edge(ruling) => refused::of_ruling(&ruling, &TELLING, None),
            Cause::Queue(refusal) => refused::of_refusal(&refusal, &TELLING, None),
        };
        response.map(Body::from)
    }
}

/// 500 where no layer has let the request through: the handler relies on one that is not there.
impl<S: Send + Sync> FromRequestParts<S> for Admitted {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        let admitted = parts.extensions.get().cloned();
        admitted.ok_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// `None` where no layer has let the request through, or a rule exempts it.
impl<S: Send + Sync> OptionalFromRequestParts<S> for Admitted {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get().cloned())
    }
}

/// The defaults of a layer.
static TELLING: LazyLock<Telling> = LazyLock::new(Telling::default);
