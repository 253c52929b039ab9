//! Keys as people read them.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::{BOOL, BYTES, IPV4, IPV6, Key, LONG_LENGTH, NEGATIVE, POSITIVE, TEXT, TUPLE, UNIT};

impl Key {
    /// The key as text, cut after so many characters; control characters and what is no text are escaped.
    pub(crate) fn to_text(&self, most: usize) -> String {
        let mut out = Cut {
            text: String::new(),
            left: most,
        };
        // Its only error is that it is full.
        let _ = write_key(&mut out, self.as_bytes());
        out.text
    }

    /// Whether it is the one key of a level that everybody shares.
    #[allow(dead_code)]
    pub(crate) fn is_everybody(&self) -> bool {
        self.as_bytes() == [UNIT]
    }
}

/// Text that ends in an ellipsis where it was cut.
struct Cut {
    text: String,
    left: usize,
}

impl Write for Cut {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for c in text.chars() {
            self.left = match self.left.checked_sub(1) {
                Some(left) => left,
                None => {
                    self.text.pop();
                    self.text.push('…');
                    return Err(std::fmt::Error);
                }
            };
            self.text.push(c);
        }
        Ok(())
    }
}

/// Writes the key at the front of some bytes; what is behind it is the answer.
fn write_key<'a>(out: &mut Cut, bytes: &'a [u8]) -> Result<&'a [u8], std::fmt::Error> {
    let (tag, rest) = bytes.split_first().ok_or(std::fmt::Error)?;
    match *tag {
        UNIT => out.write_str("everybody").map(|()| rest),
        TUPLE => {
            let (count, mut rest) = rest.split_first().ok_or(std::fmt::Error)?;
            for part in 0..*count {
                if part > 0 {
                    out.write_str(" ")?;
                }
                rest = write_key(out, rest)?;
            }
            Ok(rest)
        }
        IPV4 => {
            let (address, rest) = rest.split_first_chunk::<4>().ok_or(std::fmt::Error)?;
            write!(out, "{}", Ipv4Addr::from(*address)).map(|()| rest)
        }
        IPV6 => {
            let (address, rest) = rest.split_first_chunk::<16>().ok_or(std::fmt::Error)?;
            write!(out, "{}", Ipv6Addr::from(*address)).map(|()| rest)
        }
        BOOL => {
            let (value, rest) = rest.split_first().ok_or(std::fmt::Error)?;
            write!(out, "{}", *value > 0).map(|()| rest)
        }
        kind => {
            let (value, rest) = measured(rest).ok_or(std::fmt::Error)?;
            match kind {
                POSITIVE | NEGATIVE => {
                    let value = value
                        .iter()
                        .fold(0_u128, |sum, b| sum << 8 | u128::from(*b));
                    let sign = if kind == NEGATIVE { "-" } else { "" };
                    write!(out, "{sign}{value}")?;
                }
                TEXT | BYTES => write_text(out, value)?,
                _ => return Err(std::fmt::Error),
            }
            Ok(rest)
        }
    }
}

/// Text without what would break a line, reverse it, or hide in it.
fn write_text(out: &mut Cut, bytes: &[u8]) -> std::fmt::Result {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            // What `Debug` escapes is what does not show; quotes do.
            if c == '"' || c == '\'' {
                out.write_char(c)?;
            } else {
                write!(out, "{}", c.escape_debug())?;
            }
        }
        write!(out, "{}", chunk.invalid().escape_ascii())?;
    }
    Ok(())
}

/// Bytes behind their length.
fn measured(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (first, rest) = bytes.split_first()?;
    if *first < LONG_LENGTH {
        return rest.split_at_checked(usize::from(*first));
    }
    let (length, rest) = rest.split_first_chunk::<8>()?;
    rest.split_at_checked(usize::try_from(u64::from_be_bytes(*length)).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::IntoKey;
    use std::net::IpAddr;

    #[track_caller]
    fn check(key: impl IntoKey, text: &str) {
        let key = key.into_key().expect("there is one");
        assert_eq!(key.to_text(64), text);
    }

    #[test]
    fn a_key_reads_as_what_it_was_made_from() {
        check("ada", "ada");
        check(1_200_u64, "1200");
        check(-5, "-5");
        check(u128::MAX, &u128::MAX.to_string());
        check(IpAddr::from([192, 0, 2, 1]), "192.0.2.1");
        check(
            "2001:db8::1".parse::<IpAddr>().expect("it is one"),
            "2001:db8::1",
        );
        check(true, "true");
        check((), "everybody");
        check(("ada", ("GET", 7)), "ada GET 7");
    }

    #[test]
    fn a_key_breaks_no_line_and_is_cut() {
        check("a\n\u{1b}[31m\u{202e}b", "a\\n\\u{1b}[31m\\u{202e}b");
        check("<b>\"it's\"</b>", "<b>\"it's\"</b>");
        check(&b"\xff\x00"[..], "\\xff\\0");
        let long = Key::from("x".repeat(64_000)).to_text(64);
        assert_eq!(long.chars().count(), 64);
        assert!(long.ends_with("x…"));
        let forged = Key::from("é".repeat(200)).to_text(64);
        assert_eq!(forged, format!("{}…", "é".repeat(63)));
    }
}
