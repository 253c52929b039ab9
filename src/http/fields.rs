//! Fields of a notice on their way into a response that may have some already.
//!
//! Lists are appended to. Of single fields the tighter stays, and of `Retry-After` the later: a response is never made to
//! promise more than a layer inside of this one has said.

use http::header::{CACHE_CONTROL, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::dialect::{
    HeaderDialect, RATELIMIT, RATELIMIT_LIMIT, RATELIMIT_POLICY, RATELIMIT_REMAINING,
    RATELIMIT_RESET, ResetSemantics, X_LIMIT, X_REMAINING, X_RESET,
};
use super::notice::Notice;

/// Which dialects are spoken, and how.
#[derive(Clone, Debug)]
pub(super) struct Speech {
    pub(super) dialects: Vec<HeaderDialect>,
    pub(super) reset: ResetSemantics,
    pub(super) on_redirects: bool,
}

impl Speech {
    /// Whether nothing is said but to those who are refused.
    pub(super) fn is_quiet(&self) -> bool {
        let silent = |dialect: &HeaderDialect| {
            matches!(dialect, HeaderDialect::None | HeaderDialect::RetryAfterOnly)
        };
        self.dialects.iter().all(silent)
    }

    /// Whether anything is said on a response of this status that was let through.
    pub(super) fn speaks_on(&self, status: StatusCode) -> bool {
        status != StatusCode::SWITCHING_PROTOCOLS
            && (self.on_redirects || !status.is_redirection())
            && !self.is_quiet()
    }

    /// Adds the fields of a notice to those of a response.
    pub(super) fn write(&self, notice: &Notice<'_>, headers: &mut HeaderMap) {
        // Of a refusal further inside only its own quota is told: none of ours may be later than its `Retry-After`.
        let inner_refused = !notice.refused && headers.contains_key(RETRY_AFTER);
        for dialect in &self.dialects {
            let is_list = *dialect == HeaderDialect::ListDraft;
            if !is_list && !yields(*dialect, notice, headers) {
                continue;
            }
            dialect.each(notice, self.reset, &mut |name, value| {
                if name == RETRY_AFTER {
                    later(headers, value);
                } else if !is_list {
                    headers.insert(name, value);
                } else if name == RATELIMIT_POLICY || !inner_refused {
                    headers.append(name, value);
                }
            });
        }
    }
}

/// Whether single fields of this dialect may be written: there are none, or they are looser.
///
/// Those that stay keep everything as it was, their `Retry-After` too; ours is then added by itself.
fn yields(dialect: HeaderDialect, notice: &Notice<'_>, headers: &mut HeaderMap) -> bool {
    let Some(theirs) = told(dialect, headers) else {
        return true;
    };
    let ours = notice.tightest().map(|standing| standing.remaining);
    if theirs.is_none_or(|theirs| ours.is_none_or(|ours| theirs <= ours)) {
        if let Some(seconds) = notice.retry_after {
            later(headers, HeaderValue::from(seconds));
        }
        return false;
    }
    for name in fields(dialect) {
        headers.remove(name);
    }
    true
}

/// What is left by the single fields that are there: `Some(None)` if that cannot be read.
fn told(dialect: HeaderDialect, headers: &HeaderMap) -> Option<Option<u64>> {
    let read = |name: &HeaderName, parse: fn(&str) -> Option<u64>| {
        let value = headers.get(name)?;
        Some(value.to_str().ok().and_then(parse))
    };
    match dialect {
        HeaderDialect::Legacy(_) => read(&X_REMAINING, |text| text.trim().parse().ok()),
        HeaderDialect::Draft6 => read(&RATELIMIT_REMAINING, |text| text.trim().parse().ok()),
        HeaderDialect::Draft7 => read(&RATELIMIT, |text| {
            let of = |member: &str| member.trim().strip_prefix("remaining=")?.parse().ok();
            text.split(',').find_map(of)
        }),
        _ => None,
    }
}

fn fields(dialect: HeaderDialect) -> &'static [HeaderName] {
    static LEGACY: [HeaderName; 3] = [X_LIMIT, X_REMAINING, X_RESET];
    static DRAFT: [HeaderName; 5] = [
        RATELIMIT,
        RATELIMIT_POLICY,
        RATELIMIT_LIMIT,
        RATELIMIT_REMAINING,
        RATELIMIT_RESET,
    ];
    match dialect {
        HeaderDialect::Legacy(_) => &LEGACY,
        _ => &DRAFT,
    }
}

/// Sets `Retry-After` unless it is later already. A date, which only others send, stays.
fn later(headers: &mut HeaderMap, ours: HeaderValue) {
    let seconds = |value: &HeaderValue| value.to_str().ok()?.trim().parse::<u64>().ok();
    let stays = headers
        .get(RETRY_AFTER)
        .is_some_and(|theirs| seconds(theirs).is_none_or(|theirs| Some(theirs) >= seconds(&ours)));
    if !stays {
        headers.insert(RETRY_AFTER, ours);
    }
}

/// No cache may keep a refusal.
pub(super) fn forbid_storing(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}
