//! Settings of a source.

use std::time::Duration;

use super::admission_builder::keeps;
use super::capability::Capability;
use super::contract::Broker;
use super::source::Source;
use crate::error::BuildError;
use crate::queue::{Backoff, Builder};
use crate::rate::Rate;

/// Builder of a [`Source`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until built"]
pub struct SourceBuilder<B> {
    broker: B,
    rate: Option<Rate>,
    max_in_flight: usize,
    ahead: Option<usize>,
    max_deliveries: Option<u32>,
    backoff: Backoff,
    delays: Delays,
    handler_within: Option<Duration>,
    finish_within: Duration,
    wait: Duration,
    name: Option<String>,
    required: Vec<Capability>,
}

/// Who keeps the delay of a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delays {
    /// The broker.
    There,
    /// This process: the delivery is held meanwhile.
    Here,
}

/// What a source goes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Deliveries held that are not settled.
    pub(super) places: usize,
    pub(super) max_in_flight: usize,
    pub(super) max_deliveries: Option<u32>,
    pub(super) backoff: Backoff,
    pub(super) delays: Delays,
    /// Longest stay in this process.
    pub(super) handler_within: Option<Duration>,
    pub(super) finish_within: Duration,
    pub(super) wait: Duration,
}

impl<B: Broker> SourceBuilder<B> {
    pub(super) fn new(broker: B) -> Self {
        Self {
            broker,
            rate: None,
            max_in_flight: IN_FLIGHT,
            ahead: None,
            max_deliveries: Some(MAX_DELIVERIES),
            backoff: Backoff::from(Duration::ZERO),
            delays: Delays::There,
            handler_within: None,
            finish_within: FINISH_WITHIN,
            wait: WAIT,
            name: None,
            required: Vec::new(),
        }
    }

    /// Rate at which handlers start, in this process. Default: as fast as they end.
    pub const fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Most handlers that run at the same time. Default 8.
    pub const fn max_in_flight(mut self, handlers: usize) -> Self {
        self.max_in_flight = handlers;
        self
    }

    /// Messages that are taken before a handler can start on them. Default: what starts in 100 ms at the rate, at least
    /// 1; without a rate 0.
    ///
    /// More carries a higher rate over a slow network; fewer leaves more to other consumers, and less to be delivered
    /// again after a crash.
    pub const fn ahead(mut self, messages: usize) -> Self {
        self.ahead = Some(messages);
        self
    }

    /// Deliveries of one message, by the broker's count, after which it is moved to the dead letters. Default 5, or the
    /// broker's own [bound](Broker::max_deliveries) if that is lower.
    ///
    /// It asks for [`Capability::DeliveryCount`].
    pub const fn max_deliveries(mut self, deliveries: u32) -> Self {
        self.max_deliveries = Some(deliveries);
        self
    }

    /// Delivers a message again for as long as its handler fails.
    pub const fn any_deliveries(mut self) -> Self {
        self.max_deliveries = None;
        self
    }

    /// How long the broker keeps a message away whose handler returned an error. Default: not at all.
    ///
    /// Above zero it asks for [`Capability::DelayedRetry`], as does [`Verdict::Retry`](super::Verdict::Retry) to be
    /// obeyed.
    pub fn backoff(mut self, backoff: impl Into<Backoff>) -> Self {
        self.backoff = backoff.into();
        self.delays = Delays::There;
        self
    }

    /// The same, kept by this process, which holds the message meanwhile: for brokers that cannot. If the process ends,
    /// the message comes again at once.
    pub fn backoff_here(mut self, backoff: impl Into<Backoff>) -> Self {
        self.backoff = backoff.into();
        self.delays = Delays::Here;
        self
    }

    /// Longest time from taking a message to the end of its handler, which is dropped then; that counts as an error.
    /// Default: none where heartbeats keep a message, else three quarters of the broker's [hold](Broker::hold).
    pub const fn handler_within(mut self, time: Duration) -> Self {
        self.handler_within = Some(time);
        self
    }

    /// Longest time from the shutdown to the end. Default 8 s, below the 10 s that common supervisors grant.
    pub const fn finish_within(mut self, time: Duration) -> Self {
        self.finish_within = time;
        self
    }

    /// Longest wait of one call for messages, and so the longest time until a shutdown is noticed by it. Default 1 s.
    pub const fn wait(mut self, time: Duration) -> Self {
        self.wait = time;
        self
    }

    /// Name of the queue in this process, for metrics. Default: that of the broker's queue or stream.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Refuses to build on a broker that does not keep this by itself. May be repeated.
    pub fn require(mut self, capability: Capability) -> Self {
        self.required.push(capability);
        self
    }

    /// Builds the source.
    ///
    /// # Errors
    /// [`BuildError::Setting`] names the setting, its value and the rule that it breaks. What the broker cannot keep is
    /// refused: a bound on deliveries that it does not count, a delay that it does not know, more ahead than it lets
    /// anybody hold.
    pub fn build(self) -> Result<Source<B>, BuildError> {
        keeps(&self.broker, &self.required)?;
        let plan = self.plan()?;
        let name = self.name.as_deref().unwrap_or(self.broker.name());
        let queue = match self.rate {
            Some(rate) => Builder::new(rate),
            None => Builder::unpaced(),
        };
        let places = plan.places as u64;
        let (sender, receiver) = queue
            .max_depth(places)
            .watermarks(places - 1, places)
            .max_in_flight(plan.max_in_flight as u64)
            // What was not done is the broker's to keep.
            .dead_letters(0)
            .name(name)
            .build()?;
        Ok(Source::new(self.broker, plan, sender, receiver))
    }

    fn plan(&self) -> Result<Plan, BuildError> {
        let broker = &self.broker;
        let (name, has) = (broker.name(), broker.capabilities());
        for (field, value) in [
            ("max_in_flight", self.max_in_flight),
            (
                "max_deliveries",
                self.max_deliveries.map_or(1, |n| n as usize),
            ),
        ] {
            if value == 0 {
                return Err(BuildError::setting(field, value, "it is at least 1"));
            }
        }
        let max_deliveries = match (self.max_deliveries, broker.max_deliveries()) {
            (Some(asked), Some(bound)) if asked != MAX_DELIVERIES && asked > bound => {
                let rule = format!("broker {name} delivers a message at most {bound} times");
                return Err(BuildError::setting("max_deliveries", asked, rule));
            }
            (Some(asked), Some(bound)) => Some(asked.min(bound)),
            (asked, bound) => asked.or(bound),
        };
        if let Some(deliveries) = max_deliveries
            && !has.has(Capability::DeliveryCount)
        {
            let rule = format!("broker {name} does not keep {}", Capability::DeliveryCount);
            return Err(BuildError::setting("max_deliveries", deliveries, rule));
        }
        let longest = self.backoff.most();
        if self.delays == Delays::There && !longest.is_zero() && !has.has(Capability::DelayedRetry)
        {
            let rule = format!("broker {name} does not keep {}", Capability::DelayedRetry);
            return Err(BuildError::setting("backoff", format!("{longest:?}"), rule));
        }
        let soon = |rate: Rate| usize::try_from(rate.units_in_ceil(SOON)).unwrap_or(MOST_AHEAD);
        let ahead = self
            .ahead
            .unwrap_or_else(|| self.rate.map_or(0, |rate| soon(rate).clamp(1, MOST_AHEAD)));
        let prefetch = usize::try_from(broker.prefetch()).unwrap_or(usize::MAX);
        if prefetch > 0 && prefetch < self.max_in_flight {
            let rule = format!("broker {name} hands out at most {prefetch} at a time");
            return Err(BuildError::setting(
                "max_in_flight",
                self.max_in_flight,
                rule,
            ));
        }
        let places = self.max_in_flight.saturating_add(ahead);
        let mut handler_within = self.handler_within;
        if let Some(hold) = broker.hold().filter(|_| !has.has(Capability::Heartbeat)) {
            let quarter = hold / 4;
            let waits = self.rate.map(|rate| {
                let ahead = ahead.max(prefetch) as f64;
                Duration::try_from_secs_f64(ahead / rate.per_second_f64()).unwrap_or(Duration::MAX)
            });
            for (field, time) in [
                ("ahead", waits.unwrap_or_default()),
                (
                    "backoff_here",
                    if self.delays == Delays::Here {
                        longest
                    } else {
                        Duration::ZERO
                    },
                ),
            ] {
                if time > quarter {
                    let rule = format!(
                        "a message may wait here for a quarter of the {hold:?} that broker {name} lets it be held"
                    );
                    return Err(BuildError::setting(field, format!("{time:?}"), rule));
                }
            }
            let longest = hold / 4 * 3;
            if let Some(asked) = handler_within.filter(|asked| *asked > longest) {
                let rule = format!(
                    "broker {name} lets a message be held for {hold:?}, and cannot be told that it is worked on; at most three quarters of it"
                );
                return Err(BuildError::setting(
                    "handler_within",
                    format!("{asked:?}"),
                    rule,
                ));
            }
            handler_within.get_or_insert(longest);
        }
        Ok(Plan {
            places,
            max_in_flight: self.max_in_flight,
            max_deliveries,
            backoff: self.backoff,
            delays: self.delays,
            handler_within,
            finish_within: self.finish_within,
            wait: self.wait,
        })
    }
}

const IN_FLIGHT: usize = 8;
const MAX_DELIVERIES: u32 = 5;
const FINISH_WITHIN: Duration = Duration::from_secs(8);
const WAIT: Duration = Duration::from_secs(1);
/// What starts within this is taken ahead: a few round trips and a late timer.
const SOON: Duration = Duration::from_millis(100);
const MOST_AHEAD: usize = 1_000;
