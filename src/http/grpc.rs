//! Refusals as gRPC speaks them: trailers only, with the details that clients retry by.

use std::fmt::Write;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::problem::{DeniedRequest, millis};
use super::refused::RefusalKind;

/// Puts the status of a refusal into the headers of a response without body.
pub(super) fn write(denied: &DeniedRequest<'_>, headers: &mut HeaderMap) {
    let code = denied.kind.grpc_code();
    let message = denied.kind.title();
    headers.insert(GRPC_STATUS, HeaderValue::from(u64::from(code)));
    // Titles are printable ASCII without a percent sign, so there is nothing to encode.
    headers.insert(GRPC_MESSAGE, HeaderValue::from_static(message));
    let details = base64(&details(denied));
    if let Ok(details) = HeaderValue::try_from(details) {
        headers.insert(GRPC_DETAILS, details);
    }
    let pushback = match (denied.wait, denied.kind) {
        (Some(wait), _) => Some(HeaderValue::from(millis(wait).max(1))),
        // "Do not retry at all", in the words of gRPC's retry design.
        (None, RefusalKind::TooCostly) => Some(HeaderValue::from_static("-1")),
        (None, _) => None,
    };
    if let Some(pushback) = pushback {
        headers.insert(GRPC_PUSHBACK, pushback);
    }
}

/// A `google.rpc.Status` with `ErrorInfo`, and `RetryInfo` where retrying helps.
pub(super) fn details(denied: &DeniedRequest<'_>) -> Vec<u8> {
    let kind = denied.kind;
    let mut status = Message::default();
    status.varint(1, u64::from(kind.grpc_code()));
    status.bytes(2, kind.title().as_bytes());
    if let Some(wait) = denied.wait {
        let wait = wait.max(Duration::from_nanos(1));
        let mut delay = Message::default();
        delay.varint(1, wait.as_secs().min(MOST_SECONDS));
        delay.varint(2, u64::from(wait.subsec_nanos()));
        let mut info = Message::default();
        info.bytes(1, &delay.0);
        status.any("google.rpc.RetryInfo", info);
    }
    if kind == RefusalKind::Quota {
        let mut failure = Message::default();
        for policy in denied.violated {
            let mut violation = Message::default();
            violation.bytes(1, format!("policy:{policy}").as_bytes());
            violation.bytes(
                2,
                format!("the quota of policy {policy} is used up").as_bytes(),
            );
            failure.bytes(1, &violation.0);
        }
        status.any("google.rpc.QuotaFailure", failure);
    }
    let mut info = Message::default();
    info.bytes(1, kind.reason().as_bytes());
    info.bytes(2, b"sluicegate");
    if let Some(policy) = denied.violated.first() {
        let mut entry = Message::default();
        entry.bytes(1, b"policy");
        entry.bytes(2, policy.as_bytes());
        info.bytes(3, &entry.0);
    }
    status.any("google.rpc.ErrorInfo", info);
    status.0
}

/// A protocol buffer under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, field: u8, value: u64) {
        if value > 0 {
            self.0.push(field << 3);
            self.raw(value);
        }
    }

    fn bytes(&mut self, field: u8, bytes: &[u8]) {
        self.0.push(field << 3 | 2);
        self.raw(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn any(&mut self, name: &str, message: Self) {
        let mut any = Self::default();
        any.bytes(1, format!("type.googleapis.com/{name}").as_bytes());
        any.bytes(2, &message.0);
        self.bytes(3, &any.0);
    }

    fn raw(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// Without padding, as gRPC has it.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut word = 0_u32;
        for index in 0..3 {
            word = word << 8 | u32::from(chunk.get(index).copied().unwrap_or(0));
        }
        for index in 0..=chunk.len() {
            let six = word >> (18 - 6 * index) & 63;
            let _ = text.write_char(char::from(LETTERS[six as usize]));
        }
    }
    text
}

/// Time that a gRPC client still has, by its `grpc-timeout`; `None` if it does not say, or not so that it can be read.
pub(super) fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let unit = text.chars().next_back()?;
    let digits = &text[..text.len() - unit.len_utf8()];
    let is_number = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    let count: u64 = digits.parse().ok().filter(|_| is_number)?;
    Some(match unit {
        'H' => Duration::from_secs(count * 3600),
        'M' => Duration::from_secs(count * 60),
        'S' => Duration::from_secs(count),
        'm' => Duration::from_millis(count),
        'u' => Duration::from_micros(count),
        'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const GRPC_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Longest `google.protobuf.Duration`: 10,000 years.
const MOST_SECONDS: u64 = 315_576_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_rfc_4648_without_padding() {
        let pairs = [
            ("", ""),
            ("f", "Zg"),
            ("fo", "Zm8"),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg"),
            ("fooba", "Zm9vYmE"),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, encoded) in pairs {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8");
    }

    #[test]
    fn timeouts_are_read_in_every_unit_and_nothing_else_is() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().expect("a value"));
            timeout(&headers)
        };
        assert_eq!(read("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(read("1M"), Some(Duration::from_secs(60)));
        assert_eq!(read("99999999S"), Some(Duration::from_secs(99_999_999)));
        assert_eq!(read("250m"), Some(Duration::from_millis(250)));
        assert_eq!(read("7u"), Some(Duration::from_micros(7)));
        assert_eq!(read("0n"), Some(Duration::ZERO));
        for bad in [
            "",
            "S",
            "1",
            "-1S",
            "+1S",
            "123456789S",
            "1s",
            "1.5S",
            "1 S",
        ] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
