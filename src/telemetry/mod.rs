//! What leaves the process as numbers, through the `metrics` facade.
//!
//! ```text
//!  queue, limiter --enters--> roll --looked at by--> publisher --writes--> whatever recorder there is
//!    |                          ^                        ^
//!    +------- final totals -----+           herald (once a second), or whoever scrapes
//! ```
//! - [`catalogue`] every metric, described once
//! - [`meter`] what a watched limiter counts
//! - [`roll`] which queues and limiters there are, under which labels, and what those left behind that have ended
//! - [`series`], [`limiter_series`] the series of one label
//! - [`ink`] how numbers are written into them
//! - [`publisher`] one publication after the other, each of one snapshot per queue
//! - [`history`] the last minutes of every queue, a sample a second
//! - [`herald`] the thread that publishes and samples by itself
//!
//! Nothing here decides, and no queue waits for anything here: a publication takes a queue's lock for as long as it
//! takes to copy the numbers. Recorders are foreign code and run with no lock held.

pub(crate) mod catalogue;
mod herald;
pub(crate) mod history;
mod ink;
mod limiter_series;
pub(crate) mod meter;
pub(crate) mod publisher;
pub(crate) mod roll;
mod series;

/// Takes the sample of this second of everything that has none yet.
pub(crate) fn sample() {
    history::sample();
    for entry in roll::METERS.entries() {
        let living = entry.living.iter().filter_map(crate::sync::Weak::upgrade);
        living.for_each(|meter| meter.sample());
    }
}
