//! Scripts by their digest, loaded when the server does not know them.
//!
//! A server answers NOSCRIPT before anything has run: after a restart, a failover, a flush, or on a node that is new to
//! its cluster. It is the only error after which a command is sent again.

use std::time::Duration;

use tokio::time::Instant;

use super::error::{Error, Kind};
use super::link::{Cmd, Link, Value, cmd};
use crate::sync::{AtomicU64, Ordering};

/// One script and its digest.
#[derive(Debug)]
pub(super) struct Script {
    source: String,
    digest: String,
    loads: AtomicU64,
}

impl Script {
    pub(super) fn new(source: impl Into<String>) -> Self {
        let source = source.into();
        let digest = ::redis::Script::new(&source).get_hash().to_owned();
        Self {
            source,
            digest,
            loads: AtomicU64::new(0),
        }
    }

    /// How often a server had to be told it.
    pub(super) fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }

    /// The command that runs it, to which exactly `keys` keys and then the arguments are added.
    pub(super) fn command(&self, keys: usize) -> Cmd {
        // Room at once for what there usually is.
        let mut command = Cmd::with_capacity(keys + 8, 96 * (keys + 2));
        command.arg("EVALSHA");
        command.arg(&self.digest).arg(keys);
        command
    }

    /// Runs a command of this script; what is not loaded is loaded. `deadline` is for all of it.
    pub(super) async fn run(
        &self,
        link: &Link,
        command: &Cmd,
        deadline: Duration,
    ) -> Result<Value, Error> {
        let until = Instant::now() + deadline;
        let mut reply = link.run_until(command, until, deadline).await;
        for _ in 0..LOADS {
            match &reply {
                Err(error) if *error.kind() == Kind::NoScript => {}
                _ => return reply,
            }
            let left = until.saturating_duration_since(Instant::now());
            reply = self.load_and_run(link, command, left).await;
        }
        reply
    }

    /// Both in one go, so that a flush in between is unlikely.
    async fn load_and_run(
        &self,
        link: &Link,
        command: &Cmd,
        deadline: Duration,
    ) -> Result<Value, Error> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        let mut load = cmd("SCRIPT");
        load.arg("LOAD").arg(&self.source);
        if link.is_cluster() {
            // It goes to all nodes, and has to arrive before the command does.
            let until = Instant::now() + deadline;
            link.run(&load, deadline).await?;
            let left = until.saturating_duration_since(Instant::now());
            return link.run(command, left).await;
        }
        let replies = link.run_many(vec![load, command.clone()], deadline).await?;
        let mut replies = replies.into_iter();
        let loaded = replies.next();
        match (loaded, replies.next()) {
            (Some(Err(error)), _) => Err(error),
            (_, Some(reply)) => reply,
            _ => Err(Error::unexpected(&"a batch without replies")),
        }
    }
}

/// Times a script is loaded for one command while somebody else flushes the server's scripts.
const LOADS: usize = 8;
