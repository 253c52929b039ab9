//! What a queue is asked to be.

use std::time::Duration;

use tokio::runtime::Handle;

use super::consumers::Consumers;
use super::core::{Core, Links, Parts};
use super::desk::Desk;
use super::receiver::Receiver;
use super::sender::Sender;
use super::turns::Turns;
use super::turnstile::Turnstile;
use super::{driver, port};
use crate::clock::{Clock, TokioClock};
use crate::error::BuildError;
use crate::machine::{Preset, Spec};
use crate::rate::Rate;
use crate::sync::Arc;
use crate::timer::Timer;
use crate::words::WhenFull;

/// Settings of a queue; every one has a default that goes with the preset.
///
/// | | [`new`](Self::new): lossless | [`shedding`](Self::shedding): a promise | [`unpaced`](Self::unpaced): no rate |
/// |---|---|---|---|
/// | `max_depth` | what leaves in 5 s, 1 to 2^20 | what leaves within the promise | 1,024 |
/// | `max_waiters` | 65,536 | `max_depth - high`, at least 1 | 65,536 |
/// | `max_wait`, `expire_after` | never | the promise | never |
///
/// # Examples
/// ```
/// use sluicegate::Rate;
/// use sluicegate::queue::{Builder, Reason};
/// use std::time::Duration;
///
/// let (tx, _rx) = Builder::shedding(Rate::per_second(100), Duration::from_millis(200)).build()?;
/// let refused = (0..100).find_map(|n| tx.try_send(n).err()).expect("20 leave within the promise");
/// assert_eq!(refused.reason(), Reason::Overloaded);
/// # Ok::<(), sluicegate::BuildError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct Builder {
    pub(super) spec: Spec,
    clock: Arc<dyn Clock>,
    timer: Timer,
    dead_letters: usize,
}

impl Builder {
    /// A queue that loses nothing: jobs leave at `rate`, producers wait, nothing expires.
    pub fn new(rate: Rate) -> Self {
        Self::preset(Preset::Lossless, Some(rate))
    }

    /// A queue that keeps a promise: a job starts within `promise` of its offer, else it is refused.
    ///
    /// It expires instead if consumers lag, or what is more urgent goes first.
    pub fn shedding(rate: Rate, promise: Duration) -> Self {
        Self::preset(Preset::Shedding(promise), Some(rate))
    }

    /// A bounded queue without a rate: jobs leave as they are taken, with everything else as in a paced one.
    ///
    /// [`Control::set_rate`](super::Control::set_rate) makes it paced.
    pub fn unpaced() -> Self {
        Self::preset(Preset::Unpaced, None)
    }

    fn preset(preset: Preset, rate: Option<Rate>) -> Self {
        let timer = Timer::default();
        Self {
            spec: Spec::new(preset, rate, timer.grain()),
            clock: Arc::new(TokioClock),
            timer,
            dead_letters: DEAD_LETTERS,
        }
    }

    /// Bound of the depth in cost: jobs queued or waiting for a retry, and permits out. At least 1.
    ///
    /// Default: by the preset, see [`Builder`]. Higher absorbs longer spikes, at the price of memory and of waits as long
    /// as depth / rate; lower says no earlier.
    pub fn max_depth(mut self, cost: u64) -> Self {
        self.spec.max_depth = Some(cost);
        self
    }

    /// Marks of the ladder in cost: past `high` the queue is no longer healthy, at `low` it is again.
    ///
    /// `low < high <= max_depth`. Default 50 % and 80 % of `max_depth`, and they move with it. A higher `high` uses more of
    /// the bound before pressure is felt, and leaves less of it to critical jobs; a lower `low` makes refusals come in
    /// longer spells and recoveries last.
    pub fn watermarks(mut self, low: u64, high: u64) -> Self {
        self.spec.watermarks = Some((low, high));
        self
    }

    /// Longest line at the door, in offers. 0 = nobody waits.
    ///
    /// Default: by the preset, see [`Builder`]. Higher lets more producers wait, and costs a few hundred bytes for each;
    /// lower refuses sooner.
    pub fn max_waiters(mut self, offers: u64) -> Self {
        self.spec.max_waiters = Some(offers);
        self
    }

    /// Longest predicted wait from an offer to the start, and longest stay in line. At least the timer's grain.
    ///
    /// An offer that could not start in time is refused at once. Default: none, and the promise of a shedding queue.
    /// Longer admits more in a spike; shorter refuses what would come too late anyway.
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.spec.max_wait = Some(wait);
        self
    }

    /// Time after its offer at which a job that has not started expires. At least the timer's grain.
    ///
    /// Default: never, and the promise of a shedding queue. Shorter spares consumers stale work; longer loses less of it.
    pub fn expire_after(mut self, time: Duration) -> Self {
        self.spec.expire_after = Some(time);
        self
    }

    /// Most jobs handed out and not settled. At least 1.
    ///
    /// Default: no bound. Lower protects a downstream that suffers from concurrency; too low, it holds the rate below
    /// what was asked (bound / time per job).
    pub fn max_in_flight(mut self, jobs: u64) -> Self {
        self.spec.max_in_flight = Some(jobs);
        self
    }

    /// Most cost that is owed when departures are late, and made up for.
    ///
    /// Default: what leaves in 100 ms, at least what a late timer owes, and 1. Higher keeps the rate through longer
    /// stalls; 0 spaces strictly, so that a late timer lowers the rate.
    pub fn catch_up(mut self, cost: u64) -> Self {
        self.spec.catch_up = Some(cost);
        self
    }

    /// How fast what is owed is repaid, as a multiple of the rate from 1 to 1,000,000.
    ///
    /// Default 1.1: one tenth faster than the rate. Higher repays sooner in thicker clumps.
    pub fn catch_up_pace(mut self, pace: f64) -> Self {
        self.spec.catch_up_pace = pace;
        self
    }

    /// What `try_*` does where it finds no free place. Default [`WhenFull::Refuse`].
    pub fn when_full(mut self, policy: WhenFull) -> Self {
        self.spec.when_full = policy;
        self
    }

    /// Calls the queue overloaded when even the shortest wait over `interval` was above `target`. Both above 0.
    ///
    /// Default: off. A spike passes, a delay that stands is overload. A lower target refuses sooner; a longer interval
    /// takes longer to believe it. A target above `max_wait` is refused.
    pub fn standing_delay(mut self, target: Duration, interval: Duration) -> Self {
        self.spec.standing_delay = Some((target, interval));
        self
    }

    /// While delay stands, lets jobs expire at their departure that have waited for more than twice the target.
    ///
    /// Default `false`. It needs [`standing_delay`](Self::standing_delay).
    pub fn drop_stale(mut self, drop: bool) -> Self {
        self.spec.drop_stale = drop;
        self
    }

    /// Starts that a job may have: a retry at this attempt is its failure. At least 1.
    ///
    /// Default: no bound, so that a job which always fails is retried for ever, or until its
    /// [instant](super::Terms::expires_at). Higher survives longer outages; every attempt takes a departure from fresh work.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.spec.max_attempts = Some(attempts);
        self
    }

    /// Dead letters that are kept until somebody reads them. 0 = they are only counted.
    ///
    /// Default 1,024. Memory is taken as they come; beyond the bound the newest is dropped and counted as lost.
    pub fn dead_letters(mut self, letters: usize) -> Self {
        self.dead_letters = letters;
        self
    }

    /// What departures are timed with. Default [`Timer::Runtime`].
    pub fn timer(mut self, timer: Timer) -> Self {
        self.timer = timer;
        self.spec.grain = timer.grain();
        self
    }

    /// Where the queue reads the time. Default [`TokioClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Name in refusals and metrics. Default: none.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.spec.name = Some(name.into());
        self
    }

    /// Builds the queue. It needs no runtime: one that is there is used for the queue's timer.
    ///
    /// That runtime has to turn as long as the queue is used: where it stands still, as a current-thread runtime does
    /// outside of `block_on`, consumers elsewhere are not woken for what time alone brings. Once it has ended, or where
    /// there was none, the queue needs none.
    ///
    /// # Errors
    /// The first setting that breaks a rule, by name, value and rule.
    pub fn build<T: Send + 'static>(self) -> Result<(Sender<T>, Receiver<T>), BuildError> {
        let letters = Some(self.dead_letters);
        let core = self.core(Desk::Consumers(Consumers::default()), letters)?;
        Ok((Sender::new(Arc::clone(&core)), Receiver::new(core)))
    }

    /// Builds the queue as a turnstile: there is nothing to hand over, one waits for one's turn.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn turnstile(self) -> Result<Turnstile, BuildError> {
        Ok(Turnstile::new(
            self.core(Desk::Turns(Turns::default()), None)?,
        ))
    }

    fn core<T: Send + 'static>(
        self,
        desk: Desk,
        dead_letters: Option<usize>,
    ) -> Result<Arc<Core<T>>, BuildError> {
        let Self {
            spec, clock, timer, ..
        } = self;
        let core = Core::new(Parts {
            settings: spec.resolve()?,
            spec,
            clock,
            timer,
            dead_letters,
            desk,
            runtime: Handle::try_current().ok(),
            links: Links {
                start: driver::start,
                port: port::open,
            },
        });
        #[cfg(all(feature = "metrics", not(sluicegate_loom)))]
        core.show();
        Ok(core)
    }

    /// The same queue at another rate, whatever its preset.
    #[cfg(feature = "config")]
    pub(crate) fn at_rate(mut self, rate: Rate) -> Self {
        self.spec.rate = Some(rate);
        self
    }

    /// Dead letters that are kept.
    #[cfg(feature = "config")]
    pub(crate) const fn letters_kept(&self) -> usize {
        self.dead_letters
    }

    pub(crate) fn into_spec(self) -> Spec {
        self.spec
    }
}

const DEAD_LETTERS: usize = 1024;
