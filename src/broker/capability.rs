//! What a broker keeps by itself, for everybody who uses it.

use std::fmt;

/// A promise that only the broker can keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// It refuses to hold more than its bound, messages in flight included, whoever publishes.
    HardDepthBound,
    /// It counts every delivery of a message, those to consumers that died included.
    DeliveryCount,
    /// A message put back with a delay stays away that long, also if whoever put it back is gone.
    DelayedRetry,
    /// Its depth is exact and has in it what any consumer holds.
    ExactDepth,
    /// It bounds what all consumers together hold.
    FleetInFlightBound,
    /// It spaces what it hands out: one rate for all consumers together.
    FleetRate,
    /// A message published again under the same [id](super::Message::id) within its window is stored once.
    Deduplication,
    /// An acknowledgement is itself confirmed: once acked, a message does not come again.
    ConfirmedAck,
    /// A [heartbeat](super::Broker::heartbeat) lets a consumer hold a message for longer.
    Heartbeat,
    /// A message [given back](super::Broker::give_back) does not count as delivered.
    UncountedReturn,
}

impl Capability {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::HardDepthBound,
        Self::DeliveryCount,
        Self::DelayedRetry,
        Self::ExactDepth,
        Self::FleetInFlightBound,
        Self::FleetRate,
        Self::Deduplication,
        Self::ConfirmedAck,
        Self::Heartbeat,
        Self::UncountedReturn,
    ];

    /// Name in lower case with underscores.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HardDepthBound => "hard_depth_bound",
            Self::DeliveryCount => "delivery_count",
            Self::DelayedRetry => "delayed_retry",
            Self::ExactDepth => "exact_depth",
            Self::FleetInFlightBound => "fleet_in_flight_bound",
            Self::FleetRate => "fleet_rate",
            Self::Deduplication => "deduplication",
            Self::ConfirmedAck => "confirmed_ack",
            Self::Heartbeat => "heartbeat",
            Self::UncountedReturn => "uncounted_return",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Set of [`Capability`]s.
///
/// # Examples
/// ```
/// use sluicegate::broker::{Capabilities, Capability};
///
/// const SOME: Capabilities = Capabilities::none().with(Capability::ExactDepth);
/// assert!(SOME.has(Capability::ExactDepth) && !SOME.has(Capability::FleetRate));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Capabilities(u16);

impl Capabilities {
    /// Nothing at all.
    #[must_use]
    pub const fn none() -> Self {
        Self(0)
    }

    /// One more.
    #[must_use]
    pub const fn with(self, capability: Capability) -> Self {
        Self(self.0 | 1 << capability as u16)
    }

    /// Whether it is among them.
    #[must_use]
    pub const fn has(self, capability: Capability) -> bool {
        self.0 & 1 << capability as u16 != 0
    }
}

impl fmt::Debug for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = Capability::ALL.into_iter().filter(|one| self.has(*one));
        f.debug_set().entries(held).finish()
    }
}
