//! What the handles of one queue in one process share.

use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::delivery::{Raw, Registry};
use super::error::Error;
use super::settings::Settings;
use super::store::{Store, micros, natural, number, text};
use crate::redis::link::Value;
use crate::refusal::{Reason, Refusal};
use crate::sync::{Arc, AtomicU64, Mutex};
use crate::tick::Tick;
use crate::words::Pressure;

/// One queue, as this process sees it.
pub(super) struct Core {
    pub(super) name: Arc<str>,
    pub(super) store: Store,
    /// As asked for or adopted, for whoever changes a part of them.
    pub(super) settings: Mutex<Settings>,
    /// Whether it is the dead letters of another one.
    pub(super) is_of_letters: bool,
    pub(super) consumer: String,
    pub(super) max_payload: u64,
    pub(super) remember: Duration,
    /// The line at this process's door: one offer is made at a time, the others wait in their order.
    pub(super) line: Semaphore,
    pub(super) max_waiters: u64,
    pub(super) waiting: AtomicU64,
    pub(super) refused: AtomicU64,
    /// When the next of the refused is told to come back.
    pub(super) comeback: Mutex<Option<Instant>>,
    pub(super) pressure: watch::Sender<Pressure>,
    pub(super) registry: Registry,
    pub(super) receivers: AtomicU64,
    /// Whose turn it is to ask for jobs.
    pub(super) turn: Semaphore,
    pub(super) manners: Mutex<Manners>,
}

/// How the last questions for jobs were answered.
#[derive(Debug, Default)]
pub(super) struct Manners {
    /// Errors in a row.
    pub(super) failures: u32,
    /// Questions in a row to which there was nothing.
    pub(super) idle: u32,
}

/// What came of asking for jobs.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) how: How,
    pub(super) wait: Duration,
    pub(super) jobs: Vec<Raw>,
}

/// Why there are no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Taken,
    NotDue,
    Empty,
    Held,
    Paused,
    Over,
}

/// What came of an offer that was answered.
#[derive(Debug)]
pub(super) enum Verdict {
    Taken {
        id: String,
        depth: u64,
        wait: Duration,
        twice: bool,
    },
    Refused(Refusal),
}

impl Core {
    /// Asks for up to `most` jobs.
    pub(super) async fn ask(&self, most: usize) -> Result<Answer, Error> {
        let most = most.to_string();
        let arguments: [&[u8]; 2] = [self.consumer.as_bytes(), most.as_bytes()];
        let take = &self.store.scripts.take;
        let (word, reply) = self.store.call(take, None, &arguments).await?;
        let how = match word.as_str() {
            "ok" => How::Taken,
            "not due" => How::NotDue,
            "empty" => How::Empty,
            "held" => How::Held,
            "paused" => How::Paused,
            "over" => How::Over,
            _ => return Err(unexpected(&word)),
        };
        let (now, wait) = (natural(reply.first()), micros(reply.get(1)));
        let jobs = match reply.into_iter().nth(3) {
            Some(Value::Array(jobs)) => jobs,
            _ => Vec::new(),
        };
        let jobs = jobs.into_iter().filter_map(|job| Raw::read(job, now));
        Ok(Answer {
            how,
            wait,
            jobs: jobs.collect(),
        })
    }

    /// Offers a payload once.
    pub(super) async fn offer(
        &self,
        payload: &[u8],
        id: Option<&str>,
        headers: &str,
        remembers: bool,
        waits: bool,
    ) -> Result<Verdict, Error> {
        let remember = self.remember.as_millis().max(1).to_string();
        let form: &str = if waits { "wait" } else { "try" };
        let arguments: [&[u8]; 5] = [
            payload,
            id.unwrap_or_default().as_bytes(),
            remember.as_bytes(),
            form.as_bytes(),
            headers.as_bytes(),
        ];
        let enqueue = &self.store.scripts.enqueue;
        let (word, reply) = self
            .store
            .call(enqueue, id.filter(|_| remembers), &arguments)
            .await?;
        let depth = natural(reply.first());
        let pressure = match number(reply.get(2)) {
            Some(2) => Pressure::Overloaded,
            _ => Pressure::Healthy,
        };
        self.tell(pressure);
        let reason = match word.as_str() {
            "ok" | "twice" => {
                return Ok(Verdict::Taken {
                    id: reply.get(4).map(text).unwrap_or_default(),
                    depth,
                    wait: micros(reply.get(3)),
                    twice: word == "twice",
                });
            }
            "full" => Reason::Full,
            "overloaded" => Reason::Overloaded,
            "late" => Reason::TooLate,
            "paused" => Reason::Paused,
            "closed" => Reason::Closed,
            _ => return Err(unexpected(&word)),
        };
        let wait = number(reply.get(3)).and_then(|wait| u64::try_from(wait).ok());
        let mut retry_after = wait.map(Duration::from_micros);
        if !waits {
            let max_depth = natural(reply.get(1));
            retry_after =
                retry_after.map(|wait| self.spread(wait, micros(reply.get(4)), max_depth));
        }
        Ok(Verdict::Refused(Refusal {
            reason,
            retry_after,
            depth,
            max_depth: natural(reply.get(1)),
            cost: 1,
            pressure,
            queue: Some(Arc::clone(&self.name)),
        }))
    }

    /// Refusals in a row are told successive times, one interval apart, so that the refused return as a trickle; after a
    /// queueful of them the round begins anew.
    fn spread(&self, wait: Duration, step: Duration, max_depth: u64) -> Duration {
        let now = Instant::now();
        let earliest = now + wait;
        let round = u32::try_from(max_depth).unwrap_or(u32::MAX);
        let latest = earliest + step.saturating_mul(round);
        let mut comeback = self.comeback.lock();
        let slot = match *comeback {
            Some(slot) if (earliest..=latest).contains(&slot) => slot,
            _ => earliest,
        };
        *comeback = Some(slot + step);
        slot - now
    }

    /// Ends a delivery. An answer that is lost is asked for again: whoever holds the job may say so twice.
    pub(super) async fn settle(&self, of: &Settling<'_>) -> Result<Settled, Error> {
        let token = of.token.to_string();
        let delay = of
            .delay
            .as_micros()
            .min(u128::from(u64::MAX >> 12))
            .to_string();
        let mut again: &[u8] = b"";
        for attempt in 0_u32.. {
            let arguments: [&[u8]; 8] = [
                self.consumer.as_bytes(),
                of.id.as_bytes(),
                token.as_bytes(),
                of.how.as_bytes(),
                delay.as_bytes(),
                of.cause.as_bytes(),
                again,
                of.headers.as_bytes(),
            ];
            let settle = &self.store.scripts.settle;
            match self.store.call(settle, None, &arguments).await {
                Ok((word, reply)) => {
                    return match word.as_str() {
                        "acked" => Ok(Settled::Acked),
                        "buried" => Ok(Settled::Buried),
                        "back" => Ok(Settled::Back),
                        "vanished" => Ok(Settled::Vanished),
                        // It is gone since this was asked before: that was us, or a peer has done the job.
                        "fenced" if !again.is_empty() && natural(reply.first()) == 0 => {
                            Ok(Settled::Acked)
                        }
                        "fenced" => Err(super::error::ErrorKind::TakenOver.into()),
                        _ => Err(unexpected(&word)),
                    };
                }
                Err(error) if attempt + 1 < TRIES && error.is_transient() => {
                    if error.may_have_run() {
                        again = b"again";
                    }
                    tokio::time::sleep(FIRST_PAUSE * (1 << attempt)).await;
                }
                Err(error) => return Err(error),
            }
        }
        Err(unexpected("no answer"))
    }

    /// Tells those who watch how the queue stood when it was last heard of.
    pub(super) fn tell(&self, pressure: Pressure) {
        self.pressure.send_if_modified(|told| {
            let is_news = *told != pressure;
            *told = pressure;
            is_news
        });
    }

    /// An instant of the server's clock.
    pub(super) fn tick(micros: u64) -> Tick {
        Tick::from_nanos(micros.saturating_mul(1_000))
    }
}

/// How a delivery ends.
#[derive(Debug)]
pub(super) struct Settling<'a> {
    pub(super) id: &'a str,
    pub(super) token: u32,
    pub(super) how: &'static str,
    pub(super) delay: Duration,
    pub(super) cause: &'a str,
    /// In place of those of the job, unless empty.
    pub(super) headers: &'a str,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    Acked,
    Buried,
    Back,
    /// Somebody had deleted the job under us.
    Vanished,
}

pub(super) fn unexpected(word: &str) -> Error {
    crate::redis::error::Error::unexpected(&word).into()
}

/// Questions after which a settlement is given up; the job is then delivered again after the claim time.
const TRIES: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(25);
