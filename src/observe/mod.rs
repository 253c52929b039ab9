//! See it: what every queue and every watched limiter counts, for whoever collects metrics or looks.
//!
//! Every queue publishes its ledger and its gauges through the `metrics` facade, as soon as the program has installed a
//! recorder of its choice: nothing has to be called, and the recorder may come before the queues or after. Numbers are
//! published once a second by a thread of their own, whatever clock the queues have; an operation on a queue pays for no
//! more than the ledger does anyway.
//!
//! Limiters count where they are [`Watched`]: put one around a limiter or a hierarchy, and it is published likewise, by
//! level and endpoint, with who was refused most.
//!
//! - [`snapshot()`] tells everything at once, as values or as JSON: states, bounds, rates, percentiles, trends, ledgers by
//!   lane and tenant, levels, top refused keys, and what could be changed.
//! - [`publish`] publishes now: at the end of a program, or in a test under a recorder of the test's own.
//! - [`publish_then`] publishes and renders before the next publication, so that the page is exact.
//! - [`catalogue`] is the table below, for programs.
//! - with feature `page`, [`page`](fn@page) and [`serve_page`] show it all to people, live, in a browser.
//! - with feature `prometheus`, `serve` does everything for a scraper on this machine, and `prometheus` for a program
//!   with a router of its own.
//!
//! # What holds
//! Counters and gauges of a queue come from one snapshot of its ledger. Per `queue`, on every page of `serve`, of
//! `Prometheus::render` and of [`publish_then`]:
//! ```text
//! offered  = rejected (all reasons) + withdrawn + waiting + enqueued
//! enqueued = reserved + queued + in_flight + acked + failed + dropped (all reasons)
//! drained  = in_flight + count of processing_seconds (all results)
//! drained  = count of wait_seconds{outcome="drained"}
//! ```
//! Of a watched limiter, per `limiter`:
//! ```text
//! requests{decision="rejected"} (all endpoints) = rejections (all levels and reasons)
//! rejections{reason="quota"} of a level         = count of retry_after_seconds
//! backend_errors{mode="open"}, {mode="closed"}  = requests{decision="error_allowed"}, {decision="error_rejected"}
//! ```
//! No counter ever falls. All series of a queue are there from its first publication on, at zero, so that the first
//! refusal is seen as an increase.
//!
//! Histograms are kept by the queues in the buckets of the catalogue, and told to the recorder as means of buckets: with
//! those buckets, or some of them, counts and sums are exact. A recorder that is installed when a queue has more than
//! 65,536 observations behind it is told of those that come.
//!
//! # Labels
//! `queue` is the queue's [name](crate::queue::Builder::name), cut to 64 characters, or `unnamed`. The second living
//! queue of a name is `name#2`, the next `name#3`. When a queue ends, its label goes to the next of that name, and its
//! counts go on. A process has at most 256 such labels: queues beyond are published as their sum under `other`. So it is
//! with `limiter`. `level` and `dimension` are the levels' names; `endpoint` is what
//! [`by_endpoint`](Watched::by_endpoint) names, `unmatched` where that is nothing, and `other` beyond 256 of them. No key,
//! no tenant and nothing else that callers choose is ever a label.
//!
//! A recorder is not told of queues that had ended before its first publication. Recorders are told apart by where they
//! lie in memory; tests that install one each had best give their queues names of their own.
//!
//! # Metrics
//! | name | kind | unit | labels | meaning |
//! |---|---|---|---|---|
//! | `sluicegate_queue_offered_total` | counter | jobs | `queue` | Offers made, each counted at its first poll. |
//! | `sluicegate_queue_enqueued_total` | counter | jobs | `queue` | Offers that got a place. |
//! | `sluicegate_queue_rejected_total` | counter | jobs | `queue`; `reason` = full, overloaded, waiters_full, too_late, timed_out, too_costly, cancelled, paused, closed | Offers refused at the door or in the line, by reason. |
//! | `sluicegate_queue_withdrawn_total` | counter | jobs | `queue` | Offers given up by their producers while they stood in line. |
//! | `sluicegate_queue_drained_total` | counter | jobs | `queue` | Departures: jobs handed to a consumer, every retry anew. |
//! | `sluicegate_queue_acked_total` | counter | jobs | `queue` | Jobs that were done. |
//! | `sluicegate_queue_failed_total` | counter | jobs | `queue` | Jobs that failed for good. |
//! | `sluicegate_queue_dropped_total` | counter | jobs | `queue`; `reason` = expired, evicted, cancelled, abandoned, returned | Jobs that got a place and ended neither done nor failed, by what became of them. |
//! | `sluicegate_queue_requeued_total` | counter | jobs | `queue` | Times that a job went back into the queue for another attempt. |
//! | `sluicegate_queue_dead_letters_lost_total` | counter | jobs | `queue` | Dead letters dropped because nobody read them in time. |
//! | `sluicegate_queue_depth` | gauge | cost | `queue` | Cost of what is queued, waits for a retry, or is reserved. |
//! | `sluicegate_queue_capacity` | gauge | cost | `queue` | Bound of the depth. |
//! | `sluicegate_queue_waiting` | gauge | jobs | `queue` | Offers standing in line at the door. |
//! | `sluicegate_queue_reserved` | gauge | jobs | `queue` | Places that are paid for and not used yet. |
//! | `sluicegate_queue_queued` | gauge | jobs | `queue` | Jobs queued or waiting for a retry. |
//! | `sluicegate_queue_in_flight` | gauge | jobs | `queue` | Jobs handed out and not settled. |
//! | `sluicegate_queue_lane_offered_total` | counter | jobs | `queue`; `lane` = low, normal, high, critical | Offers made, by priority. |
//! | `sluicegate_queue_lane_rejected_total` | counter | jobs | `queue`; `lane` = low, normal, high, critical | Offers refused, by priority. |
//! | `sluicegate_queue_lane_acked_total` | counter | jobs | `queue`; `lane` = low, normal, high, critical | Jobs that were done, by priority. |
//! | `sluicegate_queue_lane_queued` | gauge | jobs | `queue`; `lane` = low, normal, high, critical | Jobs queued or waiting for a retry, by priority. |
//! | `sluicegate_queue_lane_in_flight` | gauge | jobs | `queue`; `lane` = low, normal, high, critical | Jobs handed out and not settled, by priority. |
//! | `sluicegate_queue_paused` | gauge |  | `queue` | Whether departures are held: 1 or 0. |
//! | `sluicegate_queue_pressure` | gauge |  | `queue` | State of the ladder: 0 healthy, 1 elevated, 2 overloaded. |
//! | `sluicegate_queue_drain_items_per_second` | gauge | cost per second | `queue` | Rate that was set for departures; 0 if there is none. |
//! | `sluicegate_queue_head_enqueued_timestamp_seconds` | gauge | seconds | `queue` | Unix time at which the job that waits longest came; 0 if none waits. |
//! | `sluicegate_queue_last_drain_timestamp_seconds` | gauge | seconds | `queue` | Unix time of the last departure; 0 if there was none. |
//! | `sluicegate_queue_wait_seconds` | histogram | seconds | `queue`; `outcome` = drained, dropped | Time from a job's offer, or from when its retry was due, to its departure or its end in the queue. |
//! | `sluicegate_queue_depth_on_enqueue` | histogram | cost | `queue` | Depth as an arriving job made it, its own cost included. |
//! | `sluicegate_queue_processing_seconds` | histogram | seconds | `queue`; `result` = ok, error, retry | Time in flight, from a departure to the consumer's verdict. |
//! | `sluicegate_requests_total` | counter | requests | `limiter`; `endpoint`; `decision` = allowed, rejected, exempt, error_allowed, error_rejected | Requests to a watched limiter, each once, by what became of it. |
//! | `sluicegate_rejections_total` | counter | requests | `limiter`; `level`; `reason` = quota, cost_too_large | Requests refused, each once, by the level that refused for longest. |
//! | `sluicegate_consumed_units_total` | counter | units | `limiter`; `level` | Units charged; what is given back later is not subtracted. |
//! | `sluicegate_refunded_units_total` | counter | units | `limiter`; `level` | Units given back. |
//! | `sluicegate_limit_units_per_second` | gauge | units per second | `limiter`; `level` | Rate that one key may have over time, unless it has a limit of its own. |
//! | `sluicegate_burst_units` | gauge | units | `limiter`; `level` | Units that one key may have at once, unless it has a limit of its own. |
//! | `sluicegate_available_units` | gauge | units | `limiter`; `level` | Units left at the last decision, of levels that everybody shares. |
//! | `sluicegate_retry_after_seconds` | histogram | seconds | `limiter`; `level` | Waits that refused requests were told, by the level that refused for longest. |
//! | `sluicegate_tracked_keys` | gauge | keys | `limiter`; `level` | Keys remembered, where they are in this process. |
//! | `sluicegate_tracked_keys_max` | gauge | keys | `limiter`; `level` | Most keys that are remembered. |
//! | `sluicegate_key_evictions_total` | counter | keys | `limiter`; `level`; `reason` = idle, capacity | Keys forgotten because they were idle, and new ones for which there was no room. |
//! | `sluicegate_hottest_key_rejections_per_minute` | gauge | requests per minute | `limiter`; `dimension` | Refusals of the key that was refused most in the last minute, as many as are certain. |
//! | `sluicegate_backend_errors_total` | counter | requests | `limiter`; `mode` = open, closed | Requests decided without the store that should have: let through (open) or refused (closed). |
//! | `sluicegate_limiters` | gauge |  |  | Watched limiters alive. |
//! | `sluicegate_queues` | gauge |  |  | Queues alive. |
//! | `sluicegate_build_info` | gauge |  | `version` | Always 1; its label tells the version of this crate. |

mod advice;
mod advisor;
#[cfg(feature = "prometheus")]
mod error;
#[cfg(feature = "json")]
mod json;
mod limiter_view;
#[cfg(feature = "page")]
mod page;
#[cfg(feature = "prometheus")]
mod prometheus;
mod queue_view;
#[cfg(feature = "serde")]
mod seconds;
#[cfg(feature = "prometheus")]
mod server;
mod snapshot;
mod take;
mod take_limiter;
mod watched;

pub use self::advice::{Advice, Confidence, Setting};
#[cfg(feature = "prometheus")]
pub use self::error::ServeError;
pub use self::limiter_view::{
    EndpointView, LevelView, LimiterFlow, LimiterPoint, LimiterView, RefusedKey, TopRefused,
    Verdicts,
};
#[cfg(feature = "page")]
pub use self::page::{ServedPage, page, serve_page};
#[cfg(feature = "prometheus")]
pub use self::prometheus::{Prometheus, prometheus, serve};
pub use self::queue_view::{Flow, LaneView, QueuePoint, QueueView, TenantView, Times};
#[cfg(feature = "prometheus")]
pub use self::server::Server;
pub use self::snapshot::{Keys, Snapshot};
pub use self::take::{key_tag, sample, snapshot, snapshot_with};
pub use self::watched::{Watched, WatchedDeciding};
pub use crate::telemetry::catalogue::{Kind, Metric, MetricLabel};
use crate::telemetry::{catalogue as table, publisher};

/// Every metric that is published.
#[must_use]
pub fn catalogue() -> &'static [Metric] {
    table::METRICS
}

/// Publishes the numbers of every queue now, into the recorder that this thread sees.
///
/// Blocks for the microseconds that it takes, and while another thread does it. Called by a recorder that is being
/// published to, it does nothing.
pub fn publish() {
    publisher::publish();
}

/// Publishes, and runs `render` before the next publication, so that it sees each queue as of one instant.
///
/// Other publications wait for it, queues do not.
///
/// # Examples
/// ```
/// use sluicegate::{Rate, observe, queue::Builder};
///
/// # fn page() -> String { String::new() }
/// let (tx, _rx) = Builder::new(Rate::per_second(10)).name("orders-db").build()?;
/// tx.try_send("an order")?;
/// let page: String = observe::publish_then(|| page()); // how your exporter renders
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn publish_then<R>(render: impl FnOnce() -> R) -> R {
    publisher::publish_then(render)
}
