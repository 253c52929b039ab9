//! What a refusal says in its body.

use std::fmt::{self, Write};
use std::time::Duration;

use http::{HeaderValue, StatusCode};

use super::head::Head;
use super::refused::RefusalKind;
use crate::sync::Arc;

/// Form of the body of a refusal.
///
/// None of them names whom a limit counts: no key, no address, no tenant.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum RefusalBody {
    /// `application/problem+json` (RFC 9457), with the policies that refused and the exact wait in `retry_after_ms`.
    #[default]
    Problem,
    /// `{"error":"RATE_LIMIT_EXCEEDED","message":"Too many requests","retryAfter":13}`.
    Simple,
    /// A line of plain text.
    Text,
    /// Whatever a function makes of it, by the request's `Accept` for example: content type and body.
    Custom(CustomBody),
}

/// Function that makes a body; see [`RefusalBody::custom`].
#[derive(Clone)]
pub struct CustomBody(Arc<WriteBody>);

type WriteBody = dyn Fn(&DeniedRequest<'_>) -> (HeaderValue, String) + Send + Sync;

/// A refusal about to be written.
#[derive(Clone, Copy, Debug)]
pub struct DeniedRequest<'a> {
    pub(super) kind: RefusalKind,
    pub(super) status: StatusCode,
    pub(super) wait: Option<Duration>,
    pub(super) retry_after: Option<u64>,
    pub(super) violated: &'a [&'a str],
    pub(super) head: Option<Head<'a>>,
}

impl<'a> DeniedRequest<'a> {
    /// Why it is refused.
    #[must_use]
    pub const fn kind(&self) -> RefusalKind {
        self.kind
    }

    /// Status that it is answered with.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// Exact wait; `None` where coming back does not help or its time is not known.
    #[must_use]
    pub const fn wait(&self) -> Option<Duration> {
        self.wait
    }

    /// Seconds in `Retry-After`.
    #[must_use]
    pub const fn retry_after_secs(&self) -> Option<u64> {
        self.retry_after
    }

    /// Names of the policies that refused, except those that are not told.
    #[must_use]
    pub const fn violated(&self) -> &'a [&'a str] {
        self.violated
    }

    /// The request; `None` where a handler refuses, who has none any more.
    #[must_use]
    pub const fn head(&self) -> Option<Head<'a>> {
        self.head
    }
}

impl RefusalBody {
    /// Takes a function that makes content type and body.
    pub fn custom(
        write: impl Fn(&DeniedRequest<'_>) -> (HeaderValue, String) + Send + Sync + 'static,
    ) -> Self {
        Self::Custom(CustomBody(Arc::new(write)))
    }

    pub(super) fn write(&self, denied: &DeniedRequest<'_>) -> (HeaderValue, String) {
        match self {
            Self::Problem => (PROBLEM, problem(denied)),
            Self::Simple => (JSON, simple(denied)),
            Self::Text => (TEXT, format!("{}\n", denied.kind.title())),
            Self::Custom(CustomBody(write)) => write(denied),
        }
    }
}

fn problem(denied: &DeniedRequest<'_>) -> String {
    let mut json = format!(
        "{{\"type\":\"{}\",\"title\":\"{}\",\"status\":{}",
        denied.kind.uri(),
        denied.kind.title(),
        denied.status.as_u16(),
    );
    if !denied.violated.is_empty() {
        json.push_str(",\"violated-policies\":[");
        for (index, name) in denied.violated.iter().enumerate() {
            if index > 0 {
                json.push(',');
            }
            quote(&mut json, name);
        }
        json.push(']');
    }
    if let Some(wait) = denied.wait {
        let _ = write!(json, ",\"retry_after_ms\":{}", millis(wait));
    }
    json.push('}');
    json
}

fn simple(denied: &DeniedRequest<'_>) -> String {
    let (error, message) = denied.kind.simple();
    let mut json = format!("{{\"error\":\"{error}\",\"message\":\"{message}\"");
    if let Some(seconds) = denied.retry_after {
        let _ = write!(json, ",\"retryAfter\":{seconds}");
    }
    json.push('}');
    json
}

/// Milliseconds, rounded up: coming back after them is not too early.
pub(super) fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// A string of JSON; names of levels are the program's, and may hold anything.
fn quote(json: &mut String, text: &str) {
    json.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => json.extend(['\\', char]),
            _ if char.is_control() => {
                let _ = write!(json, "\\u{:04x}", u32::from(char));
            }
            _ => json.push(char),
        }
    }
    json.push('"');
}

impl fmt::Debug for RefusalBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Problem => "Problem",
            Self::Simple => "Simple",
            Self::Text => "Text",
            Self::Custom(_) => "Custom",
        })
    }
}

impl fmt::Debug for CustomBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomBody").finish_non_exhaustive()
    }
}

const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
