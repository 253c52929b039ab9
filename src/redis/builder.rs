//! Settings of shared limits.

use std::time::Duration;

use super::endpoint::Endpoint;
use super::fallback::WhenUnknown;
use super::limits::Limits;
use super::plan::Layout;
use crate::clock::Clock;
use crate::error::BuildError;
use crate::sync::Arc;

/// Builder of [`Limits`].
#[derive(Debug)]
#[must_use]
pub struct LimitsBuilder {
    pub(super) endpoint: Endpoint,
    pub(super) deadline: Duration,
    pub(super) unknown: WhenUnknown,
    pub(super) unknown_at: Vec<(Arc<str>, WhenUnknown)>,
    pub(super) break_after: u32,
    pub(super) pause: Duration,
    pub(super) remembers: bool,
    pub(super) merges: bool,
    pub(super) fallback_keys: u64,
    pub(super) clock: Option<Arc<dyn Clock>>,
    prefix: String,
    tenant: Option<Arc<str>>,
    apart: Vec<Arc<str>>,
}

impl LimitsBuilder {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            deadline: DEADLINE,
            unknown: WhenUnknown::default(),
            unknown_at: Vec::new(),
            break_after: BREAK_AFTER,
            pause: PAUSE,
            remembers: true,
            merges: true,
            fallback_keys: FALLBACK_KEYS,
            clock: None,
            prefix: "sluicegate".into(),
            tenant: None,
            apart: Vec::new(),
        }
    }

    /// Sets what the names of all keys begin with; default `sluicegate`. Limits with one prefix share their state.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long a decision waits for the server; default 20 ms. With levels [`apart`](Self::apart) each of its calls
    /// has as long.
    ///
    /// After it the outcome is unknown. A longer one holds callers up when the server stalls, a shorter one takes a slow
    /// network for an outage.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets what levels answer when the outcome of a decision is unknown; default [`WhenUnknown::Refuse`].
    pub fn when_unknown(mut self, choice: WhenUnknown) -> Self {
        self.unknown = choice;
        self
    }

    /// Sets the same for one level. A hierarchy without such a level is not built.
    pub fn when_unknown_at(mut self, level: impl Into<Arc<str>>, choice: WhenUnknown) -> Self {
        self.unknown_at.push((level.into(), choice));
        self
    }

    /// Sets after how many failures in a row the server is left alone, and for how long before one caller tries it
    /// again; default 5 and 250 ms.
    ///
    /// Meanwhile decisions are made at once by [`when_unknown`](Self::when_unknown), without anything being sent.
    pub fn break_after(mut self, failures: u32, pause: Duration) -> Self {
        (self.break_after, self.pause) = (failures, pause);
        self
    }

    /// Forgets refusals at once, instead of repeating them from memory until they end.
    ///
    /// What is repeated is exact, but for charges that other processes give back and limits that they raise, until the
    /// wait that was told is over.
    pub fn forget_refusals(mut self) -> Self {
        self.remembers = false;
        self
    }

    /// Sends a call for each decision, instead of merging those that wait at the same time. Both are exact.
    ///
    /// Merged are callers of the same keys and cost, who share a decision about so many charges; and callers of different
    /// keys, whose decisions go to the server together, up to 16 in a call. A caller waits for others only while two calls
    /// are under way: until one of them is answered, or a millisecond has passed. In a cluster different keys go together
    /// where all have one tag, that is without [`tenant`](Self::tenant) and [`apart`](Self::apart).
    pub fn never_merge(mut self) -> Self {
        self.merges = false;
        self
    }

    /// Keeps all levels of a decision under the key of this level as their hash tag, so that a cluster spreads by it.
    ///
    /// Without it all keys have one tag, and one node of a cluster carries everything. Levels that several tenants share
    /// have to be kept [`apart`](Self::apart), or each tenant has its own.
    pub fn tenant(mut self, level: impl Into<Arc<str>>) -> Self {
        self.tenant = Some(level.into());
        self
    }

    /// Decides about this level in a call of its own, after those that are together have granted.
    ///
    /// If it refuses or does not answer, what they were charged is given back: for the time of a call others may see it.
    /// So with such a level "all or none" holds only once the refund has arrived; if it is lost, the charge stays. A level
    /// that did not answer may itself have been charged, once, and nothing is given back there.
    pub fn apart(mut self, level: impl Into<Arc<str>>) -> Self {
        self.apart.push(level.into());
        self
    }

    /// Sets how many keys each level remembers in this process while it decides by [`WhenUnknown::Share`]; default
    /// 10,000. Newcomers beyond share one strict bucket.
    pub fn fallback_keys(mut self, keys: u64) -> Self {
        self.fallback_keys = keys;
        self
    }

    /// Lets this clock decide instead of the server's: for tests that move time by hand.
    ///
    /// Every process has to have the same. Keys then live an hour longer than they are needed, and refusals are not
    /// remembered.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Builds the limits; nothing is connected yet.
    ///
    /// # Errors
    /// If the deadline, the pause, or the number of failures, nodes or keys is zero, or the prefix is empty.
    pub fn build(self) -> Result<Limits, BuildError> {
        let zero = |field: &'static str, value: String| {
            Err(BuildError::setting(field, value, "it is more than zero"))
        };
        if self.deadline.is_zero() {
            return zero("deadline", format!("{:?}", self.deadline));
        }
        if self.break_after == 0 || self.pause.is_zero() {
            let value = format!("{} failures, {:?}", self.break_after, self.pause);
            return zero("break_after", value);
        }
        if self.fallback_keys == 0 {
            return zero("fallback_keys", "0".into());
        }
        let choices = self.unknown_at.iter().map(|(_, choice)| choice);
        for choice in choices.chain([&self.unknown]) {
            if let WhenUnknown::Share { nodes: 0 } = choice {
                return zero("when_unknown", "a share among 0 nodes".into());
            }
        }
        if self.prefix.is_empty() {
            return Err(BuildError::setting("prefix", "\"\"", "it is not empty"));
        }
        let (tenant, apart) = (self.tenant.clone(), self.apart.clone());
        if tenant.as_ref().is_some_and(|tenant| apart.contains(tenant)) {
            let value = format!("{tenant:?}");
            let rule = "the tenant's level is not kept apart from itself";
            return Err(BuildError::setting("apart", value, rule));
        }
        let layout = Layout::new(&self.prefix, tenant, apart);
        Ok(Limits::built(self, layout))
    }
}

const DEADLINE: Duration = Duration::from_millis(20);
const BREAK_AFTER: u32 = 5;
const PAUSE: Duration = Duration::from_millis(250);
const FALLBACK_KEYS: u64 = 10_000;
