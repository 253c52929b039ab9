//! What a lane is made of: the jobs of its tenants, each a flow with its place in the fair order.

use crate::machine::order::Order;
use crate::machine::places::List;
use crate::machine::tenants::TenantId;

/// Jobs of one tenant in one lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) jobs: List,
    /// While active: start tag of its next job. While idle: finish tag of its last.
    pub(super) tag: u128,
    /// Weight it takes part with; 0 while it is not active.
    pub(super) weight: u64,
}

impl Flow {
    pub(crate) const fn new() -> Self {
        Self {
            jobs: List::new(),
            tag: 0,
            weight: 0,
        }
    }

    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.weight > 0
    }
}

/// One lane.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) active: Order,
    /// Start tag of the job that left last.
    pub(super) virtual_time: u128,
    /// Weight of its active flows.
    pub(super) weight: u128,
    /// Cost of its ready jobs, those of tenants that are not due included.
    pub(super) cost: u128,
}

impl Lane {
    /// Takes a flow out of the order, where it is under `tag`; its own tag stays where it is.
    #[inline]
    pub(super) fn retire(&mut self, flow: &mut Flow, tag: u128, id: TenantId) {
        self.active.remove((tag, id));
        self.weight -= u128::from(std::mem::take(&mut flow.weight));
    }

    /// Corrects what a flow paid for a job that has departed.
    pub(super) fn correct(
        &mut self,
        flow: &mut Flow,
        id: TenantId,
        weight: u64,
        was: u64,
        is: u64,
    ) {
        let before = flow.tag;
        flow.tag = match is.checked_sub(was) {
            Some(more) => before.saturating_add(virtual_span(more, weight)),
            // A refund takes nobody back before the present.
            None => before
                .saturating_sub(virtual_span(was - is, weight))
                .max(self.virtual_time.min(before)),
        };
        if flow.is_active() {
            self.active.remove((before, id));
            self.active.insert((flow.tag, id));
        }
    }
}

/// Virtual time that a job takes of a flow of this weight.
#[inline]
pub(super) fn virtual_span(cost: u64, weight: u64) -> u128 {
    let span = u128::from(cost) * SCALE;
    // Nearly all flows have weight 1, and this division is a slow one.
    if weight == 1 {
        span
    } else {
        span / u128::from(weight)
    }
}

/// Virtual time that a unit of cost takes at weight 1: so fine that the largest weight still moves it.
const SCALE: u128 = 1 << 40;
