//! The queue as one of the brokers: payloads as they are, and receipts instead of jobs.

use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep};

use super::core::{Core, How, Settling, Verdict, unexpected};
use super::delivery::{Raw, Registry, headers_of, headers_text};
use super::error::{Error, ErrorKind};
use super::handle::Queue;
use super::job::shortened;
use super::offer::Parcel;
use super::settings::{MOST_AT_ONCE, Settings};
use super::store::natural;
use crate::broker::{
    Broker, BrokerError, BrokerErrorKind, Capabilities, Capability, DEAD_REASON, Delivery, Depth,
    Message,
};
use crate::rate::Rate;
use crate::sync::{Arc, AtomicU64, Mutex};
use crate::words::Pressure;

/// Names one delivery: the entry, and its fencing token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    id: String,
    token: u32,
}

impl Receipt {
    fn settling<'a>(&'a self, how: &'static str) -> Settling<'a> {
        Settling {
            id: &self.id,
            token: self.token,
            how,
            delay: Duration::ZERO,
            cause: "",
            headers: "",
        }
    }
}

/// What is taken here is not kept alive by this crate: the [`heartbeat`](Broker::heartbeat) is the caller's.
///
/// The bound is on what waits, so that it is not a [hard bound](Capability::HardDepthBound) on what waits and is in flight
/// together. A message with the headers of a dead letter is put back deliberately, and is no double of its first life.
impl Broker for Queue {
    type Receipt = Receipt;

    fn name(&self) -> &str {
        &self.core.name
    }

    fn capabilities(&self) -> Capabilities {
        let all = Capabilities::none()
            .with(Capability::DeliveryCount)
            .with(Capability::DelayedRetry)
            .with(Capability::ExactDepth)
            .with(Capability::FleetRate)
            .with(Capability::Deduplication)
            .with(Capability::ConfirmedAck)
            .with(Capability::Heartbeat)
            .with(Capability::UncountedReturn);
        if self.core.settings.lock().max_in_flight > 0 {
            all.with(Capability::FleetInFlightBound)
        } else {
            all
        }
    }

    fn hold(&self) -> Option<Duration> {
        Some(self.core.settings.lock().claim_after)
    }

    fn max_deliveries(&self) -> Option<u32> {
        Some(self.core.settings.lock().max_attempts).filter(|most| *most > 0)
    }

    async fn publish(&self, message: &Message) -> Result<(), BrokerError> {
        let core = &self.core;
        let bytes = message.payload().len() as u64;
        let most = core.max_payload;
        if bytes > most {
            return Err(Error::from(ErrorKind::TooLarge { bytes, most }).into());
        }
        let headers = message.headers();
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let is_put_back = message.header_value(DEAD_REASON).is_some();
        let parcel = Parcel {
            core,
            payload: message.payload().to_vec(),
            id: message.name().map(str::to_owned),
            headers: headers_text(&headers.collect()),
            is_remembered: !is_put_back,
        };
        match parcel.once(true).await? {
            Verdict::Taken { .. } => Ok(()),
            Verdict::Refused(refusal) => {
                let kind = match refusal.reason() {
                    crate::refusal::Reason::Closed => BrokerErrorKind::Blocked,
                    _ => BrokerErrorKind::Full,
                };
                Err(BrokerError::new(kind, refusal.to_string()).because(refusal))
            }
        }
    }

    async fn depth(&self) -> Result<Depth, BrokerError> {
        let now = self.snapshot().await?;
        Ok(Depth {
            queued: now.depth,
            in_flight: now.in_flight,
            blocked: now.is_closed,
        })
    }

    async fn take(
        &self,
        most: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery<Receipt>>, BrokerError> {
        if most == 0 {
            return Ok(Vec::new());
        }
        let until = Instant::now() + wait;
        let most = most.min(MOST_AT_ONCE as usize);
        loop {
            let answer = self.core.ask(most).await?;
            if !answer.jobs.is_empty() {
                let jobs = answer.jobs.into_iter();
                return Ok(jobs.map(|raw| self.delivery(raw)).collect());
            }
            let pause = match answer.how {
                How::NotDue => answer.wait.min(LOOK),
                _ => answer.wait.clamp(SHORTEST, LONGEST),
            };
            let left = until.saturating_duration_since(Instant::now());
            sleep(pause.min(left)).await;
            if pause >= left {
                return Ok(Vec::new());
            }
        }
    }

    async fn ack(&self, receipt: &Receipt) -> Result<(), BrokerError> {
        self.end(&receipt.settling("ack")).await
    }

    async fn retry(&self, receipt: &Receipt, after: Duration) -> Result<(), BrokerError> {
        let settling = Settling {
            delay: after,
            ..receipt.settling("retry")
        };
        self.end(&settling).await
    }

    async fn give_back(&self, receipt: &Receipt) -> Result<(), BrokerError> {
        self.end(&receipt.settling("defer")).await
    }

    async fn dead_letter(
        &self,
        delivery: &Delivery<Receipt>,
        why: &str,
    ) -> Result<(), BrokerError> {
        let letter = delivery
            .message
            .as_dead_letter(&self.core.name, why, delivery.attempt);
        let headers = letter.headers();
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let settling = Settling {
            cause: &shortened(why),
            headers: &headers_text(&headers.collect()),
            ..delivery.receipt.settling("fail")
        };
        self.end(&settling).await
    }

    async fn heartbeat(&self, receipt: &Receipt) -> Result<(), BrokerError> {
        let token = receipt.token.to_string();
        let arguments: [&[u8]; 3] = [
            self.core.consumer.as_bytes(),
            receipt.id.as_bytes(),
            token.as_bytes(),
        ];
        let store = &self.core.store;
        let (_, answers) = store.call(&store.scripts.hold, None, &arguments).await?;
        match answers.first() {
            None => Err(unexpected("no answer for the delivery").into()),
            answer if natural(answer) == 0 => Err(Error::from(ErrorKind::TakenOver).into()),
            _ => Ok(()),
        }
    }

    fn dead_letters(&self) -> Self {
        let core = &self.core;
        if core.is_of_letters {
            return self.clone();
        }
        let settings = core.settings.lock().clone().of_dead_letters();
        let store = core.store.of_dead_letters(settings.pairs());
        Self::new(Arc::new(Core {
            name: format!("{} dead letters", core.name).into(),
            store,
            settings: Mutex::new(settings),
            is_of_letters: true,
            consumer: core.consumer.clone(),
            max_payload: core.max_payload,
            remember: core.remember,
            line: Semaphore::new(1),
            max_waiters: core.max_waiters,
            waiting: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            comeback: Mutex::new(None),
            pressure: watch::Sender::new(Pressure::Healthy),
            registry: Registry::default(),
            receivers: AtomicU64::new(0),
            turn: Semaphore::new(1),
            manners: Mutex::default(),
        }))
    }
}

impl Queue {
    async fn end(&self, settling: &Settling<'_>) -> Result<(), BrokerError> {
        Ok(self.core.settle(settling).await.map(drop)?)
    }

    fn delivery(&self, raw: Raw) -> Delivery<Receipt> {
        let mut message = Message::new(raw.payload);
        if !raw.key.is_empty() {
            message = message.id(raw.key);
        }
        for (name, value) in headers_of(&raw.headers) {
            message = message.header(name, value);
        }
        let mut attempt = raw.attempt;
        if self.core.is_of_letters {
            attempt = raw.token;
            // The server's own scripts bury without headers.
            if message.header_value(DEAD_REASON).is_none() {
                let why = if raw.cause.is_empty() {
                    &raw.exit
                } else {
                    &raw.cause
                };
                let starts = raw.attempt.saturating_sub(raw.token);
                let from = self.core.name.trim_end_matches(" dead letters").to_owned();
                message = message.as_dead_letter(&from, why, starts);
            }
        }
        Delivery {
            message,
            attempt,
            receipt: Receipt {
                id: raw.id,
                token: raw.token,
            },
        }
    }
}

impl Settings {
    /// Of the dead letters as a queue: as many as are kept, as fast as they are asked for, and started without end.
    fn of_dead_letters(self) -> Self {
        let max_depth = self.dead_letters.max(1);
        Self {
            rate: Rate::per_second(1_000_000),
            max_depth,
            low: max_depth - 1,
            high: max_depth,
            max_in_flight: 0,
            max_attempts: 0,
            claim_after: self.claim_after,
            expire_after: Duration::ZERO,
            max_wait: Duration::ZERO,
            catch_up: 100_000,
            pace: 1_000_000,
            dead_letters: max_depth,
        }
    }
}

impl From<Error> for BrokerError {
    fn from(error: Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::Server(server) if server.is_disconnected() => BrokerErrorKind::Disconnected,
            ErrorKind::Server(server) if server.is_denied() => BrokerErrorKind::Credentials,
            ErrorKind::Server(server) if server.is_wrong_type() => BrokerErrorKind::Unsuitable,
            ErrorKind::Server(server) if server.is_out_of_memory() => BrokerErrorKind::Full,
            ErrorKind::Server(server) if server.may_have_run() => BrokerErrorKind::Unconfirmed,
            ErrorKind::Version { .. } | ErrorKind::Conflict { .. } => BrokerErrorKind::Unsuitable,
            ErrorKind::TooLarge { .. } => BrokerErrorKind::TooLarge,
            ErrorKind::TakenOver => BrokerErrorKind::Stale,
            ErrorKind::NoRoom { .. } => BrokerErrorKind::Full,
            _ => BrokerErrorKind::Other,
        };
        Self::new(kind, error.to_string()).because(error)
    }
}

/// Time between two questions to an empty queue.
const SHORTEST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(25);
/// The same while nothing is due for longer: the rate may be raised meanwhile.
const LOOK: Duration = Duration::from_millis(500);
