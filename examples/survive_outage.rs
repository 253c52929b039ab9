//! An outage that never ends, and the bound that ends it.
//!
//! A database answers 300 calls in a second. Callers make 280, wait 1 s for the answer, and then try once more. At 20 s
//! the database stands still for 10 s. Behind an unbounded line it never recovers: by then the line is longer than 1 s,
//! so every answer comes when nobody waits for it any more, every caller calls twice, and 560 calls a second keep the
//! line long (the metastable failure of Bronson and others, HotOS 2021). Behind a queue that promises a start within
//! half a second, and refuses what it cannot promise, the same callers get their answers again at once.
//!
//! Both sides have the same callers and the same database; only the line between them differs. Time is virtual: minutes
//! pass in seconds, and every run prints the same.
//!
//! ```sh
//! cargo run --release --example survive_outage
//! ```

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sluicegate::Rate;
use sluicegate::queue::{self, Receiver, Sender};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};

use chart::{Colour, Timeline, paint, table, thousands};

#[path = "support/chart.rs"]
#[allow(dead_code, reason = "shared with an example that shows more")]
mod chart;

/// A call; its caller holds the other end for as long as it waits.
struct Call(Option<oneshot::Sender<()>>);

/// The line between the callers and the database.
trait Line: Send + Sync + 'static {
    /// Takes a call or refuses it.
    fn offer(&self, call: Call) -> bool;
    /// Waits for the next call and has it answered.
    fn answer_next(&self, database: &Database) -> impl Future<Output = ()> + Send;
    /// Calls that wait in it.
    fn depth(&self) -> u64;
}

/// No bound, no rate: what a thread pool's queue or an unbounded channel does.
#[derive(Default)]
struct Unbounded {
    calls: Mutex<VecDeque<Call>>,
    came: Notify,
}

impl Line for Unbounded {
    fn offer(&self, call: Call) -> bool {
        lock(&self.calls).push_back(call);
        self.came.notify_one();
        true
    }

    async fn answer_next(&self, database: &Database) {
        let mut call = loop {
            let next = lock(&self.calls).pop_front();
            match next {
                Some(call) => break call,
                None => self.came.notified().await,
            }
        };
        database.answer(&mut call).await;
    }

    fn depth(&self) -> u64 {
        lock(&self.calls).len() as u64
    }
}

/// The queue of this crate.
struct Queued {
    tx: Sender<Call>,
    rx: Receiver<Call>,
}

impl Queued {
    fn build() -> Result<Self, queue::BuildError> {
        let (tx, rx) = queue::Builder::shedding(Rate::per_second(RATE), PROMISE)
            .max_in_flight(CONNECTIONS)
            .build()?;
        Ok(Self { tx, rx })
    }
}

impl Line for Queued {
    fn offer(&self, call: Call) -> bool {
        self.tx.try_send(call).is_ok()
    }

    async fn answer_next(&self, database: &Database) {
        let mut job = self.rx.recv().await.expect("the sender is held beside it");
        database.answer(&mut job).await;
        job.ack();
    }

    fn depth(&self) -> u64 {
        self.tx.snapshot().depth
    }
}

/// Answers one call after the other, and none during the outage.
struct Database {
    start: Instant,
    free_at: tokio::sync::Mutex<Instant>,
    counts: Arc<Mutex<Counts>>,
}

impl Database {
    async fn answer(&self, call: &mut Call) {
        let mut free_at = self.free_at.lock().await;
        let now = Instant::now();
        // Timers wake at the next full millisecond: who takes the next call that late has not been idle.
        let idle = now.saturating_duration_since(*free_at) > TIMER;
        let mut begins = if idle { now } else { *free_at };
        let breaks = self.start + OUTAGE_AT;
        if (breaks..breaks + OUTAGE).contains(&begins) {
            begins = breaks + OUTAGE;
        }
        *free_at = begins + SERVICE;
        sleep_until(*free_at).await;
        let caller = call.0.take().expect("a call is answered once");
        let mut counts = lock(&self.counts);
        let timeline = match caller.send(()) {
            Ok(()) => &mut counts.answers,
            // Its caller has gone; the database could not know, and did the work.
            Err(()) => &mut counts.wasted,
        };
        timeline.add(*free_at - self.start);
    }
}

/// What one side counts, second by second.
#[derive(Clone)]
struct Counts {
    attempts: Timeline,
    refused: Timeline,
    answers: Timeline,
    wasted: Timeline,
    deepest: u64,
}

/// Lets the callers call through a line for the whole time.
async fn play(line: impl Line) -> Counts {
    let second = || Timeline::new(SECOND);
    let counts = Arc::new(Mutex::new(Counts {
        attempts: second(),
        refused: second(),
        answers: second(),
        wasted: second(),
        deepest: 0,
    }));
    let (line, start) = (Arc::new(line), Instant::now());
    let database = Arc::new(Database {
        start,
        free_at: tokio::sync::Mutex::new(start),
        counts: Arc::clone(&counts),
    });
    for _ in 0..CONNECTIONS {
        let (line, database) = (Arc::clone(&line), Arc::clone(&database));
        tokio::spawn(async move {
            loop {
                line.answer_next(&database).await;
            }
        });
    }
    for caller in 0..CALLERS * RUN.as_secs() {
        sleep_until(start + SECOND * caller as u32 / CALLERS as u32).await;
        tokio::spawn(call(Arc::clone(&line), Arc::clone(&counts), start));
    }
    let mut played = lock(&counts).clone();
    for timeline in [
        &mut played.attempts,
        &mut played.refused,
        &mut played.answers,
        &mut played.wasted,
    ] {
        timeline.end_at(RUN);
    }
    played
}

/// One caller: asks, waits a second at most, asks once more.
async fn call(line: Arc<impl Line>, counts: Arc<Mutex<Counts>>, start: Instant) {
    for _ in 0..=RETRIES {
        let asked = Instant::now();
        let (tx, answer) = oneshot::channel();
        let taken = line.offer(Call(Some(tx)));
        {
            let mut counts = lock(&counts);
            counts.attempts.add(asked - start);
            if !taken {
                counts.refused.add(asked - start);
            }
            counts.deepest = counts.deepest.max(line.depth());
        }
        // A refusal comes at once; the same caller tries again at the same time as if it had waited in vain.
        match timeout_at(asked + TIMEOUT, answer).await {
            Ok(Ok(())) => return,
            _ => sleep_until(asked + TIMEOUT).await,
        }
    }
}

impl Counts {
    /// Seconds from the end of the outage until answers have kept up with the callers for [`STEADY`] seconds.
    fn recovered_after(&self) -> Option<u64> {
        let mends = (OUTAGE_AT + OUTAGE).as_secs() as usize;
        let seconds = self.answers.counts().get(mends..)?;
        let steady = |window: &[u64]| window.iter().all(|&answers| answers * 100 >= CALLERS * 95);
        let at = seconds.windows(STEADY).position(steady)?;
        Some(at as u64)
    }

    fn chart(&self) -> String {
        let steps = self.answers.steps_per_column();
        let values = self.answers.columns(steps);
        chart::columns(&values, RATE as f64, 5, SECOND * steps as u32)
            + &chart::strip("wasted", &self.wasted.columns(steps), RATE as f64)
    }
}

/// Mean per second over the last half minute.
fn at_the_end(timeline: &Timeline) -> u64 {
    let last = &timeline.counts()[RUN.as_secs() as usize - LAST..];
    (last.iter().sum::<u64>() + LAST as u64 / 2) / LAST as u64
}

fn report(unbounded: &Counts, queued: &Counts) -> String {
    let mut rows = vec![["", "unbounded line", "queue"].map(str::to_owned)];
    let mut row = |name: &str, value: &dyn Fn(&Counts) -> String| {
        rows.push([name.to_owned(), value(unbounded), value(queued)]);
    };
    let sum = |timeline: &Timeline| thousands(timeline.counts().iter().sum());
    row("calls made, retries included", &|side| sum(&side.attempts));
    row("refused at once", &|side| sum(&side.refused));
    row("answered in time", &|side| sum(&side.answers));
    row("answered when nobody waited", &|side| sum(&side.wasted));
    row("longest line", &|side| thousands(side.deepest));
    row("at the end: calls per second", &|side| {
        at_the_end(&side.attempts).to_string()
    });
    row("at the end: answers in time per second", &|side| {
        at_the_end(&side.answers).to_string()
    });
    row(
        "recovered after the outage",
        &|side| match side.recovered_after() {
            None => format!("never, in {} s", (RUN - OUTAGE_AT - OUTAGE).as_secs()),
            Some(0) => "at once".to_owned(),
            Some(seconds) => format!("in {seconds} s"),
        },
    );
    let heading =
        |name: &str, colour| paint(&format!("{name}: answers in time per second"), colour);
    format!(
        "{RATE}/s database, {CALLERS}/s callers, {TIMEOUT:?} timeout, {RETRIES} retry; it stands still from {} s to {} s\n\n\
         {}\n{}\n{}\n{}\n{}",
        OUTAGE_AT.as_secs(),
        (OUTAGE_AT + OUTAGE).as_secs(),
        heading("unbounded line", Colour::Red),
        unbounded.chart(),
        heading("queue", Colour::Green),
        queued.chart(),
        table(&rows),
    )
}

/// Runs both sides one after the other, each in a runtime of its own whose time is virtual.
fn perform() -> Result<(Counts, Counts), Box<dyn std::error::Error>> {
    let virtual_time = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
    };
    let unbounded = virtual_time()?.block_on(play(Unbounded::default()));
    let queued = virtual_time()?
        .block_on(async { Ok::<_, queue::BuildError>(play(Queued::build()?).await) })?;
    Ok((unbounded, queued))
}

fn main() -> ExitCode {
    if std::env::args_os().len() > 1 {
        eprintln!("survive_outage: takes no arguments");
        return ExitCode::from(2);
    }
    let (unbounded, queued) = match perform() {
        Ok(played) => played,
        Err(error) => {
            eprintln!("survive_outage: {error}");
            return ExitCode::FAILURE;
        }
    };
    print!("{}", report(&unbounded, &queued));
    // Virtual time holds no surprises: if the point is not made, something is broken.
    let made = unbounded.recovered_after().is_none()
        && queued.recovered_after().is_some_and(|after| after <= 1);
    if made {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder panics")
}

const SECOND: Duration = Duration::from_secs(1);
/// Calls that the database answers in a second.
const RATE: u64 = 300;
const SERVICE: Duration = Duration::from_nanos(1_000_000_000 / RATE);
/// Calls that come in a second, retries not counted.
const CALLERS: u64 = 280;
const TIMEOUT: Duration = SECOND;
const RETRIES: u32 = 1;
const OUTAGE_AT: Duration = Duration::from_secs(20);
const OUTAGE: Duration = Duration::from_secs(10);
const RUN: Duration = Duration::from_secs(200);
/// What the queue promises: half the timeout, so that what starts in time also ends in time.
const PROMISE: Duration = Duration::from_millis(500);
/// Calls at the database at once, on either side.
const CONNECTIONS: u64 = 8;
/// Lateness of a timer.
const TIMER: Duration = Duration::from_millis(2);
/// Seconds that a recovery has to last.
const STEADY: usize = 5;
/// Seconds over which the end is judged.
const LAST: usize = 30;
