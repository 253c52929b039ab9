//! A file that changes under a running queue.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluicegate::config::Live;
use sluicegate::queue::Pressure;
use sluicegate::{ManualClock, Rate, Tick};

/// A file of its own that goes with the test.
struct Draft(PathBuf);

impl Draft {
    fn new(name: &str, text: &str) -> Self {
        let file =
            std::env::temp_dir().join(format!("sluicegate-{}-{name}.toml", std::process::id()));
        fs::write(&file, text).expect("a temporary file");
        Self(file)
    }

    fn write(&self, text: &str) {
        fs::write(&self.0, text).expect("a temporary file");
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_reload_changes_all_and_loses_no_job() {
    let draft = Draft::new(
        "reload",
        "[queue]\nrate = \"100/s\"\nmax_depth = 50\n[[level]]\nname = \"all\"\nlimit = \"token_bucket 10/s burst 5\"\n",
    );
    let (config, live) = Live::load(&draft.0).expect("it is valid");
    let (tx, rx) = config
        .builder()
        .clock(ManualClock::new())
        .build()
        .expect("it was checked");
    let edge = config
        .hierarchy(|_, _: &()| None)
        .clock(ManualClock::new())
        .build();
    let edge = Arc::new(edge.expect("it was checked"));
    let mut live = live.queue(tx.control()).edge(Arc::clone(&edge));
    for n in 0..30 {
        tx.try_send(n).expect("there is room");
    }
    assert!(!live.reload().expect("nothing changed"));

    draft.write("[queue]\nrate = \"200/s\"\nmax_depth = 10\n[[level]]\nname = \"all\"\nlimit = \"token_bucket 10/s burst 50\"\n");
    assert!(live.reload().expect("it is valid"));
    assert!(edge.check(&(), 50).is_granted());
    let snapshot = tx.snapshot();
    assert_eq!(
        (snapshot.rate, snapshot.max_depth, snapshot.depth),
        (Some(Rate::per_second(200)), 10, 30)
    );
    assert_ne!(snapshot.pressure, Pressure::Healthy);
    assert!(snapshot.ledger.is_balanced());
    assert_eq!(snapshot.ledger.queued, 30);
    drop(rx);
}

#[test]
fn a_reload_with_an_error_leaves_the_old_one() {
    let good = "[queue]\nrate = \"100/s\"\n[[level]]\nname = \"all\"\nlimit = \"token_bucket 10/s burst 5\"\n";
    let draft = Draft::new("broken", good);
    let (config, live) = Live::load(&draft.0).expect("it is valid");
    let (tx, _rx) = config.builder().build::<u8>().expect("it was checked");
    let mut live = live.queue(tx.control());
    for bad in [
        "[queue]\nrate = \"200/s\"\nmax_depth = 0\n".to_owned(),
        "[queue]\nrate = ".to_owned(),
        String::new(),
        good.replace("\"all\"", "\"other\""),
        "\u{0}\u{1}".to_owned(),
    ] {
        draft.write(&bad);
        assert!(live.reload().is_err(), "{bad}");
        assert_eq!(tx.snapshot().rate, Some(Rate::per_second(100)));
        assert_eq!(live.config().rate(), Some(Rate::per_second(100)));
    }
    draft.write(&good.replace("100/s", "50/s"));
    assert!(live.reload().expect("it is valid again"));
    assert_eq!(tx.snapshot().rate, Some(Rate::per_second(50)));
}

#[test]
fn the_rate_of_a_running_queue_follows_the_calendar() {
    let draft = Draft::new(
        "calendar",
        "[queue]\nrate = \"200/s\"\n[[calendar]]\nname = \"b\"\nfrom = \"00:00\"\nto = \"01:00\"\nrate = \"25 %\"\n",
    );
    let (config, live) = Live::load(&draft.0).expect("it is valid");
    let (tx, _rx) = config.builder().build::<u8>().expect("it was checked");
    let mut live = live.queue(tx.control());
    for (second, rate) in [(10, 50), (3599, 50), (3600, 200), (86_400, 50)] {
        let now = Tick::from_nanos(second * 1_000_000_000);
        live.follow_calendar(now).expect("the rates were checked");
        assert_eq!(
            tx.snapshot().rate,
            Some(Rate::per_second(rate)),
            "at {second}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_watched_file_is_told_of_once() {
    let draft = Draft::new("watch", "[queue]\nrate = \"100/s\"\n");
    let (config, live) = Live::load(&draft.0).expect("it is valid");
    let (tx, _rx) = config.builder().build::<u8>().expect("it was checked");
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let watch = live
        .queue(tx.control())
        .watch(Duration::from_secs(1), move |news| {
            let news = news
                .map(|config| config.rate())
                .map_err(ToString::to_string);
            let _ = told.send(news);
        });
    let watch = tokio::spawn(watch);
    draft.write("[queue]\nrate = \"wrong\"\n");
    let news = heard.recv().await.expect("it is told");
    assert!(news.is_err_and(|error| error.starts_with("line 2, column 8")));
    draft.write("[queue]\nrate = \"1000/s\"\n");
    assert_eq!(heard.recv().await, Some(Ok(Some(Rate::per_second(1000)))));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(heard.try_recv().is_err());
    assert_eq!(tx.snapshot().rate, Some(Rate::per_second(1000)));
    watch.abort();
}
