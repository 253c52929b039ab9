//! Messages that lie in the stream and that the consumer hands out no more.
//!
//! There are two kinds. What a consumer with a bound has delivered as often as it may: it goes to the dead letters. And
//! what a server that was killed has on disk again although it was acked, or has stored anew under a place that the
//! consumer believes it is past: nobody can tell these two apart, so they are handed out once more, rather than lost.
//! Either would hold its place for ever otherwise, until the stream takes nothing any more.
//!
//! They are only known while nothing is in flight: then every message up to the last delivery is one of them.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::jetstream::message::StreamMessage;
use tokio::time::Instant;

use super::{Nats, NatsReceipt, wire};
use crate::broker::contract::Broker;
use crate::broker::error::{BrokerError, BrokerErrorKind};
use crate::broker::message::Delivery;

/// Those that were handed out from here, which the server does not know of.
#[derive(Debug, Default)]
pub(super) struct Strays(HashMap<u64, Held>);

#[derive(Debug)]
struct Held {
    deliveries: u32,
    /// When it may be handed out again.
    until: Instant,
}

impl Strays {
    /// Hands one out, unless it is held.
    fn take(&mut self, sequence: u64, hold: Duration) -> Option<u32> {
        let now = Instant::now();
        // It had been delivered before it strayed.
        let fresh = Held {
            deliveries: 1,
            until: now,
        };
        let held = self.0.entry(sequence).or_insert(fresh);
        if held.until > now {
            return None;
        }
        held.until = now + hold;
        held.deliveries = held.deliveries.saturating_add(1);
        Some(held.deliveries)
    }

    /// Keeps it for so long, from now.
    pub(super) fn keep(&mut self, sequence: u64, time: Duration) {
        if let Some(held) = self.0.get_mut(&sequence) {
            held.until = Instant::now() + time;
        }
    }

    pub(super) fn forget(&mut self, sequence: u64) {
        self.0.remove(&sequence);
    }
}

/// Moves to the dead letters what is used up.
pub(super) async fn bury(nats: &Nats) -> Result<u64, BrokerError> {
    let Some(bound) = nats.shared.max_deliveries else {
        return Ok(0);
    };
    let found = find(nats, usize::MAX).await?;
    let moved = found.len() as u64;
    for message in found {
        move_one(nats, message, bound).await?;
    }
    Ok(moved)
}

/// Hands out what the consumer does not.
pub(super) async fn take(
    nats: &Nats,
    most: usize,
) -> Result<Vec<Delivery<NatsReceipt>>, BrokerError> {
    let mut taken = Vec::new();
    // Those in hand are found too, so more are looked for than are taken.
    for message in find(nats, most.saturating_mul(4)).await? {
        if taken.len() == most {
            break;
        }
        let attempt = {
            let mut strays = nats.shared.strays.lock();
            strays.take(message.sequence, nats.shared.hold)
        };
        let Some(attempt) = attempt else { continue };
        taken.push(Delivery {
            message: wire::with_headers(message.payload.to_vec(), Some(&message.headers)),
            attempt,
            receipt: NatsReceipt {
                reply: String::new(),
                stream_sequence: message.sequence,
            },
        });
    }
    Ok(taken)
}

/// Removes a stray that is done.
pub(super) async fn remove(nats: &Nats, sequence: u64) -> Result<(), BrokerError> {
    let deleted = nats.shared.stream.delete_message(sequence).await;
    if let Err(error) = deleted {
        let error = nats.error("deleting a message", error);
        // Gone already is as good.
        if error.kind() != BrokerErrorKind::Other {
            return Err(error);
        }
    }
    nats.shared.strays.lock().forget(sequence);
    Ok(())
}

async fn find(nats: &Nats, most: usize) -> Result<Vec<StreamMessage>, BrokerError> {
    let shared = &nats.shared;
    let info = shared.consumer.get_info().await;
    let info = info.map_err(|error| nats.error("info of the consumer", error))?;
    let stream = shared.stream.get_info().await;
    let stream = stream.map_err(|error| nats.error("info of the stream", error))?;
    let state = stream.state;
    let mut found = Vec::new();
    if info.num_ack_pending > 0 || state.messages <= info.num_pending {
        return Ok(found);
    }
    let last = info.delivered.stream_sequence;
    let mut next = state.first_sequence;
    while next <= last && found.len() < most {
        let raw = shared.stream.raw_message_builder().sequence(next);
        // The first at or after this place; an error where there is none.
        let Ok(message) = raw.next_by_subject(">").send().await else {
            break;
        };
        if message.sequence > last {
            break;
        }
        next = message.sequence + 1;
        found.push(message);
    }
    Ok(found)
}

async fn move_one(nats: &Nats, message: StreamMessage, bound: u32) -> Result<(), BrokerError> {
    let dead = nats.dead_letters();
    let name = nats.name();
    let why = format!("delivered {bound} times, the bound of the consumer");
    let letter = wire::with_headers(message.payload.to_vec(), Some(&message.headers))
        .as_dead_letter(name, &why, bound);
    let key = format!("{name}:{}:{bound}", message.sequence);
    dead.store(&dead.shared.place.subject, &letter, Some(&key))
        .await?;
    remove(nats, message.sequence).await
}
