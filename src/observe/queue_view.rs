//! What a snapshot tells of a queue.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ledger::Ledger;
use crate::rate::Rate;
use crate::words::{Health, Pressure, Priority};

/// A queue at one moment; ledger, lanes, tenants and levels are of one instant.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
#[non_exhaustive]
pub struct QueueView {
    /// Its label: the name, or `name#2` and so on if several have it.
    pub name: String,
    /// State of the ladder.
    pub pressure: Pressure,
    /// Time since the ladder came to this state.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "pressure_for_seconds", with = "super::seconds")
    )]
    pub pressure_for: Duration,
    /// Whether work flows.
    pub health: Health,
    /// Why departures are held; `None` if they are not.
    pub paused: Option<String>,
    /// Whether it takes no more offers.
    pub closed: bool,
    /// Cost of what is queued, waits for a retry, or is reserved.
    pub depth: u64,
    /// Depth at which it is healthy again.
    pub low: u64,
    /// Depth at which it is no longer healthy.
    pub high: u64,
    /// Bound of the depth.
    pub max_depth: u64,
    /// Offers standing in line at the door.
    pub waiting: u64,
    /// Bound of that line.
    pub max_waiters: u64,
    /// Jobs handed out and not settled.
    pub in_flight: u64,
    /// Bound of those; `None` if there is none.
    pub max_in_flight: Option<u64>,
    /// Rate that was set for departures; `None` if it is not paced.
    pub rate: Option<Rate>,
    /// Rate as it is now, on a ramp or adapted.
    pub rate_now: Option<Rate>,
    /// Cost that is owed: departures which fell due and were not taken.
    pub owed: u64,
    /// Age of the queued job that has waited longest; `None` if none waits.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "oldest_wait_seconds", with = "super::seconds::optional")
    )]
    pub oldest_wait: Option<Duration>,
    /// Time since the last departure; `None` if there was none.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "since_departure_seconds", with = "super::seconds::optional")
    )]
    pub since_departure: Option<Duration>,
    /// Where every job is, or how it ended.
    pub ledger: Ledger,
    /// Refusals by reason, those reasons left out that never occurred.
    pub refused_by_reason: BTreeMap<String, u64>,
    /// Jobs handed to a consumer, every retry anew.
    pub departed: u64,
    /// Jobs that ended neither acknowledged nor as a place given back: each became a dead letter.
    pub dead_letters: u64,
    /// Dead letters that were dropped because nobody read them in time.
    pub dead_letters_lost: u64,
    /// Rates over the last 1, 10 and 60 seconds, as far as it was watched for so long.
    pub flows: Vec<Flow>,
    /// Waits of the jobs that departed in the last minute.
    pub waits: Times,
    /// Times in flight of the jobs that were settled in the last minute.
    pub processing: Times,
    /// The ledger by priority, least urgent first.
    pub lanes: Vec<LaneView>,
    /// The tenants with the most offers, at most 20, most first.
    pub tenants: Vec<TenantView>,
    /// Tenants that are known by name, those above included.
    pub tenants_known: u64,
    /// The ledger of everybody who is not among `tenants`.
    pub other_tenants: Ledger,
    /// One point a second for the last five minutes, oldest first.
    pub trend: Vec<QueuePoint>,
}

/// Jobs per second over a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
#[non_exhaustive]
pub struct Flow {
    /// The span.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "over_seconds", with = "super::seconds")
    )]
    pub over: Duration,
    /// Offers made, per second.
    pub offered: f64,
    /// Offers that got a place, per second.
    pub admitted: f64,
    /// Offers refused, per second.
    pub refused: f64,
    /// Jobs handed to consumers, per second.
    pub departed: f64,
    /// Jobs done, per second.
    pub acked: f64,
}

/// How long something took, of all that ended within a minute.
///
/// Worked out from the buckets of the [catalogue](super::catalogue): within a bucket times are taken as evenly spread,
/// and what lies above the last bound counts as that bound.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
#[non_exhaustive]
pub struct Times {
    /// How many there were.
    pub count: u64,
    /// Half of them took at most so long; `None` without any.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "p50_seconds", with = "super::seconds::optional")
    )]
    pub p50: Option<Duration>,
    /// Nine of ten took at most so long.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "p90_seconds", with = "super::seconds::optional")
    )]
    pub p90: Option<Duration>,
    /// Ninety-nine of a hundred took at most so long.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "p99_seconds", with = "super::seconds::optional")
    )]
    pub p99: Option<Duration>,
}

/// A lane of a queue.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
#[non_exhaustive]
pub struct LaneView {
    /// Its priority.
    pub priority: Priority,
    /// Where its jobs are, or how they ended.
    pub ledger: Ledger,
}

/// A tenant of a queue.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
#[non_exhaustive]
pub struct TenantView {
    /// Its key, [hashed or cut](super::Keys).
    pub key: String,
    /// Where its jobs are, or how they ended.
    pub ledger: Ledger,
}

/// A second in the life of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
#[non_exhaustive]
pub struct QueuePoint {
    /// Unix time at its end.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "at_seconds", with = "super::seconds")
    )]
    pub at: Duration,
    /// Offers made in it.
    pub offered: u64,
    /// Offers that got a place in it.
    pub admitted: u64,
    /// Offers refused in it.
    pub refused: u64,
    /// Jobs handed to consumers in it.
    pub departed: u64,
    /// Share of the offers that was refused, from 0 to 1.
    pub refused_share: f64,
    /// Depth at its end.
    pub depth: u64,
    /// Offers standing in line at its end.
    pub waiting: u64,
    /// Jobs in flight at its end.
    pub in_flight: u64,
    /// State of the ladder at its end.
    pub pressure: Pressure,
}
