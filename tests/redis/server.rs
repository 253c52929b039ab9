//! A real server for one test: started on a free port in a folder of its own, and the only process that is ended.

// What one kind of test needs, another may not.
#![allow(dead_code)]

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A running server; dropping it kills it and removes its folder.
pub(crate) struct Server {
    port: u16,
    folder: PathBuf,
    options: Vec<String>,
    cluster: bool,
    password: Option<String>,
    secure_port: Option<u16>,
    process: Option<Child>,
}

/// Settings of a server, as on its command line without the dashes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    options: Vec<String>,
    cluster: bool,
    password: Option<String>,
    secure: bool,
}

impl Options {
    /// Adds one directive with its values: `.set("maxmemory", "2mb")`.
    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.options.push(format!("--{name}"));
        self.options
            .extend(value.split_whitespace().map(str::to_owned));
        self
    }

    /// One node that holds all slots of a cluster.
    pub(crate) fn cluster(mut self) -> Self {
        self.cluster = true;
        self
    }

    /// A password of the default user.
    pub(crate) fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.set("requirepass", password)
    }

    /// Speaks TLS as well, on a second port, with certificates that are set by hand.
    pub(crate) fn secure(mut self) -> Self {
        self.secure = true;
        self
    }

    /// Keeps an append-only file, so that a restart remembers.
    pub(crate) fn durable(self) -> Self {
        self.set("appendonly", "yes").set("appendfsync", "always")
    }

    pub(crate) fn start(self) -> Server {
        static FOLDERS: AtomicU64 = AtomicU64::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("sluicegate-redis-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder for the server");
        let mut server = Server {
            port: 0,
            folder,
            options: self.options,
            cluster: self.cluster,
            password: self.password,
            secure_port: None,
            process: None,
        };
        // Somebody else may take a free port before the server does.
        for _ in 0..10 {
            server.port = free_port();
            server.secure_port = self.secure.then(free_port);
            if server.launch() {
                break;
            }
        }
        assert!(server.process.is_some(), "redis-server does not start");
        if server.cluster {
            server.form_cluster();
        }
        server
    }
}

impl Server {
    /// A plain server without persistence.
    pub(crate) fn start() -> Self {
        Options::default().start()
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Where it speaks TLS.
    pub(crate) fn secure_url(&self) -> String {
        let port = self.secure_port.expect("it speaks it");
        format!("rediss://127.0.0.1:{port}/")
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn url(&self) -> String {
        match &self.password {
            Some(password) => format!("redis://:{password}@127.0.0.1:{}/", self.port),
            None => format!("redis://127.0.0.1:{}/", self.port),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Ends it as a power cut would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Ends it, and starts it again on the same port; without an append-only file it is empty then.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.begin();
    }

    /// Starts it again on its port after [`kill`](Self::kill).
    pub(crate) fn begin(&mut self) {
        let started = (0..20).any(|_| {
            let started = self.launch();
            if !started {
                std::thread::sleep(Duration::from_millis(100));
            }
            started
        });
        assert!(started, "redis-server does not start again");
        if self.cluster {
            self.form_cluster();
        }
    }

    /// Stops it in its tracks: its sockets stay open and nothing answers.
    pub(crate) fn freeze(&self) {
        self.signal("STOP");
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.signal("CONT");
    }

    /// Sends one command over a connection of its own, and returns the reply as the protocol has it.
    pub(crate) fn ask(&self, words: &[&str]) -> String {
        self.try_ask(words).expect("the server replies")
    }

    /// As [`ask`](Self::ask), of a command whose reply is a number.
    pub(crate) fn number(&self, words: &[&str]) -> i64 {
        let reply = self.ask(words);
        let number = reply.trim().trim_start_matches(':').parse();
        number.unwrap_or_else(|_| panic!("{words:?}: {reply}"))
    }

    /// All keys, as text; bytes beyond it are replaced.
    pub(crate) fn keys(&self) -> Vec<String> {
        let reply = self.ask(&["KEYS", "*"]);
        let lines = reply.split("\r\n").skip(1);
        let keys = lines.skip(1).step_by(2).map(str::to_owned);
        keys.filter(|key| !key.is_empty()).collect()
    }

    fn try_ask(&self, words: &[&str]) -> std::io::Result<String> {
        let limit = Duration::from_secs(10);
        let mut stream = TcpStream::connect_timeout(&self.address(), limit)?;
        stream.set_read_timeout(Some(limit))?;
        if let Some(password) = &self.password {
            stream.write_all(encoded(&["AUTH", password]).as_bytes())?;
            read_reply(&mut stream)?;
        }
        stream.write_all(encoded(words).as_bytes())?;
        read_reply(&mut stream)
    }

    fn launch(&mut self) -> bool {
        let mut command = Command::new("redis-server");
        command
            .args(["--port", &self.port.to_string()])
            .args(["--bind", "127.0.0.1"])
            .arg("--dir")
            .arg(&self.folder)
            .args(["--save", ""])
            .args(["--daemonize", "no"]);
        if self.cluster {
            command.args(["--cluster-enabled", "yes"]);
            command.args(["--cluster-config-file", "nodes.conf"]);
            command.args(["--cluster-port", &free_port().to_string()]);
        }
        if let Some(port) = self.secure_port {
            command.args(["--tls-port", &port.to_string()]);
        }
        command.args(&self.options);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null());
        let mut process = command.spawn().expect("redis-server is installed");
        let patience = Instant::now() + Duration::from_secs(20);
        while Instant::now() < patience {
            if let Ok(Some(_)) = process.try_wait() {
                return false;
            }
            if self
                .try_ask(&["PING"])
                .is_ok_and(|reply| reply.contains("PONG"))
            {
                self.process = Some(process);
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = process.kill();
        let _ = process.wait();
        false
    }

    fn form_cluster(&self) {
        if !self.ask(&["CLUSTER", "INFO"]).contains("cluster_state:ok") {
            self.ask(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
        }
        let patience = Instant::now() + Duration::from_secs(20);
        while !self.ask(&["CLUSTER", "INFO"]).contains("cluster_state:ok") {
            assert!(Instant::now() < patience, "the cluster does not form");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn signal(&self, signal: &str) {
        let process = self.process.as_ref().expect("it runs");
        let status = Command::new("kill")
            .args([&format!("-{signal}"), &process.id().to_string()])
            .status();
        assert!(status.expect("kill is installed").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

fn encoded(words: &[&str]) -> String {
    let words = words
        .iter()
        .map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let words: Vec<String> = words.collect();
    format!("*{}\r\n{}", words.len(), words.concat())
}

/// Reads one reply to its end, nested ones included.
fn read_reply(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let read = stream.read(&mut chunk)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&chunk[..read]);
        if end_of_reply(&bytes, 0).is_some() {
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}

fn end_of_reply(bytes: &[u8], from: usize) -> Option<usize> {
    let line = bytes
        .get(from..)?
        .windows(2)
        .position(|pair| pair == b"\r\n")?
        + from;
    let text = std::str::from_utf8(&bytes[from + 1..line]).ok()?;
    let count = || text.parse::<i64>().ok();
    match bytes[from] {
        b'$' => match count()? {
            -1 => Some(line + 2),
            length => Some(line + 4 + length as usize).filter(|end| *end <= bytes.len()),
        },
        b'*' => (0..count()?).try_fold(line + 2, |at, _| end_of_reply(bytes, at)),
        _ => Some(line + 2),
    }
}
