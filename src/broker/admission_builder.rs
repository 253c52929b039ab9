//! Settings of an admission.

use std::time::Duration;

use super::admission::{Admission, Core};
use super::capability::Capability;
use super::contract::Broker;
use super::door::Settings;
use super::numbers::Numbers;
use super::polls::Polls;
use crate::error::BuildError;
use crate::limiter::Admission as Edge;
use crate::rate::Rate;

/// Builder of an [`Admission`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until built"]
pub struct AdmissionBuilder<A, B> {
    edge: A,
    broker: B,
    max_depth: u64,
    watermarks: Option<(u64, u64)>,
    max_unconfirmed: u64,
    confirm_within: Duration,
    poll_every: Duration,
    processes: u64,
    drains_at: Option<Rate>,
    required: Vec<Capability>,
}

impl<A: Edge, B: Broker> AdmissionBuilder<A, B> {
    pub(super) fn new(edge: A, broker: B) -> Self {
        Self {
            edge,
            broker,
            max_depth: MAX_DEPTH,
            watermarks: None,
            max_unconfirmed: MAX_UNCONFIRMED,
            confirm_within: CONFIRM_WITHIN,
            poll_every: POLL_EVERY,
            processes: 1,
            drains_at: None,
            required: Vec::new(),
        }
    }

    /// Most messages in the broker, queued and in flight. Default 10,000.
    ///
    /// Keep it below the broker's own bound and far below its memory: more is more delay before a message is handled.
    pub const fn max_depth(mut self, messages: u64) -> Self {
        self.max_depth = messages;
        self
    }

    /// Marks of the ladder, in messages: refuses from `high` on, until the depth is down to `low`. Default three
    /// quarters of [`max_depth`](Self::max_depth), rounded down, and all of it.
    pub const fn watermarks(mut self, low: u64, high: u64) -> Self {
        self.watermarks = Some((low, high));
        self
    }

    /// Most publishes whose confirm is outstanding; more are refused. Default 256.
    ///
    /// More carries a higher rate over a slow network; fewer is felt sooner when the broker stops confirming.
    pub const fn max_unconfirmed(mut self, publishes: u64) -> Self {
        self.max_unconfirmed = publishes;
        self
    }

    /// Longest wait for a confirm, after which the outcome is unknown. Default 5 s.
    pub const fn confirm_within(mut self, time: Duration) -> Self {
        self.confirm_within = time;
        self
    }

    /// Time between two polls of the depth while there is traffic. Default 100 ms.
    ///
    /// Shorter follows the drain and other publishers more closely, and asks more of the broker.
    pub const fn poll_every(mut self, time: Duration) -> Self {
        self.poll_every = time;
        self
    }

    /// How many processes publish to this broker through doors like this one. Default 1.
    pub const fn processes(mut self, processes: u64) -> Self {
        self.processes = processes;
        self
    }

    /// Rate at which the consumers drain the broker, for the first `retry_after`. Default: unknown until seen in the
    /// polls, which go on correcting it.
    pub const fn drains_at(mut self, rate: Rate) -> Self {
        self.drains_at = Some(rate);
        self
    }

    /// Refuses to build on a broker that does not keep this by itself. May be repeated.
    pub fn require(mut self, capability: Capability) -> Self {
        self.required.push(capability);
        self
    }

    /// Builds the door.
    ///
    /// # Errors
    /// [`BuildError::Setting`] names the setting, its value and the rule that it breaks; a
    /// [required](Self::require) capability that the broker has not is named as the value.
    pub fn build(self) -> Result<Admission<A, B>, BuildError> {
        let Self { max_depth, .. } = self;
        keeps(&self.broker, &self.required)?;
        let positive = [
            ("max_depth", max_depth),
            ("max_unconfirmed", self.max_unconfirmed),
            ("processes", self.processes),
        ];
        for (field, value) in positive {
            if value == 0 {
                return Err(BuildError::setting(field, value, "it is at least 1"));
            }
        }
        for (field, value) in [
            ("confirm_within", self.confirm_within),
            ("poll_every", self.poll_every),
        ] {
            if value.is_zero() {
                let value = format!("{value:?}");
                return Err(BuildError::setting(field, value, "it is above zero"));
            }
        }
        let (low, high) = self
            .watermarks
            .unwrap_or((max_depth - max_depth.div_ceil(4), max_depth));
        if low >= high || high > max_depth {
            let value = format!("{low}, {high}");
            let rule = format!("low < high <= max_depth, which is {max_depth}");
            return Err(BuildError::setting("watermarks", value, rule));
        }
        if self.processes > max_depth - low {
            let rule = format!(
                "each has a share of at least 1 in the room above the low mark, which is {}",
                max_depth - low
            );
            return Err(BuildError::setting("processes", self.processes, rule));
        }
        let drain = self.drains_at.map(Rate::per_second_f64);
        let settings = Settings {
            max_depth,
            low,
            high,
            max_unconfirmed: self.max_unconfirmed,
            processes: self.processes,
            poll_every: self.poll_every,
            drain,
        };
        let core = Core {
            polls: Polls::new(settings),
            numbers: Numbers::new(self.broker.name()),
            broker: self.broker,
            settings,
            confirm_within: self.confirm_within,
        };
        Ok(Admission::new(self.edge, core))
    }
}

/// Refuses what the broker cannot keep, by name.
pub(super) fn keeps<B: Broker>(broker: &B, required: &[Capability]) -> Result<(), BuildError> {
    let has = broker.capabilities();
    match required.iter().find(|capability| !has.has(**capability)) {
        None => Ok(()),
        Some(missing) => Err(BuildError::setting(
            "require",
            missing,
            format!("broker {} does not keep it", broker.name()),
        )),
    }
}

const MAX_DEPTH: u64 = 10_000;
const MAX_UNCONFIRMED: u64 = 256;
const CONFIRM_WITHIN: Duration = Duration::from_secs(5);
const POLL_EVERY: Duration = Duration::from_millis(100);
