//! The scripts of one queue, and how their answers are read.

use std::time::Duration;

use super::error::{Error, ErrorKind};
use crate::redis::error::Error as ServerError;
use crate::redis::link::{Cmd, Link, Value, cmd};
use crate::redis::script::Script;
use crate::sync::{Arc, AtomicU64, Ordering};

macro_rules! script {
    ($file:literal) => {
        Script::new(concat!(
            include_str!("../scripts/queue_common.lua"),
            include_str!(concat!("../scripts/", $file))
        ))
    };
}

/// All scripts of the queue.
pub(super) struct Scripts {
    pub(super) open: Script,
    pub(super) enqueue: Script,
    pub(super) take: Script,
    pub(super) settle: Script,
    pub(super) hold: Script,
    pub(super) control: Script,
    pub(super) look: Script,
    pub(super) redrive: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            open: script!("queue_open.lua"),
            enqueue: script!("queue_enqueue.lua"),
            take: script!("queue_take.lua"),
            settle: script!("queue_settle.lua"),
            hold: script!("queue_hold.lua"),
            control: script!("queue_control.lua"),
            look: script!("queue_look.lua"),
            redrive: script!("queue_redrive.lua"),
        }
    }
}

/// One queue on one server: where it lies, and what it is made anew with if the server has lost it.
pub(super) struct Store {
    pub(super) link: Link,
    pub(super) scripts: Arc<Scripts>,
    keys: [String; 5],
    /// Names of ids begin with it.
    prefix: String,
    settings: Vec<(&'static str, String)>,
    deadline: Duration,
    /// Times the server was found without the queue or its group.
    pub(super) restored: AtomicU64,
}

impl Store {
    /// The queue of this name. All its keys carry it as their tag, so they lie in one slot of a cluster.
    pub(super) fn new(
        link: Link,
        scripts: Arc<Scripts>,
        name: &str,
        settings: Vec<(&'static str, String)>,
        deadline: Duration,
    ) -> Self {
        let prefix = format!("sluicegate:{{{name}}}");
        let keys = ["state", "jobs", "later", "parked", "dead"].map(|of| format!("{prefix}:{of}"));
        Self::over(link, scripts, prefix, keys, settings, deadline)
    }

    /// The dead letters of a queue as a queue of their own: what dies in it is put back at its end.
    pub(super) fn of_dead_letters(&self, settings: Vec<(&'static str, String)>) -> Self {
        let prefix = format!("{}:dead", self.prefix);
        let keys = ["state", "jobs", "later", "parked", "dead"].map(|of| match of {
            "jobs" | "dead" => prefix.clone(),
            of => format!("{prefix}:{of}"),
        });
        let (link, scripts) = (self.link.clone(), Arc::clone(&self.scripts));
        Self::over(link, scripts, prefix, keys, settings, self.deadline)
    }

    fn over(
        link: Link,
        scripts: Arc<Scripts>,
        prefix: String,
        keys: [String; 5],
        settings: Vec<(&'static str, String)>,
        deadline: Duration,
    ) -> Self {
        Self {
            link,
            scripts,
            keys,
            prefix,
            settings,
            deadline,
            restored: AtomicU64::new(0),
        }
    }

    /// Makes the queue if it is not there; what it is set to, as pairs.
    pub(super) async fn open(&self, mode: &str) -> Result<Vec<Value>, Error> {
        let mut arguments = vec![mode.as_bytes()];
        for (name, value) in &self.settings {
            arguments.extend([name.as_bytes(), value.as_bytes()]);
        }
        let reply = self.run(&self.scripts.open, None, &arguments).await?;
        let text = |at: usize| reply.get(at).map(text).unwrap_or_default();
        match text(0).as_str() {
            "ok" => match reply.into_iter().nth(2) {
                Some(Value::Array(pairs)) => Ok(pairs),
                other => Err(ServerError::unexpected(&other).into()),
            },
            "conflict" => Err(ErrorKind::Conflict {
                setting: text(1),
                stored: text(2),
                asked: text(3),
            }
            .into()),
            "version" => Err(ErrorKind::Version { found: text(1) }.into()),
            _ => Err(ServerError::unexpected(&reply).into()),
        }
    }

    /// Runs a script; the first word of its answer, and the rest. A queue that the server has lost is made anew, with
    /// what its stream still has.
    pub(super) async fn call(
        &self,
        script: &Script,
        id: Option<&str>,
        arguments: &[&[u8]],
    ) -> Result<(String, Vec<Value>), Error> {
        for _ in 0..2 {
            let mut reply = self.run(script, id, arguments).await?;
            if reply.is_empty() {
                return Err(ServerError::unexpected(&reply).into());
            }
            let word = text(&reply.remove(0));
            match word.as_str() {
                "missing" => {
                    self.restored.fetch_add(1, Ordering::Relaxed);
                    self.open("adopt").await?;
                }
                "version" => {
                    let found = reply.first().map(text).unwrap_or_default();
                    return Err(ErrorKind::Version { found }.into());
                }
                _ => return Ok((word, reply)),
            }
        }
        Err(ServerError::unexpected(&"the queue vanishes as soon as it is made").into())
    }

    /// Dead letters from this one on, as the server has them.
    pub(super) async fn letters(&self, from: &str, most: usize) -> Result<Vec<Value>, Error> {
        let mut command = cmd("XRANGE");
        command.arg(&self.keys[DEAD]).arg(from).arg("+");
        command.arg("COUNT").arg(most);
        self.entries(&command).await
    }

    /// Id of the newest dead letter.
    pub(super) async fn last_letter(&self) -> Result<Option<String>, Error> {
        let mut command = cmd("XREVRANGE");
        command.arg(&self.keys[DEAD]).arg("+").arg("-");
        command.arg("COUNT").arg(1);
        Ok(match self.entries(&command).await?.first() {
            Some(Value::Array(entry)) => entry.first().map(text),
            _ => None,
        })
    }

    async fn entries(&self, command: &Cmd) -> Result<Vec<Value>, Error> {
        match self.link.run(command, self.deadline).await? {
            Value::Array(entries) => Ok(entries),
            other => Err(ServerError::unexpected(&other).into()),
        }
    }

    async fn run(
        &self,
        script: &Script,
        id: Option<&str>,
        arguments: &[&[u8]],
    ) -> Result<Vec<Value>, Error> {
        let mut command = script.command(self.keys.len() + usize::from(id.is_some()));
        for key in &self.keys {
            command.arg(key);
        }
        if let Some(id) = id {
            command.arg(format!("{}:id:{id}", self.prefix));
        }
        for argument in arguments {
            command.arg(*argument);
        }
        match script.run(&self.link, &command, self.deadline).await? {
            Value::Array(reply) => Ok(reply),
            other => Err(ServerError::unexpected(&other).into()),
        }
    }
}

/// A part of an answer as text; empty if it is none.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::Int(number) => number.to_string(),
        Value::Okay => "OK".into(),
        _ => String::new(),
    }
}

/// A part of an answer as bytes; empty if it is none.
pub(super) fn bytes(value: Value) -> Vec<u8> {
    match value {
        Value::BulkString(bytes) => bytes,
        other => text(&other).into_bytes(),
    }
}

/// A part of an answer as a number; `None` if it is none.
pub(super) fn number(value: Option<&Value>) -> Option<i64> {
    match value? {
        Value::Int(number) => Some(*number),
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        Value::SimpleString(text) => text.parse().ok(),
        _ => None,
    }
}

/// A number that is no less than zero; what is missing or below counts as zero.
pub(super) fn natural(value: Option<&Value>) -> u64 {
    number(value)
        .and_then(|of| u64::try_from(of).ok())
        .unwrap_or(0)
}

/// A span of microseconds.
pub(super) fn micros(value: Option<&Value>) -> Duration {
    Duration::from_micros(natural(value))
}

/// Which of the keys holds the dead letters.
const DEAD: usize = 4;
