//! Everything at one moment, as plain values: what [`snapshot()`](super::snapshot()) tells.

use std::time::Duration;

use super::advice::Advice;
use super::limiter_view::LimiterView;
use super::queue_view::QueueView;

/// Every queue and every watched limiter of the process at one moment, and what could be changed.
///
/// Plain values: as JSON (features `serde`, `json`) times are numbers of seconds, in fields whose names end in
/// `_seconds`, and rates and limits are in their text forms. What a reader does not find, or does not know, it leaves
/// out, so that programs of different versions understand each other.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
#[non_exhaustive]
pub struct Snapshot {
    /// Version of this crate in the process that was looked at.
    pub version: String,
    /// Unix time at which it was taken.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "taken_at_seconds", with = "super::seconds")
    )]
    pub taken_at: Duration,
    /// Living queues, by name; at most 256, see [`queues_left_out`](Self::queues_left_out).
    pub queues: Vec<QueueView>,
    /// Queues beyond those.
    pub queues_left_out: u64,
    /// Watched limiters, by name; at most 256.
    pub limiters: Vec<LimiterView>,
    /// What the observed load suggests to change; empty while there is too little to tell.
    pub advice: Vec<Advice>,
}

/// How the keys of callers are shown: user names and addresses are personal data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Keys {
    /// As [`key_tag`](super::key_tag) has them: twelve digits that tell keys apart within this process.
    #[default]
    Hashed,
    /// As they are, cut to 64 characters, control characters escaped.
    Cut,
}
