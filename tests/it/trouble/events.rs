//! What a subscriber hears: changes of state, and the producer's span around the handler.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use sluicegate::Rate;
use sluicegate::queue::workers::Workers;
use sluicegate::queue::{Aimd, Builder, Job};
use tokio_util::sync::CancellationToken;
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Instrument, Span, Subscriber, info_span};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use super::{MILLI, SECOND};

/// Writes down every event of this crate, with the span it came from.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    fn listen() -> (Self, DefaultGuard) {
        let notes = Self::default();
        let subscriber = tracing_subscriber::registry().with(notes.clone());
        (notes, tracing::subscriber::set_default(subscriber))
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Notes {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "sluicegate" {
            let mut text = Text(event.metadata().level().to_string());
            event.record(&mut text);
            self.0.lock().unwrap().push(text.0);
        }
    }
}

#[track_caller]
fn check(notes: &Notes, expected: &[&[&str]]) {
    let seen = notes.take();
    assert_eq!(seen.len(), expected.len(), "{seen:#?}");
    for (line, parts) in seen.iter().zip(expected) {
        assert!(
            parts.iter().all(|part| line.contains(part)),
            "{line} lacks some of {parts:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn every_change_of_state_is_told_by_queue_and_number() {
    let (notes, _listening) = Notes::listen();
    let builder = Builder::new(Rate::per_second(10))
        .max_depth(10)
        .max_waiters(0)
        .dead_letters(0);
    let (tx, rx) = builder.name("orders").build().unwrap();
    for n in 0..8 {
        tx.try_send(n).unwrap();
    }
    check(
        &notes,
        &[&[
            "WARN",
            "pressure changed",
            "queue=\"orders\"",
            "from=healthy",
            "to=overloaded",
        ]],
    );
    tx.control().pause("failover");
    tx.control().set_rate(Rate::per_second(20)).unwrap();
    check(
        &notes,
        &[
            &["INFO", "paused", "reason=\"failover\""],
            &["INFO", "rate changed", "from=\"10/s\"", "to=\"20/s\""],
        ],
    );
    tokio::time::sleep(2 * SECOND).await;
    tx.control().resume();
    check(&notes, &[&["INFO", "resumed"]]);
    // Nobody takes anything, and no step happens: it is told all the same.
    tokio::time::sleep(5 * SECOND).await;
    check(&notes, &[&["WARN", "health is red"]]);
    rx.recv().await.unwrap().fail();
    check(
        &notes,
        &[
            &["INFO", "health is green again"],
            &["WARN", "dead letters lost", "letters=1"],
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn what_flaps_is_told_once_a_second_with_its_number_and_its_last_state() {
    let (notes, _listening) = Notes::listen();
    let builder = Builder::unpaced()
        .max_depth(10)
        .watermarks(1, 2)
        .max_waiters(0);
    let (tx, rx) = builder.build().unwrap();
    for _ in 0..50 {
        tx.try_send(()).unwrap();
        tx.try_send(()).unwrap();
        rx.recv().await.unwrap().ack();
        rx.recv().await.unwrap().ack();
    }
    tx.try_send(()).unwrap();
    tx.try_send(()).unwrap();
    rx.recv().await.unwrap().ack();
    rx.recv().await.unwrap().ack();
    check(&notes, &[&["from=healthy", "to=overloaded", "changes=1"]]);
    tokio::time::sleep(2 * SECOND).await;
    check(&notes, &[&["from=overloaded", "to=healthy", "changes=101"]]);
}

#[tokio::test(start_paused = true)]
async fn of_a_ramp_its_end_is_told_and_of_an_adaptation_every_change() {
    let (notes, _listening) = Notes::listen();
    let (tx, rx) = Builder::new(Rate::per_second(100))
        .max_depth(10_000)
        .build()
        .unwrap();
    for _ in 0..2000 {
        tx.try_send(()).unwrap();
    }
    tx.control()
        .ramp(Rate::per_second(200), 3 * SECOND)
        .unwrap();
    tokio::time::sleep(4 * SECOND).await;
    let told = notes.take();
    assert!(
        told.iter()
            .any(|line| line.contains("rate changed") && line.contains("200/s")),
        "{told:?}"
    );
    assert_eq!(
        told.iter()
            .filter(|line| line.contains("rate changed"))
            .count(),
        1,
        "{told:?}"
    );
    tx.control()
        .adapt(Aimd::between(Rate::per_second(10), Rate::per_second(100)))
        .unwrap();
    for _ in 0..200 {
        rx.recv().await.unwrap().fail();
    }
    let told = notes.take();
    let moves = told
        .iter()
        .filter(|line| line.contains("rate changed"))
        .count() as u64;
    assert!(moves >= 2, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_handler_runs_in_the_span_of_its_producer() {
    let (_, _listening) = Notes::listen();
    let (tx, rx) = Builder::unpaced().build().unwrap();
    let request = info_span!("request");
    let id = request.id();
    async {
        tx.try_send(0).unwrap();
        tx.send(1).await.unwrap();
        tx.offer(2).cost(2).send().await.unwrap();
        tx.reserve().await.unwrap().send(3);
    }
    .instrument(request.clone())
    .await;
    tx.try_send(4).unwrap();
    drop(request);
    let first = rx.recv().await.unwrap();
    assert_eq!(first.span().id(), id, "for consumers of their own");
    first.retry(MILLI);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    drop(tx);
    let handler = move |job: Job<i32>| {
        let log = Arc::clone(&log);
        async move {
            tokio::time::sleep(MILLI).await;
            log.lock().unwrap().push((*job, Span::current().id()));
        }
    };
    Workers::new(rx)
        .run(handler, CancellationToken::new())
        .await;
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_by_key(|(item, _)| *item);
    assert_eq!(seen.len(), 5);
    assert!(seen[..4].iter().all(|(_, span)| *span == id), "{seen:?}");
    assert_eq!(seen[4].1, None, "offered outside of any span");
}
