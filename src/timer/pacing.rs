//! The process's one pacing thread: absolute sleeps, and background futures where there is no runtime.
//!
//! Started on first use, ended after [`LINGER`] without work, started again when needed. It sleeps until the next
//! deadline and never spins. Everything here may be called from anywhere, from a `Drop` during the shutdown of a
//! runtime as well: a call takes one lock for a moment and waits for nothing.
//!
//! ```text
//! sleep_until(..).poll --> timers (deadline, id) --+
//! spawn(future) ---------> arrivals ---------------+--> one turn of the thread: collect, then wake and poll,
//! a task's waker --------> ready ids --------------+    then park until the first deadline
//! ```
//!
//! - I1  Wakers are called, futures polled and both dropped with no lock held; futures by the pacing thread alone.
//! - I2  `parked` is set, under the lock, only if no arrival and no ready id is there and the first deadline is not
//!   before it. Whoever breaks that clears `parked` and unparks the thread, so no call is lost.
//! - I3  While `thread` is none the thread has ended or is about to, having no task; whoever brings work starts it.
//!
//! A waker or future that blocks delays everybody who sleeps here; one that panics is dropped and harms nobody else.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;

use crate::sync::process::{AtomicBool, Mutex};
use crate::sync::{Arc, Ordering};

/// Longest span that should be slept in one go: added to an instant of this process it never overflows.
pub(crate) const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Sleeps until `deadline` on the pacing thread; never wakes early.
///
/// Needs no runtime and may be polled by any executor. Cancel safe: dropping it forgets the sleep.
pub(crate) fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, id: None }
}

/// Runs `future` to its end on the pacing thread. A panic in it ends it, and nothing else.
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    let future = Box::pin(future);
    let mut shared = SHARED.lock();
    shared.arrivals.push(future);
    shared.rouse();
}

/// Future of [`sleep_until`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub(crate) struct Sleep {
    deadline: Instant,
    /// Place in `timers`, once there was a need for one; the thread may have taken it out since.
    id: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.deadline {
            return Poll::Ready(());
        }
        // Cloned before the lock is taken, and the one it replaces is dropped after (I1).
        let waker = cx.waker().clone();
        let mut shared = SHARED.lock();
        let id = *self.id.get_or_insert_with(|| shared.next_id());
        let replaced = shared.timers.insert((self.deadline, id), waker);
        let started = shared.rouse_by(self.deadline);
        drop(shared);
        drop(replaced);
        if !started {
            // The system has no thread to give. Asking again in a millisecond is slow, but it is no panic and no spin.
            thread::sleep(Duration::from_millis(1));
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let waker = SHARED.lock().timers.remove(&(self.deadline, id));
        drop(waker);
    }
}

/// What the thread and its callers share.
struct Shared {
    timers: BTreeMap<(Instant, u64), Waker>,
    arrivals: Vec<BoxFuture<'static, ()>>,
    ready: Vec<u64>,
    last_id: u64,
    thread: Option<Thread>,
    /// Until when the thread is parked, or about to be (I2).
    parked: Option<Instant>,
}

impl Shared {
    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Makes the thread run if it sleeps beyond `deadline`, starting it if need be; false if it cannot be started.
    fn rouse_by(&mut self, deadline: Instant) -> bool {
        if self.thread.is_none() || self.parked.is_some_and(|until| deadline < until) {
            return self.rouse();
        }
        true
    }

    /// Makes the thread run now, starting it if need be; false if it cannot be started.
    fn rouse(&mut self) -> bool {
        let Some(thread) = &self.thread else {
            // The new thread waits for this lock before it looks around.
            let started = thread::Builder::new().name(NAME.into()).spawn(run);
            self.thread = started.ok().map(|handle| handle.thread().clone());
            return self.thread.is_some();
        };
        // Without it the thread is running, and looks at everything before it parks.
        if self.parked.take().is_some() {
            thread.unpark();
        }
        true
    }
}

static SHARED: Mutex<Shared> = Mutex::new(Shared {
    timers: BTreeMap::new(),
    arrivals: Vec::new(),
    ready: Vec::new(),
    last_id: 0,
    thread: None,
    parked: None,
});

/// A future that is run in the background.
struct Task {
    future: BoxFuture<'static, ()>,
    signal: Arc<Signal>,
    waker: Waker,
}

/// Puts its task among the ready ones, at most once until it is polled.
struct Signal {
    id: u64,
    raised: AtomicBool,
}

impl Signal {
    fn task(id: u64, future: BoxFuture<'static, ()>) -> Task {
        let raised = AtomicBool::new(false);
        let signal = Arc::new(Self { id, raised });
        let waker = Waker::from(Arc::clone(&signal));
        Task {
            future,
            signal,
            waker,
        }
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Acquire and release: a poll that lowers the signal sees all that was written before this call.
        if !self.raised.swap(true, Ordering::AcqRel) {
            let mut shared = SHARED.lock();
            shared.ready.push(self.id);
            shared.rouse();
        }
    }
}

/// The thread's body: turn by turn until nothing has been there to do for a while.
fn run() {
    let mut tasks: HashMap<u64, Task> = HashMap::new();
    let mut due: Vec<Waker> = Vec::new();
    let mut ready: Vec<u64> = Vec::new();
    let mut idle_since = None;
    loop {
        let mut shared = SHARED.lock();
        shared.parked = None;
        let now = Instant::now();
        while let Some(entry) = shared.timers.first_entry() {
            if entry.key().0 > now {
                break;
            }
            due.push(entry.remove());
        }
        ready.append(&mut shared.ready);
        for future in std::mem::take(&mut shared.arrivals) {
            let id = shared.next_id();
            tasks.insert(id, Signal::task(id, future));
            ready.push(id);
        }
        if due.is_empty() && ready.is_empty() {
            let first = shared.timers.keys().next().map(|(deadline, _)| *deadline);
            let until = if first.is_some() || !tasks.is_empty() {
                idle_since = None;
                first.unwrap_or(now + LONGEST)
            } else {
                *idle_since.get_or_insert(now) + LINGER
            };
            if until <= now {
                shared.thread = None;
                return;
            }
            shared.parked = Some(until);
            drop(shared);
            thread::park_timeout(until - now);
            continue;
        }
        idle_since = None;
        drop(shared);
        for waker in due.drain(..) {
            guarded(|| waker.wake());
        }
        for id in ready.drain(..) {
            poll(&mut tasks, id);
        }
    }
}

/// Polls a task that was signalled, unless it has ended since.
fn poll(tasks: &mut HashMap<u64, Task>, id: u64) {
    let Some(task) = tasks.get_mut(&id) else {
        return;
    };
    // Lowered before the poll, so that a signal during the poll brings another one.
    task.signal.raised.swap(false, Ordering::AcqRel);
    let mut cx = Context::from_waker(&task.waker);
    let pending = guarded(|| task.future.as_mut().poll(&mut cx).is_pending());
    if pending != Some(true) {
        let task = tasks.remove(&id);
        guarded(|| drop(task));
    }
}

/// Runs foreign code; a panic in it has been reported by the panic hook and ends here.
fn guarded<R>(code: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(result) => Some(result),
        Err(payload) => {
            // The payload is foreign too, and its drop may panic once more; forgetting it is the end of that.
            std::mem::forget(payload);
            None
        }
    }
}

/// At most 15 bytes, which is what Linux shows of it.
const NAME: &str = "sluicegate-pace";

/// How long the thread stays without work: starting it again costs some ten microseconds, keeping it some memory.
/// Tests keep it so short that the thread ends and starts many times among them.
const LINGER: Duration = if cfg!(test) {
    Duration::from_micros(500)
} else {
    Duration::from_secs(10)
};

#[cfg(test)]
mod tests;
