//! Arrival times read from a file: the one reader behind `--trace`, with nothing but std.
//!
//! Two kinds of file are told apart by their first lines: a CSV (comma, semicolon or tab) whose first column is a time,
//! header allowed, and an access log in the common or combined format. A time is `2023-11-16 18:17:03.9799600`,
//! RFC 3339 with `Z` or an offset, or a Unix number in s, ms, us or ns (the first number's size decides which; small
//! numbers count as seconds). Without a zone it is UTC. Blank lines and lines starting with `#` are passed over.
//!
//! What it promises:
//! - I1  Memory is bounded whatever the file holds: one line of at most 64 KiB and 65,536 arrivals are held at once.
//! - I2  Arrivals come out in order of time, equal times in order of lines. An arrival up to 65,536 places late, as
//!   servers write them which log at the end of a request, is put right and counted; beyond that the file is refused.
//! - I3  A line that cannot be read is counted and never guessed at; the first few are kept with the reason.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

pub(crate) use error::TraceError;
use line::{Format, excerpt, fields};

#[path = "trace_error.rs"]
mod error;
mod line;

/// One arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Time since the first arrival.
    pub(crate) offset: Duration,
    /// Sum of the columns asked for with [`Trace::cost_columns`].
    pub(crate) cost: Option<u64>,
}

/// What the reader met on its way; complete once the trace has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// Arrivals read.
    pub(crate) arrivals: u64,
    /// Lines that could not be read.
    pub(crate) skipped: u64,
    /// The first few of them: number of the line, and the reason.
    pub(crate) first_skipped: Vec<(u64, String)>,
    /// Arrivals that stood after a later one and were put right.
    pub(crate) out_of_order: u64,
}

/// Arrivals of one file, in order of time.
#[derive(Debug)]
pub(crate) struct Trace<R> {
    lines: Lines<R>,
    format: Format,
    header: Option<Vec<u8>>,
    costs: Vec<usize>,
    early: BinaryHeap<Reverse<(i128, u64, Option<u64>)>>,
    ended: bool,
    newest: i128,
    first: Option<i128>,
    last: i128,
    notes: Notes,
}

impl Trace<BufReader<File>> {
    /// Opens a file and tells its format by its first lines.
    pub(crate) fn open(path: &Path) -> Result<Self, TraceError> {
        if path.is_dir() {
            return Err(TraceError::Directory);
        }
        Self::new(BufReader::new(File::open(path).map_err(TraceError::Open)?))
    }
}

impl<R: BufRead> Trace<R> {
    /// Tells the format by the first lines.
    pub(crate) fn new(reader: R) -> Result<Self, TraceError> {
        let mut trace = Self {
            lines: Lines {
                reader,
                text: Vec::new(),
                number: 0,
                in_tail: false,
            },
            format: Format::Log,
            header: None,
            costs: Vec::new(),
            early: BinaryHeap::new(),
            ended: false,
            newest: i128::MIN,
            first: None,
            last: i128::MIN,
            notes: Notes::default(),
        };
        trace.detect()?;
        Ok(trace)
    }

    /// Takes the sum of these columns as the cost: names of the header, or numbers from 1.
    pub(crate) fn cost_columns(mut self, wanted: &[&str]) -> Result<Self, TraceError> {
        let Format::Csv { separator, .. } = self.format else {
            let columns = "none: it is an access log".to_owned();
            let wanted = wanted.join(", ");
            return Err(TraceError::NoColumn { wanted, columns });
        };
        let header = self.header.as_deref().unwrap_or_default();
        let names: Vec<_> = fields(header, separator)
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect();
        for &want in wanted {
            let named = names.iter().position(|name| name == want);
            let numbered = want
                .parse::<usize>()
                .ok()
                .and_then(|number| number.checked_sub(1));
            self.costs
                .push(named.or(numbered).ok_or_else(|| TraceError::NoColumn {
                    wanted: want.to_owned(),
                    columns: if self.header.is_some() {
                        names.join(", ")
                    } else {
                        "no header".to_owned()
                    },
                })?);
        }
        // The first line was read, without its cost, to tell the format.
        self.early.clear();
        self.notes.arrivals = 0;
        self.take_line();
        Ok(self)
    }

    /// What was met so far.
    pub(crate) fn notes(&self) -> &Notes {
        &self.notes
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
            let Some(format) = Format::of(text) else {
                missed.push((self.lines.number, text.clone(), "no time in it".to_owned()));
                continue;
            };
            self.format = format;
            let mut missed = missed.into_iter();
            if matches!(format, Format::Csv { .. }) {
                self.header = missed.next().map(|(_, text, _)| text);
            }
            missed.for_each(|(number, _, reason)| self.skip(number, reason));
            self.take_line();
            return Ok(());
        }
        match missed.into_iter().next() {
            None => Err(TraceError::Empty),
            Some((_, first, _)) => Err(TraceError::NoTimes {
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
        let arrival = match self.format.time_of(&self.lines.text) {
            Some(time) => self.cost_of(&self.lines.text).map(|cost| (time, cost)),
            None => Err(format!("no time in {:?}", excerpt(&self.lines.text))),
        };
        match arrival {
            Ok((time, cost)) => {
                self.notes.arrivals += 1;
                if time < self.newest {
                    self.notes.out_of_order += 1;
                }
                self.newest = self.newest.max(time);
                self.early.push(Reverse((time, self.lines.number, cost)));
            }
            Err(reason) => self.skip(self.lines.number, reason),
        }
    }

    fn cost_of(&self, line: &[u8]) -> Result<Option<u64>, String> {
        let Format::Csv { separator, .. } = self.format else {
            return Ok(None);
        };
        let mut sum = None;
        for &column in &self.costs {
            let field = fields(line, separator).nth(column).unwrap_or_default();
            let value = std::str::from_utf8(field)
                .ok()
                .and_then(|field| field.trim().parse::<u64>().ok());
            let value = value
                .ok_or_else(|| format!("no cost in column {}: {:?}", column + 1, excerpt(field)))?;
            sum = Some(value.saturating_add(sum.unwrap_or(0)));
        }
        Ok(sum)
    }

    fn skip(&mut self, line: u64, reason: String) {
        self.notes.skipped += 1;
        if self.notes.first_skipped.len() < KEPT {
            self.notes.first_skipped.push((line, reason));
        }
    }
}

impl<R: BufRead> Iterator for Trace<R> {
    type Item = Result<Arrival, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended && self.early.len() < REORDER {
            match self.next_line() {
                Ok(true) => self.take_line(),
                Ok(false) => self.ended = true,
                Err(error) => {
                    self.ended = true;
                    self.early.clear();
                    return Some(Err(error));
                }
            }
        }
        let Reverse((time, line, cost)) = self.early.pop()?;
        if time < self.last {
            self.ended = true;
            self.early.clear();
            return Some(Err(TraceError::Unsorted {
                line,
                behind: span(time, self.last),
            }));
        }
        self.last = time;
        let first = *self.first.get_or_insert(time);
        Some(Ok(Arrival {
            offset: span(first, time),
            cost,
        }))
    }
}

/// Lines of a reader, none of them held beyond [`LONGEST`] bytes (keeps I1).
#[derive(Debug)]
struct Lines<R> {
    reader: R,
    text: Vec<u8>,
    number: u64,
    /// The rest of a line that was too long is still to be passed over.
    in_tail: bool,
}

enum Step {
    Line,
    /// Its start is in `text`; its end, if it has one, has not been looked for.
    TooLong,
    End,
}

impl<R: BufRead> Lines<R> {
    fn advance(&mut self) -> io::Result<Step> {
        while self.in_tail {
            self.in_tail = self.take()?.is_none();
        }
        self.text.clear();
        self.number += 1;
        let ended = loop {
            match self.take()? {
                None if self.text.len() > LONGEST => break false,
                None => {}
                Some(newline) if newline || !self.text.is_empty() => break true,
                Some(_) => {
                    self.number -= 1;
                    return Ok(Step::End);
                }
            }
        };
        if self.number == 1 && self.text.starts_with(b"\xEF\xBB\xBF") {
            self.text.drain(..3);
        }
        self.in_tail = !ended;
        let long = self.text.len() > LONGEST;
        Ok(if long { Step::TooLong } else { Step::Line })
    }

    /// Takes what the reader has of this line; at its end, says whether by a newline or by the end of the file.
    fn take(&mut self) -> io::Result<Option<bool>> {
        let chunk = loop {
            match self.reader.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                // Asked again, as the borrow of the first answer would last too long.
                Ok(_) => break self.reader.fill_buf()?,
            }
        };
        let newline = chunk.iter().position(|&byte| byte == b'\n');
        let part = &chunk[..newline.unwrap_or(chunk.len())];
        let ended = newline
            .is_some()
            .then_some(true)
            .or(chunk.is_empty().then_some(false));
        if !self.in_tail {
            let room = (LONGEST + 1).saturating_sub(self.text.len());
            self.text.extend_from_slice(&part[..part.len().min(room)]);
        }
        let used = part.len() + usize::from(newline.is_some());
        self.reader.consume(used);
        Ok(ended)
    }
}

fn span(from: i128, to: i128) -> Duration {
    let nanos = u128::try_from(to - from).unwrap_or(0);
    let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
    Duration::new(seconds, (nanos % 1_000_000_000) as u32)
}

/// Longest line that is read; servers refuse longer request lines.
const LONGEST: usize = 64 * 1024;
/// Arrivals held back to put late ones in order: minutes of a busy server's log, 3 MiB of memory.
const REORDER: usize = 65_536;
/// Unreadable lines kept with their reason.
const KEPT: usize = 5;
/// Lines looked at to tell the format: more than any header, few enough to refuse a wrong file at once.
const DETECT: usize = 32;
/// First bytes of compressed files, what they are, and what unpacks them.
const MAGIC: [(&[u8], &str, &str); 5] = [
    (b"\x1F\x8B", "gzip", "gunzip"),
    (b"\x28\xB5\x2F\xFD", "zstd", "unzstd"),
    (b"\xFD7zXZ", "xz", "unxz"),
    (b"BZh", "bzip2", "bunzip2"),
    (b"PK\x03\x04", "zip", "unzip"),
];
