//! What both brokers' examples do: a burst goes in through a door, leaves at a fixed rate into SQLite, and the server is
//! killed in between.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::Connection;
use sluicegate::broker::{Admission, Broker, Message, Received, RejectedBy, Source};
use sluicegate::{Rate, RateLimiter};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// A server of the example's own, or somebody's.
pub(crate) trait Server {
    /// Kills it as a power cut would, and starts it again; false if it is not ours.
    fn crash(&mut self) -> impl Future<Output = Result<bool, Box<dyn Error>>>;
}

/// Folder that goes with the example.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Result<Self, Box<dyn Error>> {
        let path = std::env::temp_dir().join(format!("sluicegate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nobody is left who could be told.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn free_port() -> Result<u16, Box<dyn Error>> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port())
}

/// The server's binary, or an error that says what to install.
pub(crate) fn binary(candidates: &[&str], package: &str) -> Result<PathBuf, Box<dyn Error>> {
    let found = candidates.iter().map(Path::new).find(|path| path.exists());
    found.map(Path::to_owned).ok_or_else(|| {
        let name = candidates.first().unwrap_or(&package);
        format!("no {name}: install the package {package}, or give the URL of a server as argument")
            .into()
    })
}

/// Tries until it works, for at most a minute.
pub(crate) async fn eventually<T, E>(mut act: impl AsyncFnMut() -> Result<T, E>) -> Result<T, E> {
    let began = Instant::now();
    loop {
        match act().await {
            Err(_) if began.elapsed() < Duration::from_secs(60) => {
                sleep(Duration::from_millis(50)).await;
            }
            outcome => return outcome,
        }
    }
}

/// The whole story; fails if a message was lost.
pub(crate) async fn run<B: Broker>(
    broker: B,
    mut server: impl Server,
    folder: &Folder,
) -> Result<ExitCode, Box<dyn Error>> {
    let brief = std::env::var_os("SLUICEGATE_BRIEF").is_some_and(|value| value == "1");
    let messages: u64 = if brief { 200 } else { 1_000 };
    let file = folder.path().join("orders.sqlite");
    let database = Connection::open(&file)?;
    // An order that comes twice is one order: what at-least-once asks of its consumer.
    database.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
         CREATE TABLE orders (id TEXT PRIMARY KEY, times INTEGER NOT NULL);",
    )?;
    let database = Arc::new(Mutex::new(database));

    let source = Source::builder(broker.clone())
        .rate(Rate::per_second(200))
        .build()?;
    let health = source.health();
    let stop = CancellationToken::new();
    let writes = Arc::clone(&database);
    let insert = move |received: Received| {
        let writes = Arc::clone(&writes);
        async move {
            let id = received.message.name().unwrap_or_default().to_owned();
            tokio::task::spawn_blocking(move || {
                let database = writes.lock().map_err(|_| "a writer panicked")?;
                database.execute(
                    "INSERT INTO orders VALUES (?1, 1) ON CONFLICT DO UPDATE SET times = times + 1",
                    [id],
                )?;
                Ok::<(), Box<dyn Error + Send + Sync>>(())
            })
            .await?
        }
    };

    let edge = RateLimiter::new(Rate::per_second(100_000).burst(100_000));
    let door = Admission::builder(edge, broker.clone())
        .max_depth(5_000)
        .build()?;
    let began = Instant::now();
    let publishing = (0..messages).map(|n| {
        let door = door.clone();
        tokio::spawn(async move {
            let mut message = Message::new(format!("order {n}")).id(format!("order-{n}"));
            loop {
                match door
                    .publish_within(&(), message, Duration::from_secs(60))
                    .await
                {
                    Ok(_) => return,
                    Err(rejected) => {
                        if let RejectedBy::Broker(error) = rejected.by() {
                            eprintln!("order {n}: {error}");
                        }
                        message = rejected.into_inner();
                    }
                }
            }
        })
    });
    for publish in publishing.collect::<Vec<_>>() {
        publish.await?;
    }
    println!(
        "{messages:>6} messages confirmed by {} in {:.2?}",
        broker.name(),
        began.elapsed()
    );

    let began = Instant::now();
    let running = tokio::spawn(source.run(insert, stop.clone()));
    while health.report().acked < messages / 2 {
        sleep(Duration::from_millis(10)).await;
    }
    println!(
        "{:>6} written after {:.2?}: now the server is killed",
        messages / 2,
        began.elapsed()
    );
    let crash = Instant::now();
    if server.crash().await? {
        println!("       back after {:.2?}", crash.elapsed());
    } else {
        println!("       not ours to kill: it goes on");
    }
    eventually(async || match broker.depth().await {
        Ok(depth) if depth.total() == 0 => Ok(()),
        _ => Err("messages are left in the broker"),
    })
    .await?;
    stop.cancel();
    let report = running.await?;
    let took = began.elapsed();

    let database = database.lock().map_err(|_| "a writer panicked")?;
    let (orders, writes): (i64, i64) =
        database.query_row("SELECT count(*), sum(times) FROM orders", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    println!(
        "{orders:>6} orders in SQLite after {took:.2?}, {} written again",
        writes - orders
    );
    println!(
        "       {} acked, {} delivered again, {} outage(s) seen",
        report.acked,
        report.redelivered,
        health.outages()
    );
    let missing = i64::try_from(messages)? - orders;
    if missing == 0 {
        println!("nothing was lost");
        Ok(ExitCode::SUCCESS)
    } else {
        println!("{missing} orders are missing");
        Ok(ExitCode::FAILURE)
    }
}
