//! From a refusal to a response.

use std::time::Duration;

use http::{HeaderValue, Response, StatusCode, header};

use super::counts::warn;
use super::fields;
use super::grpc;
use super::head::Head;
use super::notice::{Notice, ceil, wait};
use super::problem::DeniedRequest;
use super::settings::Telling;
use crate::limiter::Ruling;
use crate::refusal::{Reason, Refusal};
use crate::tick::Tick;

/// Why a request is refused, as it matters to whoever made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalKind {
    /// The client's own quota is used up: 429, `RESOURCE_EXHAUSTED`.
    Quota,
    /// The service has too much to do: a limit that everybody shares, or the queue. 503, `UNAVAILABLE`.
    Capacity,
    /// The cost can never fit, so there is no use in coming back: 429 unless set otherwise, `RESOURCE_EXHAUSTED`.
    TooCostly,
    /// The store that should have decided could not be asked: 503, `UNAVAILABLE`.
    Unavailable,
}

impl RefusalKind {
    pub(super) const fn status(self, too_costly: StatusCode) -> StatusCode {
        match self {
            Self::Quota => StatusCode::TOO_MANY_REQUESTS,
            Self::Capacity | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooCostly => too_costly,
        }
    }

    pub(super) const fn grpc_code(self) -> u8 {
        match self {
            Self::Quota | Self::TooCostly => 8,
            Self::Capacity | Self::Unavailable => 14,
        }
    }

    /// Type of the problem: registered by the draft where it has one.
    pub(super) const fn uri(self) -> &'static str {
        match self {
            Self::Quota => "https://iana.org/assignments/http-problem-types#quota-exceeded",
            Self::Capacity => {
                "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
            }
            Self::TooCostly => "urn:sluicegate:problem:cost-too-large",
            Self::Unavailable => "urn:sluicegate:problem:limiter-unavailable",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Quota => "Request cannot be satisfied as assigned quota has been exceeded",
            Self::Capacity => {
                "Request cannot be satisfied due to temporary server capacity constraints"
            }
            Self::TooCostly => "Request costs more than the quota can ever grant",
            Self::Unavailable => "Request cannot be admitted while the limiter is unavailable",
        }
    }

    pub(super) const fn simple(self) -> (&'static str, &'static str) {
        match self {
            Self::Quota => ("RATE_LIMIT_EXCEEDED", "Too many requests"),
            Self::Capacity => ("TEMPORARY_REDUCED_CAPACITY", "Service is overloaded"),
            Self::TooCostly => ("COST_TOO_LARGE", "Request is too large for the quota"),
            Self::Unavailable => ("LIMITER_UNAVAILABLE", "Service is unavailable"),
        }
    }

    pub(super) const fn reason(self) -> &'static str {
        self.simple().0
    }
}

/// A refusal of the limits as a response.
pub(super) fn of_ruling(
    ruling: &Ruling,
    telling: &Telling,
    head: Option<Head<'_>>,
) -> Response<String> {
    let standings = telling.standings(ruling);
    let refusing = standings.iter().filter(|standing| standing.is_refusing);
    let violated: Vec<&str> = refusing.map(|standing| standing.name).collect();
    let (kind, wait) = kind(ruling, telling);
    let (binding, charge) = (ruling.binding(), ruling.charged());
    let seconds = wait.map(|wait| {
        let key = charge.levels().find(|(name, ..)| Some(*name) == binding);
        let key = key.map(|(_, _, key)| key.as_bytes());
        telling.seconds(wait, key.unwrap_or_default())
    });
    let at = ruling.decisions().map(|(_, decision)| decision.at).max();
    // What was decided without its store says nothing about the quota.
    let standings: &[_] = if ruling.is_degraded() {
        &[]
    } else {
        &standings
    };
    let notice = Notice::refused(standings, charge.cost(), at.unwrap_or(Tick::ZERO), wait)
        .retry_after(seconds);
    respond(kind, &violated, wait, &notice, telling, head)
}

/// Why the limits refused, and the exact wait where waiting helps.
pub(super) fn kind(ruling: &Ruling, telling: &Telling) -> (RefusalKind, Option<Duration>) {
    let binding = ruling.binding();
    let never = ruling
        .decisions()
        .any(|(_, decision)| wait(decision).is_none());
    if ruling.is_degraded() {
        // A store that is away says when it may be back, or at least not to come at once.
        let wait = ruling.retry_after().unwrap_or(A_SECOND);
        (RefusalKind::Unavailable, Some(wait))
    } else if never {
        if telling.counters.too_costly.is_first() {
            warn(
                "a request costs more than a limit ever grants: the cost or the limit is a mistake",
            );
        }
        (RefusalKind::TooCostly, None)
    } else if binding.is_some_and(|name| telling.is_shared(name)) {
        (RefusalKind::Capacity, ruling.retry_after())
    } else {
        (RefusalKind::Quota, ruling.retry_after())
    }
}

/// A refusal of the queue as a response.
pub(super) fn of_refusal(
    refusal: &Refusal,
    telling: &Telling,
    head: Option<Head<'_>>,
) -> Response<String> {
    let kind = match refusal.reason() {
        Reason::TooCostly => RefusalKind::TooCostly,
        _ => RefusalKind::Capacity,
    };
    let wait = refusal.retry_after();
    // The queue tells everybody a time of its own, so nothing is added to it.
    let seconds = wait.map(|wait| ceil(wait).clamp(1, telling.longest_retry_after));
    let notice = Notice::refused(&[], 1, Tick::ZERO, wait).retry_after(seconds);
    respond(kind, &[], wait, &notice, telling, head)
}

fn respond(
    kind: RefusalKind,
    violated: &[&str],
    wait: Option<Duration>,
    notice: &Notice<'_>,
    telling: &Telling,
    head: Option<Head<'_>>,
) -> Response<String> {
    let status = kind.status(telling.too_costly);
    let denied = DeniedRequest {
        kind,
        status,
        wait,
        retry_after: notice.retry_after,
        violated,
        head,
    };
    let mut response = Response::new(String::new());
    let headers = response.headers_mut();
    fields::forbid_storing(headers);
    match head.filter(Head::is_grpc) {
        Some(head) => {
            // A 429 would be UNAVAILABLE to a gRPC client, and retried at once.
            let asked = head.headers().get(header::CONTENT_TYPE);
            let grpc = HeaderValue::from_static("application/grpc");
            headers.insert(header::CONTENT_TYPE, asked.cloned().unwrap_or(grpc));
            grpc::write(&denied, headers);
        }
        None => {
            telling.speech.write(notice, headers);
            let (content, body) = telling.body.write(&denied);
            headers.insert(header::CONTENT_TYPE, content);
            *response.status_mut() = status;
            *response.body_mut() = body;
        }
    }
    response
}

const A_SECOND: Duration = Duration::from_secs(1);
