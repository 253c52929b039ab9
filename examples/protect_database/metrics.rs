//! `--metrics`: serves what the queue publishes, in the Prometheus text format.

use std::net::SocketAddr;

/// What serves the metrics, for as long as it is held.
#[cfg(feature = "prometheus")]
pub(crate) type Serving = sluicegate::observe::Server;

/// Nothing serves them in this build.
#[cfg(not(feature = "prometheus"))]
pub(crate) type Serving = std::convert::Infallible;

/// Serves the metrics on this address from now on.
///
/// # Errors
/// A message that names the address.
#[cfg(feature = "prometheus")]
pub(crate) fn serve(address: SocketAddr) -> Result<Serving, String> {
    use std::error::Error as _;

    let server = sluicegate::observe::serve(address).map_err(|error| {
        let cause = error.source().map(|cause| format!(": {cause}"));
        format!("--metrics: {error}{}", cause.unwrap_or_default())
    })?;
    // Port 0 stands for any that is free, so it is said which.
    eprintln!("metrics: http://{}/metrics", server.addr());
    Ok(server)
}

/// As above, in a build that cannot.
#[cfg(not(feature = "prometheus"))]
pub(crate) fn serve(address: SocketAddr) -> Result<Serving, String> {
    Err(format!(
        "--metrics needs the feature `prometheus`: \
         cargo run --release --features prometheus --example protect_database -- --metrics {address}"
    ))
}
