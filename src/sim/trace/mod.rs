//! Arrival times read from a file, in a stream: the one reader behind every `--trace`, with nothing but std.
//!
//! Three kinds of file are told apart by their first lines: a CSV (comma, semicolon or tab; a header is optional) with a
//! column of times, an access log in the common or combined format, and JSON lines. A time is
//! `2023-11-16 18:17:03.9799600`, RFC 3339 with `Z` or an offset, or a Unix number in s, ms, us or ns (the first number's
//! size decides which; small numbers count as seconds). Without a zone it is UTC. Blank lines and lines starting with `#`
//! are passed over.
//!
//! What it promises:
//! - I1  Memory is bounded whatever the file holds: one line of at most 64 KiB and 65,536 arrivals are held at once.
//! - I2  Arrivals come out in order of time, equal times in order of lines. An arrival up to 65,536 places late, as
//!   servers write them which log at the end of a request, is put right and counted; beyond that the file is refused.
//! - I3  A line that cannot be read is counted and never guessed at; the first few are kept with the reason.
//!
//! The examples include this file by its path, so it names nothing else of the crate.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

pub use error::TraceError;
use format::{Column, Format, excerpt};
use lines::{LONGEST, Lines, Step};
pub use options::{Bound, Columns};

mod error;
mod format;
mod json;
mod lines;
mod options;
mod time;

/// One arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Time since the first arrival.
    pub offset: Duration,
    /// Sum of the columns asked for with [`Columns::cost`].
    pub cost: Option<u64>,
    /// Whose it is, if a column was asked for with [`Columns::key`].
    pub key: Option<Box<str>>,
}

/// What the reader met on its way; complete once the trace has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Notes {
    /// Arrivals read.
    pub arrivals: u64,
    /// Of these, arrivals outside the part that was asked for.
    pub outside: u64,
    /// Lines that could not be read.
    pub skipped: u64,
    /// The first few of them: number of the line, and the reason.
    pub first_skipped: Vec<(u64, String)>,
    /// Arrivals that stood after a later one and were put right.
    pub out_of_order: u64,
    /// The furthest that one of these stood behind; an hour tells of clocks that were put back.
    pub furthest_back: Duration,
}

/// Arrivals of one file, in order of time.
#[derive(Debug)]
pub struct Trace<R> {
    lines: Lines<R>,
    format: Format,
    columns: Columns,
    header: Option<Vec<u8>>,
    costs: Vec<Column>,
    key: Option<Column>,
    early: BinaryHeap<Reverse<Held>>,
    ended: bool,
    newest: i128,
    first: Option<i128>,
    first_kept: Option<i128>,
    last: i128,
    notes: Notes,
}

/// An arrival that waits for earlier ones; no two are of the same line.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    time: i128,
    line: u64,
    cost: Option<u64>,
    key: Option<Box<str>>,
}

impl Trace<BufReader<File>> {
    /// Opens a file and tells its format by its first lines.
    ///
    /// # Errors
    /// If it cannot be opened, or holds no arrivals in any known form.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::open_with(path, Columns::new())
    }

    /// Opens a file and reads these columns of it.
    ///
    /// # Errors
    /// As [`open`](Self::open), and if it has no such column.
    pub fn open_with(path: &Path, columns: Columns) -> Result<Self, TraceError> {
        if path.is_dir() {
            return Err(TraceError::Directory);
        }
        let file = File::open(path).map_err(TraceError::Open)?;
        Self::with(BufReader::with_capacity(BUFFER, file), columns)
    }
}

impl<R: BufRead> Trace<R> {
    /// Tells the format by the first lines.
    ///
    /// # Errors
    /// If it holds no arrivals in any known form.
    pub fn new(reader: R) -> Result<Self, TraceError> {
        Self::with(reader, Columns::new())
    }

    /// Tells the format by the first lines, and reads these columns.
    ///
    /// # Errors
    /// If it holds no arrivals in any known form, or has no such column.
    pub fn with(reader: R, columns: Columns) -> Result<Self, TraceError> {
        let mut trace = Self {
            lines: Lines::new(reader),
            format: Format::Log,
            columns,
            header: None,
            costs: Vec::new(),
            key: None,
            early: BinaryHeap::new(),
            ended: false,
            newest: i128::MIN,
            first: None,
            first_kept: None,
            last: i128::MIN,
            notes: Notes::default(),
        };
        trace.detect()?;
        Ok(trace)
    }

    /// What was met so far.
    #[must_use]
    pub const fn notes(&self) -> &Notes {
        &self.notes
    }

    /// When the first arrival of the part that is read came: nanoseconds since 1970, once it is known.
    #[must_use]
    pub const fn began(&self) -> Option<i128> {
        self.first_kept
    }

    fn detect(&mut self) -> Result<(), TraceError> {
        let mut missed: Vec<(u64, Vec<u8>, String)> = Vec::new();
        while missed.len() < DETECT && self.next_line()? {
            let text = &self.lines.text;
            if self.lines.number == 1
                && let Some(&(_, kind, tool)) =
                    MAGIC.iter().find(|(magic, ..)| text.starts_with(magic))
            {
                return Err(TraceError::Compressed { kind, tool });
            }
            if text.contains(&0) {
                return Err(TraceError::Binary);
            }
            let header = missed.first().map(|(_, text, _)| &text[..]);
            let Some(format) = Format::of(text, header, self.columns.time.as_deref()) else {
                missed.push((self.lines.number, text.clone(), "no time in it".to_owned()));
                continue;
            };
            let mut missed = missed.into_iter();
            if matches!(format, Format::Csv { .. }) {
                self.header = missed.next().map(|(_, text, _)| text);
            }
            self.format = format;
            let column = |wanted: &String| {
                let found = self.format.column(self.header.as_deref(), wanted);
                let wanted = wanted.clone();
                found.map_err(|columns| TraceError::NoColumn { wanted, columns })
            };
            self.key = self.columns.key.as_ref().map(column).transpose()?;
            self.costs = self
                .columns
                .costs
                .iter()
                .map(column)
                .collect::<Result<_, _>>()?;
            missed.for_each(|(number, _, reason)| self.skip(number, reason));
            self.take_line();
            return Ok(());
        }
        match (missed.into_iter().next(), self.columns.time.take()) {
            (None, _) if self.notes.skipped > 0 => Err(TraceError::TooLong {
                lines: self.notes.skipped,
                longest: LONGEST,
            }),
            (None, _) => Err(TraceError::Empty),
            (Some((_, first, _)), Some(wanted)) => Err(TraceError::NoColumn {
                wanted: format!("{wanted} with a time"),
                columns: excerpt(&first),
            }),
            (Some((_, first, _)), None) => Err(TraceError::NoTimes {
                lines: self.lines.number,
                first: excerpt(&first),
            }),
        }
    }

    /// Moves to the next line that is neither blank, a comment, nor too long; false at the end.
    fn next_line(&mut self) -> Result<bool, TraceError> {
        loop {
            let line = self.lines.number;
            match self
                .lines
                .advance()
                .map_err(|source| TraceError::Read { line, source })?
            {
                Step::End => return Ok(false),
                Step::Line if self.lines.text.iter().all(u8::is_ascii_whitespace) => {}
                Step::Line if self.lines.text.starts_with(b"#") => {}
                Step::Line => return Ok(true),
                Step::TooLong if self.notes.arrivals == 0 && self.lines.text.contains(&0) => {
                    return Err(TraceError::Binary);
                }
                Step::TooLong => self.skip(line + 1, format!("longer than {LONGEST} bytes")),
            }
        }
    }

    /// Reads the arrival of the line at hand into the heap, or counts the line as unreadable.
    fn take_line(&mut self) {
        let text = &self.lines.text;
        let time = self.format.time_of(text);
        let time = time.ok_or_else(|| format!("no time in {:?}", excerpt(text)));
        let arrival = time.and_then(|time| Ok((time, self.cost_of(text)?, self.key_of(text)?)));
        match arrival {
            Ok((time, cost, key)) => {
                self.notes.arrivals += 1;
                if time < self.newest {
                    self.notes.out_of_order += 1;
                    let back = span(time, self.newest);
                    self.notes.furthest_back = self.notes.furthest_back.max(back);
                }
                self.newest = self.newest.max(time);
                let line = self.lines.number;
                self.early.push(Reverse(Held {
                    time,
                    line,
                    cost,
                    key,
                }));
            }
            Err(reason) => self.skip(self.lines.number, reason),
        }
    }

    fn cost_of(&self, line: &[u8]) -> Result<Option<u64>, String> {
        let mut sum = None;
        for column in &self.costs {
            let field = self.format.text(line, column).unwrap_or_default();
            let value = std::str::from_utf8(&field)
                .ok()
                .and_then(|field| field.trim().parse::<u64>().ok());
            let name = match column {
                Column::At(index) => format!("column {}", index + 1),
                Column::Named(name) => name.clone(),
            };
            let value = value.ok_or_else(|| format!("no cost in {name}: {:?}", excerpt(&field)))?;
            sum = Some(value.saturating_add(sum.unwrap_or(0)));
        }
        Ok(sum)
    }

    fn key_of(&self, line: &[u8]) -> Result<Option<Box<str>>, String> {
        let Some(column) = &self.key else {
            return Ok(None);
        };
        let field = self.format.text(line, column);
        let field = field.ok_or_else(|| format!("no key in {:?}", excerpt(line)))?;
        let field = String::from_utf8_lossy(&field[..field.len().min(LONGEST_KEY)]);
        Ok(Some(field.into()))
    }

    fn skip(&mut self, line: u64, reason: String) {
        self.notes.skipped += 1;
        if self.notes.first_skipped.len() < KEPT {
            self.notes.first_skipped.push((line, reason));
        }
    }

    /// Fills the heap, as far as the file goes and the bound allows.
    fn read_ahead(&mut self) -> Result<(), TraceError> {
        while !self.ended && self.early.len() < REORDER {
            if self.next_line()? {
                self.take_line();
            } else {
                self.ended = true;
            }
        }
        Ok(())
    }

    fn stop(&mut self) {
        self.ended = true;
        self.early.clear();
    }
}

impl<R: BufRead> Iterator for Trace<R> {
    type Item = Result<Arrival, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Err(error) = self.read_ahead() {
                self.stop();
                return Some(Err(error));
            }
            let Reverse(held) = self.early.pop()?;
            let Held {
                time,
                line,
                cost,
                key,
            } = held;
            if time < self.last {
                self.stop();
                let behind = span(time, self.last);
                return Some(Err(TraceError::Unsorted { line, behind }));
            }
            self.last = time;
            let first = *self.first.get_or_insert(time);
            let bound = |bound: Option<Bound>| bound.map(|bound| bound.resolve(first));
            if bound(self.columns.to).is_some_and(|to| time >= to) {
                self.notes.outside += 1 + self.early.len() as u64;
                self.stop();
                return None;
            }
            if bound(self.columns.from).is_some_and(|from| time < from) {
                self.notes.outside += 1;
                continue;
            }
            let first = *self.first_kept.get_or_insert(time);
            let offset = span(first, time);
            return Some(Ok(Arrival { offset, cost, key }));
        }
    }
}

fn span(from: i128, to: i128) -> Duration {
    let nanos = u128::try_from(to - from).unwrap_or(0);
    let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
    Duration::new(seconds, (nanos % 1_000_000_000) as u32)
}

/// Arrivals held back to put late ones in order: minutes of a busy server's log, a few MiB of memory.
const REORDER: usize = 65_536;
/// Unreadable lines kept with their reason.
const KEPT: usize = 5;
/// Lines looked at to tell the format: more than any header, few enough to refuse a wrong file at once.
const DETECT: usize = 32;
/// Bytes of a key that count.
const LONGEST_KEY: usize = 256;
const BUFFER: usize = 256 * 1024;
/// First bytes of compressed files, what they are, and what unpacks them.
const MAGIC: [(&[u8], &str, &str); 5] = [
    (b"\x1F\x8B", "gzip", "gunzip"),
    (b"\x28\xB5\x2F\xFD", "zstd", "unzstd"),
    (b"\xFD7zXZ", "xz", "unxz"),
    (b"BZh", "bzip2", "bunzip2"),
    (b"PK\x03\x04", "zip", "unzip"),
];
