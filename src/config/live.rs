//! A file that is followed while the queue runs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{Config, ConfigError, read_text};
use crate::error::BuildError;
use crate::limiter::{Hierarchy, Store};
use crate::queue::Control;
use crate::rate::Rate;
use crate::tick::Tick;

/// Keeps a running queue, and its edge, at what a file says and at the rate of its calendar.
///
/// A change takes effect as a whole or not at all: a file with an error leaves everything as it is. No job is lost by a
/// reload; where a bound falls below the depth, offers wait until it has drained.
///
/// # Examples
/// ```no_run
/// use sluicegate::config::{Config, Live};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (config, live) = Live::load("gate.toml")?;
/// let (tx, rx) = config.builder().build::<u32>()?;
/// let live = live.queue(tx.control());
/// tokio::spawn(live.watch(Duration::from_secs(1), |told| match told {
///     Ok(config) => println!("reloaded:\n{config}"),
///     Err(error) => eprintln!("gate.toml: {error}; the old one stays"),
/// }));
/// # let _ = rx; Ok(()) }
/// ```
pub struct Live {
    path: PathBuf,
    text: String,
    config: Config,
    control: Option<Control>,
    edges: Vec<Edge>,
    /// Rate that was set last.
    rate: Option<Rate>,
    /// What the file looked like when it was last read.
    seen: Option<(SystemTime, u64)>,
}

/// Applies a configuration to an edge.
type Edge = Box<dyn Fn(&Config) -> Result<(), BuildError> + Send>;

impl Live {
    /// Reads a file, to be followed.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load(path: impl Into<PathBuf>) -> Result<(Config, Self), ConfigError> {
        let path = path.into();
        let seen = stamp(&path);
        let text = read_text(&path)?;
        let config = Config::from_toml(&text)?;
        let live = Self {
            path,
            text,
            rate: config.rate(),
            config: config.clone(),
            control: None,
            edges: Vec::new(),
            seen,
        };
        Ok((config, live))
    }

    /// Keeps this queue at what the file says.
    #[must_use]
    pub fn queue(mut self, control: Control) -> Self {
        self.control = Some(control);
        self
    }

    /// Keeps the limits of this edge at what the file says, level by level; its levels have to be those of the file.
    #[must_use]
    pub fn edge<C: 'static, S: Store>(mut self, edge: std::sync::Arc<Hierarchy<C, S>>) -> Self {
        self.edges.push(Box::new(move |config| {
            for level in config.levels() {
                edge.set_limit(&level.name, level.limit)?;
            }
            Ok(())
        }));
        self
    }

    /// What is in force.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Reads the file again and puts it into force; `false` if it says what it said before.
    ///
    /// # Errors
    /// If the file is wrong, or its levels are not those of before; everything stays as it is then.
    pub fn reload(&mut self) -> Result<bool, ConfigError> {
        self.seen = stamp(&self.path);
        let text = read_text(&self.path)?;
        if text == self.text {
            return Ok(false);
        }
        let config = Config::from_toml(&text)?;
        let names = |config: &Config| -> Vec<_> {
            let levels = config.levels().iter();
            levels
                .map(|level| (level.name.clone(), level.per_key))
                .collect()
        };
        if names(&config) != names(&self.config) {
            return Err(ConfigError::bare(
                "the levels are not those of before: a level may change its limit, but to come, go, or count others it \
                 takes a restart",
            ));
        }
        let now = unix_now();
        let refused = |error: BuildError| ConfigError::bare(error.to_string());
        // The queue judges the whole before it changes; the limits of an edge were judged when they were read.
        if let Some(control) = &self.control {
            control.apply(config.builder_at(now)).map_err(refused)?;
        }
        for edge in &self.edges {
            edge(&config).map_err(refused)?;
        }
        self.rate = config.rate_at(now);
        (self.text, self.config) = (text, config);
        Ok(true)
    }

    /// Sets the rate that the calendar has for an instant of Unix time, if it is another than before.
    ///
    /// # Errors
    /// If the queue was changed by hand so that the rate does not go with it.
    pub fn follow_calendar(&mut self, now: Tick) -> Result<(), BuildError> {
        let rate = self.config.rate_at(now);
        if let (Some(rate), Some(control)) = (rate, &self.control)
            && self.rate != Some(rate)
        {
            control.set_rate(rate)?;
            self.rate = Some(rate);
        }
        Ok(())
    }

    /// Follows file and calendar for ever, looking every so often, and tells of every reload and every error once.
    ///
    /// # Cancel safety
    /// A reload is not an await: dropped at any time, it leaves an old or a new configuration in force, whole.
    pub async fn watch(
        mut self,
        every: Duration,
        mut tell: impl FnMut(Result<&Config, &ConfigError>) + Send,
    ) {
        let every = every.max(SHORTEST);
        loop {
            if stamp(&self.path) != self.seen {
                match self.reload() {
                    Ok(true) => tell(Ok(&self.config)),
                    Ok(false) => {}
                    Err(error) => tell(Err(&error)),
                }
            }
            if let Err(error) = self.follow_calendar(unix_now()) {
                tell(Err(&ConfigError::bare(error.to_string())));
                // Told once: the next change of the calendar tries anew.
                self.rate = self.config.rate_at(unix_now());
            }
            tokio::time::sleep(every).await;
        }
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live")
            .field("path", &self.path)
            .field("rate", &self.rate)
            .finish_non_exhaustive()
    }
}

fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.modified().ok()?, meta.len()))
}

fn unix_now() -> Tick {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Tick::ZERO + since.unwrap_or_default()
}

const SHORTEST: Duration = Duration::from_millis(10);
