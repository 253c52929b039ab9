//! The dialects in which limits are told: each a pure function from one notice to header fields.
//!
//! The IETF's draft (draft-ietf-httpapi-ratelimit-headers) has changed its form twice, and may again; so its revisions
//! are named, and none is called the standard.

use std::time::Duration;

use http::{HeaderName, HeaderValue, header};

use super::lists;
use super::notice::{Notice, Standing, ceil};
use crate::tick::Tick;

/// One way to tell clients how limits stand.
///
/// All but [`None`](Self::None) send `Retry-After` on refusals: whole seconds, rounded up, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeaderDialect {
    /// Nothing at all.
    None,
    /// Only `Retry-After`.
    RetryAfterOnly,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset` of the tightest limit.
    Legacy(ResetUnit),
    /// Revisions 0 to 6 of the draft: `RateLimit-Limit`, `-Remaining` and `-Reset` of the tightest limit, and
    /// `RateLimit-Policy`.
    Draft6,
    /// Revision 7: the dictionary `RateLimit: limit=100, remaining=50, reset=5`.
    Draft7,
    /// Revisions 8 and later: the lists `RateLimit-Policy: "user";q=100;w=60` and `RateLimit: "user";r=50;t=30`.
    ListDraft,
}

/// What `X-RateLimit-Reset` counts; clients disagree, so it is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ResetUnit {
    /// Unix time in seconds, as GitHub has it. Read off the deciding clock, so that it does not flicker; every clock of
    /// this crate but the manual one starts at Unix time, and so do remote stores.
    #[default]
    UnixSeconds,
    /// Seconds from now.
    DeltaSeconds,
}

/// What a reset means while quota is left. Without any left it is the time to the next unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ResetSemantics {
    /// Time until the limit is unused again: what is left divided by it is never more than the rate. The default.
    #[default]
    Full,
    /// Time to one more unit, and at least a second.
    NextUnit,
}

/// Response fields that a browser's script may read only if the CORS layer exposes them, for
/// `Access-Control-Expose-Headers`.
pub const EXPOSED_FIELDS: [HeaderName; 9] = [
    header::RETRY_AFTER,
    RATELIMIT,
    RATELIMIT_POLICY,
    RATELIMIT_LIMIT,
    RATELIMIT_REMAINING,
    RATELIMIT_RESET,
    X_LIMIT,
    X_REMAINING,
    X_RESET,
];

/// Takes a field that is written.
pub(super) trait Put: FnMut(HeaderName, HeaderValue) {}
impl<F: FnMut(HeaderName, HeaderValue)> Put for F {}

impl HeaderDialect {
    /// Writes a notice in this dialect.
    #[must_use]
    pub fn encode(
        self,
        notice: &Notice<'_>,
        reset: ResetSemantics,
    ) -> Vec<(HeaderName, HeaderValue)> {
        let mut fields = Vec::new();
        self.each(notice, reset, &mut |name, value| fields.push((name, value)));
        fields
    }

    /// Whether the two would write the same field with different meanings.
    pub(super) fn clashes(self, other: Self) -> bool {
        let fields = |dialect| match dialect {
            Self::None | Self::RetryAfterOnly => 0,
            Self::Legacy(_) => 1,
            Self::Draft6 | Self::Draft7 | Self::ListDraft => 2,
        };
        fields(self) == fields(other) && fields(self) > 0
    }

    pub(super) fn each(self, notice: &Notice<'_>, reset: ResetSemantics, put: &mut impl Put) {
        if self == Self::None {
            return;
        }
        match self {
            Self::ListDraft => lists::write(notice, reset, put),
            Self::Legacy(_) | Self::Draft6 | Self::Draft7 => {
                if let Some(standing) = notice.tightest() {
                    self.tightest(notice, standing, reset, put);
                }
            }
            Self::None | Self::RetryAfterOnly => {}
        }
        if let Some(seconds) = notice.retry_after.filter(|_| notice.refused) {
            put(header::RETRY_AFTER, number(seconds));
        }
    }

    fn tightest(
        self,
        notice: &Notice<'_>,
        standing: &Standing<'_>,
        reset: ResetSemantics,
        put: &mut impl Put,
    ) {
        let seconds = seconds(notice, standing, reset);
        let (limit, remaining) = (standing.quota, standing.remaining);
        match self {
            Self::Legacy(unit) => {
                put(X_LIMIT, number(limit));
                put(X_REMAINING, number(remaining));
                let after = match unit {
                    ResetUnit::DeltaSeconds => seconds,
                    ResetUnit::UnixSeconds => {
                        let after = moment(notice, standing, reset);
                        after.map(|after| unix(notice.at, after))
                    }
                };
                if let Some(after) = after {
                    put(X_RESET, number(after));
                }
            }
            Self::Draft6 => {
                put(RATELIMIT_LIMIT, number(limit));
                put(RATELIMIT_REMAINING, number(remaining));
                if let Some(seconds) = seconds {
                    put(RATELIMIT_RESET, number(seconds));
                }
                put(RATELIMIT_POLICY, unnamed_policies(notice));
            }
            _ => {
                let mut dictionary = Vec::with_capacity(64);
                lists::parameter(&mut dictionary, b"limit=", limit);
                lists::parameter(&mut dictionary, b", remaining=", remaining);
                if let Some(seconds) = seconds {
                    lists::parameter(&mut dictionary, b", reset=", seconds);
                }
                put(RATELIMIT, lists::value(&dictionary));
                put(RATELIMIT_POLICY, unnamed_policies(notice));
            }
        }
    }
}

/// Seconds that a client should wait or reckon with: of a refusal those of `Retry-After`, whichever limit it is.
pub(super) fn seconds(
    notice: &Notice<'_>,
    standing: &Standing<'_>,
    reset: ResetSemantics,
) -> Option<u64> {
    if notice.refused && standing.is_refusing {
        return notice.retry_after;
    }
    let is_next = standing.remaining == 0 || reset == ResetSemantics::NextUnit;
    moment(notice, standing, reset).map(|after| ceil(after).max(u64::from(is_next)))
}

/// The same, exactly.
fn moment(notice: &Notice<'_>, standing: &Standing<'_>, reset: ResetSemantics) -> Option<Duration> {
    if notice.refused && standing.is_refusing {
        return notice.retry_after.map(Duration::from_secs);
    }
    match reset {
        ResetSemantics::Full if standing.remaining > 0 => standing.full_in,
        ResetSemantics::Full | ResetSemantics::NextUnit => standing.next_unit_in,
    }
}

/// The second of Unix time in which that will be over.
fn unix(at: Tick, after: Duration) -> u64 {
    (at + after).as_nanos().div_ceil(1_000_000_000)
}

/// `100;w=60, 1000;w=3600`: revisions 4 to 7.
fn unnamed_policies(notice: &Notice<'_>) -> HeaderValue {
    let mut policies = Vec::with_capacity(64);
    for standing in notice.standings {
        let (quota, window) = standing.policy();
        let separator: &[u8] = if policies.is_empty() { b"" } else { b", " };
        lists::parameter(&mut policies, separator, quota);
        if let Some(window) = window {
            lists::parameter(&mut policies, b";w=", window);
        }
    }
    lists::value(&policies)
}

/// An integer of RFC 9651 has at most fifteen digits.
pub(super) fn int(value: u64) -> u64 {
    value.min(999_999_999_999_999)
}

fn number(value: u64) -> HeaderValue {
    lists::value(lists::digits(&mut [0; 20], int(value)))
}

pub(super) const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(super) const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
pub(super) const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
pub(super) const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
pub(super) const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(super) const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(super) const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
