//! The Prometheus exporter's recorder, with what it needs to be right: buckets, upkeep, a publication before each page.

use std::fmt;
use std::net::ToSocketAddrs;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use super::error::{Problem, ServeError};
use super::server::Server;
use super::{Kind, catalogue, publish_then};

/// Handle to the recorder that was installed for this process; clones share it.
///
/// # Examples
/// For a program that has a router of its own:
/// ```
/// let prometheus = sluicegate::observe::prometheus()?;
/// let page: String = prometheus.render(); // of type `text/plain; version=0.0.4`
/// assert!(page.contains("sluicegate_build_info"));
/// # Ok::<(), sluicegate::observe::ServeError>(())
/// ```
#[derive(Clone)]
pub struct Prometheus {
    handle: PrometheusHandle,
}

impl Prometheus {
    /// Publishes everything and renders the page, metrics of other crates included.
    ///
    /// The numbers of a queue are all of one instant: its counters and gauges balance on every page.
    #[must_use]
    pub fn render(&self) -> String {
        publish_then(|| self.handle.render())
    }
}

impl fmt::Debug for Prometheus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prometheus").finish_non_exhaustive()
    }
}

/// Installs a Prometheus recorder for the whole process, unless an earlier call has done so.
///
/// Histograms have the buckets of the [`catalogue`], and a thread does the recorder's upkeep.
///
/// # Errors
/// [`is_recorder_taken`](ServeError::is_recorder_taken): the program has installed another recorder. Set the buckets of
/// the catalogue there, and call [`publish_then`] around its rendering.
pub fn prometheus() -> Result<Prometheus, ServeError> {
    // A recorder stays for ever, so the first answer does too.
    static INSTALLED: OnceLock<Option<Prometheus>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        let recorder = recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder).ok()?;
        keep_up(handle.clone());
        Some(Prometheus { handle })
    });
    installed
        .clone()
        .ok_or_else(|| ServeError::new(Problem::RecorderTaken))
}

/// Serves the page at `/metrics` on a loopback address, from a thread of its own.
///
/// The recorder is installed as by [`prometheus()`]. Port 0 is any that is free: [`Server::addr`] tells which. The page
/// tells the names and the load of your queues to whoever asks, so other addresses are refused: to be seen from outside,
/// mount [`Prometheus::render`] in a router of yours, behind what guards the rest of it.
///
/// # Errors
/// [`ServeError`] tells which: not a loopback address, the port is in use, another recorder is installed. Nothing is
/// installed unless the address is right and free.
///
/// # Examples
/// ```
/// let server = sluicegate::observe::serve("127.0.0.1:0")?;
/// println!("http://{}/metrics", server.addr());
/// let taken = sluicegate::observe::serve(server.addr()).expect_err("the port is in use");
/// assert!(taken.is_addr_in_use());
/// assert!(sluicegate::observe::serve("0.0.0.0:0").is_err());
/// server.stop();
/// # Ok::<(), sluicegate::observe::ServeError>(())
/// ```
pub fn serve(addr: impl ToSocketAddrs) -> Result<Server, ServeError> {
    let listener = Server::bind(addr)?;
    Server::start(listener, prometheus()?)
}

fn recorder() -> PrometheusRecorder {
    let histograms = catalogue()
        .iter()
        .filter(|metric| metric.kind == Kind::Histogram);
    let builder = histograms.fold(PrometheusBuilder::new(), |builder, metric| {
        builder
            .set_buckets_for_metric(Matcher::Full(metric.name.into()), &metric.buckets())
            .expect("every histogram has buckets")
    });
    builder.build_recorder()
}

/// Folds what histograms were told into their buckets, so that it does not pile up where nobody scrapes.
fn keep_up(handle: PrometheusHandle) {
    let run = move || {
        loop {
            thread::sleep(UPKEEP);
            handle.run_upkeep();
        }
    };
    // Without the thread a scrape does it.
    let _ = thread::Builder::new()
        .name("sluicegate-upkeep".into())
        .spawn(run);
}

/// As the exporter itself does.
const UPKEEP: Duration = Duration::from_secs(5);
