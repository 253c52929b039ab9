//! Asking for a snapshot over HTTP/1.1.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use sluicegate::observe::Snapshot;
use tokio::net::TcpStream;

/// Where a snapshot is.
#[derive(Clone, Debug)]
pub(super) struct Address {
    host: String,
    port: u16,
    /// Host and port as they were written.
    authority: String,
    path: String,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let like = "expected something like http://127.0.0.1:7878";
        let uri: Uri = text.parse().map_err(|error| format!("{error}; {like}"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err("https is not spoken here; tunnel to the machine (ssh -L), and ask http on this end".into());
            }
            _ => return Err(format!("it does not start with http://; {like}")),
        }
        let authority = uri.authority().ok_or(like)?;
        if authority.as_str().contains('@') {
            return Err("a user name in the address is not sent".into());
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let path = uri.path();
        let path = match path.rsplit('/').next() {
            Some("snapshot.json") => path.to_owned(),
            Some("") => format!("{path}snapshot.json"),
            _ => format!("{path}/snapshot.json"),
        };
        Ok(Self {
            host,
            port: authority.port_u16().unwrap_or(80),
            authority: authority.as_str().to_owned(),
            path,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

/// Why there is no snapshot.
#[derive(Debug)]
pub(super) enum Trouble {
    Connect(std::io::Error),
    Broken(String),
    Status(u16),
    NoSnapshot(String),
    Slow,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "nobody answers ({error})"),
            Self::Broken(error) => write!(f, "the answer broke off ({error})"),
            Self::Status(status) => write!(f, "the answer was {status}, no snapshot"),
            Self::NoSnapshot(why) => write!(f, "what is there is no snapshot ({why})"),
            Self::Slow => write!(f, "no answer within {} s", PATIENCE.as_secs()),
        }
    }
}

/// Asks once.
///
/// # Cancel safety
/// Dropped, it closes its connection.
pub(super) async fn ask(address: &Address) -> Result<Snapshot, Trouble> {
    let text = tokio::time::timeout(PATIENCE, fetch(address))
        .await
        .map_err(|_| Trouble::Slow)??;
    let value: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| Trouble::NoSnapshot(error.to_string()))?;
    // Any object would read as an empty snapshot, for a reader passes over what it does not know.
    if !value.get("queues").is_some_and(serde_json::Value::is_array) {
        return Err(Trouble::NoSnapshot("it has no list of queues".into()));
    }
    serde_json::from_value(value).map_err(|error| Trouble::NoSnapshot(error.to_string()))
}

async fn fetch(address: &Address) -> Result<Bytes, Trouble> {
    let broken = |error: hyper::Error| Trouble::Broken(error.to_string());
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await;
    let stream = TokioIo::new(stream.map_err(Trouble::Connect)?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream)
        .await
        .map_err(broken)?;
    let request = Request::get(address.path.as_str())
        .header(HOST, &address.authority)
        .header(ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())
        .map_err(|error| Trouble::Broken(error.to_string()))?;
    // Both together on this task: without a task of its own nothing outlives the asking.
    let asked = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        if !response.status().is_success() {
            return Err(Trouble::Status(response.status().as_u16()));
        }
        let body = Limited::new(response.into_body(), LONGEST).collect().await;
        body.map(http_body_util::Collected::to_bytes)
            .map_err(|error| Trouble::Broken(error.to_string()))
    };
    tokio::pin!(connection);
    tokio::pin!(asked);
    tokio::select! {
        answer = &mut asked => answer,
        ended = &mut connection => match ended {
            // All that it had is read by now, or never will be.
            Ok(()) => asked.await,
            Err(error) => Err(broken(error)),
        },
    }
}

const PATIENCE: Duration = Duration::from_secs(5);
/// 256 queues with all their trends are a fifth of it.
const LONGEST: usize = 64 << 20;
