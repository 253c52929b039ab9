//! When each job arrives: a burst, or the times of a trace.

use std::path::Path;
use std::time::Duration;

use crate::options::MOST_JOBS;
use crate::trace::Trace;

/// Arrival times of all jobs, and what to say about where they come from.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Times since the start, ascending.
    pub(crate) arrivals: Vec<Duration>,
    /// One line for people.
    pub(crate) title: String,
    /// What the trace's reader noticed.
    pub(crate) notices: Vec<String>,
}

impl Plan {
    /// Spreads a burst evenly over a span.
    pub(crate) fn burst(jobs: u64, span: Duration) -> Self {
        let at = |job: u64| {
            Duration::from_nanos((span.as_nanos() * u128::from(job) / u128::from(jobs)) as u64)
        };
        Self {
            arrivals: (0..jobs).map(at).collect(),
            title: format!("a burst of {jobs} jobs in {span:?}"),
            notices: Vec::new(),
        }
    }

    /// Reads the arrivals of a file, `speedup` times faster.
    ///
    /// # Errors
    /// A message that names the file.
    pub(crate) fn trace(path: &Path, speedup: f64) -> Result<Self, String> {
        let name = path.display();
        let mut trace = Trace::open(path).map_err(|error| format!("{name}: {error}"))?;
        let mut arrivals = Vec::new();
        for arrival in &mut trace {
            let offset = arrival.map_err(|error| format!("{name}: {error}"))?.offset;
            if arrivals.len() as u64 == MOST_JOBS {
                return Err(format!(
                    "{name}: has more than {MOST_JOBS} arrivals; cut it first"
                ));
            }
            let seconds = offset.as_secs_f64() / speedup;
            let offset = Duration::try_from_secs_f64(seconds)
                .ok()
                .filter(|offset| *offset < LONGEST);
            arrivals.push(offset.ok_or_else(|| {
                format!(
                    "{name}: spans more than {} days at --speedup {speedup}",
                    LONGEST.as_secs() / 86_400
                )
            })?);
        }
        let span = arrivals.last().copied().unwrap_or_default();
        let title = format!(
            "{} jobs of {name}, {speedup} times faster: {:.1} s",
            arrivals.len(),
            span.as_secs_f64(),
        );
        let notes = trace.notes();
        let mut notices = Vec::new();
        if notes.out_of_order > 0 {
            notices.push(format!(
                "{name}: put {} arrivals in order of time",
                notes.out_of_order
            ));
        }
        if notes.skipped > 0 {
            notices.push(format!(
                "{name}: passed over {} lines that cannot be read:",
                notes.skipped
            ));
            let lines = notes.first_skipped.iter();
            notices.extend(lines.map(|(line, reason)| format!("  line {line}: {reason}")));
        }
        Ok(Self {
            arrivals,
            title,
            notices,
        })
    }
}

/// Longest run that may be asked for: beyond it someone forgot `--speedup`.
const LONGEST: Duration = Duration::from_secs(7 * 86_400);
