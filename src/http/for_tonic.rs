//! What gRPC services of tonic need: the peer's address, and refusals as statuses.

use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::Duration;

use http::{Extensions, StatusCode};
use tonic::transport::server::TcpConnectInfo;
use tonic::{Code, Status};

use super::grpc;
use super::problem::{DeniedRequest, millis};
use super::refused::RefusalKind;
use super::settings::Telling;
use crate::gate::{Cause, Denied};
use crate::refusal::{Reason, Refusal};

/// Address of the connection that tonic's server took.
pub(super) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    let info = extensions.get::<TcpConnectInfo>()?;
    Some(info.remote_addr()?.ip())
}

/// `UNAVAILABLE` with `RetryInfo` where coming back helps.
impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        of_refusal(&refusal)
    }
}

/// `RESOURCE_EXHAUSTED` if the caller's own limit refused, `UNAVAILABLE` if the queue or the level "global" did.
impl<T> From<Denied<T>> for Status {
    fn from(denied: Denied<T>) -> Self {
        match denied.cause() {
            Cause::Edge(ruling) => {
                let (kind, wait) = super::refused::kind(&ruling, &TELLING);
                status(kind, wait)
            }
            Cause::Queue(refusal) => of_refusal(&refusal),
        }
    }
}

fn of_refusal(refusal: &Refusal) -> Status {
    let kind = match refusal.reason() {
        Reason::TooCostly => RefusalKind::TooCostly,
        _ => RefusalKind::Capacity,
    };
    status(kind, refusal.retry_after())
}

fn status(kind: RefusalKind, wait: Option<Duration>) -> Status {
    let denied = DeniedRequest {
        kind,
        status: kind.status(StatusCode::TOO_MANY_REQUESTS),
        wait,
        retry_after: None,
        violated: &[],
        head: None,
    };
    let details = grpc::details(&denied).into();
    let code = Code::from(i32::from(kind.grpc_code()));
    let mut status = Status::with_details(code, kind.title(), details);
    if let Some(wait) = wait {
        let pushback = millis(wait).max(1).to_string();
        if let Ok(pushback) = pushback.parse() {
            status
                .metadata_mut()
                .insert("grpc-retry-pushback-ms", pushback);
        }
    }
    status
}

/// The defaults of a layer.
static TELLING: LazyLock<Telling> = LazyLock::new(Telling::default);
