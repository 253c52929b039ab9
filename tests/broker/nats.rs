//! JetStream, on real servers that each test starts for itself on a free port of the loopback.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sluicegate::broker::{Broker, BrokerErrorKind, Message, Nats, NatsBuilder};

use crate::conformance::{self, Stand, Wish, publish_all, settles_at, take_all};
use crate::scenes::{self, Folder, Rig, answers, free_port};

struct Server {
    port: u16,
    folder: Folder,
    child: Option<Child>,
    extra: Vec<String>,
}

impl Server {
    async fn new() -> Self {
        Self::with(&[]).await
    }

    async fn with(extra: &[&str]) -> Self {
        let mut server = Self {
            port: free_port(),
            folder: Folder::new("nats"),
            child: None,
            extra: extra.iter().map(ToString::to_string).collect(),
        };
        server.start().await;
        server
    }

    fn builder(&self, stream: &str) -> NatsBuilder {
        Nats::builder(self.url(), stream)
    }

    /// A plain client, to make what this crate would not.
    async fn context(&self) -> async_nats::jetstream::Context {
        let client = async_nats::connect(self.url()).await.expect("it listens");
        async_nats::jetstream::new(client)
    }
}

impl Rig for Server {
    type Broker = Nats;

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    async fn start(&mut self) {
        let binary = ["/usr/sbin/nats-server", "/usr/bin/nats-server"]
            .into_iter()
            .find(|path| std::path::Path::new(path).exists())
            .unwrap_or("nats-server");
        let child = Command::new(binary)
            .args([
                "-a",
                "127.0.0.1",
                "-p",
                &self.port.to_string(),
                "-js",
                "-sd",
            ])
            .arg(self.folder.path())
            .args(&self.extra)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.expect("nats-server is installed (Debian package nats-server)"));
        answers(self.port, Duration::from_secs(30)).await;
        // The port is open a moment before JetStream answers.
        if !self.extra.is_empty() {
            return;
        }
        let began = tokio::time::Instant::now();
        let client = async_nats::connect(self.url()).await.expect("it listens");
        while client.request("$JS.API.INFO", "".into()).await.is_err() {
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "it serves JetStream"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn connect(&self, name: &str) -> Nats {
        let builder = self.builder(name).ack_wait(Duration::from_secs(3));
        builder.connect().await.expect("it listens")
    }

    fn consumer(&self) -> &'static str {
        "nats::consumer_process"
    }

    fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Stand for Server {
    type Broker = Nats;

    async fn fresh(&self, name: &str, wish: Wish) -> Nats {
        let mut builder = self.builder(name).ack_wait(wish.hold);
        if let Some(most) = wish.max_depth {
            builder = builder.max_depth(most);
        }
        if let Some(most) = wish.max_in_flight {
            builder = builder.max_in_flight(most);
        }
        builder.connect().await.expect("it listens")
    }

    async fn again(&self, broker: &Nats) -> Nats {
        let builder = self.builder(broker.name()).existing();
        builder.connect().await.expect("it is there")
    }

    fn max_payload(&self) -> usize {
        1 << 20
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jetstream_keeps_the_promises_of_the_suite() {
    let kept = conformance::all(&Server::new().await).await;
    // A nak counts as a delivery.
    assert_eq!(kept.skipped, ["a_return_is_not_counted"]);
}

#[tokio::test]
#[ignore = "run by the tests that kill it"]
async fn consumer_process() {
    scenes::consume(async |url, queue| {
        let builder = Nats::builder(url, queue).existing();
        builder.connect().await.expect("the parent's server")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_consumer_and_server_are_killed() {
    scenes::kills(&mut Server::new().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_drains_at_its_rate() {
    scenes::steady(&Server::new().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_times_the_drain_never_passes_the_gate() {
    if scenes::alone("nats::ten_times_the_drain_never_passes_the_gate") {
        scenes::gate(&Server::new().await, 32).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_ends_by_itself() {
    scenes::outage(&mut Server::new().await).await;
}

#[tokio::test]
async fn a_message_that_always_fails_is_dead_lettered_after_exactly_the_bound() {
    let server = Server::new().await;
    for bound in [1, 3] {
        let broker = server.connect(&format!("bound{bound}")).await;
        scenes::bound(broker, bound).await;
    }
}

#[tokio::test]
async fn a_missing_stream_is_made_or_refused_by_choice() {
    let server = Server::new().await;
    let error = server.builder("GONE").existing().connect().await;
    let error = error.expect_err("there is none");
    assert_eq!(error.kind(), BrokerErrorKind::Missing, "{error}");
    server.builder("GONE").connect().await.expect("it is made");
    server
        .builder("GONE")
        .existing()
        .connect()
        .await
        .expect("now it is there");
}

#[tokio::test]
async fn a_stream_deleted_under_way_is_an_error_and_then_made_again() {
    let server = Server::new().await;
    let broker = server
        .builder("ORDERS")
        .connect()
        .await
        .expect("it is made");
    publish_all(&broker, &["1"]).await;
    server
        .context()
        .await
        .delete_stream("ORDERS")
        .await
        .expect("it is there");
    let error = broker
        .publish(&Message::new("2"))
        .await
        .expect_err("it is gone");
    assert_eq!(error.kind(), BrokerErrorKind::Missing, "{error}");
    publish_all(&broker, &["3"]).await;
    assert_eq!(take_all(&broker, 1).await[0].message.payload(), b"3");
}

#[tokio::test]
async fn wrong_credentials_are_an_error_of_their_own() {
    let server = Server::with(&["--user", "ann", "--pass", "right"]).await;
    for (password, kind) in [
        ("right", None),
        ("wrong", Some(BrokerErrorKind::Credentials)),
    ] {
        let connected = server
            .builder("ORDERS")
            .user("ann", password)
            .connect()
            .await;
        assert_eq!(
            connected.err().map(|error| error.kind()),
            kind,
            "{password}"
        );
    }
    let error = server
        .builder("ORDERS")
        .connect()
        .await
        .expect_err("without a user");
    assert_eq!(error.kind(), BrokerErrorKind::Credentials, "{error}");
    let shown = format!("{:?}", server.builder("ORDERS").user("ann", "right"));
    assert!(!shown.contains("right"), "{shown}");
}

#[tokio::test]
async fn no_server_is_an_error_within_seconds() {
    let url = format!("nats://127.0.0.1:{}", free_port());
    let connecting = Nats::builder(url, "ORDERS").connect();
    let error = tokio::time::timeout(Duration::from_secs(30), connecting).await;
    let error = error
        .expect("it does not hang")
        .expect_err("nobody listens");
    assert_eq!(error.kind(), BrokerErrorKind::Disconnected, "{error}");
}

#[tokio::test]
async fn streams_on_which_an_ack_frees_nothing_are_refused() {
    use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy};
    let server = Server::new().await;
    let context = server.context().await;
    let make = async |name: &str, config: Config| {
        let config = Config {
            name: name.into(),
            subjects: vec![name.into()],
            ..config
        };
        context.create_stream(config).await.expect("it can be made");
        let refused = server.builder(name).connect().await;
        let error = refused.expect_err("it does not suit");
        assert_eq!(error.kind(), BrokerErrorKind::Unsuitable, "{error}");
        error.to_string()
    };
    let limits = Config::default();
    assert_eq!(
        make("LIMITS", limits).await,
        "stream LIMITS keeps what was acked (retention by limits): acking frees no room"
    );
    let old = Config {
        retention: RetentionPolicy::WorkQueue,
        discard: DiscardPolicy::Old,
        max_messages: 10,
        ..Config::default()
    };
    assert_eq!(
        make("OLD", old).await,
        "stream OLD drops its oldest messages when it is full"
    );
    let seven = server.builder("SEVEN").max_depth(7).connect().await;
    seven.expect("it is made");
    let other = server.builder("SEVEN").max_depth(8).connect().await;
    assert_eq!(
        other.expect_err("its bound is seven").to_string(),
        "stream SEVEN holds at most 7 messages, asked for 8"
    );
    let second = server.builder("SEVEN").consumer("other").connect().await;
    let error = second.expect_err("a work queue has one consumer");
    assert_eq!(error.kind(), BrokerErrorKind::Unsuitable, "{error}");
}

#[tokio::test]
async fn exhausted_messages_do_not_shut_the_gate_for_ever() {
    use async_nats::jetstream::consumer::{AckPolicy, pull};
    let server = Server::new().await;
    let plain = server.builder("ORDERS").max_depth(3).connect().await;
    plain.expect("it is made");
    // A consumer of somebody else's making, that gives up after two deliveries.
    let context = server.context().await;
    let stream = context.get_stream("ORDERS").await.expect("it is there");
    stream
        .delete_consumer("sluicegate")
        .await
        .expect("it is there");
    let config = pull::Config {
        durable_name: Some("sluicegate".into()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: Duration::from_secs(1),
        max_deliver: 2,
        ..pull::Config::default()
    };
    stream
        .create_consumer(config)
        .await
        .expect("it can be made");
    let broker = server.builder("ORDERS").existing().connect().await;
    let broker = broker.expect("it is there");
    assert_eq!(broker.max_deliveries(), Some(2));
    publish_all(&broker, &["1", "2", "3"]).await;
    for _ in 0..2 {
        // Taken by consumers that die.
        take_all(&broker, 3).await;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
    }
    let full = broker
        .publish(&Message::new("4"))
        .await
        .expect_err("three of three");
    assert_eq!(full.kind(), BrokerErrorKind::Full, "{full}");
    let none = broker.take(3, Duration::from_millis(500)).await;
    assert!(
        none.expect("it answers").is_empty(),
        "none of them is handed out any more"
    );
    settles_at(&broker, 0, 0).await;
    settles_at(&broker.dead_letters(), 3, 0).await;
    publish_all(&broker, &["4"]).await;
}
