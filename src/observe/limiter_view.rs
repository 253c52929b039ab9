//! What a snapshot tells of a watched limiter.

use std::time::Duration;

use crate::policy::Limit;

/// A watched limiter or hierarchy at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
#[non_exhaustive]
pub struct LimiterView {
    /// Its label: the name, or `name#2` and so on if several have it.
    pub name: String,
    /// Requests by verdict.
    pub verdicts: Verdicts,
    /// Rates over the last 1, 10 and 60 seconds, as far as it was watched for so long.
    pub flows: Vec<LimiterFlow>,
    /// Its levels, outermost first.
    pub levels: Vec<LevelView>,
    /// Requests by endpoint, busiest first; `other` is all that came after the 256th.
    pub endpoints: Vec<EndpointView>,
    /// Who was refused most in the last minute, by level.
    pub top_refused: Vec<TopRefused>,
    /// One point a second for the last five minutes, oldest first.
    pub trend: Vec<LimiterPoint>,
}

/// Requests by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
#[non_exhaustive]
pub struct Verdicts {
    /// Granted by every level.
    pub allowed: u64,
    /// Refused by a level.
    pub rejected: u64,
    /// Granted because no level applied.
    pub exempt: u64,
    /// Granted without the store that should have decided.
    pub error_allowed: u64,
    /// Refused without the store that should have decided.
    pub error_rejected: u64,
}

/// Requests per second over a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
#[non_exhaustive]
pub struct LimiterFlow {
    /// The span.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "over_seconds", with = "super::seconds")
    )]
    pub over: Duration,
    /// Requests, per second.
    pub offered: f64,
    /// Those refused, per second.
    pub refused: f64,
    /// Share of the requests that was refused, from 0 to 1.
    pub refused_share: f64,
}

/// A level of a limiter.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
#[non_exhaustive]
pub struct LevelView {
    /// Its name.
    pub name: String,
    /// Its limit, for keys that have none of their own.
    pub limit: Option<Limit>,
    /// Units that one key may have per second, over time.
    pub per_second: f64,
    /// Units that one key may have at once.
    pub quota: u64,
    /// Units charged, those given back later included.
    pub consumed: u64,
    /// Units given back.
    pub refunded: u64,
    /// Requests that it refused as the binding level.
    pub refused: u64,
    /// Whether everybody shares it, as far as was seen: then `usage` and `available` mean something.
    pub shared: bool,
    /// Units charged per second in the last minute, as a share of `per_second`; of shared levels only.
    pub usage: Option<f64>,
    /// Units left at the last decision; of shared levels only.
    pub available: Option<u64>,
    /// Keys that it remembers; `None` if that is not known here.
    pub keys: Option<u64>,
    /// Most keys that it remembers.
    pub max_keys: Option<u64>,
    /// Keys forgotten because they were idle.
    pub keys_forgotten: u64,
    /// Requests for which there was no room among the keys.
    pub keys_turned_away: u64,
}

/// Requests to an endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
#[non_exhaustive]
pub struct EndpointView {
    /// The endpoint, as the program names it.
    pub name: String,
    /// Its requests by verdict.
    pub verdicts: Verdicts,
}

/// Who was refused most at one level, in the last minute.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
#[non_exhaustive]
pub struct TopRefused {
    /// Name of the level whose keys they are.
    pub level: String,
    /// Refusals counted in that minute.
    pub refusals: u64,
    /// Most refused first, at most 20.
    pub keys: Vec<RefusedKey>,
}

/// A key that was refused often.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
#[non_exhaustive]
pub struct RefusedKey {
    /// The key, [hashed or cut](super::Keys).
    pub key: String,
    /// At least so often it was refused in that minute, for certain.
    pub guaranteed: u64,
    /// And at most so often.
    pub at_most: u64,
    /// When it was refused last, by the clock of the watch: Unix time, unless that is one set by hand.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "last_refused_seconds", with = "super::seconds")
    )]
    pub last_refused: Duration,
}

/// A second in the life of a limiter.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
#[non_exhaustive]
pub struct LimiterPoint {
    /// Time at its end, by the clock of the watch.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "at_seconds", with = "super::seconds")
    )]
    pub at: Duration,
    /// Requests in it.
    pub offered: u64,
    /// Those refused.
    pub refused: u64,
    /// Share of the requests that was refused, from 0 to 1.
    pub refused_share: f64,
    /// Those refused by binding level, in the order of the levels.
    pub refused_by_level: Vec<u64>,
}
