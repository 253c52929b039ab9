//! How those behave who make the offers.

use std::time::Duration;

/// How an offer is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Now or not at all (`try_send`).
    #[default]
    Try,
    /// In line at the door, for as long as the caller's patience (`send`).
    Wait,
}

/// When a caller comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Return {
    /// When the refusal says; after a timeout at once.
    #[default]
    Told,
    /// Always after so long.
    After(Duration),
}

/// Behaviour of all callers.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct Callers {
    pub(crate) form: Form,
    pub(crate) patience: Option<Duration>,
    pub(crate) retries: u32,
    pub(crate) comes_back: Return,
}

impl Callers {
    /// Callers who take the first answer and wait for ever for what was admitted.
    pub fn new(form: Form) -> Self {
        Self {
            form,
            ..Self::default()
        }
    }

    /// How long a caller waits for the end of its job: what ends later is work for nobody.
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// How often a caller tries again after a refusal or a timeout.
    pub const fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// When it does.
    pub const fn comes_back(mut self, when: Return) -> Self {
        self.comes_back = when;
        self
    }

    /// Time from a refusal to the next offer; none if coming back is of no use.
    pub(crate) fn delay(&self, told: Option<Duration>) -> Option<Duration> {
        match self.comes_back {
            Return::Told => told,
            Return::After(delay) => told.map(|_| delay),
        }
    }

    /// Time from a timeout to the next offer.
    pub(crate) const fn delay_after_timeout(&self) -> Duration {
        match self.comes_back {
            Return::Told => Duration::ZERO,
            Return::After(delay) => delay,
        }
    }
}
