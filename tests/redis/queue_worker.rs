//! Worker processes: this test binary again, as a consumer that can be killed.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluicegate::Rate;
use sluicegate::redis::Endpoint;
use sluicegate::redis::queue::{Builder, Existing};

use crate::server::Server;

/// What a worker wrote down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// It started an item: attempt, departure on the server's clock, and when the handler saw it on this machine's, in us.
    Started(u64, u32, u64, u64),
    Done(u64),
    /// Another had taken it over.
    Lost(u64),
}

pub(crate) struct Worker {
    process: Child,
}

/// The item that ends whoever starts it.
pub(crate) const POISON: u64 = u64::MAX;

impl Worker {
    /// Starts one that handles each job of queue `q` for so long, and notes what it does in a file of the server's folder.
    pub(crate) fn start(server: &Server, work: Duration) -> Self {
        let process = Command::new(std::env::current_exe().expect("this binary"))
            .args([
                "queue_worker::a_worker",
                "--exact",
                "--ignored",
                "--nocapture",
            ])
            .env("SLUICEGATE_WORKER_URL", server.url())
            .env("SLUICEGATE_WORKER_NOTES", notes_path(server))
            .env("SLUICEGATE_WORKER_MICROS", work.as_micros().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a process");
        Self { process }
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it runs or has ended");
        self.process.wait().expect("it ends");
    }

    /// Waits until it ends by itself.
    pub(crate) fn wait(&mut self) {
        self.process.wait().expect("it ends");
    }

    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill")
            .args([&format!("-{signal}"), &self.process.id().to_string()])
            .status();
        assert!(status.expect("kill is installed").success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn notes_path(server: &Server) -> PathBuf {
    server.folder().join("notes")
}

/// All that was noted so far, in the order in which it was written.
pub(crate) fn notes(server: &Server) -> Vec<Note> {
    let text = fs::read_to_string(notes_path(server)).unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<Note> {
    let mut words = line.split(' ');
    let kind = words.next()?;
    let mut number = || words.next()?.parse::<u64>().ok();
    let item = number()?;
    Some(match kind {
        "S" => Note::Started(item, u32::try_from(number()?).ok()?, number()?, number()?),
        "D" => Note::Done(item),
        "L" => Note::Lost(item),
        _ => return None,
    })
}

/// Waits until the notes say so.
#[track_caller]
pub(crate) fn wait_for(server: &Server, what: impl Fn(&[Note]) -> bool) {
    let patience = Instant::now();
    while !what(&notes(server)) {
        assert!(
            patience.elapsed() < Duration::from_secs(120),
            "it never came to it"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[derive(Clone)]
struct Notebook(Arc<File>);

impl Notebook {
    fn open(path: &Path) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Self(Arc::new(file.expect("a file for the notes")))
    }

    /// In one write, so that a killed worker leaves whole lines.
    fn note(&self, line: &str) {
        let line = format!("{line}\n");
        (&*self.0)
            .write_all(line.as_bytes())
            .expect("it is written");
    }
}

#[test]
#[ignore = "run by the tests of the fleet, as a process of its own"]
fn a_worker() {
    let url = std::env::var("SLUICEGATE_WORKER_URL").expect("told by the test that starts it");
    let notes = std::env::var("SLUICEGATE_WORKER_NOTES").expect("told as well");
    let work = std::env::var("SLUICEGATE_WORKER_MICROS").expect("told as well");
    let work = Duration::from_micros(work.parse().expect("a number"));
    let notebook = Notebook::open(Path::new(&notes));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let builder = Builder::new("q", Rate::per_second(1)).existing(Existing::Adopt);
        let queue = builder.open(Endpoint::new(url).expect("an address")).await;
        let rx = queue.expect("the server is there").receiver::<u64>();
        let consumers = (0..8).map(|_| tokio::spawn(consume(rx.clone(), notebook.clone(), work)));
        for consumer in consumers.collect::<Vec<_>>() {
            consumer.await.expect("no panic");
        }
    });
}

async fn consume(rx: sluicegate::redis::queue::Receiver<u64>, notebook: Notebook, work: Duration) {
    while let Some(job) = rx
        .recv()
        .await
        .expect("it rides out what can be ridden out")
    {
        let item = *job;
        let departed = job.departed_at().as_nanos() / 1_000;
        let seen = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("after 1970")
            .as_micros();
        notebook.note(&format!("S {item} {} {departed} {seen}", job.attempt()));
        if item == POISON {
            std::process::abort();
        }
        tokio::time::sleep(work).await;
        match job.ack().await {
            Ok(()) => notebook.note(&format!("D {item}")),
            Err(error) if error.is_taken_over() => notebook.note(&format!("L {item}")),
            Err(error) => panic!("{error}"),
        }
    }
}
