//! What is counted at a broker, for whoever collects metrics.

use std::sync::Arc;

use super::contract::Depth;
use super::error::BrokerErrorKind;
use super::rejected::RejectedBy;
use crate::queue::Accepted;

/// The series of one broker.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    /// Empty names would be no label.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code))]
    broker: Arc<str>,
}

/// What became of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    Acked,
    Retried,
    DeadLettered,
    GivenBack,
    /// It was settled or taken back before, or the broker could not be told: it may come again.
    Lost,
}

impl Settled {
    #[cfg_attr(not(feature = "metrics"), allow(dead_code))]
    const fn as_str(self) -> &'static str {
        match self {
            Self::Acked => "acked",
            Self::Retried => "retried",
            Self::DeadLettered => "dead_lettered",
            Self::GivenBack => "given_back",
            Self::Lost => "lost",
        }
    }
}

impl Numbers {
    pub(super) fn new(name: &str) -> Self {
        let numbers = Self {
            broker: name.chars().take(LONGEST_LABEL).collect::<String>().into(),
        };
        numbers.describe();
        numbers
    }

    /// An offer to publish has ended.
    pub(super) fn offered<T>(&self, outcome: &Result<Accepted, (RejectedBy, T)>) {
        let result = match outcome {
            Ok(_) => "accepted",
            Err((RejectedBy::Edge(_), _)) => "limited",
            Err((RejectedBy::Depth(refusal), _)) => refusal.reason().as_str(),
            Err((RejectedBy::Broker(error), _)) => error.kind().as_str(),
        };
        self.count("sluicegate_broker_offered_total", ("result", result), 1);
    }

    pub(super) fn depth(&self, depth: Depth) {
        self.set("sluicegate_broker_queued", depth.queued);
        self.set("sluicegate_broker_in_flight", depth.in_flight);
        self.set("sluicegate_broker_blocked", u64::from(depth.blocked));
    }

    /// Whether the broker answered.
    pub(super) fn polled(&self, up: bool) {
        self.set("sluicegate_broker_up", u64::from(up));
    }

    pub(super) fn failed(&self, kind: BrokerErrorKind) {
        self.count("sluicegate_broker_errors_total", ("kind", kind.as_str()), 1);
    }

    pub(super) fn delivered(&self, first: u64, again: u64) {
        let name = "sluicegate_broker_delivered_total";
        self.count(name, ("again", "no"), first);
        self.count(name, ("again", "yes"), again);
    }

    pub(super) fn settled(&self, how: Settled) {
        self.count(
            "sluicegate_broker_settled_total",
            ("outcome", how.as_str()),
            1,
        );
    }

    #[cfg(feature = "metrics")]
    fn count(&self, name: &'static str, label: (&'static str, &'static str), by: u64) {
        if by > 0 {
            metrics::counter!(name, "broker" => Arc::clone(&self.broker), label.0 => label.1)
                .increment(by);
        }
    }

    #[cfg(feature = "metrics")]
    fn set(&self, name: &'static str, value: u64) {
        metrics::gauge!(name, "broker" => Arc::clone(&self.broker)).set(value as f64);
    }

    #[cfg(feature = "metrics")]
    fn describe(&self) {
        use metrics::{describe_counter, describe_gauge};
        describe_counter!(
            "sluicegate_broker_offered_total",
            "Messages offered for publishing, by what came of it."
        );
        describe_counter!(
            "sluicegate_broker_delivered_total",
            "Messages taken from the broker, for the first time or again."
        );
        describe_counter!(
            "sluicegate_broker_settled_total",
            "Deliveries that ended, by how."
        );
        describe_counter!(
            "sluicegate_broker_errors_total",
            "Calls to the broker by the consumer that failed, by kind."
        );
        describe_gauge!(
            "sluicegate_broker_queued",
            "Messages that wait in the broker, as of the last poll."
        );
        describe_gauge!(
            "sluicegate_broker_in_flight",
            "Messages handed out and not settled, as of the last poll."
        );
        describe_gauge!(
            "sluicegate_broker_blocked",
            "Whether the broker takes nothing from publishers: 1 or 0."
        );
        describe_gauge!(
            "sluicegate_broker_up",
            "Whether the broker answered the last call: 1 or 0."
        );
    }

    #[cfg(not(feature = "metrics"))]
    #[allow(clippy::unused_self)]
    fn count(&self, _: &'static str, _: (&'static str, &'static str), _: u64) {}

    #[cfg(not(feature = "metrics"))]
    #[allow(clippy::unused_self)]
    fn set(&self, _: &'static str, _: u64) {}

    #[cfg(not(feature = "metrics"))]
    #[allow(clippy::unused_self)]
    fn describe(&self) {}
}

/// As for the names of queues.
const LONGEST_LABEL: usize = 64;
