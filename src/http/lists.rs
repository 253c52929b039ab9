//! The two list fields of the draft, revisions 8 and later.
//!
//! Every response bears them, so they cost no more than the values themselves: each thread has one sheet on which texts
//! are put together, and keeps the policies that it sent last, which hardly ever change.

use std::cell::RefCell;
use std::time::Duration;

use http::HeaderValue;

use super::dialect::{Put, RATELIMIT, RATELIMIT_POLICY, ResetSemantics, int, seconds};
use super::notice::{Notice, QuotaUnit, Standing};

/// Writes the two lists. A refusal lists only those who refuse, so that no `t` is later than `Retry-After`.
pub(super) fn write(notice: &Notice<'_>, reset: ResetSemantics, put: &mut impl Put) {
    if notice.standings.is_empty() {
        return;
    }
    // What takes the fields is run when the desk is free again.
    let policies = DESK.with_borrow_mut(|desk| desk.policies(notice.standings));
    put(RATELIMIT_POLICY, policies);
    let limits = DESK.with_borrow_mut(|desk| desk.limits(notice, reset));
    if let Some(limits) = limits {
        put(RATELIMIT, limits);
    }
}

thread_local! {
    static DESK: RefCell<Desk> = const { RefCell::new(Desk { sheet: Vec::new(), last: None }) };
}

struct Desk {
    sheet: Vec<u8>,
    last: Option<(Vec<Policy>, HeaderValue)>,
}

/// All that a policy's text tells.
struct Policy {
    name: String,
    quota: u64,
    window: Option<Duration>,
    unit: QuotaUnit,
}

impl Desk {
    fn policies(&mut self, standings: &[Standing<'_>]) -> HeaderValue {
        if let Some((policies, text)) = &self.last
            && policies.len() == standings.len()
            && policies
                .iter()
                .zip(standings)
                .all(|(policy, standing)| policy.is_of(standing))
        {
            return text.clone();
        }
        self.sheet.clear();
        for standing in standings {
            let (quota, window) = standing.policy();
            item(&mut self.sheet, standing.name);
            parameter(&mut self.sheet, b";q=", quota);
            if let Some(window) = window {
                parameter(&mut self.sheet, b";w=", window);
            }
            self.sheet.extend_from_slice(match standing.unit {
                QuotaUnit::Requests => b"",
                QuotaUnit::ContentBytes => b";qu=\"content-bytes\"",
                QuotaUnit::ConcurrentRequests => b";qu=\"concurrent-requests\"",
            });
        }
        let text = value(&self.sheet);
        let policies = standings.iter().map(Policy::of).collect();
        self.last = Some((policies, text.clone()));
        text
    }

    fn limits(&mut self, notice: &Notice<'_>, reset: ResetSemantics) -> Option<HeaderValue> {
        self.sheet.clear();
        let tightest = notice.tightest().map(std::ptr::from_ref);
        for standing in notice.standings {
            let is_listed = if notice.refused {
                standing.is_refusing
            } else {
                tightest.is_some_and(|tightest| std::ptr::eq(tightest, standing))
            };
            if !is_listed {
                continue;
            }
            item(&mut self.sheet, standing.name);
            parameter(&mut self.sheet, b";r=", standing.remaining);
            if let Some(seconds) = seconds(notice, standing, reset) {
                parameter(&mut self.sheet, b";t=", seconds);
            }
        }
        (!self.sheet.is_empty()).then(|| value(&self.sheet))
    }
}

impl Policy {
    fn of(standing: &Standing<'_>) -> Self {
        Self {
            name: standing.name.to_owned(),
            quota: standing.quota,
            window: standing.window,
            unit: standing.unit,
        }
    }

    fn is_of(&self, standing: &Standing<'_>) -> bool {
        self.name == standing.name
            && self.quota == standing.quota
            && self.window == standing.window
            && self.unit == standing.unit
    }
}

/// Starts an item of a list: its name as a string of RFC 9651.
///
/// A name is kept to what a token could hold too, as the draft may turn to tokens: what else is in it becomes `_`.
fn item(list: &mut Vec<u8>, name: &str) {
    list.extend_from_slice(if list.is_empty() { b"\"" } else { b", \"" });
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic();
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'*');
    if !name.as_bytes().first().is_some_and(is_letter) {
        list.push(b'x');
    }
    if name.len() <= LONGEST_POLICY && name.bytes().all(fits) {
        list.extend_from_slice(name.as_bytes());
    } else {
        let fitting = name.chars().map(|char| match u8::try_from(char) {
            Ok(byte) if fits(byte) => byte,
            _ => b'_',
        });
        list.extend(fitting.take(LONGEST_POLICY));
    }
    list.push(b'"');
}

pub(super) fn parameter(list: &mut Vec<u8>, name: &[u8], value: u64) {
    list.extend_from_slice(name);
    list.extend_from_slice(digits(&mut [0; 20], int(value)));
}

/// Writes a number; the machinery of `write!` would take most of the time of a field.
pub(super) fn digits(buffer: &mut [u8; 20], mut value: u64) -> &[u8] {
    let mut start = buffer.len();
    loop {
        start -= 1;
        buffer[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    &buffer[start..]
}

/// Copied once, to its exact length.
pub(super) fn value(text: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(text).expect("it is printable ASCII")
}

/// Characters of a policy's name that are sent.
const LONGEST_POLICY: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn standing() -> impl Strategy<Value = (&'static str, u64, Option<u64>, bool)> {
        let names = proptest::sample::select(vec!["a", "b", "é \"", ""]);
        (
            names,
            1_u64..3,
            proptest::option::of(0_u64..3),
            any::<bool>(),
        )
    }

    proptest! {
        /// Whatever a thread has told before, of other layers and of limits that have changed since.
        #[test]
        fn policies_are_those_of_their_standings_whatever_was_told_before(
            told in proptest::collection::vec(proptest::collection::vec(standing(), 1..3), 1..20),
        ) {
            let mut desk = Desk { sheet: Vec::new(), last: None };
            for levels in told {
                let standings: Vec<_> = levels
                    .iter()
                    .map(|(name, quota, window, bytes)| {
                        let unit = if *bytes { QuotaUnit::ContentBytes } else { QuotaUnit::Requests };
                        Standing {
                            window: window.map(Duration::from_secs),
                            ..Standing::in_flight(name, *quota, 0).counted_in(unit)
                        }
                    })
                    .collect();
                let mut fresh = Desk { sheet: Vec::new(), last: None };
                prop_assert_eq!(desk.policies(&standings), fresh.policies(&standings));
            }
        }
    }

    #[test]
    fn numbers_are_written_in_full() {
        for number in [0, 7, 10, 99, 100, 999_999_999_999_999, u64::MAX] {
            assert_eq!(digits(&mut [0; 20], number), number.to_string().as_bytes());
        }
    }
}
