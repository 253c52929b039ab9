//! Calls under way, each shared by everybody who asks the same thing: one is in the air, and whoever comes meanwhile
//! takes the next together.
//!
//! A call asks for `n` charges at once and learns how many of them fit, which is what `n` calls in a row would have
//! learned. Places in it are in the order of arrival. Whoever waits for a call drives it, so one who stops polling
//! holds up nobody.

use std::hash::RandomState;
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;
use tokio::time::{Instant, timeout_at};

use super::error::Error;
use crate::sync::{Arc, AtomicU64, Mutex, Ordering};

/// What a call has learned.
pub(super) type Answer<T> = Result<Arc<T>, Error>;
type Call<T> = Shared<BoxFuture<'static, Answer<T>>>;

#[derive(Debug)]
pub(super) struct Flights<T> {
    known: Mutex<HashMap<Vec<u8>, Flight<T>, RandomState>>,
    numbers: AtomicU64,
}

#[derive(Debug)]
struct Flight<T> {
    current: Begun<T>,
    waiting: Option<Waiting<T>>,
}

/// A call under way.
#[derive(Debug)]
struct Begun<T> {
    /// No other call has it.
    number: u64,
    call: Call<T>,
    /// Place of each seat in it; `None` if there is one.
    ranks: Option<Arc<[u64]>>,
}

/// Those who take the next call.
#[derive(Debug)]
struct Waiting<T> {
    /// For each seat whether somebody still sits there.
    seats: Vec<bool>,
    own: Arc<OnceLock<Begun<T>>>,
}

/// Where a caller sits.
enum Seat<T> {
    /// In the call that begins now.
    First(Begun<T>),
    /// In the one after it.
    Next {
        index: usize,
        before: Call<T>,
        own: Arc<OnceLock<Begun<T>>>,
    },
    /// The next one is full.
    Apart,
}

impl<T: Send + Sync + 'static> Flights<T> {
    pub(super) fn new() -> Self {
        Self {
            known: Mutex::new(HashMap::default()),
            numbers: AtomicU64::new(0),
        }
    }

    /// Joins the calls that ask for `identity`, made by `make` for so many charges: the place in the call, and its
    /// answer. `None` at `until`: then the seat is empty, or the answer is for nobody.
    pub(super) async fn join(
        &self,
        identity: &[u8],
        until: Instant,
        make: impl Fn(u64) -> BoxFuture<'static, Answer<T>>,
    ) -> Option<(u64, Answer<T>)> {
        let (rank, begun) = match self.sit(identity, &make) {
            Seat::Apart => return Some((0, make(1).await)),
            Seat::First(begun) => {
                // It ends by its own deadline, which is ours.
                let answer = begun.call.await;
                self.land(identity, begun.number);
                return Some((0, answer));
            }
            Seat::Next { index, before, own } => {
                // What that one learns is not for us.
                if timeout_at(until, before).await.is_err() {
                    self.leave(identity, index, &own);
                    return None;
                }
                let begun = self.begin(identity, &own, &make);
                let ranks = begun.ranks.as_ref()?;
                (ranks.get(index).copied()?, begun)
            }
        };
        // It has a deadline of its own, which may be later than ours.
        let answer = timeout_at(until + LATE, begun.call).await;
        self.land(identity, begun.number);
        Some((rank, answer.ok()?))
    }

    fn sit(&self, identity: &[u8], make: &impl Make<T>) -> Seat<T> {
        let mut known = self.known.lock();
        let flight = match known.entry_ref(identity) {
            EntryRef::Occupied(flight) => flight.into_mut(),
            EntryRef::Vacant(place) => {
                let current = self.begun(make, None);
                place.insert(Flight {
                    current: current.clone(),
                    waiting: None,
                });
                return Seat::First(current);
            }
        };
        let waiting = flight.waiting.get_or_insert_with(|| Waiting {
            seats: Vec::new(),
            own: Arc::new(OnceLock::new()),
        });
        if waiting.seats.len() >= SEATS {
            return Seat::Apart;
        }
        waiting.seats.push(true);
        Seat::Next {
            index: waiting.seats.len() - 1,
            before: flight.current.call.clone(),
            own: Arc::clone(&waiting.own),
        }
    }

    /// The call of those who waited together, begun by the first of them who comes.
    fn begin(&self, identity: &[u8], own: &OnceLock<Begun<T>>, make: &impl Make<T>) -> Begun<T> {
        let mut known = self.known.lock();
        if let Some(begun) = own.get() {
            return begun.clone();
        }
        // A flight stays known while somebody waits for its next call.
        let flight = known.get_mut(identity);
        let flight = flight.and_then(|flight| Some((flight.waiting.take()?.seats, flight)));
        let (seats, flight) = flight.unzip();
        let mut places = 0;
        let rank = |taken: bool| {
            places += u64::from(taken);
            places.saturating_sub(1)
        };
        let ranks = seats.unwrap_or_default().into_iter().map(rank).collect();
        let begun = own.get_or_init(|| self.begun(make, Some(ranks)));
        if let Some(flight) = flight {
            flight.current = begun.clone();
        }
        begun.clone()
    }

    /// Vacates a seat in a call that has not begun.
    fn leave(&self, identity: &[u8], index: usize, own: &OnceLock<Begun<T>>) {
        let mut known = self.known.lock();
        if own.get().is_some() {
            return;
        }
        let Some(flight) = known.get_mut(identity) else {
            return;
        };
        let Some(waiting) = &mut flight.waiting else {
            return;
        };
        if let Some(seat) = waiting.seats.get_mut(index) {
            *seat = false;
        }
        if waiting.seats.iter().any(|taken| *taken) {
            return;
        }
        // The call before is late as well, and nobody waits for another any more.
        let flight = known.remove(identity);
        drop(known);
        drop(flight);
    }

    /// Forgets a flight whose call is over and that nobody waits for.
    fn land(&self, identity: &[u8], number: u64) {
        let mut known = self.known.lock();
        let flight = match known.entry_ref(identity) {
            EntryRef::Occupied(found)
                if found.get().current.number == number && found.get().waiting.is_none() =>
            {
                Some(found.remove())
            }
            _ => None,
        };
        drop(known);
        drop(flight);
    }

    fn begun(&self, make: &impl Make<T>, ranks: Option<Arc<[u64]>>) -> Begun<T> {
        let last = ranks.as_ref().and_then(|ranks| ranks.last());
        let charges = last.map_or(1, |last| last + 1);
        Begun {
            number: self.numbers.fetch_add(1, Ordering::Relaxed),
            call: make(charges).shared(),
            ranks,
        }
    }
}

impl<T> Clone for Begun<T> {
    fn clone(&self) -> Self {
        Self {
            number: self.number,
            call: self.call.clone(),
            ranks: self.ranks.clone(),
        }
    }
}

/// What makes a call; it only builds the future.
trait Make<T>: Fn(u64) -> BoxFuture<'static, Answer<T>> {}

impl<T, F: Fn(u64) -> BoxFuture<'static, Answer<T>>> Make<T> for F {}

/// Charges in one call at most; what the scripts count with stays exact, and the server is not held for long.
const SEATS: usize = 1000;
/// How much later than a caller who waited the call that he is in may end.
const LATE: Duration = Duration::from_millis(1);
