//! One file that says it all: levels and limits at the edge, the queue, lanes, tenants, and the operating calendar.
//!
//! ```text
//!   gate.toml --from_toml--> Config --builder, hierarchy--> the running queue and edge
//!       |                      ^
//!       +---- Live: reload ----+   a file with an error changes nothing: the old one stays
//! ```
//! Numbers that are left out follow from those that are there, as with [`Builder`]. Unknown names
//! are refused, and every error points at its line and column and says what would be right.

mod calendar;
mod effective;
mod error;
mod file;
mod live;
mod raw;
mod text;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

pub use calendar::Calendar;
pub use error::ConfigError;
pub use live::Live;

use crate::error::BuildError;
use crate::key::Key;
use crate::limiter::{Hierarchy, HierarchyBuilder};
use crate::policy::Limit;
use crate::queue::Builder;
use crate::rate::Rate;
use crate::tick::Tick;
use crate::words::Priority;

/// What a configuration file says, checked as a whole.
///
/// # Examples
/// ```
/// use sluicegate::config::Config;
///
/// let config = Config::from_toml(r#"
///     [queue]
///     rate = "200/s"
///     promise = "500ms"
///
///     [[level]]
///     name = "user"
///     limit = "token_bucket 10/s burst 50"
///     per = "key"
/// "#)?;
/// let (tx, _rx) = config.builder().build::<u32>()?;
/// assert_eq!(tx.snapshot().max_depth, 100);
///
/// let error = Config::from_toml("[queue]\nrate = \"200/fortnight\"\n").expect_err("no such period");
/// assert_eq!((error.line(), error.column()), (Some(2), Some(8)));
/// assert!(error.to_string().contains("200/s"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    builder: Builder,
    rate: Option<Rate>,
    levels: Vec<Level>,
    lanes: HashMap<Box<str>, Priority>,
    fair: bool,
    weights: BTreeMap<Box<str>, u64>,
    calendar: Calendar,
}

/// A level of the edge.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Level {
    /// Its name, in refusals and metrics.
    pub name: Arc<str>,
    /// Its limit.
    pub limit: Limit,
    /// Whether each key is counted by itself, instead of everybody together.
    pub per_key: bool,
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        file::read(text)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// As [`from_toml`](Self::from_toml), and if it is no readable text.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::from_toml(&read_text(path)?)
    }

    /// The queue, at its usual rate.
    pub fn builder(&self) -> Builder {
        self.builder.clone()
    }

    /// The queue at the rate that the calendar has for this instant, which is one of Unix time.
    pub fn builder_at(&self, now: Tick) -> Builder {
        match self.rate_at(now) {
            Some(rate) => self.builder.clone().at_rate(rate),
            None => self.builder.clone(),
        }
    }

    /// The same at another usual rate; numbers that were derived from it are derived anew.
    ///
    /// # Errors
    /// If a number that was given does not go with it.
    pub fn with_rate(&self, rate: Rate) -> Result<Self, BuildError> {
        let changed = Self {
            builder: self.builder.clone().at_rate(rate),
            rate: Some(rate),
            ..self.clone()
        };
        changed.check()?;
        Ok(changed)
    }

    /// The same with another bound of the depth.
    ///
    /// # Errors
    /// If a number that was given does not go with it.
    pub fn with_max_depth(&self, depth: u64) -> Result<Self, BuildError> {
        let changed = Self {
            builder: self.builder.clone().max_depth(depth),
            ..self.clone()
        };
        changed.check()?;
        Ok(changed)
    }

    /// Rate of departures at an instant of Unix time; none if the queue is unpaced.
    #[must_use]
    pub fn rate_at(&self, now: Tick) -> Option<Rate> {
        self.rate.map(|rate| self.calendar.rate_at(rate, now))
    }

    /// Usual rate of departures; none if the queue is unpaced.
    #[must_use]
    pub const fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// The levels of the edge, outermost first.
    #[must_use]
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The edge. `key_of` says whom a level that counts by key counts in a request, given the level's name.
    pub fn hierarchy<C>(
        &self,
        key_of: impl Fn(&str, &C) -> Option<Key> + Clone + Send + Sync + 'static,
    ) -> HierarchyBuilder<C> {
        let mut builder = Hierarchy::builder();
        for Level {
            name,
            limit,
            per_key,
        } in &self.levels
        {
            let (key_of, per_key, level) = (key_of.clone(), *per_key, Arc::clone(name));
            builder = builder.level(Arc::clone(name), *limit, move |request: &C| {
                if per_key {
                    key_of(&level, request)
                } else {
                    Some(Key::from(()))
                }
            });
        }
        builder
    }

    /// Lane of a key, for [`Terms::priority`](crate::queue::Terms::priority); normal if the file does not name it.
    #[must_use]
    pub fn lane_of(&self, key: &str) -> Priority {
        self.lanes.get(key).copied().unwrap_or_default()
    }

    /// The keys that the file puts into a lane.
    pub fn lanes(&self) -> impl Iterator<Item = (&str, Priority)> {
        self.lanes.iter().map(|(key, priority)| (&**key, *priority))
    }

    /// Whether keys are to be given as tenants, each with a fair share.
    #[must_use]
    pub const fn is_fair(&self) -> bool {
        self.fair
    }

    /// When the rate is another.
    #[must_use]
    pub const fn calendar(&self) -> &Calendar {
        &self.calendar
    }

    /// What does not fit together, though it is allowed.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        effective::warnings(self)
    }

    fn check(&self) -> Result<(), BuildError> {
        self.builder.clone().into_spec().resolve().map(|_| ())
    }
}

/// The text of a file that can be a configuration.
fn read_text(path: &Path) -> Result<String, ConfigError> {
    let bare = |message: String| ConfigError::bare(message);
    if path.is_dir() {
        return Err(bare("is a directory; a file is needed".into()));
    }
    let file = File::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => bare("no such file".into()),
        _ => bare(format!("cannot be opened: {error}")),
    })?;
    let mut bytes = Vec::new();
    let read = file.take(LONGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| bare(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > LONGEST {
        return Err(bare(format!(
            "is longer than {LONGEST} bytes: no configuration is"
        )));
    }
    if bytes.starts_with(b"\x1F\x8B") {
        return Err(bare("is gzip data; unpack it first (gunzip)".into()));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        bare(format!("is no UTF-8 text: byte {at} belongs to no letter"))
    })
}

/// A megabyte: the lanes and weights of many thousand tenants.
const LONGEST: u64 = 1 << 20;
