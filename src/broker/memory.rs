//! A broker in this process, for tests and for the day before there is a real one.

mod state;

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use self::state::State;
use super::capability::{Capabilities, Capability};
use super::contract::{Broker, Depth};
use super::error::{BrokerError, BrokerErrorKind};
use super::message::{Delivery, Message};
use crate::sync::{Arc, Mutex};

/// In-memory broker: everything that a broker may promise but durability and a rate for the fleet.
///
/// It is what the tests of code over a [`Broker`] run on. Outages can be made: [`set_down`](Self::set_down),
/// [`set_blocked`](Self::set_blocked). It obeys tokio's paused time.
///
/// # Examples
/// ```
/// use sluicegate::broker::{Broker, BrokerErrorKind, Memory, Message};
/// use std::time::Duration;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// let orders = Memory::new("orders").with_max_depth(1);
/// orders.publish(&Message::new("first")).await?;
/// let full = orders.publish(&Message::new("second")).await.expect_err("the bound is one");
/// assert_eq!(full.kind(), BrokerErrorKind::Full);
///
/// let taken = orders.take(10, Duration::ZERO).await?;
/// assert_eq!(taken[0].message.payload(), b"first");
/// assert_eq!(orders.depth().await?.in_flight, 1);
/// orders.ack(&taken[0].receipt).await?;
/// assert_eq!(orders.depth().await?.total(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Memory {
    name: Arc<str>,
    settings: Settings,
    shared: Arc<Shared>,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    max_depth: Option<u64>,
    max_in_flight: Option<u64>,
    max_payload: usize,
    hold: Duration,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    dead: Mutex<Option<Arc<Shared>>>,
    arrived: Notify,
}

/// Receipt of [`Memory`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemoryReceipt {
    number: u64,
    hand_out: u64,
}

impl Memory {
    /// Makes an empty broker without bounds.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            settings: Settings {
                max_depth: None,
                max_in_flight: None,
                max_payload: MAX_PAYLOAD,
                hold: HOLD,
            },
            shared: Arc::default(),
        }
    }

    /// Most messages held at once, in flight included. Default: as many as memory takes.
    #[must_use]
    pub fn with_max_depth(mut self, messages: u64) -> Self {
        self.settings.max_depth = Some(messages);
        self
    }

    /// Most messages in the hands of all consumers together. Default: any number.
    #[must_use]
    pub fn with_max_in_flight(mut self, messages: u64) -> Self {
        self.settings.max_in_flight = Some(messages);
        self
    }

    /// Time after which what is neither settled nor [kept alive](Broker::heartbeat) is delivered again. Default 30 s.
    #[must_use]
    pub fn with_hold(mut self, time: Duration) -> Self {
        self.settings.hold = time;
        self
    }

    /// Largest payload, in bytes. Default 1 MiB.
    #[must_use]
    pub fn with_max_payload(mut self, bytes: usize) -> Self {
        self.settings.max_payload = bytes;
        self
    }

    /// Lets every call fail as disconnected, or ends that.
    pub fn set_down(&self, down: bool) {
        self.shared.state.lock().down = down;
        self.shared.arrived.notify_waiters();
    }

    /// Lets publishers get no confirm for as long as it lasts, as a broker's memory alarm does, or ends that.
    pub fn set_blocked(&self, blocked: bool) {
        self.shared.state.lock().blocked = blocked;
        self.shared.arrived.notify_waiters();
    }

    fn reachable<R>(
        &self,
        act: impl FnOnce(&mut State, Instant) -> Result<R, BrokerError>,
    ) -> Result<R, BrokerError> {
        let now = Instant::now();
        let mut state = self.shared.state.lock();
        if state.down {
            return Err(BrokerError::new(
                BrokerErrorKind::Disconnected,
                format!("broker {} is down", self.name),
            ));
        }
        state.bring_in(now);
        act(&mut state, now)
    }

    /// Puts back what the receipt names, ready after `delay`.
    fn put_back(
        &self,
        receipt: &MemoryReceipt,
        delay: Duration,
        counts: bool,
    ) -> Result<(), BrokerError> {
        self.reachable(|state, now| {
            let due = (!delay.is_zero()).then(|| now + delay);
            let name = &self.name;
            let entry = state.held(name, receipt)?;
            entry.deliveries -= u32::from(!counts);
            state.release(receipt.number, due);
            Ok(())
        })?;
        self.shared.arrived.notify_one();
        Ok(())
    }

    fn try_publish(&self, message: &Message) -> Result<bool, BrokerError> {
        let size = message.payload().len();
        if size > self.settings.max_payload {
            let most = self.settings.max_payload;
            return Err(BrokerError::new(
                BrokerErrorKind::TooLarge,
                format!("payload is {size} bytes, broker {} takes {most}", self.name),
            ));
        }
        self.reachable(|state, _| {
            if state.blocked {
                return Ok(false);
            }
            let key = message.dedup_key();
            if key
                .as_ref()
                .is_some_and(|key| state.recent.contains(&**key))
            {
                return Ok(true);
            }
            let depth = state.entries.len() as u64;
            if let Some(most) = self.settings.max_depth.filter(|most| depth >= *most) {
                return Err(BrokerError::new(
                    BrokerErrorKind::Full,
                    format!("broker {} is full: {depth} of {most} in use", self.name),
                ));
            }
            if let Some(key) = key {
                state.remember(&key);
            }
            state.store(message.clone());
            Ok(true)
        })
    }

    fn hand_out(&self, most: usize) -> Result<Vec<Delivery<MemoryReceipt>>, BrokerError> {
        self.reachable(|state, now| {
            let bound = self.settings.max_in_flight.unwrap_or(u64::MAX);
            let room = usize::try_from(bound.saturating_sub(state.in_flight)).unwrap_or(usize::MAX);
            let mut taken = Vec::new();
            while taken.len() < most.min(room) {
                let Some(number) = state.ready.pop_first() else {
                    break;
                };
                taken.extend(state.hold(number, now + self.settings.hold));
            }
            Ok(taken)
        })
    }
}

impl Broker for Memory {
    type Receipt = MemoryReceipt;

    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        let always = Capabilities::none()
            .with(Capability::DeliveryCount)
            .with(Capability::DelayedRetry)
            .with(Capability::ExactDepth)
            .with(Capability::Deduplication)
            .with(Capability::ConfirmedAck)
            .with(Capability::Heartbeat)
            .with(Capability::UncountedReturn);
        let hard = match self.settings.max_depth {
            Some(_) => always.with(Capability::HardDepthBound),
            None => always,
        };
        match self.settings.max_in_flight {
            Some(_) => hard.with(Capability::FleetInFlightBound),
            None => hard,
        }
    }

    fn hold(&self) -> Option<Duration> {
        Some(self.settings.hold)
    }

    async fn publish(&self, message: &Message) -> Result<(), BrokerError> {
        loop {
            let mut changed = std::pin::pin!(self.shared.arrived.notified());
            changed.as_mut().enable();
            if self.try_publish(message)? {
                self.shared.arrived.notify_one();
                return Ok(());
            }
            changed.await;
        }
    }

    async fn depth(&self) -> Result<Depth, BrokerError> {
        self.reachable(|state, _| {
            Ok(Depth {
                queued: state.entries.len() as u64 - state.in_flight,
                in_flight: state.in_flight,
                blocked: state.blocked,
            })
        })
    }

    async fn take(
        &self,
        most: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery<MemoryReceipt>>, BrokerError> {
        let until = Instant::now() + wait;
        loop {
            let mut changed = std::pin::pin!(self.shared.arrived.notified());
            changed.as_mut().enable();
            let taken = self.hand_out(most)?;
            if taken.len() == most {
                // There may be more for the next who waits.
                self.shared.arrived.notify_one();
            }
            if !taken.is_empty() || most == 0 || Instant::now() >= until {
                return Ok(taken);
            }
            let next = self.shared.state.lock().timed.first().map(|(at, _)| *at);
            let wake = next.unwrap_or(until).min(until);
            // Woken by an arrival or by time: what there is now is looked at again either way.
            let _ = tokio::time::timeout_at(wake, changed).await;
        }
    }

    async fn ack(&self, receipt: &MemoryReceipt) -> Result<(), BrokerError> {
        self.reachable(|state, _| {
            state.held(&self.name, receipt)?;
            state.remove(receipt.number);
            Ok(())
        })?;
        // One place in flight is free again.
        self.shared.arrived.notify_one();
        Ok(())
    }

    async fn retry(&self, receipt: &MemoryReceipt, after: Duration) -> Result<(), BrokerError> {
        self.put_back(receipt, after, true)
    }

    async fn give_back(&self, receipt: &MemoryReceipt) -> Result<(), BrokerError> {
        self.put_back(receipt, Duration::ZERO, false)
    }

    async fn dead_letter(
        &self,
        delivery: &Delivery<MemoryReceipt>,
        why: &str,
    ) -> Result<(), BrokerError> {
        let letter = delivery
            .message
            .as_dead_letter(&self.name, why, delivery.attempt);
        self.reachable(|state, _| state.held(&self.name, &delivery.receipt).map(drop))?;
        let dead = self.dead_letters();
        dead.shared.state.lock().store(letter);
        dead.shared.arrived.notify_one();
        self.ack(&delivery.receipt).await
    }

    async fn heartbeat(&self, receipt: &MemoryReceipt) -> Result<(), BrokerError> {
        self.reachable(|state, now| {
            let entry = state.held(&self.name, receipt)?;
            let until = now + self.settings.hold;
            if let Some(before) = entry.due.replace(until) {
                state.timed.remove(&(before, receipt.number));
            }
            state.timed.insert((until, receipt.number));
            Ok(())
        })
    }

    fn dead_letters(&self) -> Self {
        let suffix = format!("{}{DEAD}", self.name.trim_end_matches(DEAD));
        let shared = if *suffix == *self.name {
            Arc::clone(&self.shared)
        } else {
            Arc::clone(self.shared.dead.lock().get_or_insert_default())
        };
        Self {
            name: suffix.into(),
            settings: Settings {
                max_depth: None,
                max_in_flight: None,
                ..self.settings
            },
            shared,
        }
    }
}

const DEAD: &str = ".dead";
const MAX_PAYLOAD: usize = 1 << 20;
const HOLD: Duration = Duration::from_secs(30);
