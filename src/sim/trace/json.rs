//! One field of a JSON line, found without reading the rest: no tree, no allocation but for escaped text.

use std::borrow::Cow;

/// Value of a field; `a.b` is field `b` of the object in field `a`. Text comes without its quotes.
///
/// None unless the line is an object that is well formed as far as the field.
pub(super) fn field<'a>(line: &'a [u8], path: &str) -> Option<Cow<'a, [u8]>> {
    // A name may hold a point itself, as "http.status" does in flat logs: the whole name counts first.
    let mut value = lookup(line, path.as_bytes());
    if value.is_none()
        && let Some((first, rest)) = path.split_once('.')
    {
        return field(lookup(line, first.as_bytes())?, rest);
    }
    match value.take()? {
        [b'"', text @ .., b'"'] if text.contains(&b'\\') => Some(Cow::Owned(unescaped(text))),
        [b'"', text @ .., b'"'] => Some(Cow::Borrowed(text)),
        raw => Some(Cow::Borrowed(raw)),
    }
}

fn lookup<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut rest = line.trim_ascii_start().strip_prefix(b"{")?;
    loop {
        rest = rest.trim_ascii_start();
        let (key, after) = value(rest)?;
        let key = key.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        rest = after.trim_ascii_start().strip_prefix(b":")?;
        let (found, after) = value(rest.trim_ascii_start())?;
        if key == name {
            return Some(found);
        }
        rest = after.trim_ascii_start().strip_prefix(b",")?;
    }
}

/// Splits the first value off, whatever it holds.
fn value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = match text.first()? {
        b'"' => string_end(text)?,
        b'{' | b'[' => nested_end(text)?,
        _ => text
            .iter()
            .position(|byte| b",}] \t\r\n".contains(byte))
            .filter(|end| *end > 0)?,
    };
    Some(text.split_at(end))
}

fn string_end(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// End of an object or array; counted, not recursed into, so that no depth overflows the stack.
fn nested_end(text: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        match text.get(at)? {
            b'"' => {
                at += string_end(&text[at..])?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

/// Text with its escapes undone; a broken one is left as it stands.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let (true, Some((&escape, after))) = (byte == b'\\', after.split_first()) else {
            plain.push(byte);
            continue;
        };
        rest = after;
        match escape {
            b'n' => plain.push(b'\n'),
            b't' => plain.push(b'\t'),
            b'r' => plain.push(b'\r'),
            b'u' => {
                let code = rest
                    .get(..4)
                    .and_then(|digits| std::str::from_utf8(digits).ok())
                    .and_then(|digits| u32::from_str_radix(digits, 16).ok());
                // Half of a surrogate pair stands for a letter outside the first plane: any letter tells keys apart.
                let letter = code.and_then(char::from_u32).unwrap_or('\u{FFFD}');
                plain.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                rest = rest.get(4..).unwrap_or_default();
            }
            other => plain.push(other),
        }
    }
    plain
}
