//! Where arrivals come from: a file or a pattern; read anew for every run.

use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sluicegate::sim::{Arrival, Bound, Columns, Notes, Pattern, Trace};
use sluicegate::{BuildError, Tick};

use crate::values::{factor, span};

/// Arrivals
#[derive(Args, Debug)]
pub(crate) struct Source {
    /// Arrivals of a file: a CSV, an access log, or JSON lines
    #[arg(long, value_name = "FILE", conflicts_with = "generate")]
    pub(crate) trace: Option<PathBuf>,
    /// Arrivals of a pattern, like "poisson 900/s" or "on_off 2000/s on 2s off 3s"
    #[arg(long, value_name = "PATTERN")]
    pub(crate) generate: Option<Pattern>,
    /// How long the pattern goes on
    #[arg(long, value_name = "SPAN", default_value = "60s", value_parser = span, conflicts_with = "trace")]
    length: Duration,
    /// Seed of the pattern and of the model; printed with the result
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Column (by name, or by number from 1) or JSON field of the time
    #[arg(long, value_name = "COLUMN", requires = "trace")]
    time: Option<String>,
    /// Column of the key: whose arrival it is ("client" in an access log)
    #[arg(long, value_name = "COLUMN", requires = "trace")]
    key: Option<String>,
    /// Column of the cost; several are added up
    #[arg(long, value_name = "COLUMN", requires = "trace")]
    cost: Vec<String>,
    /// Leave out what comes before: a time, or a span after the first arrival
    #[arg(long, value_name = "WHEN", requires = "trace")]
    from: Option<Bound>,
    /// Leave out what comes at this time and after it
    #[arg(long, value_name = "WHEN", requires = "trace")]
    to: Option<Bound>,
    /// Let everything come so many times as fast
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = factor)]
    pub(crate) speedup: f64,
}

/// The arrivals of one run.
pub(crate) struct Arrivals {
    first: Option<Arrival>,
    rest: Rest,
    name: String,
    speedup: f64,
}

enum Rest {
    Trace(Box<Trace<BufReader<File>>>),
    Pattern(Box<dyn Iterator<Item = Arrival>>),
}

/// Why arrivals end before their time.
#[derive(Debug)]
pub(crate) struct Broken(pub(crate) String);

impl From<BuildError> for Broken {
    fn from(error: BuildError) -> Self {
        Self(error.to_string())
    }
}

impl Source {
    /// Whether arrivals have a key.
    pub(crate) const fn has_key(&self) -> bool {
        self.key.is_some()
    }

    pub(crate) fn open(&self) -> Result<Arrivals, String> {
        let (name, rest) = match (&self.trace, self.generate) {
            (Some(path), _) => {
                let mut columns = Columns::new();
                if let Some(time) = &self.time {
                    columns = columns.time(time);
                }
                if let Some(key) = &self.key {
                    columns = columns.key(key);
                }
                for cost in &self.cost {
                    columns = columns.cost(cost);
                }
                if let Some(from) = self.from {
                    columns = columns.from(from);
                }
                if let Some(to) = self.to {
                    columns = columns.to(to);
                }
                let name = path.display().to_string();
                let trace = Trace::open_with(path, columns);
                let trace = trace.map_err(|error| format!("{name} {error}"))?;
                (name, Rest::Trace(Box::new(trace)))
            }
            (None, Some(pattern)) => {
                let length = self.length;
                let arrivals = pattern.arrivals(self.seed);
                let arrivals = arrivals.take_while(move |arrival| arrival.offset < length);
                (pattern.to_string(), Rest::Pattern(Box::new(arrivals)))
            }
            (None, None) => {
                return Err("nothing arrives: --trace FILE or --generate PATTERN is needed".into());
            }
        };
        let mut arrivals = Arrivals {
            first: None,
            rest,
            name,
            speedup: self.speedup,
        };
        // Read ahead by one, so that it is known when everything begins.
        let first = arrivals.advance().transpose();
        arrivals.first = first.map_err(|Broken(message)| message)?;
        if arrivals.first.is_none() {
            return Err(format!(
                "{} holds no arrivals in the part that was asked for",
                arrivals.name
            ));
        }
        Ok(arrivals)
    }
}

impl Arrivals {
    /// When the first arrival came, in Unix time; a pattern begins on a Monday at midnight.
    pub(crate) fn began(&self) -> Tick {
        let nanos = match &self.rest {
            Rest::Trace(trace) => trace.began().and_then(|nanos| u64::try_from(nanos).ok()),
            Rest::Pattern(_) => None,
        };
        Tick::from_nanos(nanos.unwrap_or(MONDAY))
    }

    /// What the reader met.
    pub(crate) fn notes(&self) -> Option<&Notes> {
        match &self.rest {
            Rest::Trace(trace) => Some(trace.notes()),
            Rest::Pattern(_) => None,
        }
    }

    /// Where they came from and what was met, in lines of text.
    pub(crate) fn told(&self, seed: u64) -> String {
        let mut text = String::new();
        let Some(notes) = self.notes() else {
            let _ = writeln!(text, "arrivals: {}, seed {seed}", self.name);
            return text;
        };
        let _ = write!(text, "arrivals: {}, {} read", self.name, notes.arrivals);
        if notes.outside > 0 {
            let _ = write!(text, ", {} outside the part asked for", notes.outside);
        }
        if notes.out_of_order > 0 {
            let back = notes.furthest_back;
            let _ = write!(
                text,
                ", {} put in order (up to {back:?} late)",
                notes.out_of_order
            );
        }
        if (self.speedup - 1.0).abs() > f64::EPSILON {
            let _ = write!(text, ", {} times as fast", self.speedup);
        }
        text.push('\n');
        if notes.furthest_back >= Duration::from_secs(1800) {
            text.push_str("note: arrivals lie half an hour and more behind earlier lines: were clocks put back? Times with a zone avoid it\n");
        }
        if notes.skipped > 0 {
            let _ = writeln!(text, "{} lines could not be read:", notes.skipped);
            for (line, reason) in &notes.first_skipped {
                let _ = writeln!(text, "  line {line}: {reason}");
            }
        }
        text
    }

    fn advance(&mut self) -> Option<Result<Arrival, Broken>> {
        let mut arrival = match &mut self.rest {
            Rest::Pattern(pattern) => pattern.next()?,
            Rest::Trace(trace) => match trace.next()? {
                Ok(arrival) => arrival,
                Err(error) => return Some(Err(Broken(format!("{} {error}", self.name)))),
            },
        };
        if (self.speedup - 1.0).abs() > f64::EPSILON {
            let seconds = arrival.offset.as_secs_f64() / self.speedup;
            arrival.offset = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        }
        Some(Ok(arrival))
    }
}

impl Iterator for &mut Arrivals {
    type Item = Result<Arrival, Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.first.take() {
            Some(first) => Some(Ok(first)),
            None => self.advance(),
        }
    }
}

/// Monday, 5 January 1970.
const MONDAY: u64 = 4 * 86_400_000_000_000;
