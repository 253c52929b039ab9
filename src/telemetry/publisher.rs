//! Publications: all queues, one after the other, each from one snapshot, into the recorder that the caller sees.
//!
//! Counters are written as absolute numbers, so a recorder that comes late gets them all. Histograms are told what is
//! new since the last time, so it is noted per recorder what it has been told (its *book*).
//!
//! - I1  there is one publication at a time; a second one waits until the first has ended, but one that a recorder
//!   starts while it is written to is left out.
//! - I2  recorders are called with no lock held: whoever publishes takes the books with it.

use std::collections::HashMap;
use std::thread::{self, ThreadId};
use std::time::{Duration, SystemTime};

use metrics::Recorder;

use super::catalogue::METRICS;
use super::meter::Meter;
use super::roll::{Entry, Look, METERS, Measured, QUEUES, Totals};
use super::series::{self, Page, State};
use super::{limiter_series, meter};
use crate::sync::process::{Condvar, Mutex};
use crate::sync::{Arc, Weak};

/// Publishes everything once.
pub(crate) fn publish() {
    publish_then(|| ());
}

/// Publishes everything, and runs `render` before the next publication, so that it sees one snapshot per queue.
pub(crate) fn publish_then<R>(render: impl FnOnce() -> R) -> R {
    let Some(mut turn) = Turn::take() else {
        return render();
    };
    metrics::with_recorder(|recorder| turn.book(recorder).write(recorder));
    render()
}

/// The right to publish, given back on drop.
struct Turn {
    books: Vec<Book>,
}

impl Turn {
    /// Waits for its turn; `None` if this very thread has it.
    fn take() -> Option<Self> {
        let me = thread::current().id();
        let mut desk = DESK.lock();
        while let Some(owner) = desk.owner {
            if owner == me {
                return None;
            }
            desk = FREED
                .wait(desk)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        desk.owner = Some(me);
        let books = std::mem::take(&mut desk.books);
        Some(Self { books })
    }

    /// The book of this recorder, last in the row.
    fn book(&mut self, recorder: &dyn Recorder) -> &mut Book {
        let address = std::ptr::from_ref(recorder).cast::<()>() as usize;
        let book = match self.books.iter().position(|book| book.address == address) {
            Some(at) => self.books.remove(at),
            None => Book::open(address, recorder),
        };
        if self.books.len() == MOST_BOOKS {
            self.books.remove(0);
        }
        self.books.push(book);
        self.books.last_mut().expect("it was just pushed")
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut desk = DESK.lock();
        desk.owner = None;
        desk.books = std::mem::take(&mut self.books);
        drop(desk);
        FREED.notify_one();
    }
}

/// What one recorder has been told.
struct Book {
    /// Where it lies: the one thing by which recorders can be told apart.
    address: usize,
    pages: Vec<(Arc<str>, Page)>,
    limiters: HashMap<Arc<str>, limiter_series::Page>,
}

impl Book {
    /// A recorder is not told of queues that had ended before it came.
    fn open(address: usize, recorder: &dyn Recorder) -> Self {
        METRICS.iter().for_each(|metric| metric.describe(recorder));
        let pages = QUEUES
            .entries()
            .into_iter()
            .map(|Entry { label, ended, .. }| {
                let page = Page::new(&label, &ended);
                (label, page)
            })
            .collect();
        let page = |entry: Entry<Meter, _>| {
            let page = limiter_series::Page::new(&entry.label, &entry.ended);
            (entry.label, page)
        };
        Self {
            address,
            pages,
            limiters: METERS.entries().into_iter().map(page).collect(),
        }
    }

    fn write(&mut self, recorder: &dyn Recorder) {
        let wall = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let mut queues = 0;
        for Entry {
            label,
            ended,
            living,
        } in QUEUES.entries()
        {
            queues += living.len() as u64;
            // One that is just ending has not left its totals yet: the next publication has them.
            if let Some(state) = state(ended, &living, wall) {
                self.page(label).write(recorder, &state);
            }
        }
        let limiters = self.write_limiters(recorder);
        series::write_process(recorder, queues, limiters);
    }

    /// Writes every watched limiter, and says how many live.
    fn write_limiters(&mut self, recorder: &dyn Recorder) -> u64 {
        let mut count = 0;
        for entry in METERS.entries() {
            count += entry.living.len() as u64;
            let meters: Option<Vec<_>> = entry.living.iter().map(Weak::upgrade).collect();
            // As with queues: one that is just ending is told of at the next publication.
            let Some(meters) = meters else { continue };
            let mut state = limiter_series::State::of(entry.ended);
            meters.iter().for_each(|meter| state.add(meter));
            let page = self.limiters.entry(entry.label);
            let page = page.or_insert_with_key(|label| {
                limiter_series::Page::new(label, &meter::Totals::default())
            });
            page.write(recorder, &state);
        }
        count
    }

    fn page(&mut self, label: Arc<str>) -> &mut Page {
        // Both are sorted by label.
        let at = match self
            .pages
            .binary_search_by(|(known, _)| known.as_ref().cmp(&label))
        {
            Ok(at) => at,
            Err(at) => {
                let page = Page::new(&label, &Totals::default());
                self.pages.insert(at, (label, page));
                at
            }
        };
        &mut self.pages[at].1
    }
}

/// What is to be told of a label; `None` if a queue of it is neither there nor gone.
fn state(ended: Totals, living: &[Weak<dyn Measured>], wall: Duration) -> Option<State> {
    let mut state = State::of(ended);
    for queue in living {
        let look: Look = queue.upgrade()?.look();
        state.add(&look, wall);
    }
    Some(state)
}

struct Desk {
    owner: Option<ThreadId>,
    books: Vec<Book>,
}

static DESK: Mutex<Desk> = Mutex::new(Desk {
    owner: None,
    books: Vec::new(),
});
static FREED: Condvar = Condvar::new();

/// Recorders that are known at once: a program has one, its tests have some.
const MOST_BOOKS: usize = 64;
