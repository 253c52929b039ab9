//! `--metrics`: serves what the queue publishes, in the Prometheus text format.

use std::net::SocketAddr;

/// Serves the metrics on this address from now on.
///
/// # Errors
/// A message that names the address.
pub(crate) fn serve(address: SocketAddr) -> Result<(), String> {
    Err(format!(
        "--metrics {address}: the queue does not publish metrics yet"
    ))
}
