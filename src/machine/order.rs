//! The flows of a lane in the order of their tags.

use std::collections::BTreeSet;

use crate::machine::tenants::TenantId;

/// Flows by tag. Most lanes never have more than one, which is kept without a tree and its allocations.
#[derive(Debug, Default)]
pub(super) struct Order {
    solo: Option<(u128, TenantId)>,
    rest: BTreeSet<(u128, TenantId)>,
}

impl Order {
    #[inline]
    pub(super) fn insert(&mut self, entry: (u128, TenantId)) {
        if self.solo.is_none() && self.rest.is_empty() {
            self.solo = Some(entry);
        } else {
            self.rest.insert(entry);
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, entry: (u128, TenantId)) {
        if self.solo == Some(entry) {
            self.solo = None;
        } else {
            self.rest.remove(&entry);
        }
    }

    /// Gives a flow that stays a later tag.
    #[inline]
    pub(super) fn advance(&mut self, from: (u128, TenantId), to: (u128, TenantId)) {
        if self.solo == Some(from) {
            self.solo = Some(to);
        } else if self.rest.remove(&from) {
            self.rest.insert(to);
        }
    }

    #[inline]
    pub(super) fn first(&self) -> Option<(u128, TenantId)> {
        match (self.solo, self.rest.first()) {
            (Some(solo), Some(first)) => Some(solo.min(*first)),
            (solo, first) => solo.or(first.copied()),
        }
    }

    /// Whether this flow is all there is.
    #[inline]
    pub(super) fn is_only(&self, id: TenantId) -> bool {
        self.rest.is_empty() && self.solo.is_some_and(|(_, solo)| solo == id)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.solo.is_none() && self.rest.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u128, TenantId)> {
        self.solo.into_iter().chain(self.rest.iter().copied())
    }
}
