//! The one background task of a queue: what time alone brings, and what cancellation tokens say.
//!
//! It is started with the first cause for it, on the runtime captured when the queue was built, else on the caller's,
//! else on the process's pacing thread. It holds the queue weakly and ends with it. It wakes, expires, lapses and
//! grants; it never takes a job.
//!
//! ```text
//!   started --> step: let pass what is due --> sleep until the next event, or until woken --+
//!                 ^-------------------------------------------------------------------------+
//!   runtime ended, or a panic of foreign code --> goes on upon the pacing thread
//! ```

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;

use super::core::{Core, Turn};
use super::watch::{NewWatch, Subject, Watched};
use crate::sync::{Arc, Weak};
use crate::tick::Tick;
use crate::timer::{Timer, pacing};

/// Starts the driver of a queue.
pub(crate) fn start<T: Send + 'static>(core: &Arc<Core<T>>) {
    let driver = of(core);
    if core.timer == Timer::Precise {
        return pacing::spawn(driver);
    }
    let captured = core.runtime.lock().clone();
    match captured.or_else(|| Handle::try_current().ok()) {
        // On a runtime that has ended it is dropped at once, and moves on by itself.
        Some(runtime) => drop(runtime.spawn(driver)),
        None => pacing::spawn(driver),
    }
}

/// The driver of a queue as a future.
pub(crate) fn of<T: Send + 'static>(
    core: &Arc<Core<T>>,
) -> impl Future<Output = ()> + Send + 'static {
    Driver {
        core: Arc::downgrade(core),
        sleep: None,
        tokens: FuturesUnordered::new(),
        fired: Vec::new(),
        stage: Stage::Idle,
    }
}

struct Driver<T: Send + 'static> {
    core: Weak<Core<T>>,
    sleep: Option<(Tick, BoxFuture<'static, ()>)>,
    tokens: FuturesUnordered<Watched>,
    fired: Vec<Subject>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    Polled,
    Ended,
}

impl<T: Send + 'static> Driver<T> {
    /// One step of the queue: `None` at its end, else when to wake.
    fn turn(&mut self, cx: &mut Context<'_>) -> Option<Option<Tick>> {
        let core = self.core.upgrade()?;
        let fired = &mut self.fired;
        let waker = cx.waker().clone();
        let mut turn = Turn::default();
        // The downstream's word is foreign code as well: one that panics says nothing.
        let strained = catch_unwind(AssertUnwindSafe(|| core.is_strained()));
        let strained = strained.unwrap_or_else(|panic| {
            std::mem::forget(panic);
            false
        });
        // A panic here is one of foreign code (a waker, the drop of an item) after the step itself: the panic hook has
        // told of it, and the queue goes on.
        let step = catch_unwind(AssertUnwindSafe(|| {
            core.drive(waker, &mut turn, |state, now, after| {
                if strained {
                    state.machine.strained();
                }
                for subject in fired.drain(..) {
                    match subject {
                        Subject::Waiter(key) => {
                            state.machine.cancel_waiter(now, key, &mut after.fx);
                        }
                        Subject::Job(key) => {
                            state.machine.cancel_job(now, key, &mut after.fx);
                        }
                    }
                }
            });
        }));
        // The payload is foreign too, and its drop may panic once more.
        std::mem::forget(step);
        self.tokens
            .extend(turn.watches.into_iter().map(NewWatch::start));
        Some(turn.next)
    }

    /// Collects the tokens that have fired; `true` if there are any.
    fn poll_tokens(&mut self, cx: &mut Context<'_>) -> bool {
        while let Poll::Ready(Some(over)) = Pin::new(&mut self.tokens).poll_next(cx) {
            self.fired.extend(over);
        }
        !self.fired.is_empty()
    }

    /// Whether `at` has come; if not, this task is woken then.
    fn poll_sleep(&mut self, at: Tick, cx: &mut Context<'_>) -> bool {
        let asleep = self.sleep.take().filter(|(until, _)| *until == at);
        let (until, mut sleep) = match asleep {
            Some(asleep) => asleep,
            None => {
                let Some(core) = self.core.upgrade() else {
                    return true;
                };
                (at, core.timer.sleep_until(&core.clock, at))
            }
        };
        if sleep.as_mut().poll(cx).is_ready() {
            return true;
        }
        self.sleep = Some((until, sleep));
        false
    }
}

impl<T: Send + 'static> Driver<T> {
    fn run(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..TURNS {
            let Some(next) = self.turn(cx) else {
                return Poll::Ready(());
            };
            if self.poll_tokens(cx) {
                continue;
            }
            match next {
                Some(at) if self.poll_sleep(at, cx) => {}
                _ => return Poll::Pending,
            }
        }
        // Others want this thread too.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<T: Send + 'static> Future for Driver<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.stage = Stage::Polled;
        let poll = self.run(cx);
        self.stage = if poll.is_ready() {
            Stage::Ended
        } else {
            Stage::Idle
        };
        poll
    }
}

impl<T: Send + 'static> Drop for Driver<T> {
    fn drop(&mut self) {
        if self.stage == Stage::Ended {
            return;
        }
        let Some(core) = self.core.upgrade() else {
            return;
        };
        if self.stage == Stage::Polled {
            // The queue's clock panicked. Starting again at once might go on for ever; the next cause starts another.
            return core.unseat_driver();
        }
        // The runtime has ended.
        *core.runtime.lock() = None;
        pacing::spawn(Driver {
            core: Arc::downgrade(&core),
            sleep: None,
            tokens: std::mem::take(&mut self.tokens),
            fired: std::mem::take(&mut self.fired),
            stage: Stage::Idle,
        });
    }
}

/// Steps in one poll: more in a row than ever fall due at one instant, unless the clock jumps.
const TURNS: usize = 32;

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::clock::ManualClock;
    use crate::machine::{Preset, Spec};
    use crate::queue::consumers::Consumers;
    use crate::queue::core::{Links, Parts};
    use crate::queue::desk::Desk;
    use crate::queue::port;
    use crate::queue::receiver::Receiver;
    use crate::queue::sender::Sender;

    /// A queue whose driver is polled by hand.
    fn queue() -> (Sender<u32>, Receiver<u32>, Driver<u32>) {
        let spec = Spec::new(Preset::Unpaced, None, Timer::Runtime.grain());
        queue_of(spec, ManualClock::new())
    }

    fn queue_of(spec: Spec, clock: ManualClock) -> (Sender<u32>, Receiver<u32>, Driver<u32>) {
        let core = Core::new(Parts {
            settings: spec.resolve().expect("the test's settings are valid"),
            spec,
            clock: Arc::new(clock),
            timer: Timer::Runtime,
            dead_letters: Some(1),
            desk: Desk::Consumers(Consumers::default()),
            runtime: None,
            links: Links {
                start: |_| {},
                port: port::open,
            },
        });
        let driver = Driver {
            core: Arc::downgrade(&core),
            sleep: None,
            tokens: FuturesUnordered::new(),
            fired: Vec::new(),
            stage: Stage::Idle,
        };
        (Sender::new(Arc::clone(&core)), Receiver::new(core), driver)
    }

    fn poll(driver: &mut Driver<u32>) -> Poll<()> {
        Pin::new(driver).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_token_that_outlives_its_jobs_leaves_nothing_behind() {
        let (tx, rx, mut driver) = queue();
        let token = CancellationToken::new();
        for n in 0..100 {
            tx.offer(n)
                .cancelled_by(token.clone())
                .try_send()
                .expect("the test's queue has room");
        }
        assert!(poll(&mut driver).is_pending());
        assert_eq!(driver.tokens.len(), 100);
        for _ in 0..100 {
            rx.try_recv().expect("a job is queued").ack();
        }
        assert!(poll(&mut driver).is_pending());
        assert_eq!(driver.tokens.len(), 0);
        drop((tx, rx));
        assert!(poll(&mut driver).is_ready());
    }

    /// Where its runtime stands still, what it has not seen yet must not pile up.
    #[test]
    fn tokens_of_jobs_that_have_left_do_not_wait_for_the_driver() {
        let (tx, rx, _driver) = queue();
        let token = CancellationToken::new();
        for n in 0..1_000 {
            tx.offer(n)
                .cancelled_by(token.clone())
                .try_send()
                .expect("the test's queue has room");
            rx.try_recv().expect("a job is queued").ack();
        }
        let waiting = tx.core().look(|state, _| state.driver.watches.len());
        assert!(waiting <= 64, "{waiting} wait");
    }

    #[test]
    fn a_job_that_is_cancelled_while_the_driver_looks_elsewhere_is_cancelled_at_its_next_turn() {
        let (tx, _rx, mut driver) = queue();
        let token = CancellationToken::new();
        tx.offer(1)
            .cancelled_by(token.clone())
            .try_send()
            .expect("the test's queue has room");
        assert!(poll(&mut driver).is_pending());
        token.cancel();
        assert!(poll(&mut driver).is_pending());
        assert_eq!(tx.snapshot().ledger.cancelled, 1);
    }

    /// A job that is too old to start makes way for the next; that one's token may have fired a moment ago.
    #[test]
    fn a_stale_job_does_not_let_one_start_whose_token_has_fired() {
        let ms = Duration::from_millis(1);
        let mut spec = Spec::new(Preset::Unpaced, None, Timer::Runtime.grain());
        spec.standing_delay = Some((5 * ms, 10 * ms));
        spec.drop_stale = true;
        let clock = ManualClock::new();
        let (tx, rx, _driver) = queue_of(spec, clock.clone());
        tx.try_send(1).expect("the test's queue has room");
        clock.advance(12 * ms);
        let token = CancellationToken::new();
        tx.offer(2)
            .cancelled_by(token.clone())
            .try_send()
            .expect("delay stands, and depth is low");
        tx.try_send(3).expect("delay stands, and depth is low");
        token.cancel();
        assert_eq!(rx.try_recv().expect("the third may start").into_inner(), 3);
        let ledger = tx.snapshot().ledger;
        assert_eq!((ledger.expired, ledger.cancelled), (1, 1));
    }
}
