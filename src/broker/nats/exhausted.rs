//! What a consumer with a bound on deliveries has left behind in the stream.

use async_nats::jetstream::message::StreamMessage;

use super::{Nats, wire};
use crate::broker::contract::Broker;
use crate::broker::error::BrokerError;

/// Moves it to the dead letters. With nothing in flight, whatever lies in the stream up to the last delivery has been
/// delivered as often as it may be.
pub(super) async fn bury(nats: &Nats) -> Result<u64, BrokerError> {
    let shared = &nats.shared;
    let Some(bound) = shared.max_deliveries else {
        return Ok(0);
    };
    let info = shared.consumer.get_info().await;
    let info = info.map_err(|error| nats.error("info of the consumer", error))?;
    let stream = shared.stream.get_info().await;
    let state = stream
        .map_err(|error| nats.error("info of the stream", error))?
        .state;
    if info.num_ack_pending > 0 || state.messages <= info.num_pending {
        return Ok(0);
    }
    let last = info.delivered.stream_sequence;
    let (mut next, mut moved) = (state.first_sequence, 0);
    while next <= last {
        let raw = shared.stream.raw_message_builder().sequence(next);
        // The first at or after this place; none is left if there is no such message.
        let Ok(message) = raw.next_by_subject(">").send().await else {
            break;
        };
        if message.sequence > last {
            break;
        }
        next = message.sequence + 1;
        move_one(nats, message, bound).await?;
        moved += 1;
    }
    Ok(moved)
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
    let deleted = nats.shared.stream.delete_message(message.sequence).await;
    deleted.map_err(|error| nats.error("deleting an exhausted message", error))?;
    Ok(())
}
