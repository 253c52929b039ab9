//! What is no trace, and how the reader says so.

use std::fmt;
use std::io;
use std::time::Duration;

use super::REORDER;

/// Why a file gives no arrivals.
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceError {
    /// It cannot be opened.
    Open(io::Error),
    /// Reading stopped.
    Read {
        /// Last line that was read.
        line: u64,
        /// What stopped it.
        source: io::Error,
    },
    /// It is a directory.
    Directory,
    /// It holds nothing but blank lines and comments.
    Empty,
    /// None of its lines is short enough to be an arrival.
    TooLong {
        /// How many lines there are.
        lines: u64,
        /// Bytes that a line may have.
        longest: usize,
    },
    /// It is compressed, by the first bytes.
    Compressed {
        /// The kind of compression.
        kind: &'static str,
        /// The program that undoes it.
        tool: &'static str,
    },
    /// It holds zero bytes where text should be.
    Binary,
    /// None of its first lines has a time.
    NoTimes {
        /// How many lines were looked at.
        lines: u64,
        /// Start of the first.
        first: String,
    },
    /// A line lies too far back to be put in order.
    Unsorted {
        /// Number of the line.
        line: u64,
        /// How far it lies before what was read already.
        behind: Duration,
    },
    /// It has no such column.
    NoColumn {
        /// The column that was asked for.
        wanted: String,
        /// The columns that there are.
        columns: String,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(source) if source.kind() == io::ErrorKind::NotFound => {
                f.write_str("no such file")
            }
            Self::Open(source) => write!(f, "cannot be opened: {source}"),
            Self::Read { line, source } => write!(f, "cannot be read after line {line}: {source}"),
            Self::Directory => f.write_str("is a directory; a file is needed"),
            Self::Empty => f.write_str("is empty: it holds no arrivals"),
            Self::TooLong { lines, longest } => write!(
                f,
                "holds no arrivals: each of its lines ({lines}) is longer than {longest} bytes"
            ),
            Self::Compressed { kind, tool } => {
                write!(f, "is {kind} data; unpack it first ({tool})")
            }
            Self::Binary => f.write_str("is binary (or UTF-16) data; a text file is needed"),
            Self::NoTimes { lines, first } => write!(
                f,
                "has no time in its first {lines} lines: neither a CSV with a column of times, nor an access log, nor \
                 JSON lines with a time; it starts with {first:?}"
            ),
            Self::Unsorted { line, behind } => write!(
                f,
                "is not in order of time: line {line} lies {behind:?} back and more than {REORDER} arrivals late; sort it first"
            ),
            Self::NoColumn { wanted, columns } => {
                write!(f, "has no column {wanted:?}; it has {columns}")
            }
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(source) | Self::Read { source, .. } => Some(source),
            _ => None,
        }
    }
}
