//! One rate for a fleet: three processes drain one queue, one of them is killed, another one joins, and the database
//! notices nothing.
//!
//! A producer fills a queue on Redis. Worker *processes* take jobs from it and write them to one SQLite file, 200 a second
//! between them. At a third of the run one worker is killed without warning, in the middle of its jobs; at two thirds a new
//! one is started. Look at the first chart: the line stays level, as the next departure belongs to whoever asks first, and
//! nobody has a share that could die with him. Below it, who did the work. What the dead worker held is done by another
//! after the claim time, so no order is missing in the end.
//!
//! It starts a `redis-server` of its own, unless it is given the address of one (whose queue `sluicegate-example` it
//! then uses):
//!
//! ```sh
//! cargo run --release --features redis --example fleet
//! cargo run --release --features redis --example fleet -- redis://127.0.0.1/
//! ```

use std::error::Error;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use rusqlite::{Connection, params};
use sluicegate::Rate;
use sluicegate::redis::Endpoint;
use sluicegate::redis::queue::{Builder, Existing, Queue, Receiver};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use chart::{Timeline, columns, strip, table, thousands};

#[path = "support/chart.rs"]
#[allow(dead_code, reason = "shared with an example that shows more")]
mod chart;

const NAME: &str = "sluicegate-example";
const RATE: u64 = 200;
/// Consumers in each process: a write may take up to 8 / 200 s until they fall behind.
const CONSUMERS: usize = 8;

type Anything = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["worker", number, url, file] => work(number, url, Path::new(file)),
        [url] => show(Some(url)),
        [] => show(None),
        _ => Err("give it the address of a redis-server, or nothing".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fleet: {error}");
            ExitCode::FAILURE
        }
    }
}

fn queue(claim_after: Duration) -> Builder {
    Builder::new(NAME, Rate::per_second(RATE))
        .max_depth(200)
        .claim_after(claim_after)
}

// The workers.

#[tokio::main]
async fn work(number: &str, url: &str, file: &Path) -> Result<(), Anything> {
    // Whatever the starter has set holds for the whole fleet.
    let queue = queue(Duration::from_secs(1)).existing(Existing::Adopt);
    let rx = queue.open(Endpoint::new(url)?).await?.receiver::<u64>();
    let consumers: Vec<_> = (0..CONSUMERS)
        .map(|_| {
            let database = open_database(file)?;
            Ok(tokio::spawn(consume(
                rx.clone(),
                database,
                number.to_owned(),
            )))
        })
        .collect::<Result<_, Anything>>()?;
    for consumer in consumers {
        consumer.await??;
    }
    Ok(())
}

async fn consume(rx: Receiver<u64>, database: Connection, worker: String) -> Result<(), Anything> {
    while let Some(job) = rx.recv().await? {
        let departed = i64::try_from(job.departed_at().as_nanos())?;
        let (order, attempt) = (i64::try_from(*job)?, job.attempt());
        // A job may come twice, so it is written so that twice is once.
        tokio::task::block_in_place(|| {
            let write = "INSERT OR IGNORE INTO orders VALUES (?, ?, ?, ?)";
            database.execute(write, params![order, worker, departed, attempt])
        })?;
        sleep(Duration::from_millis(30)).await;
        match job.ack().await {
            Err(error) if !error.is_taken_over() => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

fn open_database(file: &Path) -> Result<Connection, Anything> {
    let database = Connection::open(file)?;
    database.busy_timeout(Duration::from_secs(20))?;
    database.pragma_update(None, "journal_mode", "wal")?;
    database.pragma_update(None, "synchronous", "off")?;
    Ok(database)
}

// The one that starts them.

#[tokio::main]
async fn show(url: Option<&str>) -> Result<(), Anything> {
    let is_brief = std::env::var_os("SLUICEGATE_BRIEF").is_some_and(|value| value != "0");
    let (run, claim_after) = if is_brief {
        (Duration::from_millis(2_400), Duration::from_millis(400))
    } else {
        (Duration::from_secs(18), Duration::from_secs(1))
    };
    let folder = Folder::new()?;
    let server = if url.is_none() {
        Some(Server::start(&folder.0)?)
    } else {
        None
    };
    let url = match (&server, url) {
        (Some(server), _) => format!("redis://127.0.0.1:{}/", server.port),
        (None, url) => url.unwrap_or_default().to_owned(),
    };
    let queue = reach(&url, claim_after).await?;
    let file = folder.0.join("orders.db");
    open_database(&file)?.execute(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, worker TEXT, departed INTEGER, attempt INTEGER)",
        [],
    )?;

    println!(
        "{RATE} orders a second, {} s, three worker processes\n",
        run.as_secs_f64()
    );
    let mut workers: Vec<Process> = Vec::new();
    for number in 1..=3 {
        workers.push(worker(number, &url, &file)?);
    }
    let start = Instant::now();
    let producing = tokio::spawn(produce(queue.clone(), start + run));
    sleep_until(start + run / 3).await;
    workers[0].0.kill()?;
    println!(
        "{:>5.1} s  worker 1 is killed",
        start.elapsed().as_secs_f64()
    );
    sleep_until(start + run * 2 / 3).await;
    workers.push(worker(4, &url, &file)?);
    println!("{:>5.1} s  worker 4 joins", start.elapsed().as_secs_f64());
    let offered = producing.await??;
    let report = queue.drain(Duration::from_secs(60)).await?;
    println!(
        "{:>5.1} s  the queue is empty\n",
        start.elapsed().as_secs_f64()
    );
    drop(workers);
    if report.left + report.in_flight > 0 {
        return Err(format!("{} jobs are left", report.left + report.in_flight).into());
    }
    print(&file, offered, &queue).await
}

/// The queue, empty and open, once the server answers.
async fn reach(url: &str, claim_after: Duration) -> Result<Queue, Anything> {
    let patience = Instant::now();
    let queue = loop {
        let builder = queue(claim_after).existing(Existing::Replace);
        match builder.open(Endpoint::new(url)?).await {
            Ok(queue) => break queue,
            Err(error) if patience.elapsed() > Duration::from_secs(10) => return Err(error.into()),
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    };
    queue.reopen().await?;
    // What an earlier run left behind.
    let rx = queue.receiver::<u64>();
    while let Ok(job) = timeout(Duration::from_millis(100), rx.recv()).await {
        let Some(job) = job? else { break };
        job.ack().await?;
    }
    Ok(queue)
}

/// Offers orders as fast as there is room for them; how many were taken.
async fn produce(queue: Queue, until: Instant) -> Result<u64, Anything> {
    let tx = queue.sender::<u64>();
    let mut order = 0;
    while Instant::now() < until {
        // The name makes it one order, also where an answer is lost.
        let offer = tx
            .offer(order)
            .id(format!("{}-{order}", std::process::id()));
        match offer.send_within(Duration::from_secs(1)).await {
            Ok(_) => order += 1,
            Err(error) if error.refusal().is_some() => {}
            Err(error) => return Err(error.to_string().into()),
        }
    }
    Ok(order)
}

async fn print(file: &Path, offered: u64, queue: &Queue) -> Result<(), Anything> {
    let database = open_database(file)?;
    let mut select =
        database.prepare("SELECT worker, departed, attempt FROM orders ORDER BY departed")?;
    let rows = select
        .query_map([], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, i64>(1)?,
                row.get::<_, u32>(2)?,
            ))
        })?
        .collect::<Result<Vec<_>, _>>()?;
    let Some((_, first, _)) = rows.first() else {
        return Err("nothing was written".into());
    };
    let last = rows.last().map_or(*first, |row| row.1);
    let span = Duration::from_nanos(u64::try_from(last - first)?);
    let step = Duration::from_millis(if span > Duration::from_secs(5) {
        500
    } else {
        200
    });
    let at = |departed: i64| Duration::from_nanos(u64::try_from(departed - first).unwrap_or(0));
    let line = |of: Option<&str>| {
        let mut line = Timeline::new(step);
        for (worker, departed, _) in &rows {
            if of.is_none_or(|of| of == worker) {
                line.add(at(*departed));
            }
        }
        // The last step is cut off by the end of the run.
        line.end_at(span.saturating_sub(step));
        let columns = line.columns(line.steps_per_column());
        columns
            .iter()
            .map(|count| count / step.as_secs_f64())
            .collect::<Vec<_>>()
    };
    let whole = line(None);
    let most = whole.iter().copied().fold(RATE as f64 * 1.25, f64::max);
    println!("departures per second, all workers (server's clock)");
    println!("{}", columns(&whole, most, 8, step));
    for worker in ["1", "2", "3", "4"] {
        print!(
            "{}",
            strip(&format!("worker {worker}"), &line(Some(worker)), most)
        );
    }
    let seen = queue.snapshot().await?;
    let again = rows.iter().filter(|row| row.2 > 1).count();
    let rate = (rows.len().saturating_sub(1)) as f64 / span.as_secs_f64().max(f64::MIN_POSITIVE);
    println!();
    let row = |name: &str, value: String| [name.to_owned(), value];
    print!(
        "{}",
        table(&[
            row("whole run", "orders".to_owned()),
            row("taken in", thousands(offered)),
            row("in the database", thousands(rows.len() as u64)),
            row(
                "of them taken over from the dead worker",
                thousands(again as u64)
            ),
            row("rate", format!("{rate:.1}/s")),
            row("dead letters", thousands(seen.dead_letters)),
        ])
    );
    if rows.len() as u64 != offered {
        return Err(format!(
            "{} orders are missing",
            offered.saturating_sub(rows.len() as u64)
        )
        .into());
    }
    println!("\nnothing is lost");
    Ok(())
}

fn worker(number: u32, url: &str, file: &Path) -> Result<Process, Anything> {
    let child = Command::new(std::env::current_exe()?)
        .args(["worker", &number.to_string(), url])
        .arg(file)
        .stdin(Stdio::null())
        .spawn()?;
    Ok(Process(child))
}

/// A process that ends with its owner.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server of our own, on a free port, that keeps nothing.
struct Server {
    port: u16,
    _process: Process,
}

impl Server {
    fn start(folder: &Path) -> Result<Self, Anything> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let started = Command::new("redis-server")
            .args([
                "--port",
                &port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
            ])
            .arg("--dir")
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        let child = started.map_err(|error| format!("redis-server cannot be started: {error}"))?;
        let _process = Process(child);
        Ok(Self { port, _process })
    }
}

/// A folder that ends with its owner.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, Anything> {
        let path = std::env::temp_dir().join(format!("sluicegate-fleet-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
