//! Callers of different keys who go together: a few calls are in the air, and whoever comes meanwhile takes the next one.
//!
//! ```text
//!   few in the air: by itself, at once ---------------------------> answer
//!   else: waits ---a call lands, or none does for a moment---> one call for all who wait --> each its own answer
//! ```
//! So a lone caller waits for nobody, and under load the server is asked in calls of many. A call for many is driven by a
//! task of its own, and one that does not land holds nobody up for longer than [`PATIENCE`]: whoever stops polling
//! delays only himself.

use std::mem;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::asking::Shared;
use super::error::{Error, Kind};
use super::flights::Answer;
use super::outcome::Outcome;
use super::together::Order;
use crate::sync::{Arc, Mutex};

/// Who is in the air, and who waits.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    hall: Mutex<Hall>,
    landed: Notify,
}

#[derive(Debug, Default)]
struct Hall {
    flying: usize,
    waiting: Vec<Seat>,
    /// Whether the next call is on its way to those who wait.
    boards: bool,
    /// Times that those who waited have left.
    departures: u64,
}

/// Somebody who waits; gone once the answer is wanted no more.
#[derive(Debug)]
struct Seat {
    order: Order,
    answer: oneshot::Sender<Answer<Outcome>>,
}

/// A call in the air, until it is dropped.
struct Flight(Arc<Shared>);

/// The next call, until it departs. Dropped earlier, with its runtime, it tells those who wait that they were not asked
/// for.
struct Departure(Option<Arc<Shared>>);

enum Way {
    Alone(Flight),
    Together {
        answer: oneshot::Receiver<Answer<Outcome>>,
        /// That of the call that it is to go with.
        number: u64,
        departure: Option<Departure>,
    },
}

impl Shared {
    /// Asks for an order by itself, or together with others.
    pub(super) async fn call_gathered(self: Arc<Self>, order: Order) -> Answer<Outcome> {
        let until = Instant::now() + self.deadline;
        match self.way(&order) {
            Way::Alone(flight) => {
                let answer = self.call_alone(&order.group, order.charges).await;
                drop(flight);
                answer
            }
            Way::Together {
                mut answer,
                number,
                departure,
            } => {
                if let Some(departure) = departure {
                    tokio::spawn(departure.run());
                }
                let overdue = until.min(Instant::now() + OVERDUE);
                let answer = match timeout_at(overdue, &mut answer).await {
                    Err(_) => {
                        // Nobody may be driving the runtime of whoever was to depart.
                        if self.gathering.waits_for(number) {
                            tokio::spawn(Departure(Some(Arc::clone(&self))).leave());
                        }
                        timeout_at(until, answer).await
                    }
                    in_time => in_time,
                };
                match answer {
                    Ok(Ok(answer)) => answer,
                    // The runtime that drove the call is gone.
                    Ok(Err(_)) => Err(Error::new(Kind::Lost)),
                    // The call itself is counted once it is late.
                    Err(_) => Err(Error::new(Kind::Timeout {
                        deadline: self.deadline,
                    })),
                }
            }
        }
    }

    fn way(self: &Arc<Self>, order: &Order) -> Way {
        let mut hall = self.gathering.hall.lock();
        if hall.flying < ALONE {
            hall.flying += 1;
            return Way::Alone(Flight(Arc::clone(self)));
        }
        let (sender, answer) = oneshot::channel();
        hall.waiting.push(Seat {
            order: order.clone(),
            answer: sender,
        });
        let departs = !mem::replace(&mut hall.boards, true);
        let departure = departs.then(|| Departure(Some(Arc::clone(self))));
        Way::Together {
            answer,
            number: hall.departures,
            departure,
        }
    }
}

impl Gathering {
    /// Takes those who wait.
    fn board(&self) -> Vec<Seat> {
        let mut hall = self.hall.lock();
        hall.boards = false;
        hall.departures += 1;
        mem::take(&mut hall.waiting)
    }

    /// Whether those who came for this departure still wait.
    fn waits_for(&self, number: u64) -> bool {
        self.hall.lock().departures == number
    }
}

/// One call for all of these, and to each the answer.
async fn fly(flight: Flight, seats: Vec<Seat>) {
    let orders: Vec<_> = seats.iter().map(|seat| seat.order.clone()).collect();
    let answers = flight.0.call_together(&orders).await;
    drop(flight);
    for (seat, answer) in seats.into_iter().zip(answers) {
        // Whoever gave up has been told so already.
        let _ = seat.answer.send(answer);
    }
}

impl Flight {
    fn begin(shared: &Arc<Shared>) -> Self {
        shared.gathering.hall.lock().flying += 1;
        Self(Arc::clone(shared))
    }
}

impl Departure {
    async fn run(self) {
        if let Some(shared) = &self.0 {
            // Late or not, it goes.
            let _ = timeout(PATIENCE, shared.gathering.landed.notified()).await;
        }
        self.leave().await;
    }

    async fn leave(mut self) {
        let Some(shared) = self.0.as_ref().map(Arc::clone) else {
            return;
        };
        let mut seats = shared.gathering.board();
        self.0 = None;
        seats.retain(|seat| !seat.answer.is_closed());
        shared.counters.gathered.add(seats.len() as u64);
        let mut calls = Vec::with_capacity(seats.len().div_ceil(SEATS));
        while !seats.is_empty() {
            let call = seats.drain(..seats.len().min(SEATS)).collect();
            calls.push(fly(Flight::begin(&shared), call));
        }
        join_all(calls).await;
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        let Some(shared) = self.0.take() else {
            return;
        };
        for seat in shared.gathering.board() {
            let _ = seat.answer.send(Err(Error::new(Kind::Unreachable)));
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut hall = self.0.gathering.hall.lock();
        hall.flying -= 1;
        let boards = hall.boards;
        drop(hall);
        if boards {
            self.0.gathering.landed.notify_one();
        }
    }
}

/// Calls in the air beside which nobody goes alone: enough to keep the server busy while replies travel.
const ALONE: usize = 2;
/// Those who share a call at most: few enough that the server works on the next call while this one's answers are dealt
/// out, and enough that what a call costs by itself hardly counts.
const SEATS: usize = 16;
/// How long the next call waits for one to land.
const PATIENCE: Duration = Duration::from_millis(1);
/// After how long somebody who waits has a call depart himself.
const OVERDUE: Duration = Duration::from_millis(5);
