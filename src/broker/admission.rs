//! Admission in front of a broker: the edge, the ladder over its depth, then a publish with confirm.
//!
//! ```text
//!   publish --> room, as far as is known? --> charge the edge --> publish --confirmed--> Accepted
//!                  | no                         | refused            | full            | no answer
//!                  v                            v                    v                 v
//!            RejectedBy::Depth           RejectedBy::Edge     charge back, Depth   RejectedBy::Broker
//! ```

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::admission_builder::AdmissionBuilder;
use super::contract::Broker;
use super::door::{Settings, Turned};
use super::error::{BrokerError, BrokerErrorKind};
use super::message::Message;
use super::numbers::Numbers;
use super::polls::Polls;
use super::rejected::{Rejected, RejectedBy};
use crate::limiter::{Admission as Edge, Charge};
use crate::queue::Accepted;
use crate::refusal::Refusal;
use crate::sync::Arc;
use crate::words::Pressure;

/// Door in front of a broker: who may publish, and when the broker holds too much already.
///
/// The depth is what the broker [tells](Broker::depth), queued and in flight, polled while there is traffic and counted
/// on in between. Past the high mark everybody is refused until it is down to the low one. Clones share the door.
///
/// # Several processes
/// Each has a door of its own and sees what the others publish at its next poll. Told their number
/// ([`processes`](AdmissionBuilder::processes), n), each takes between two polls at most an n-th of the room that it
/// found. The depth then never passes `max_depth * (2 - 1/n)`, and passes `max_depth` only by what the others publish
/// within the age of one poll. A broker with [`HardDepthBound`](super::Capability::HardDepthBound) allows no overshoot
/// at all: its refusal is handed on like one of the door.
///
/// # Examples
/// ```
/// use sluicegate::broker::{Admission, Memory, Message, RejectedBy};
/// use sluicegate::{Rate, RateLimiter};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// let edge = RateLimiter::new(Rate::per_second(1_000).burst(100));
/// let door = Admission::builder(edge, Memory::new("orders")).max_depth(2).build()?;
/// door.publish(&(), Message::new("first")).await?;
/// door.publish(&(), Message::new("second")).await?;
/// let rejected = door.publish(&(), Message::new("third")).await.expect_err("the bound is two");
/// assert!(matches!(rejected.by(), RejectedBy::Depth(_)));
/// assert!(rejected.retry_after().is_some());
/// assert_eq!(rejected.into_inner().payload(), b"third");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Admission<A: Edge, B: Broker> {
    edge: A,
    core: Arc<Core<B>>,
}

/// What the clones share.
pub(super) struct Core<B> {
    pub(super) broker: B,
    pub(super) polls: Polls,
    pub(super) settings: Settings,
    pub(super) confirm_within: Duration,
    pub(super) numbers: Numbers,
}

impl<A: Edge, B: Broker> Admission<A, B> {
    /// Begins a door in front of `broker`, with `edge` before it.
    pub fn builder(edge: A, broker: B) -> AdmissionBuilder<A, B> {
        AdmissionBuilder::new(edge, broker)
    }

    pub(super) fn new(edge: A, core: Core<B>) -> Self {
        Self {
            edge,
            core: Arc::new(core),
        }
    }

    /// Publishes a message if edge and depth let it, and waits for the broker's confirm.
    ///
    /// At the door nobody waits, but for the first poll and where the last one is old.
    ///
    /// # Errors
    /// [`Rejected`] gives the message back and says who did not accept it, and when to come again. After a confirm that
    /// did not come in time the message may be stored: publish it again under the same [id](Message::id).
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropped before it is done, the message is published or not; the edge's charge stays if it may have been.
    pub async fn publish(
        &self,
        context: &A::Context,
        message: Message,
    ) -> Result<Accepted, Rejected> {
        let charge = self.edge.charge(context, 1);
        let outcome = self.attempt(charge, &message).await;
        self.core.numbers.offered(&outcome);
        outcome.map_err(|(by, retry_after)| Rejected::new(message, by, retry_after))
    }

    /// As [`publish`](Self::publish), coming again when told to, for at most `patience`: it slows its caller down.
    ///
    /// Callers are not in line: who comes again at the right moment gets in. An unknown outcome is not tried again.
    ///
    /// # Errors
    /// As [`publish`](Self::publish), of the last try.
    ///
    /// # Cancel safety
    /// As [`publish`](Self::publish).
    pub async fn publish_within(
        &self,
        context: &A::Context,
        mut message: Message,
        patience: Duration,
    ) -> Result<Accepted, Rejected> {
        let began = Instant::now();
        loop {
            let rejected = match self.publish(context, message).await {
                Ok(accepted) => return Ok(accepted),
                Err(rejected) => rejected,
            };
            let unknown = matches!(rejected.by(), RejectedBy::Broker(error)
                if error.kind() == BrokerErrorKind::Unconfirmed);
            let left = patience.saturating_sub(began.elapsed());
            match rejected.retry_after() {
                Some(after) if !unknown && after <= left => sleep(after).await,
                _ => return Err(rejected),
            }
            message = rejected.into_inner();
        }
    }

    /// Pressure at the door: of the depth, of a broker that blocks, of confirms that do not come.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        self.core.polls.door().pressure()
    }

    /// Depth as far as it is known here: the last poll and what was published since. 0 before the first poll.
    #[must_use]
    pub fn depth(&self) -> u64 {
        self.core.polls.door().estimate()
    }

    /// Publishes whose confirm is outstanding.
    #[must_use]
    pub fn unconfirmed(&self) -> u64 {
        self.core.polls.door().unconfirmed()
    }

    /// The broker.
    #[must_use]
    pub fn broker(&self) -> &B {
        &self.core.broker
    }

    /// The edge.
    #[must_use]
    pub const fn edge(&self) -> &A {
        &self.edge
    }

    async fn attempt(&self, charge: Charge, message: &Message) -> Result<Accepted, No> {
        let core = &self.core;
        Polls::freshen(core).await.map_err(|error| {
            let again = error.kind().is_transient();
            let wait = core.settings.poll_every * AGAIN;
            (RejectedBy::Broker(error), again.then_some(wait))
        })?;
        // Asked before the edge is charged, so that a full broker costs nobody quota.
        {
            let mut door = core.polls.door();
            if let Err(turned) = door.look() {
                door.count_refused();
                drop(door);
                return Err(self.no(turned));
            }
        }
        let ruling = self.edge.admit(charge).await;
        if !ruling.is_granted() {
            let after = ruling.retry_after();
            return Err((RejectedBy::Edge(ruling), after));
        }
        let charge = Paid {
            edge: &self.edge,
            charge: Some(ruling.charge()),
        };
        let entered = core.polls.door().enter();
        entered.map_err(|turned| self.no(turned))?;
        let place = Place { core, stored: true };
        charge.keep();
        let answer = timeout(core.confirm_within, core.broker.publish(message)).await;
        let error = match answer {
            Ok(Ok(())) => {
                drop(place);
                return Ok(self.accepted());
            }
            Ok(Err(error)) => error,
            Err(_) => BrokerError::new(
                BrokerErrorKind::Unconfirmed,
                format!(
                    "broker {} has not confirmed within {:?}",
                    core.broker.name(),
                    core.confirm_within
                ),
            ),
        };
        let kind = error.kind();
        let stored = matches!(
            kind,
            BrokerErrorKind::Unconfirmed | BrokerErrorKind::Disconnected | BrokerErrorKind::Other
        );
        place.ends(stored);
        if !stored {
            self.edge.give_back(ruling.charge());
        }
        let found = match kind {
            BrokerErrorKind::Full => Some(core.polls.door().found_full(Instant::now())),
            BrokerErrorKind::Blocked => Some(core.polls.door().found_blocked(Instant::now())),
            _ => None,
        };
        if let Some(turned) = found {
            return Err(self.no(turned));
        }
        let after = kind
            .is_transient()
            .then(|| core.settings.poll_every * AGAIN);
        Err((RejectedBy::Broker(error), after))
    }

    fn accepted(&self) -> Accepted {
        let door = self.core.polls.door();
        let depth = door.estimate();
        let wait = door.drain().map(|rate| depth as f64 / rate);
        Accepted {
            depth,
            expected_wait: wait
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .unwrap_or(Duration::MAX),
        }
    }

    fn no(&self, turned: Turned) -> No {
        let refusal = Refusal {
            reason: turned.reason,
            retry_after: Some(turned.retry_after),
            depth: turned.depth,
            max_depth: self.core.settings.max_depth,
            cost: 1,
            pressure: self.pressure(),
            queue: Some(self.core.broker.name().into()),
        };
        (RejectedBy::Depth(refusal), Some(turned.retry_after))
    }
}

type No = (RejectedBy, Option<Duration>);

impl<A: Edge, B: Broker> Clone for Admission<A, B> {
    fn clone(&self) -> Self {
        Self {
            edge: self.edge.clone(),
            core: Arc::clone(&self.core),
        }
    }
}

impl<A: Edge, B: Broker> fmt::Debug for Admission<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission")
            .field("broker", &self.core.broker)
            .field("settings", &self.core.settings)
            .finish_non_exhaustive()
    }
}

/// A charge that is given back when dropped.
struct Paid<'a, A: Edge> {
    edge: &'a A,
    charge: Option<Charge>,
}

impl<A: Edge> Paid<'_, A> {
    fn keep(mut self) {
        self.charge = None;
    }
}

impl<A: Edge> Drop for Paid<'_, A> {
    fn drop(&mut self) {
        if let Some(charge) = self.charge.take() {
            self.edge.give_back(charge);
        }
    }
}

/// A publish under way. Dropped, its outcome is unknown, so it counts as stored.
struct Place<'a, B> {
    core: &'a Core<B>,
    stored: bool,
}

impl<B> Place<'_, B> {
    fn ends(mut self, stored: bool) {
        self.stored = stored;
    }
}

impl<B> Drop for Place<'_, B> {
    fn drop(&mut self) {
        self.core.polls.door().leave(self.stored);
    }
}

/// Polls to wait for before coming again to a broker that did not answer.
const AGAIN: u32 = 5;
