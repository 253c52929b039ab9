//! The command line: what may be asked for, within which bounds, and the help.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use lexopt::prelude::*;

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    /// Print one JSON object and nothing else.
    pub(crate) json: bool,
    /// Jobs per second that leave the queue; none = what suits the machine.
    pub(crate) rate: Option<u64>,
    /// Jobs of the burst.
    pub(crate) burst: u64,
    /// Tasks that offer them.
    pub(crate) producers: usize,
    /// Arrivals from a file instead of a burst.
    pub(crate) trace: Option<PathBuf>,
    /// How much faster than in the file they arrive.
    pub(crate) speedup: f64,
    /// Where to serve the metrics.
    pub(crate) metrics: Option<SocketAddr>,
    /// Leave the database files in place.
    pub(crate) keep: bool,
}

impl Options {
    /// Reads the arguments; `None` is a wish for the help.
    ///
    /// # Errors
    /// A message for whoever typed them.
    pub(crate) fn parse(
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Result<Option<Self>, String> {
        let mut options = Self {
            json: false,
            rate: None,
            burst: DEFAULT_BURST,
            producers: DEFAULT_PRODUCERS as usize,
            trace: None,
            speedup: 1.0,
            metrics: None,
            keep: false,
        };
        let (mut burst, mut speedup) = (None, None);
        let mut parser = lexopt::Parser::from_args(arguments);
        while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
            match argument {
                Short('h') | Long("help") => return Ok(None),
                Long("json") => options.json = true,
                Long("keep") => options.keep = true,
                Long("rate") => options.rate = Some(whole(&mut parser, "--rate", MOST_RATE)?),
                Long("burst") => burst = Some(whole(&mut parser, "--burst", MOST_JOBS)?),
                Long("producers") => {
                    options.producers = whole(&mut parser, "--producers", MOST_PRODUCERS)? as usize;
                }
                Long("trace") => options.trace = Some(value(&mut parser)?.into()),
                Long("speedup") => speedup = Some(factor(&mut parser)?),
                Long("metrics") => options.metrics = Some(address(&mut parser)?),
                other => return Err(other.unexpected().to_string()),
            }
        }
        if options.trace.is_some() && burst.is_some() {
            return Err(
                "--burst and --trace exclude each other: the trace says what arrives".to_owned(),
            );
        }
        if options.trace.is_none() && speedup.is_some() {
            return Err("--speedup needs --trace FILE".to_owned());
        }
        options.burst = burst.unwrap_or(options.burst);
        options.speedup = speedup.unwrap_or(options.speedup);
        Ok(Some(options))
    }
}

fn value(parser: &mut lexopt::Parser) -> Result<OsString, String> {
    parser.value().map_err(|error| error.to_string())
}

fn whole(parser: &mut lexopt::Parser, name: &str, most: u64) -> Result<u64, String> {
    let text = value(parser)?;
    let number = text.to_str().and_then(|text| text.parse().ok());
    number
        .filter(|number| (1..=most).contains(number))
        .ok_or_else(|| format!("{name} is a whole number from 1 to {most}, got {text:?}"))
}

fn factor(parser: &mut lexopt::Parser) -> Result<f64, String> {
    let text = value(parser)?;
    let number: Option<f64> = text.to_str().and_then(|text| text.parse().ok());
    number
        .filter(|number| number.is_finite() && *number > 0.0)
        .ok_or_else(|| format!("--speedup is a number above 0, got {text:?}"))
}

fn address(parser: &mut lexopt::Parser) -> Result<SocketAddr, String> {
    let text = value(parser)?;
    let address = text.to_str().and_then(|text| text.parse().ok());
    address.ok_or_else(|| {
        format!("--metrics is an address and a port, like 127.0.0.1:9000, got {text:?}")
    })
}

/// Most jobs of a burst or a trace; more says nothing new and takes minutes.
pub(crate) const MOST_JOBS: u64 = 100_000;
const DEFAULT_BURST: u64 = 2_000;
const DEFAULT_PRODUCERS: u64 = 64;
/// Each is a task; beyond a thousand they only wait for the 64 connections.
const MOST_PRODUCERS: u64 = 1_024;
const MOST_RATE: u64 = 100_000;

/// The help.
pub(crate) const HELP: &str = "\
A burst of writes against an embedded SQLite file: first directly, then through
a Gate and a queue.

Usage: cargo run --release --example protect_database -- [OPTIONS]

Options:
      --burst N        jobs offered within 2 s, 1 to 100000      [default: 2000]
      --producers N    tasks that offer them, 1 to 1024          [default: 64]
      --rate N         jobs per second that leave the queue, 1 to 100000
                       [default: a quarter of what one writer alone
                       manages on this machine just now, from 60 to 100]
      --trace FILE     let jobs arrive as in FILE instead: a CSV whose first
                       column is a time, or an access log in the common or
                       combined format; at most 100000 arrivals
      --speedup F      that many times faster than in FILE       [default: 1]
      --metrics ADDR   serve the queue's metrics while it runs, in the format of
                       Prometheus, on an address like 127.0.0.1:9000; needs the
                       feature `prometheus`: cargo run --release
                       --features prometheus --example protect_database -- ...
      --json           print one JSON object and nothing else
      --keep           keep the database files, and say where they are
  -h, --help           print this

The files are made in the folder for temporary files (TMPDIR) and removed at the
end. Ctrl-C stops the producers, drains the queue, says what was returned and
exits with 130. SLUICEGATE_BRIEF=1 in the environment makes the burst small.

Exit code: 0 if every promise was kept; 1 if one was not, or if the database
cannot be made; 2 for a wrong call.
";
