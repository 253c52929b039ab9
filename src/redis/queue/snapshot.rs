//! Numbers of the fleet's queue.

use std::collections::HashMap;
use std::time::Duration;

use super::core::{Core, unexpected};
use super::error::Error;
use super::store::{natural, number, text};
use crate::rate::Rate;
use crate::redis::link::Value;
use crate::sync::{Arc, Ordering};
use crate::words::{Exit, Pressure};

/// State of the whole fleet's queue at one instant of the server, and two numbers of this process.
///
/// What the server counts, it counts since the queue was made, and it is exact while the server loses nothing:
/// `admitted + redriven = depth + in_flight + acked + dead_letters_written + vanished`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Jobs that wait, delayed ones included: the depth that is bounded.
    pub depth: u64,
    /// Those of them whose retry is not due.
    pub delayed: u64,
    /// Bound of the depth. Only jobs put back lift the depth above it.
    pub max_depth: u64,
    /// Jobs handed out and not settled, by all consumers together.
    pub in_flight: u64,
    /// State of the ladder: healthy or overloaded, as no line is kept on the server.
    pub pressure: Pressure,
    /// Rate of the whole fleet.
    pub rate: Option<Rate>,
    /// Why departures are paused, if they are.
    pub paused: Option<Arc<str>>,
    /// Whether offers are taken no more.
    pub is_closed: bool,
    /// Departures that fell due and were not taken.
    pub owed: u64,
    /// Age of the job at the head of the line, since its offer.
    pub oldest_wait: Option<Duration>,
    /// Jobs admitted.
    pub admitted: u64,
    /// Departures: jobs handed out, again ones included.
    pub started: u64,
    /// Departures of jobs whose consumer had been silent for the claim time.
    pub redelivered: u64,
    /// Jobs done.
    pub acked: u64,
    /// Times a job was put back after a failed attempt.
    pub retried: u64,
    /// Times a job was put back uncounted.
    pub deferred: u64,
    /// Settlements refused because the job had been taken over.
    pub fenced: u64,
    /// Jobs somebody deleted under us.
    pub vanished: u64,
    /// Dead letters put back.
    pub redriven: u64,
    /// Dead letters that are kept now.
    pub dead_letters: u64,
    /// Jobs dead-lettered, those dropped included.
    pub dead_letters_written: u64,
    /// Dead letters that were dropped because their bound was reached.
    pub dead_letters_lost: u64,
    /// Offers of this process that stand in line.
    pub waiting: u64,
    /// Offers of this process that were refused.
    pub refused: u64,
}

impl Snapshot {
    pub(super) fn read(reply: Vec<Value>, core: &Core) -> Result<Self, Error> {
        let numbers: Vec<Value> = reply[..reply.len().min(8)].to_vec();
        let Some(Value::Array(fields)) = reply.into_iter().nth(8) else {
            return Err(unexpected("a look without fields"));
        };
        let fields: HashMap<String, String> = fields
            .chunks_exact(2)
            .map(|pair| (text(&pair[0]), text(&pair[1])))
            .collect();
        let of = |name: &str| fields.get(name).and_then(|of| of.parse().ok()).unwrap_or(0);
        let at = |place: usize| natural(numbers.get(place));
        let written = Exit::ALL.into_iter();
        let written = written.map(|exit| of(&format!("dead_{}", exit.as_str())));
        let oldest = number(numbers.get(6)).and_then(|age| u64::try_from(age).ok());
        Ok(Self {
            depth: at(1) + at(2),
            delayed: at(2),
            max_depth: of("max"),
            in_flight: at(3),
            pressure: match at(5) {
                0 => Pressure::Healthy,
                _ => Pressure::Overloaded,
            },
            rate: fields.get("rate").and_then(|rate| rate.parse().ok()),
            paused: fields.get("paused").map(|reason| reason.as_str().into()),
            is_closed: of("closed") == 1,
            owed: at(7),
            oldest_wait: oldest.map(Duration::from_micros),
            admitted: of("admitted"),
            started: of("started"),
            redelivered: of("redelivered"),
            acked: of("acked"),
            retried: of("retried"),
            deferred: of("deferred"),
            fenced: of("fenced"),
            vanished: of("vanished"),
            redriven: of("redriven"),
            dead_letters: at(4),
            dead_letters_written: written.sum(),
            dead_letters_lost: of("lost"),
            // Relaxed: numbers for people.
            waiting: core.waiting.load(Ordering::Relaxed),
            refused: core.refused.load(Ordering::Relaxed),
        })
    }
}
