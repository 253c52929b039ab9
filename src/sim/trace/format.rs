//! What one line of a trace says: told apart by its form, with no reading and no state.

use std::borrow::Cow;

use super::json;
use super::time::{UNITS, civil, log_time, number};

/// How a line says its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// In one column, with the nanoseconds in one unit where it is a number.
    Csv {
        separator: u8,
        time: usize,
        unit: Option<i128>,
    },
    /// In square brackets after the user: the common and the combined log format.
    Log,
    /// In a field of an object, with the nanoseconds in one unit where it is a number.
    Json { time: String, unit: Option<i128> },
}

/// Where a line says something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Column {
    At(usize),
    Named(String),
}

impl Format {
    /// Tells the format by one line; none if the line has no time. `wanted` names the column or field of the time.
    pub(super) fn of(line: &[u8], header: Option<&[u8]>, wanted: Option<&str>) -> Option<Self> {
        if line.trim_ascii_start().starts_with(b"{") {
            return TIME_FIELDS
                .into_iter()
                .filter(|_| wanted.is_none())
                .chain(wanted)
                .find_map(|name| {
                    let unit = unit_of(&json::field(line, name)?)?;
                    let time = name.to_owned();
                    Some(Self::Json { time, unit })
                });
        }
        if wanted.is_none() && Self::Log.time_of(line).is_some() {
            return Some(Self::Log);
        }
        let separator = separator(line);
        let csv = |time: usize| {
            let unit = unit_of(fields(line, separator).nth(time)?)?;
            Some(Self::Csv {
                separator,
                time,
                unit,
            })
        };
        if let Some(wanted) = wanted {
            return csv(position(header.unwrap_or_default(), separator, wanted)?);
        }
        // The first column; else the one that is called so; else the first date of all.
        let named = || {
            let header = header.unwrap_or_default();
            let mut times = TIME_FIELDS.into_iter();
            times.find_map(|name| csv(position(header, separator, name)?))
        };
        let dated = || {
            let mut columns = fields(line, separator);
            csv(columns.position(|column| civil(column).is_some())?)
        };
        csv(0).or_else(named).or_else(dated)
    }

    /// Time that the line says, if it has one.
    pub(super) fn time_of(&self, line: &[u8]) -> Option<i128> {
        match self {
            Self::Csv {
                separator,
                time,
                unit,
            } => timed(fields(line, *separator).nth(*time)?, *unit),
            Self::Json { time, unit } => timed(&json::field(line, time)?, *unit),
            // The user's name may hold a bracket too: the first that opens a time counts.
            Self::Log => (0..line.len())
                .filter(|&at| line[at] == b'[')
                .find_map(|at| log_time(&line[at + 1..])),
        }
    }

    /// The column of that name or number; else what there is instead.
    pub(super) fn column(&self, header: Option<&[u8]>, wanted: &str) -> Result<Column, String> {
        match self {
            Self::Csv { separator, .. } => {
                let header = header.unwrap_or_default();
                position(header, *separator, wanted)
                    .map(Column::At)
                    .ok_or_else(|| {
                        let names: Vec<_> = fields(header, *separator)
                            .map(String::from_utf8_lossy)
                            .collect();
                        if header.is_empty() {
                            "no header".to_owned()
                        } else {
                            names.join(", ")
                        }
                    })
            }
            Self::Json { .. } => Ok(Column::Named(wanted.to_owned())),
            Self::Log if LOG_FIELDS.contains(&wanted) => Ok(Column::Named(wanted.to_owned())),
            Self::Log => Err(format!("{}: it is an access log", LOG_FIELDS.join(", "))),
        }
    }

    /// What the line says in a column.
    pub(super) fn text<'a>(&self, line: &'a [u8], column: &Column) -> Option<Cow<'a, [u8]>> {
        match (self, column) {
            (Self::Csv { separator, .. }, Column::At(index)) => {
                fields(line, *separator).nth(*index).map(Cow::Borrowed)
            }
            (Self::Json { .. }, Column::Named(name)) => json::field(line, name),
            (Self::Log, Column::Named(name)) => log_field(line, name).map(Cow::Borrowed),
            _ => None,
        }
    }
}

/// Columns of a line, without the blanks and the quotes around them; a quoted one may hold the separator.
pub(super) fn fields(line: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        let line = rest?;
        let mut quoted = false;
        let end = line.iter().position(|&byte| {
            quoted ^= byte == b'"';
            byte == separator && !quoted
        });
        rest = end.map(|end| &line[end + 1..]);
        let field = line[..end.unwrap_or(line.len())].trim_ascii();
        let inner = field
            .strip_prefix(b"\"")
            .and_then(|field| field.strip_suffix(b"\""));
        Some(inner.unwrap_or(field).trim_ascii())
    })
}

/// Start of a line for a message, fit for a terminal.
pub(super) fn excerpt(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(4 * EXCERPT)]);
    let mut short: String = text.trim_end().chars().take(EXCERPT).collect();
    if short.len() < text.trim_end().len() {
        short.push('…');
    }
    short
}

fn separator(line: &[u8]) -> u8 {
    let found = line.iter().copied().find(|byte| b",;\t".contains(byte));
    found.unwrap_or(b',')
}

/// Index of the column with that name or, counted from 1, that number.
fn position(header: &[u8], separator: u8, wanted: &str) -> Option<usize> {
    let named = fields(header, separator)
        .position(|name| !name.is_empty() && name.eq_ignore_ascii_case(wanted.as_bytes()));
    let numbered = || wanted.parse::<usize>().ok()?.checked_sub(1);
    named.or_else(numbered)
}

/// The unit that a time counts in, none for a date; none at all if it is no time.
fn unit_of(text: &[u8]) -> Option<Option<i128>> {
    if civil(text).is_some() || bracketed(text).is_some() {
        return Some(None);
    }
    let whole = number(text, 1)?;
    let unit = UNITS.iter().find(|(most, _)| whole < *most)?.1;
    Some(Some(unit))
}

fn timed(text: &[u8], unit: Option<i128>) -> Option<i128> {
    match unit {
        Some(unit) => number(text, unit),
        None => civil(text).or_else(|| bracketed(text)),
    }
}

/// The time of an access log where something else holds it, with or without its brackets.
fn bracketed(text: &[u8]) -> Option<i128> {
    let inner = text.strip_prefix(b"[").unwrap_or(text);
    let inner = inner.strip_suffix(b"]").unwrap_or(inner);
    (inner.len() <= 40).then(|| log_time(&[inner, b"]"].concat()))?
}

/// `client - user [time] "request" status bytes "referrer" "agent"`
fn log_field<'a>(line: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let word = |line: &'a [u8], nth: usize| {
        let mut words = line.split(u8::is_ascii_whitespace);
        words.nth(nth).filter(|word| !word.is_empty())
    };
    if name == "client" {
        return word(line, 0);
    }
    if name == "user" {
        return word(line, 2);
    }
    let open = line.iter().position(|byte| *byte == b'"')?;
    let (request, rest) = quoted(&line[open..])?;
    match name {
        "request" => Some(request),
        "status" => word(rest.trim_ascii_start(), 0),
        // Nothing was sent.
        "bytes" => {
            word(rest.trim_ascii_start(), 1).map(|word| if word == b"-" { b"0" } else { word })
        }
        "path" => word(request, 1),
        _ => None,
    }
}

fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 1;
    while *text.get(at)? != b'"' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    Some((&text[1..at], &text[at + 1..]))
}

/// Names under which logs keep their time, the most telling first.
const TIME_FIELDS: [&str; 8] = [
    "timestamp",
    "@timestamp",
    "time",
    "ts",
    "datetime",
    "date",
    "time_local",
    "t",
];
const LOG_FIELDS: [&str; 6] = ["client", "user", "request", "path", "status", "bytes"];
/// Characters of a line shown in a message.
const EXCERPT: usize = 60;
