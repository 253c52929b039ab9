//! One limit for three processes, and what they do when its server is gone.
//!
//! Three processes ask for one key as fast as they may, each through a hierarchy whose state lives on Redis. Look at the
//! first table: nobody has a fixed share, and together they get what one process would get alone, the burst and then the
//! rate. Then the server is stopped. Look at the second table: every answer still comes in time; after a few calls none is
//! even tried; and what the processes let through by their own shares is no more than the limit, divided.
//!
//! It starts a `redis-server` of its own, unless it is given the address of one; that one is not stopped.
//!
//! ```sh
//! cargo run --release --features redis --example shared_limits
//! cargo run --release --features redis --example shared_limits -- redis://127.0.0.1/
//! ```

use std::error::Error;
use std::net::TcpListener;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use sluicegate::redis::{Endpoint, Limits, WhenUnknown};
use sluicegate::{Hierarchy, Rate};

use chart::{table, thousands};

#[path = "support/chart.rs"]
#[allow(dead_code, reason = "shared with an example that shows more")]
mod chart;

const NODES: u64 = 3;
const RATE: u64 = 30;
const BURST: u64 = 30;

type Anything = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["node", url, prefix, millis] => node(url, prefix, millis),
        [url] => show(Some(url)),
        [] => show(None),
        _ => Err("give it the address of a redis-server, or nothing".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shared_limits: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One process of the fleet: asks for so long, then prints what came of it.
#[tokio::main(flavor = "current_thread")]
async fn node(url: &str, prefix: &str, millis: &str) -> Result<(), Anything> {
    let limits = Limits::builder(Endpoint::new(url)?)
        .prefix(prefix)
        .deadline(Duration::from_millis(100))
        .when_unknown(WhenUnknown::Share { nodes: NODES })
        .build()?;
    let hierarchy = Hierarchy::<()>::builder()
        .level("everybody", Rate::per_second(RATE).burst(BURST), |()| ())
        .build_on(limits.clone())?;
    let end = Instant::now() + Duration::from_millis(millis.parse()?);
    let (mut granted, mut refused, mut slowest) = (0_u64, 0_u64, Duration::ZERO);
    while Instant::now() < end {
        let asked = Instant::now();
        let ruling = hierarchy.decide(&(), 1).await;
        slowest = slowest.max(asked.elapsed());
        match ruling.is_granted() {
            true => granted += 1,
            false => refused += 1,
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let counts = limits.counts();
    let (unknown, skipped) = (counts.unknown, counts.skipped);
    println!(
        "{granted} {refused} {unknown} {skipped} {}",
        slowest.as_millis()
    );
    Ok(())
}

fn show(url: Option<&str>) -> Result<(), Anything> {
    let brief = std::env::var("SLUICEGATE_BRIEF").is_ok_and(|brief| brief == "1");
    let run = Duration::from_millis(if brief { 1_500 } else { 5_000 });
    let own = match url {
        Some(_) => None,
        None => Some(Server::start()?),
    };
    let url = match &own {
        Some(server) => format!("redis://127.0.0.1:{}/", server.port),
        None => url.unwrap_or_default().to_owned(),
    };
    let seconds = run.as_secs_f64();
    println!("{NODES} processes, one limit: {RATE}/s with a burst of {BURST}, for {seconds} s\n");
    let prefix = format!("sluicegate-example-{}", std::process::id());
    let most = BURST as f64 + RATE as f64 * seconds;
    let granted = fleet(&url, &prefix, run)?;
    println!("together {granted}; the limit lets {most:.0} pass in this time\n");
    let Some(server) = own else { return Ok(()) };
    drop(server);
    println!("the server is stopped: each process has a third of the limit\n");
    let granted = fleet(&url, &prefix, run)?;
    println!("together {granted}; the limit lets {most:.0} pass in this time");
    Ok(())
}

/// Runs the processes side by side, shows what each got, and says how much that was together.
fn fleet(url: &str, prefix: &str, run: Duration) -> Result<u64, Anything> {
    let program = std::env::current_exe()?;
    let start = || {
        Command::new(&program)
            .args(["node", url, prefix, &run.as_millis().to_string()])
            .stdout(Stdio::piped())
            .spawn()
    };
    let nodes = (0..NODES).map(|_| start()).collect::<Result<Vec<_>, _>>()?;
    let head = [
        "",
        "granted",
        "refused",
        "unknown",
        "not even sent",
        "slowest answer",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    let mut together = 0;
    for (index, node) in nodes.into_iter().enumerate() {
        let output = node.wait_with_output()?;
        let text = String::from_utf8(output.stdout)?;
        let figures = text
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<Vec<u64>, _>>()?;
        let [granted, refused, unknown, skipped, slowest] = figures[..] else {
            return Err(format!("process {} ended early: {}", index + 1, output.status).into());
        };
        together += granted;
        let [granted, refused, unknown, skipped] =
            [granted, refused, unknown, skipped].map(thousands);
        let name = format!("process {}", index + 1);
        rows.push([
            name,
            granted,
            refused,
            unknown,
            skipped,
            format!("{slowest} ms"),
        ]);
    }
    print!("{}", table(&rows));
    Ok(together)
}

/// A server of our own, on a free port, that keeps nothing and ends with its owner.
struct Server {
    port: u16,
    process: Child,
}

impl Server {
    fn start() -> Result<Self, Anything> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let text = port.to_string();
        let process = Command::new("redis-server")
            .args(["--port", &text, "--bind", "127.0.0.1", "--save", ""])
            .current_dir(std::env::temp_dir())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("redis-server cannot be started: {error}"))?;
        let server = Self { port, process };
        for _ in 0..500 {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("redis-server does not answer within 5 s".into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
