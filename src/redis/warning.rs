//! What about a server would make limits forget or fail.

use std::fmt;
use std::time::Duration;

use super::error::{Error, Kind};
use super::link::{Link, Value, cmd};

/// Something about the server that limits do not go well with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// When its memory is full the server evicts keys, and with them what limits have counted.
    Evicting {
        /// Its `maxmemory-policy`.
        policy: String,
    },
    /// It is a replica, and takes no decisions.
    Replica,
    /// It is older than 7.0, for which the scripts are written.
    OldVersion {
        /// Its version.
        version: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evicting { policy } => write!(
                f,
                "maxmemory-policy is {policy}: limits are forgotten when memory is full, noeviction keeps them"
            ),
            Self::Replica => f.write_str("the server is a replica and takes no decisions"),
            Self::OldVersion { version } => {
                write!(
                    f,
                    "the server's version is {version}, at least 7.0 is needed"
                )
            }
        }
    }
}

/// Looks at the server, and waits for at most `patience`.
pub(super) async fn look(link: &Link, patience: Duration) -> Result<Vec<Warning>, Error> {
    let mut server = cmd("INFO");
    server.arg("server");
    let mut role = cmd("INFO");
    role.arg("replication");
    let mut policy = cmd("CONFIG");
    policy.arg("GET").arg("maxmemory-policy");
    let mut found = Vec::new();

    let version = text(&link.run(&server, patience).await?);
    let version = line(&version, "redis_version:").unwrap_or_default();
    let major = version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok());
    if major.is_some_and(|major: u32| major < 7) {
        let version = version.to_owned();
        found.push(Warning::OldVersion { version });
    }
    if line(&text(&link.run(&role, patience).await?), "role:") == Some("slave") {
        found.push(Warning::Replica);
    }
    let policy = match link.run(&policy, patience).await {
        Ok(reply) => text(&reply),
        // Not everybody may ask.
        Err(error) if matches!(error.kind(), Kind::Denied { .. } | Kind::Refused { .. }) => {
            return Ok(found);
        }
        Err(error) => return Err(error),
    };
    let policy = policy.lines().map(str::trim).rfind(|line| !line.is_empty());
    match policy {
        Some(policy) if policy != "noeviction" && policy != "maxmemory-policy" => {
            let policy = policy.to_owned();
            found.push(Warning::Evicting { policy });
        }
        _ => {}
    }
    Ok(found)
}

fn line<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.trim().strip_prefix(name))
}

/// All text in a reply, a line each.
fn text(reply: &Value) -> String {
    match reply {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        Value::Array(values) => {
            let lines: Vec<_> = values.iter().map(text).collect();
            lines.join("\n")
        }
        Value::Map(pairs) => {
            let values = pairs
                .iter()
                .flat_map(|(key, value)| [text(key), text(value)]);
            values.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}
