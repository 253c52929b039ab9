//! The file as it is written: names, types, nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::text::{Minute, Offset, Share, Text};
use crate::policy::Limit;
use crate::rate::Rate;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: Option<String>,
    pub(super) utc_offset: Option<Text<Offset>>,
    pub(super) queue: Queue,
    #[serde(default)]
    pub(super) level: Vec<RawLevel>,
    #[serde(default)]
    pub(super) lanes: Lanes,
    pub(super) tenants: Option<Tenants>,
    #[serde(default)]
    pub(super) calendar: Vec<RawWindow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Queue {
    pub(super) rate: Option<Text<Rate>>,
    pub(super) promise: Option<Text<Duration>>,
    pub(super) max_depth: Option<u64>,
    pub(super) watermarks: Option<[u64; 2]>,
    pub(super) max_waiters: Option<u64>,
    pub(super) max_wait: Option<Text<Duration>>,
    pub(super) expire_after: Option<Text<Duration>>,
    pub(super) max_in_flight: Option<u64>,
    pub(super) catch_up: Option<u64>,
    pub(super) catch_up_pace: Option<f64>,
    pub(super) when_full: Option<Full>,
    pub(super) standing_delay: Option<Standing>,
    pub(super) max_attempts: Option<u32>,
    pub(super) newest_first: Option<bool>,
    pub(super) slow_start: Option<Text<Duration>>,
    pub(super) retry_budget: Option<Budget>,
    pub(super) dead_letters: Option<u32>,
    pub(super) timer: Option<Timing>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Full {
    Refuse,
    EvictOldest,
    EvictNewest,
    EvictLowest,
    EvictLower,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Timing {
    Runtime,
    Precise,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Standing {
    pub(super) target: Text<Duration>,
    pub(super) interval: Text<Duration>,
    #[serde(default)]
    pub(super) drop_stale: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Budget {
    pub(super) share: f64,
    pub(super) at_least: Text<Rate>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLevel {
    pub(super) name: String,
    pub(super) limit: Text<Limit>,
    #[serde(default)]
    pub(super) per: Whom,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Whom {
    #[default]
    All,
    Key,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Lanes {
    pub(super) low: Vec<String>,
    pub(super) high: Vec<String>,
    pub(super) critical: Vec<String>,
    pub(super) shares: LaneShares,
}

/// In the order of [`Priority`](crate::words::Priority).
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LaneShares {
    pub(super) low: f64,
    pub(super) normal: f64,
    pub(super) high: f64,
    pub(super) critical: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tenants {
    pub(super) max_depth: Option<u64>,
    pub(super) rate: Option<Text<Rate>>,
    pub(super) max_tenants: Option<u64>,
    #[serde(default)]
    pub(super) weights: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWindow {
    pub(super) name: String,
    pub(super) from: Text<Minute>,
    pub(super) to: Text<Minute>,
    pub(super) rate: Text<Share>,
    pub(super) ramp: Option<Text<Duration>>,
    #[serde(default)]
    pub(super) days: Vec<Day>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}
