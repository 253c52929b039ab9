//! Asking the server for messages.

use std::time::Duration;

use async_nats::jetstream::Message as Delivered;
use futures_util::StreamExt;
use tokio::time::timeout;

use super::{Nats, NatsReceipt, wire};
use crate::broker::contract::Broker;
use crate::broker::error::{BrokerError, BrokerErrorKind};
use crate::broker::message::Delivery;

impl Nats {
    /// What one request to the server brings; an error after the first message is left for the next call to find.
    pub(super) async fn fetch(
        &self,
        most: usize,
        wait: Option<Duration>,
    ) -> Result<Vec<Delivery<NatsReceipt>>, BrokerError> {
        let consumer = &self.shared.consumer;
        let batch = match wait {
            None => {
                // Where the bound in flight is reached, the server says nothing until this has passed.
                let fetch = consumer.fetch().max_messages(most).expires(NOTHING_SAID);
                fetch.messages().await
            }
            Some(wait) => {
                let batch = consumer.batch().max_messages(most).expires(wait);
                batch.messages().await
            }
        };
        let mut batch = batch.map_err(|error| self.error("asking for messages", error))?;
        let mut taken = Vec::new();
        loop {
            match timeout(LOOK_UP, batch.next()).await {
                Ok(Some(Ok(message))) => taken.push(self.delivery(message)?),
                Ok(Some(Err(error))) if taken.is_empty() => return self.no_messages(error).await,
                Ok(_) => return Ok(taken),
                // A server that is gone ends no request.
                Err(_) if !taken.is_empty() && !self.is_connected() => return Ok(taken),
                Err(_) => self.reachable()?,
            }
        }
    }

    async fn no_messages(
        &self,
        error: async_nats::Error,
    ) -> Result<Vec<Delivery<NatsReceipt>>, BrokerError> {
        let said = error.to_string();
        // As many are in flight as the consumer allows: there is none now, and that is no trouble.
        if said.contains("MaxAckPending") {
            return Ok(Vec::new());
        }
        match self.shared.consumer.get_info().await {
            Ok(_) => Err(BrokerError::new(
                BrokerErrorKind::Other,
                format!("stream {}: {said}", self.name()),
            )),
            Err(info) => {
                let error = self.error("info of the consumer", info);
                if error.kind() == BrokerErrorKind::Missing {
                    self.mend().await;
                }
                Err(error)
            }
        }
    }

    fn delivery(&self, message: Delivered) -> Result<Delivery<NatsReceipt>, BrokerError> {
        let (attempt, stream_sequence) = message
            .info()
            .map(|info| (info.delivered, info.stream_sequence))
            .map_err(|error| {
                let text = format!("stream {}: a message without a place", self.name());
                BrokerError::new(BrokerErrorKind::Other, text).because(error)
            })?;
        let reply = message.message.reply.as_ref().map(ToString::to_string);
        Ok(Delivery {
            attempt: u32::try_from(attempt).unwrap_or(u32::MAX),
            receipt: NatsReceipt {
                reply: reply.unwrap_or_default(),
                stream_sequence,
            },
            message: wire::incoming(message.message),
        })
    }
}

/// Longest wait for the end of a request that the server is not to keep.
const NOTHING_SAID: Duration = Duration::from_millis(250);
/// How often a request under way looks whether there is still a connection.
const LOOK_UP: Duration = Duration::from_millis(100);
