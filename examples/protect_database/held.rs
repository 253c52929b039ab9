//! The rate that the queue held, judged only where it was the rate that held it.
//!
//! A span is the time from one departure to the next. It counts if the next job stood in the queue all through it
//! (a backlog) and fewer jobs than the bound were in flight well before the next was due (a free place): then nothing
//! but the rate decided when the next job left. After spans without a free place the queue owes departures and repays them a little faster than the
//! rate; those spans are left out too, else the bound's lateness would read as a rate too high.

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

/// Measures the rate over all stretches of counting spans that last at least [`SHORTEST`]; none if there are none.
pub(crate) fn rate_held(
    departures: &[Departure],
    rate_set: f64,
    max_in_flight: usize,
) -> Option<Held> {
    let mut departures = departures.to_vec();
    departures.sort_unstable_by_key(|departure| departure.departed_at);
    let most_owed = (rate_set * CATCH_UP.as_secs_f64()).max(1.0);
    let interval = Duration::from_secs_f64(1.0 / rate_set);
    let soon = interval.saturating_sub(GRAIN).max(interval / 2);
    let mut in_flight: Vec<Tick> = Vec::new();
    let mut owed = 0.0_f64;
    let (mut count, mut over) = (0_u64, Duration::ZERO);
    let mut stretch = (0_u64, Duration::ZERO);
    let mut close = |stretch: &mut (u64, Duration)| {
        let (spans, time) = std::mem::take(stretch);
        if time >= SHORTEST {
            count += spans;
            over += time;
        }
    };
    for pair in departures.windows(2) {
        let [this, next] = [pair[0], pair[1]];
        in_flight.retain(|settled_at| *settled_at > this.departed_at);
        in_flight.push(this.settled_at);
        let span = next.departed_at - this.departed_at;
        let late = span.as_secs_f64() * rate_set - 1.0;
        let backlog = next.waited >= span;
        let freed_at = if in_flight.len() < max_in_flight {
            this.departed_at
        } else {
            in_flight.iter().copied().min().unwrap_or_default()
        };
        let free = freed_at - this.departed_at <= soon;
        if !backlog {
            // An empty queue owes nothing once it has been empty.
            owed = 0.0;
        } else if !free || owed > 0.0 {
            owed = (owed + late).clamp(0.0, most_owed);
        } else {
            stretch.0 += 1;
            stretch.1 += span;
            continue;
        }
        close(&mut stretch);
    }
    close(&mut stretch);
    (count > 0).then(|| Held {
        rate: count as f64 / over.as_secs_f64(),
        over,
    })
}

/// A stretch starts and ends within a timer's grain of its time: below this length that is more than 0.4 %.
const SHORTEST: Duration = Duration::from_millis(300);
/// Usual lateness of a timer, by which a departure after a late one is due earlier than an interval later.
const GRAIN: Duration = Duration::from_micros(1_250);
/// What a queue owes at most, by default.
const CATCH_UP: Duration = Duration::from_millis(100);
