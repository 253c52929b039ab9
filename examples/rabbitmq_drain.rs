//! A burst of 1,000 messages into RabbitMQ, drained at 200 a second into SQLite, with the server killed halfway.
//!
//! The same as `nats_drain`, on a quorum queue. The server takes some seconds to start, and does so twice.
//!
//! ```sh
//! cargo run --release --features amqp --example rabbitmq_drain        # starts a server of its own (rabbitmq-server)
//! cargo run --release --features amqp --example rabbitmq_drain -- amqp://guest:guest@127.0.0.1:5672/%2f
//! ```

use std::error::Error;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use sluicegate::broker::Amqp;

use steady::{Folder, Server, binary, eventually, free_port};

#[path = "support/steady.rs"]
mod steady;

/// A server of our own, with a name, ports, files and a port mapper that no other server has.
struct Own {
    binary: PathBuf,
    port: u16,
    distribution: u16,
    mapper_port: u16,
    data: PathBuf,
    mapper: Option<Child>,
    node: Option<Child>,
}

impl Own {
    async fn start(&mut self) -> Result<(), Box<dyn Error>> {
        if self.mapper.is_none() {
            // As a child, since Erlang would start one as a daemon that outlives us.
            let mapper = Command::new("epmd")
                .env("ERL_EPMD_PORT", self.mapper_port.to_string())
                .env("ERL_EPMD_ADDRESS", "127.0.0.1")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            self.mapper = Some(mapper);
            listens(self.mapper_port).await?;
        }
        let node = Command::new(&self.binary)
            .env(
                "RABBITMQ_NODENAME",
                format!("sluicegate{}@localhost", self.port),
            )
            // A node that is killed leaves no dump behind.
            .env("ERL_CRASH_DUMP_SECONDS", "0")
            .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODE_PORT", self.port.to_string())
            .env("RABBITMQ_DIST_PORT", self.distribution.to_string())
            .env("RABBITMQ_MNESIA_BASE", self.data.join("data"))
            .env("RABBITMQ_LOG_BASE", self.data.join("log"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", self.data.join("plugins"))
            .env("RABBITMQ_CONF_ENV_FILE", self.data.join("none"))
            .env("RABBITMQ_CONFIG_FILE", self.data.join("none"))
            .env("ERL_EPMD_PORT", self.mapper_port.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("HOME", &self.data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        self.node = Some(node);
        listens(self.port).await
    }

    fn kill(&mut self) {
        if let Some(mut node) = self.node.take() {
            // The script and the machine that it started, by their group; they may have ended by themselves.
            let group = format!("-{}", node.id());
            let _ = Command::new("kill").args(["-9", "--", &group]).status();
            let _ = node.wait();
        }
    }
}

async fn listens(port: u16) -> Result<(), Box<dyn Error>> {
    eventually(async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await).await?;
    Ok(())
}

impl Drop for Own {
    fn drop(&mut self) {
        self.kill();
        if let Some(mut mapper) = self.mapper.take() {
            let _ = mapper.kill();
            let _ = mapper.wait();
        }
    }
}

struct Maybe(Option<Own>);

impl Server for Maybe {
    async fn crash(&mut self) -> Result<bool, Box<dyn Error>> {
        let Some(own) = &mut self.0 else {
            return Ok(false);
        };
        own.kill();
        own.start().await?;
        Ok(true)
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let folder = Folder::new("rabbitmq-drain")?;
    let (url, server) = match std::env::args().nth(1) {
        Some(url) => (url, Maybe(None)),
        None => {
            let mut own = Own {
                // Not the one in the path, which changes to a user of its own.
                binary: binary(
                    &["/usr/lib/rabbitmq/bin/rabbitmq-server"],
                    "rabbitmq-server",
                )?,
                port: free_port()?,
                distribution: free_port()?,
                mapper_port: free_port()?,
                data: folder.path().to_owned(),
                mapper: None,
                node: None,
            };
            own.start().await?;
            let url = format!("amqp://guest:guest@127.0.0.1:{}/%2f", own.port);
            (url, Maybe(Some(own)))
        }
    };
    let broker = eventually(async || Amqp::builder(url.as_str(), "orders").connect().await).await?;
    if server.0.is_some() {
        // A queue that was declared a moment before the crash comes back without its log: not what is shown here.
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    steady::run(broker, server, &folder).await
}
