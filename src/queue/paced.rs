//! Any stream, slowed down to a rate.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::future::BoxFuture;

use crate::clock::{Clock, TokioClock};
use crate::policy::schedule::{Pace, Schedule, USUAL_PACE_PPM, usual_catch_up};
use crate::rate::Rate;
use crate::sync::Arc;
use crate::tick::Tick;
use crate::timer::Timer;

/// Slows a stream down to `rate`; as [`PacedExt::paced`].
pub fn paced<S: Stream>(stream: S, rate: Rate) -> Paced<S> {
    Paced {
        stream: Box::pin(stream),
        rate,
        catch_up: None,
        clock: Arc::new(TokioClock),
        schedule: None,
        sleep: None,
        idle: true,
    }
}

/// Adds [`paced`](Self::paced) to every stream.
pub trait PacedExt: Stream {
    /// Slows the stream down to `rate`: its items are yielded on an absolute schedule.
    ///
    /// An item is asked for when it is due, not before, so nothing is fetched ahead. Items that are late because their
    /// consumer, or a timer, was late are owed and made up for, as the departures of a [queue](crate::queue) are: at most
    /// what falls due in 100 ms, at 1.1 times the rate. Waiting for the stream itself earns nothing.
    ///
    /// # Examples
    /// ```
    /// use futures_util::{StreamExt, stream};
    /// use sluicegate::{PacedExt, Rate};
    /// use std::time::Duration;
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
    /// let start = tokio::time::Instant::now();
    /// let sum: u32 = stream::iter(0..101).paced(Rate::per_second(50)).fold(0, async |a, b| a + b).await;
    /// assert_eq!(sum, 5050);
    /// assert!(start.elapsed() >= Duration::from_secs(2));
    /// # });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn paced(self, rate: Rate) -> Paced<Self>
    where
        Self: Sized,
    {
        paced(self, rate)
    }
}

impl<S: Stream> PacedExt for S {}

/// A stream at a rate; made by [`paced`] or [`PacedExt::paced`].
#[must_use = "streams do nothing unless polled"]
pub struct Paced<S> {
    stream: Pin<Box<S>>,
    rate: Rate,
    catch_up: Option<u64>,
    clock: Arc<dyn Clock>,
    /// From the first poll on.
    schedule: Option<Schedule>,
    sleep: Option<(Tick, BoxFuture<'static, ()>)>,
    /// The stream had no item when it was asked.
    idle: bool,
}

impl<S: Stream> Paced<S> {
    /// Most items that are owed when they are late, and made up for.
    ///
    /// Default: what falls due in 100 ms, at least what a late timer owes, and 1. Higher keeps the rate through longer
    /// stalls; 0 spaces strictly, so that whatever is late lowers the rate.
    pub fn catch_up(mut self, items: u64) -> Self {
        self.catch_up = Some(items);
        self.retune();
        self
    }

    /// Where it reads the time. Default [`TokioClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self.schedule = None;
        self.sleep = None;
        self
    }

    /// Changes the rate from the next poll on; what is owed or ahead is kept in items.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
        self.retune();
    }

    /// The rate.
    #[must_use]
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// The stream, where it stands.
    #[must_use]
    pub fn into_inner(self) -> Pin<Box<S>> {
        self.stream
    }

    fn pace(&self) -> Pace {
        let grain = Timer::Runtime.grain();
        let catch_up = self
            .catch_up
            .unwrap_or_else(|| usual_catch_up(self.rate, grain));
        Pace::new(self.rate, catch_up, USUAL_PACE_PPM, grain)
    }

    fn retune(&mut self) {
        let pace = self.pace();
        if let Some(schedule) = &mut self.schedule {
            schedule.retune(self.clock.now(), pace);
        }
        self.sleep = None;
    }

    /// Waits until the next item is due.
    fn poll_due(&mut self, due: Tick, cx: &mut Context<'_>) -> Poll<()> {
        if self.clock.now() >= due {
            self.sleep = None;
            return Poll::Ready(());
        }
        let asleep = self.sleep.take().filter(|(until, _)| *until == due);
        let (until, mut sleep) = asleep.unwrap_or_else(|| (due, self.clock.sleep_until(due)));
        let poll = sleep.as_mut().poll(cx);
        if poll.is_pending() {
            self.sleep = Some((until, sleep));
        }
        poll
    }
}

impl<S: Stream> Stream for Paced<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        let this = &mut *self;
        let pace = this.pace();
        let now = this.clock.now();
        let due = this
            .schedule
            .get_or_insert_with(|| Schedule::new(pace, now))
            .due();
        std::task::ready!(this.poll_due(due, cx));
        let next = match this.stream.as_mut().poll_next(cx) {
            Poll::Pending => {
                this.idle = true;
                return Poll::Pending;
            }
            Poll::Ready(next) => next,
        };
        let now = this.clock.now().max(due);
        if let (Some(schedule), Some(_)) = (&mut this.schedule, &next) {
            if std::mem::take(&mut this.idle) {
                schedule.begin(now);
            }
            schedule.depart(now, 1);
        }
        Poll::Ready(next)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.stream.size_hint()
    }
}

impl<S> fmt::Debug for Paced<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paced")
            .field("rate", &self.rate)
            .field("catch_up", &self.catch_up)
            .finish_non_exhaustive()
    }
}
