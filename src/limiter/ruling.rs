//! What all levels together have decided.

use std::time::Duration;

use super::store::Charge;
use crate::decision::{Decision, Limited, Verdict};
use crate::sync::Arc;

/// Answer of a hierarchy: granted by every level, or refused and charged to none.
///
/// When it is refused, the decisions of levels that would have granted say so, with what is left there, uncharged.
///
/// # Examples
/// ```
/// use sluicegate::{Hierarchy, ManualClock, Rate};
///
/// let hierarchy = Hierarchy::<&'static str>::builder()
///     .level("everybody", Rate::per_second(100).burst(100), |_| ())
///     .level("user", Rate::per_second(1).burst(2), |user| *user)
///     .clock(ManualClock::new())
///     .build()?;
/// assert!(hierarchy.check(&"ada", 2).is_granted());
///
/// let refused = hierarchy.check(&"ada", 1);
/// assert_eq!(refused.binding(), Some("user"));
/// let left: Vec<u64> = refused.decisions().map(|(_, decision)| decision.remaining).collect();
/// assert_eq!(left, [98, 0], "a refusal is charged to nobody");
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
#[must_use = "a refused caller has to be turned away"]
#[derive(Clone, Debug)]
pub struct Ruling {
    charge: Charge,
    decisions: Vec<(Arc<str>, Decision)>,
    degraded: bool,
}

impl Ruling {
    /// Makes the ruling of a store from each level's decision, in the order of the charge's levels.
    pub fn new<N: Into<Arc<str>>>(
        charge: Charge,
        decisions: impl IntoIterator<Item = (N, Decision)>,
    ) -> Self {
        let decisions: Vec<_> = decisions
            .into_iter()
            .map(|(name, decision)| (name.into(), decision))
            .collect();
        let granted = decisions.iter().all(|(_, decision)| decision.is_granted());
        let at = decisions.iter().map(|(_, decision)| decision.at).max();
        Self {
            charge: charge.stamped(at.filter(|_| granted)),
            decisions,
            degraded: false,
        }
    }

    /// Marks it as decided without the store that should have decided it.
    pub fn degraded(mut self) -> Self {
        self.degraded = true;
        self
    }

    /// The charge; of a granted ruling it carries the instant of the deciding clock, and can be given back.
    #[must_use]
    pub fn charge(&self) -> Charge {
        self.charge.clone()
    }

    /// The charge, where it lies.
    #[cfg(any(feature = "metrics", feature = "tower"))]
    pub(crate) const fn charged(&self) -> &Charge {
        &self.charge
    }

    /// Position of the binding level.
    #[cfg(feature = "metrics")]
    pub(crate) fn binding_position(&self) -> Option<usize> {
        let (name, _) = self.refusal()?;
        let mut names = self.decisions.iter();
        names.position(|(other, _)| Arc::ptr_eq(other, name))
    }

    /// Whether every level granted, and was charged.
    #[must_use]
    pub fn is_granted(&self) -> bool {
        self.decisions
            .iter()
            .all(|(_, decision)| decision.is_granted())
    }

    /// Name of the level that decides how long to wait: one that can never grant, or the refusing one with the longest wait.
    #[must_use]
    pub fn binding(&self) -> Option<&str> {
        self.refusal().map(|(name, _)| &**name)
    }

    /// Longest wait of the levels that refused; `None` if it was granted, or a level can never grant it.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.refusal()?.1.retry_after()
    }

    /// The level that is closest to refusing: the binding one, or the one with the fewest units left.
    #[must_use]
    pub fn tightest(&self) -> Option<(&str, &Decision)> {
        let fewest = || {
            self.decisions
                .iter()
                .min_by_key(|(_, decision)| decision.remaining)
        };
        let (name, decision) = self.refusal().or_else(fewest)?;
        Some((name, decision))
    }

    /// Every level's decision, outermost first.
    pub fn decisions(&self) -> impl ExactSizeIterator<Item = (&str, &Decision)> {
        self.decisions
            .iter()
            .map(|(name, decision)| (&**name, decision))
    }

    /// Whether the store that should have decided could not be asked.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.degraded
    }

    /// Turns a refusal into an error that names its level.
    ///
    /// # Errors
    /// [`Limited`] unless it was granted.
    pub fn into_result(self) -> Result<(), Limited> {
        match self.refusal() {
            Some((name, decision)) => Limited::of(decision, Some(Arc::clone(name))),
            None => Ok(()),
        }
    }

    fn refusal(&self) -> Option<&(Arc<str>, Decision)> {
        // What can never be granted comes after every wait.
        let wait = |decision: &Decision| match decision.verdict {
            Verdict::Granted => None,
            Verdict::Refused { retry_after } => Some((false, retry_after)),
            Verdict::Never { .. } => Some((true, Duration::ZERO)),
        };
        // Of equal waits the first level's counts, so the maximum is searched from the end.
        let refused = self.decisions.iter().rev();
        refused
            .filter(|(_, decision)| !decision.is_granted())
            .max_by_key(|(_, decision)| wait(decision))
    }
}
