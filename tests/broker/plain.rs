//! A broker that can do next to nothing: what a policy is refused on.

use std::time::Duration;

use sluicegate::broker::{
    Broker, BrokerError, Capabilities, Delivery, Depth, Memory, MemoryReceipt, Message,
};

/// [`Memory`] without its promises: it holds for a minute, whatever one tells it.
#[derive(Clone, Debug)]
pub(crate) struct Plain(Memory);

impl Plain {
    pub(crate) fn new(name: &str) -> Self {
        Self(Memory::new(name).with_hold(Duration::from_secs(60)))
    }
}

impl Broker for Plain {
    type Receipt = MemoryReceipt;

    fn name(&self) -> &str {
        self.0.name()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
    }

    fn hold(&self) -> Option<Duration> {
        self.0.hold()
    }

    async fn publish(&self, message: &Message) -> Result<(), BrokerError> {
        self.0.publish(message).await
    }

    async fn depth(&self) -> Result<Depth, BrokerError> {
        self.0.depth().await
    }

    async fn take(
        &self,
        most: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery<MemoryReceipt>>, BrokerError> {
        self.0.take(most, wait).await
    }

    async fn ack(&self, receipt: &MemoryReceipt) -> Result<(), BrokerError> {
        self.0.ack(receipt).await
    }

    async fn retry(&self, receipt: &MemoryReceipt, _: Duration) -> Result<(), BrokerError> {
        self.0.retry(receipt, Duration::ZERO).await
    }

    async fn give_back(&self, receipt: &MemoryReceipt) -> Result<(), BrokerError> {
        self.0.retry(receipt, Duration::ZERO).await
    }

    async fn dead_letter(
        &self,
        delivery: &Delivery<MemoryReceipt>,
        why: &str,
    ) -> Result<(), BrokerError> {
        self.0.dead_letter(delivery, why).await
    }

    async fn heartbeat(&self, _: &MemoryReceipt) -> Result<(), BrokerError> {
        Ok(())
    }

    fn dead_letters(&self) -> Self {
        Self(self.0.dead_letters())
    }
}
