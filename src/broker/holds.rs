//! Deliveries that are held, and the heartbeats that keep them.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;

use super::capability::Capability;
use super::contract::Broker;
use super::numbers::Numbers;
use crate::sync::{Arc, Mutex};

/// Everything taken from the broker and not settled yet.
#[derive(Debug)]
pub(super) struct Holds<R> {
    held: Mutex<(u64, HashMap<u64, R>)>,
}

/// One delivery that is kept alive until this is dropped.
#[derive(Debug)]
pub(super) struct Hold<R> {
    holds: Arc<Holds<R>>,
    number: u64,
}

impl<R: Clone> Holds<R> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            held: Mutex::new((0, HashMap::new())),
        })
    }

    pub(super) fn keep(self: &Arc<Self>, receipt: R) -> Hold<R> {
        let mut held = self.held.lock();
        held.0 += 1;
        let number = held.0;
        held.1.insert(number, receipt);
        Hold {
            holds: Arc::clone(self),
            number,
        }
    }

    fn all(&self) -> Vec<R> {
        self.held.lock().1.values().cloned().collect()
    }

    /// Tells the broker again and again that all of them are worked on; never returns.
    pub(super) async fn beat<B: Broker<Receipt = R>>(&self, broker: &B, numbers: &Numbers) {
        let hold = broker.hold();
        let beats = broker.capabilities().has(Capability::Heartbeat);
        let Some(every) = hold.filter(|_| beats).map(|hold| hold / BEATS) else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(every.max(SHORTEST)).await;
            stream::iter(self.all())
                .for_each_concurrent(AT_ONCE, |receipt| async move {
                    // What was settled meanwhile is stale, which is no trouble; the rest shows when it is settled.
                    if let Err(error) = broker.heartbeat(&receipt).await
                        && error.kind().is_transient()
                    {
                        numbers.failed(error.kind());
                    }
                })
                .await;
        }
    }
}

impl<R> Drop for Hold<R> {
    fn drop(&mut self) {
        let mut held = self.holds.held.lock();
        let receipt = held.1.remove(&self.number);
        drop(held);
        drop(receipt);
    }
}

/// Heartbeats in the time that the broker waits for one: two may be lost.
const BEATS: u32 = 3;
const SHORTEST: Duration = Duration::from_millis(10);
const AT_ONCE: usize = 64;
