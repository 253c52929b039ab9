//! What a limiter tells of its levels to whoever watches it.

use crate::policy::Limit;
use crate::sync::Arc;

/// A level of a limiter as it stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LevelStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Its limit, for keys that have none of their own.
    pub limit: Limit,
    /// Its keys, if they are in this process.
    pub keys: Option<KeyCounts>,
}

impl LevelStatus {
    /// Describes a level, for admissions of other crates.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, limit: Limit, keys: Option<KeyCounts>) -> Self {
        Self {
            name: name.into(),
            limit,
            keys,
        }
    }
}

/// Counts of the keys that a level remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyCounts {
    /// Keys remembered now.
    pub held: u64,
    /// Most that it remembers.
    pub max: u64,
    /// Keys that were forgotten because they were idle.
    pub forgotten: u64,
    /// Times that there was no room for a new key.
    pub turned_away: u64,
}
