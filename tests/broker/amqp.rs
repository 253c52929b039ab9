//! RabbitMQ, on one real server that the suite starts for itself: with a node name, a home, ports, files and a port
//! mapper of its own, on the loopback.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sluicegate::broker::{
    Admission, Amqp, AmqpBuilder, Broker, BrokerErrorKind, Capability, DEAD_REASON, Message, Source,
};
use sluicegate::{Rate, RateLimiter};
use tokio::time::{Instant, sleep};

use crate::conformance::{self, Stand, Wish, publish_all, take_all};
use crate::scenes::{self, Folder, Rig, answers, free_port};

struct Server {
    port: u16,
    distribution: u16,
    mapper_port: u16,
    folder: Folder,
    mapper: Child,
    node: Option<Child>,
}

impl Server {
    async fn new() -> Self {
        let (folder, mapper_port) = (Folder::new("rabbitmq"), free_port());
        // Erlang's port mapper would be started as a daemon, and outlive the test.
        let mapper = Command::new("epmd")
            .env("ERL_EPMD_PORT", mapper_port.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("epmd is installed (Debian package rabbitmq-server)");
        let mut server = Self {
            port: free_port(),
            distribution: free_port(),
            mapper_port,
            folder,
            mapper,
            node: None,
        };
        answers(mapper_port, Duration::from_secs(30)).await;
        server.start().await;
        server
    }

    fn builder(&self, queue: &str) -> AmqpBuilder {
        Amqp::builder(self.url(), queue)
    }

    /// A plain client, to make what this crate would not, and to be rude.
    async fn channel(&self) -> (lapin::Connection, lapin::Channel) {
        let properties = lapin::ConnectionProperties::default();
        let connection = lapin::Connection::connect(&self.url(), properties).await;
        let connection = connection.expect("it listens");
        let channel = connection.create_channel().await.expect("it opens");
        (connection, channel)
    }

    /// Runs one of the server's own tools against it.
    fn control(&self, arguments: &[&str]) {
        let mut command = Command::new("/usr/lib/rabbitmq/bin/rabbitmqctl");
        let done = self.environment(&mut command).args(arguments).status();
        assert!(done.expect("rabbitmqctl").success(), "{arguments:?}");
    }

    fn environment<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let path = |name: &str| self.folder.path().join(name);
        command
            .env(
                "RABBITMQ_NODENAME",
                format!("sluicegate{}@localhost", self.port),
            )
            // A node that is killed leaves no dump behind.
            .env("ERL_CRASH_DUMP_SECONDS", "0")
            .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODE_PORT", self.port.to_string())
            .env("RABBITMQ_DIST_PORT", self.distribution.to_string())
            .env("RABBITMQ_MNESIA_BASE", path("data"))
            .env("RABBITMQ_LOG_BASE", path("log"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", path("plugins"))
            .env("RABBITMQ_CONF_ENV_FILE", path("none"))
            .env("RABBITMQ_CONFIG_FILE", path("server.conf"))
            .env("RABBITMQ_ADVANCED_CONFIG_FILE", path("advanced.config"))
            .env("ERL_EPMD_PORT", self.mapper_port.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
    }
}

impl Rig for Server {
    type Broker = Amqp;

    fn kill(&mut self) {
        if let Some(mut node) = self.node.take() {
            // The script and the machine that it started, by the group that they are in.
            let group = format!("-{}", node.id());
            let _ = Command::new("kill").args(["-9", "--", &group]).status();
            let _ = node.wait();
        }
    }

    async fn start(&mut self) {
        let settings = "loopback_users.guest = true\nconsumer_timeout = 5000\nlog.file.level = warning\n\
                        vm_memory_high_watermark.relative = 0.8\ndisk_free_limit.absolute = 50MB\n";
        std::fs::write(self.folder.path().join("server.conf"), settings).expect("a settings file");
        let advanced = "[{rabbit, [{channel_tick_interval, 1000}]}].";
        std::fs::write(self.folder.path().join("advanced.config"), advanced).expect("a file");
        // Not the one in the path, which changes to a user of its own.
        let binary = "/usr/lib/rabbitmq/bin/rabbitmq-server";
        assert!(
            Path::new(binary).exists(),
            "no {binary} (Debian package rabbitmq-server)"
        );
        let mut command = Command::new(binary);
        let started = self.environment(&mut command).process_group(0).spawn();
        self.node = Some(started.expect("it can be run"));
        answers(self.port, Duration::from_secs(120)).await;
        // The port is open a moment before the queues are there.
        let began = Instant::now();
        while let Err(error) = self.builder("ready").classic().connect().await {
            assert!(began.elapsed() < Duration::from_secs(120), "{error}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn connect(&self, name: &str) -> Amqp {
        let builder = self.builder(name).consumer_timeout(CONSUMER_TIMEOUT);
        builder.connect().await.expect("it listens")
    }

    fn consumer(&self) -> &'static str {
        "amqp::consumer_process"
    }

    fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2f", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = self.mapper.kill();
        let _ = self.mapper.wait();
    }
}

impl Stand for Server {
    type Broker = Amqp;

    async fn fresh(&self, name: &str, _: Wish) -> Amqp {
        let builder = self.builder(name).max_payload(self.max_payload());
        builder.connect().await.expect("it listens")
    }

    async fn again(&self, broker: &Amqp) -> Amqp {
        let builder = self.builder(broker.name()).existing();
        builder.connect().await.expect("it is there")
    }

    fn max_payload(&self) -> usize {
        1 << 20
    }
}

#[tokio::test]
#[ignore = "run by the tests that kill it"]
async fn consumer_process() {
    scenes::consume(async |url, queue| {
        let builder = Amqp::builder(url, queue).existing();
        builder.connect().await.expect("the parent's server")
    })
    .await;
}

/// One server for all of it: it takes seconds to start. What kills it comes last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rabbitmq_keeps_what_it_can_and_says_what_it_cannot() {
    if !scenes::alone("amqp::rabbitmq_keeps_what_it_can_and_says_what_it_cannot") {
        return;
    }
    let mut server = Server::new().await;
    // A quorum queue that is killed within a second or two of being declared comes back without its log: the server
    // (3.10) has not written down yet that it is a member of it. So these are declared long before.
    for queue in ["outage", "kills"] {
        server.connect(queue).await;
    }
    let kept = conformance::all(&server).await;
    assert_eq!(kept.skipped, WHAT_IT_CANNOT);
    bad_input(&server).await;
    closed_channels(&server).await;
    soft_bound(&server).await;
    for bound in [1, 3] {
        let broker = server
            .builder(&format!("bound{bound}"))
            .max_deliveries(bound);
        scenes::bound(broker.connect().await.expect("it listens"), bound).await;
        died_over(&server, bound).await;
    }
    blocked(&server).await;
    scenes::steady(&server).await;
    scenes::gate(&server, 32).await;
    scenes::outage(&mut server).await;
    scenes::kills(&mut server).await;
}

const WHAT_IT_CANNOT: [&str; 7] = [
    "a_return_is_not_counted",
    "a_retry_stays_away_for_its_delay",
    "depth_has_in_it_what_anybody_holds",
    "a_double_is_stored_once",
    "the_bound_is_hard_and_opens_again",
    "all_consumers_together_hold_no_more",
    "unsettled_comes_again_and_a_heartbeat_prevents_it",
];

/// Missing queues, wrong credentials, queues of another make, no server.
async fn bad_input(server: &Server) {
    let kind = async |builder: AmqpBuilder| {
        let connected = tokio::time::timeout(Duration::from_secs(60), builder.connect()).await;
        let error = connected
            .expect("it does not hang")
            .expect_err("it is wrong");
        error.kind()
    };
    assert_eq!(
        kind(server.builder("gone").existing()).await,
        BrokerErrorKind::Missing
    );
    server.builder("gone").connect().await.expect("it is made");
    server
        .builder("gone")
        .existing()
        .connect()
        .await
        .expect("now it is there");
    let other = server.builder("gone").max_depth(7);
    assert_eq!(kind(other).await, BrokerErrorKind::Unsuitable);
    let url = format!("amqp://guest:wrong@127.0.0.1:{}/%2f", server.port);
    let wrong = Amqp::builder(&url, "orders");
    assert!(
        !format!("{wrong:?}").contains("wrong"),
        "no password is shown"
    );
    assert_eq!(kind(wrong).await, BrokerErrorKind::Credentials);
    let nowhere = format!("amqp://guest:guest@127.0.0.1:{}/%2f", free_port());
    assert_eq!(
        kind(Amqp::builder(nowhere, "orders")).await,
        BrokerErrorKind::Disconnected
    );

    // A classic queue counts nothing: a bound on deliveries is refused by name.
    let old = server
        .builder("old")
        .classic()
        .connect()
        .await
        .expect("it is made");
    assert!(!old.capabilities().has(Capability::DeliveryCount));
    let refused = Source::builder(old).max_deliveries(3).build();
    assert_eq!(
        refused.expect_err("it counts nothing").to_string(),
        "max_deliveries is 3: broker old does not keep delivery_count"
    );
    // What cannot wait in the broker is not asked of it, and nobody holds longer than the server lets him.
    let broker = server.connect("policy").await;
    let delayed = Source::builder(broker.clone())
        .backoff(Duration::from_secs(1))
        .build();
    assert_eq!(
        delayed.expect_err("it keeps no delay").to_string(),
        "backoff is 1s: broker policy does not keep delayed_retry"
    );
    let held = Source::builder(broker)
        .rate(Rate::per_second(10))
        .ahead(20)
        .build();
    assert_eq!(
        held.expect_err("two seconds of five").to_string(),
        "ahead is 2s: a message may wait here for a quarter of the 5s that broker policy lets it be held"
    );
    // A queue deleted under way.
    let broker = server.connect("deleted").await;
    let (connection, channel) = server.channel().await;
    let options = lapin::options::QueueDeleteOptions::default();
    channel
        .queue_delete("deleted".into(), options)
        .await
        .expect("it is there");
    let error = broker
        .publish(&Message::new("1"))
        .await
        .expect_err("it is gone");
    assert_eq!(error.kind(), BrokerErrorKind::Missing, "{error}");
    connection
        .close(200, "done".into())
        .await
        .expect("it closes");
}

/// The server closes the channel of whoever holds too long; the message comes again, and all goes on.
async fn closed_channels(server: &Server) {
    let broker = server.connect("slow").await;
    publish_all(&broker, &["held too long", "next"]).await;
    let held = take_all(&broker, 1).await;
    // Five seconds are the timeout, at which the server looks every second.
    sleep(Duration::from_secs(12)).await;
    let error = broker
        .ack(&held[0].receipt)
        .await
        .expect_err("it was taken back");
    assert_eq!(error.kind(), BrokerErrorKind::Stale, "{error}");
    assert_eq!(take_all(&broker, 2).await.len(), 2);
}

/// The server's own bound counts what is ready only: a backstop.
async fn soft_bound(server: &Server) {
    let broker = server
        .builder("soft")
        .max_depth(3)
        .connect()
        .await
        .expect("it is made");
    let mut stored = 0;
    let full = loop {
        match broker.publish(&Message::new("x")).await {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 10, "its bound is three");
    };
    assert_eq!(full.kind(), BrokerErrorKind::Full, "{full}");
    assert!(
        (3..=4).contains(&stored),
        "a quorum queue takes one more: {stored}"
    );
    // In front of it, the door counts what is held, too.
    let edge = RateLimiter::new(Rate::per_second(1_000).burst(1_000));
    let door = Admission::builder(edge, broker.clone())
        .max_depth(3)
        .build()
        .expect("it is sound");
    let held = take_all(&broker, stored).await;
    assert_eq!(
        broker.depth().await.expect("it answers").in_flight,
        stored as u64
    );
    let refused = door
        .publish(&(), Message::new("x"))
        .await
        .expect_err("all of them are held");
    assert!(refused.retry_after().is_some(), "{refused:?}");
    for delivery in held {
        broker.ack(&delivery.receipt).await.expect("it is held");
    }
    sleep(Duration::from_secs(1)).await;
    door.publish(&(), Message::new("x"))
        .await
        .expect("the gate is not shut for ever");
}

/// Consumers that die over a message: the server moves it away after exactly as many deliveries.
async fn died_over(server: &Server, bound: u32) {
    let queue = format!("died{bound}");
    let broker = server.builder(&queue).max_deliveries(bound).connect().await;
    let broker = broker.expect("it is made");
    publish_all(&broker, &["deadly"]).await;
    for attempt in 1..=bound {
        let consumer = server.builder(&queue).existing().connect().await;
        let taken = take_all(&consumer.expect("it is there"), 1).await;
        assert_eq!(taken[0].attempt, attempt);
        // Its connection ends with it.
        drop(taken);
    }
    let letter = take_all(&broker.dead_letters(), 1).await.remove(0);
    assert_eq!(letter.message.payload(), b"deadly");
    let why = letter.message.header_value(DEAD_REASON);
    assert_eq!(why, Some("the broker says delivery_limit"));
}

/// A memory alarm blocks publishers: that is felt at once, and is over when it is over.
async fn blocked(server: &Server) {
    let broker = server.connect("blocked").await;
    let edge = RateLimiter::new(Rate::per_second(1_000).burst(1_000));
    let door = Admission::builder(edge, broker.clone())
        .confirm_within(Duration::from_secs(2))
        .max_unconfirmed(2)
        .build()
        .expect("it is sound");
    door.publish(&(), Message::new("before"))
        .await
        .expect("there is room");
    server.control(&["set_vm_memory_high_watermark", "0.0000001"]);
    let began = Instant::now();
    // The alarm reaches a connection when it next publishes.
    loop {
        let asked = Instant::now();
        let refused = door.publish(&(), Message::new("during")).await;
        assert!(asked.elapsed() < Duration::from_secs(8), "no publish hangs");
        if refused.is_err() && door.pressure() != sluicegate::queue::Pressure::Healthy {
            break;
        }
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "the alarm is felt"
        );
        sleep(Duration::from_millis(100)).await;
    }
    server.control(&["set_vm_memory_high_watermark", "0.8"]);
    let patience = Duration::from_secs(60);
    let after = door
        .publish_within(&(), Message::new("after"), patience)
        .await;
    after.expect("it takes again");
}

const CONSUMER_TIMEOUT: Duration = Duration::from_secs(5);
