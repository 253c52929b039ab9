//! A clock of whatever kind, with the short way to those that everybody uses.

use std::any::Any;
use std::fmt;

use futures_util::future::BoxFuture;

#[cfg(feature = "quanta")]
use super::FastClock;
use super::{Clock, TokioClock};
use crate::tick::Tick;

/// A clock that was handed over, by value: the crate's own are asked without a call through a table of functions.
pub(crate) enum AnyClock {
    Tokio,
    #[cfg(feature = "quanta")]
    Fast(FastClock),
    Other(Box<dyn Clock>),
}

impl AnyClock {
    pub(crate) fn of(clock: impl Clock) -> Self {
        let known: &dyn Any = &clock;
        if known.is::<TokioClock>() {
            return Self::Tokio;
        }
        #[cfg(feature = "quanta")]
        if let Some(clock) = known.downcast_ref::<FastClock>() {
            return Self::Fast(*clock);
        }
        Self::Other(Box::new(clock))
    }

    #[inline(always)] // The reading of the counter is shorter than a call.
    pub(crate) fn now(&self) -> Tick {
        #[cfg(feature = "quanta")]
        if let Self::Fast(clock) = self {
            return clock.now();
        }
        self.other_now()
    }

    #[inline(never)] // Reading the system's clock is long; it would crowd out what is around the short one.
    fn other_now(&self) -> Tick {
        match self {
            #[cfg(feature = "quanta")]
            Self::Fast(clock) => clock.now(),
            Self::Tokio => TokioClock.now(),
            Self::Other(clock) => clock.now(),
        }
    }

    pub(crate) fn sleep_until(&self, deadline: Tick) -> BoxFuture<'static, ()> {
        match self {
            #[cfg(feature = "quanta")]
            Self::Fast(clock) => clock.sleep_until(deadline),
            Self::Tokio => TokioClock.sleep_until(deadline),
            Self::Other(clock) => clock.sleep_until(deadline),
        }
    }
}

impl fmt::Debug for AnyClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "quanta")]
            Self::Fast(clock) => clock.fmt(f),
            Self::Tokio => TokioClock.fmt(f),
            Self::Other(clock) => clock.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn a_clock_is_shown_and_read_as_what_it_is() {
        let manual = ManualClock::new();
        let clock = AnyClock::of(manual.clone());
        manual.set(Tick::from_nanos(7));
        assert_eq!(clock.now(), Tick::from_nanos(7));
        assert_eq!(format!("{clock:?}"), format!("{manual:?}"));
        let clock = AnyClock::of(TokioClock);
        assert!(matches!(clock, AnyClock::Tokio));
        assert_eq!(format!("{clock:?}"), "TokioClock");
        #[cfg(feature = "quanta")]
        assert!(matches!(AnyClock::of(FastClock::new()), AnyClock::Fast(_)));
    }
}
