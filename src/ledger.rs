//! Where every job is: counts that balance at every instant.

/// Count of jobs by where they are or how they ended.
///
/// ```text
/// offered  = refused + cancelled_waiting + waiting + admitted
/// admitted = reserved + queued + in_flight
///          + acked + failed + evicted + expired + cancelled + abandoned + returned
/// ```
/// It counts jobs, where depth counts cost. An offer counts at its first poll. A place that was granted and not yet
/// collected still counts as `waiting`; a job that waits for its retry as `queued`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct Ledger {
    /// Offers made.
    pub offered: u64,
    /// Offers that ended in a refusal.
    pub refused: u64,
    /// Offers given up while they stood in line.
    pub cancelled_waiting: u64,
    /// Offers standing in line.
    pub waiting: u64,
    /// Offers that got a place.
    pub admitted: u64,
    /// Permits out: places paid for, no item yet.
    pub reserved: u64,
    /// Jobs queued or waiting for their retry.
    pub queued: u64,
    /// Jobs handed to a consumer and not settled.
    pub in_flight: u64,
    /// Jobs done.
    pub acked: u64,
    /// Jobs that failed for good.
    pub failed: u64,
    /// Jobs that made room for newer ones.
    pub evicted: u64,
    /// Jobs that did not start in time.
    pub expired: u64,
    /// Permits and turns given back unused, queued jobs cancelled by their token.
    pub cancelled: u64,
    /// Jobs that a consumer dropped unsettled.
    pub abandoned: u64,
    /// Jobs that the end of the queue gave back.
    pub returned: u64,
    /// Times that a job went back from a consumer into the queue; beside the balance, never a second admission.
    pub requeued: u64,
}

impl Ledger {
    /// Whether both equations hold.
    #[must_use]
    pub const fn is_balanced(&self) -> bool {
        self.offered == self.refused + self.cancelled_waiting + self.waiting + self.admitted
            && self.admitted == self.reserved + self.queued + self.in_flight + self.ended()
    }

    /// Jobs that left for good, one way or another.
    #[must_use]
    pub const fn ended(&self) -> u64 {
        self.acked
            + self.failed
            + self.evicted
            + self.expired
            + self.cancelled
            + self.abandoned
            + self.returned
    }

    /// Adds the counts of another ledger.
    pub(crate) fn add(&mut self, other: &Self) {
        self.merge(other, |mine, its| *mine += its);
    }

    /// Takes away the counts of a part of this ledger.
    pub(crate) fn subtract(&mut self, part: &Self) {
        self.merge(part, |mine, its| *mine -= its);
    }

    fn merge(&mut self, other: &Self, change: impl Fn(&mut u64, u64)) {
        change(&mut self.offered, other.offered);
        change(&mut self.refused, other.refused);
        change(&mut self.cancelled_waiting, other.cancelled_waiting);
        change(&mut self.waiting, other.waiting);
        change(&mut self.admitted, other.admitted);
        change(&mut self.reserved, other.reserved);
        change(&mut self.queued, other.queued);
        change(&mut self.in_flight, other.in_flight);
        change(&mut self.acked, other.acked);
        change(&mut self.failed, other.failed);
        change(&mut self.evicted, other.evicted);
        change(&mut self.expired, other.expired);
        change(&mut self.cancelled, other.cancelled);
        change(&mut self.abandoned, other.abandoned);
        change(&mut self.returned, other.returned);
        change(&mut self.requeued, other.requeued);
    }
}
