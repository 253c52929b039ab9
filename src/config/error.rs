//! What is wrong with a configuration, and where.

use std::error::Error;
use std::fmt;
use std::ops::Range;

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    message: String,
    place: Option<Place>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    line: usize,
    column: usize,
    width: usize,
    text: String,
}

impl ConfigError {
    pub(super) fn bare(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            place: None,
        }
    }

    pub(super) fn at(text: &str, span: Option<Range<usize>>, message: impl Into<String>) -> Self {
        let place = span.and_then(|span| {
            let before = text.get(..span.start)?;
            let start = before.rfind('\n').map_or(0, |at| at + 1);
            let line_text = text[start..].lines().next().unwrap_or_default();
            let marked = text.get(span).unwrap_or_default();
            Some(Place {
                line: before.matches('\n').count() + 1,
                column: text[start..before.len()].chars().count() + 1,
                width: marked
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .chars()
                    .count()
                    .max(1),
                text: line_text.chars().take(WIDEST).collect(),
            })
        });
        Self {
            message: message.into(),
            place,
        }
    }

    pub(super) fn from_toml(text: &str, error: &toml::de::Error) -> Self {
        // A message of several lines carries advice that belongs to the first.
        let message = error.message().trim().replace('\n', "; ");
        Self::at(text, error.span(), message)
    }

    /// Line of what is wrong, from 1; none if it is the file as a whole.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.place.as_ref().map(|place| place.line)
    }

    /// Column of it, from 1.
    #[must_use]
    pub fn column(&self) -> Option<usize> {
        self.place.as_ref().map(|place| place.column)
    }

    /// What is wrong, without its place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Place {
            line,
            column,
            width,
            text,
        }) = &self.place
        else {
            return f.write_str(&self.message);
        };
        let (indent, marks) = (column - 1, "^".repeat((*width).min(WIDEST)));
        writeln!(f, "line {line}, column {column}: {}", self.message)?;
        writeln!(f, "{line:>5} | {text}")?;
        write!(f, "      | {:indent$}{marks}", "")
    }
}

impl Error for ConfigError {}

/// Characters of a line that are shown.
const WIDEST: usize = 120;
