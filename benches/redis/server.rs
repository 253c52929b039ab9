//! A `redis-server` of the bench's own: on a free port of this machine, without persistence, and ended with the bench.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::{Client, Connection, RedisResult, cmd};

/// A running server; dropping it ends it.
pub(crate) struct Server {
    port: u16,
    folder: PathBuf,
    process: Child,
}

/// What the server has counted of one command.
pub(crate) struct Spent {
    pub(crate) calls: f64,
    pub(crate) micros: f64,
}

impl Server {
    /// Starts one, or says why there is none.
    pub(crate) fn start() -> Result<Self, String> {
        let folder = format!("sluicegate-bench-redis-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).map_err(|error| format!("{folder:?}: {error}"))?;
        // Somebody else may take a free port before the server does.
        for _ in 0..10 {
            let port = free_port().map_err(|error| format!("no free port: {error}"))?;
            let process = Command::new("redis-server")
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
                .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
                .arg("--dir")
                .arg(&folder)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .map_err(|error| format!("redis-server cannot be started: {error}"))?;
            // Ends it, however this goes on.
            let mut server = Self {
                port,
                folder: folder.clone(),
                process,
            };
            if server.answers() {
                return Ok(server);
            }
        }
        Err("redis-server ends at once, or does not answer".into())
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Its name and release.
    pub(crate) fn version(&self) -> String {
        let info = self.info("server").unwrap_or_default();
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("redis_version:"));
        format!("redis-server {}", line.unwrap_or("of an unknown release"))
    }

    /// Forgets all keys.
    pub(crate) fn empty(&self) {
        let emptied = self
            .connection()
            .and_then(|mut connection| cmd("FLUSHALL").exec(&mut connection));
        emptied.expect("the server answers");
    }

    /// Calls of scripts so far, and the time that the server spent in them.
    pub(crate) fn scripts(&self) -> Spent {
        let info = self.info("commandstats").expect("the server answers");
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
        let number = |name: &str| {
            let fields = line.into_iter().flat_map(|line| line.split(','));
            let mut values = fields.filter_map(|field| field.strip_prefix(name)?.strip_prefix('='));
            values
                .next()
                .and_then(|value| value.parse().ok())
                .unwrap_or(0.0)
        };
        Spent {
            calls: number("calls"),
            micros: number("usec"),
        }
    }

    fn info(&self, section: &str) -> RedisResult<String> {
        cmd("INFO").arg(section).query(&mut self.connection()?)
    }

    fn connection(&self) -> RedisResult<Connection> {
        Client::open(self.url())?.get_connection()
    }

    fn answers(&mut self) -> bool {
        let patience = Instant::now() + Duration::from_secs(20);
        while Instant::now() < patience {
            if let Ok(Some(_)) = self.process.try_wait() {
                return false;
            }
            if self.info("server").is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn free_port() -> std::io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}
