//! The rate that the queue held, judged only where it was the rate that held it.
//!
//! A span is the time from one departure to the next. It counts if the next job stood in the queue all through it
//! (a backlog) and fewer jobs than the bound were in flight well before the next was due (a free place): then nothing
//! but the rate decided when the next job left. After spans without a free place the queue owes departures and repays
//! them a little faster than the rate; those spans are left out too, else the bound's lateness would read as a rate too
//! high. Lateness in spans that count stays in, and so does what makes up for it.

use std::time::Duration;

use sluicegate::Tick;

/// One departure, by the queue's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departure {
    /// When the job left the queue.
    pub(crate) departed_at: Tick,
    /// How long it had stood in it.
    pub(crate) waited: Duration,
    /// When its place in flight was free again.
    pub(crate) settled_at: Tick,
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Held {
    /// Departures per second.
    pub(crate) rate: f64,
    /// Time over which.
    pub(crate) over: Duration,
}

/// Measures the rate over all stretches with a backlog whose counting spans last at least [`SHORTEST`]; none if there
/// are none.
pub(crate) fn rate_held(
    departures: &[Departure],
    rate_set: f64,
    max_in_flight: usize,
) -> Option<Held> {
    let mut departures = departures.to_vec();
    departures.sort_unstable_by_key(|departure| departure.departed_at);
    let most_owed = rate_set * CATCH_UP.as_secs_f64();
    let interval = Duration::from_secs_f64(1.0 / rate_set);
    let soon = interval.saturating_sub(GRAIN).max(interval / 2);
    let mut in_flight: Vec<Tick> = Vec::new();
    // Departures that the bound held up and that have not been made up for.
    let mut owed = 0.0_f64;
    let mut all = Stretch::default();
    let mut stretch = Stretch::default();
    for pair in departures.windows(2) {
        let [this, next] = [pair[0], pair[1]];
        in_flight.retain(|settled_at| *settled_at > this.departed_at);
        in_flight.push(this.settled_at);
        let span = next.departed_at - this.departed_at;
        let late = span.as_secs_f64() * rate_set - 1.0;
        if next.waited < span {
            // An empty queue owes nothing once it has been empty.
            owed = 0.0;
            all.add(std::mem::take(&mut stretch));
            continue;
        }
        let free = freed_at(&mut in_flight, max_in_flight) - this.departed_at <= soon;
        if free && owed == 0.0 {
            stretch.count += 1.0;
            stretch.over += span;
            continue;
        }
        owed += late;
        if free && owed < 0.0 {
            // The last of these repaid more than the bound had held up: lateness of spans that count.
            stretch.count -= owed;
        }
        owed = owed.clamp(0.0, most_owed);
    }
    all.add(stretch);
    (all.over > Duration::ZERO).then(|| Held {
        rate: all.count / all.over.as_secs_f64(),
        over: all.over,
    })
}

/// Departures, and the time in which they came.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    count: f64,
    over: Duration,
}

impl Stretch {
    fn add(&mut self, stretch: Self) {
        if stretch.over >= SHORTEST {
            self.count += stretch.count;
            self.over += stretch.over;
        }
    }
}

/// When the last of several departures left a place free: at once, if they are fewer than places.
fn freed_at(in_flight: &mut [Tick], max_in_flight: usize) -> Tick {
    in_flight.sort_unstable();
    let over = in_flight.len().checked_sub(max_in_flight);
    over.map_or(Tick::ZERO, |over| in_flight[over])
}

/// What the queue owes at most is what leaves in this time: a machine that stands still for less makes up for it.
pub(crate) const CATCH_UP: Duration = Duration::from_secs(1);
/// A stretch starts and ends within a timer's grain of its time: below this length that is more than 0.4 %.
const SHORTEST: Duration = Duration::from_millis(300);
/// Usual lateness of a timer, by which a departure after a late one is due earlier than an interval later.
const GRAIN: Duration = Duration::from_micros(1_250);
