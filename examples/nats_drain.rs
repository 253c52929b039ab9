//! A burst of 1,000 messages into NATS JetStream, drained at 200 a second into SQLite, with the server killed halfway.
//!
//! The producers come through a door that knows the depth of the stream, and each message is confirmed. The consumer
//! takes what it can start soon, acks what is written, and goes on by itself when the server is back. In the end every
//! order is in the database; some were written twice, which is what at-least-once means.
//!
//! ```sh
//! cargo run --release --features nats --example nats_drain            # starts a server of its own (nats-server)
//! cargo run --release --features nats --example nats_drain -- nats://127.0.0.1:4222
//! ```

use std::error::Error;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use sluicegate::broker::Nats;

use steady::{Folder, Server, binary, eventually, free_port};

#[path = "support/steady.rs"]
mod steady;

/// A server of our own on the loopback, if there is no other.
struct Own {
    binary: PathBuf,
    port: u16,
    data: PathBuf,
    child: Option<Child>,
}

impl Own {
    async fn start(&mut self) -> Result<(), Box<dyn Error>> {
        let child = Command::new(&self.binary)
            .args([
                "-a",
                "127.0.0.1",
                "-p",
                &self.port.to_string(),
                "-js",
                "-sd",
            ])
            .arg(&self.data)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        self.child = Some(child);
        let port = self.port;
        eventually(async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await).await?;
        Ok(())
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // SIGKILL; it may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Maybe(Option<Own>);

impl Server for Maybe {
    async fn crash(&mut self) -> Result<bool, Box<dyn Error>> {
        let Some(own) = &mut self.0 else {
            return Ok(false);
        };
        own.kill();
        tokio::time::sleep(Duration::from_millis(300)).await;
        own.start().await?;
        Ok(true)
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let folder = Folder::new("nats-drain")?;
    let (url, server) = match std::env::args().nth(1) {
        Some(url) => (url, Maybe(None)),
        None => {
            let mut own = Own {
                binary: binary(
                    &[
                        "/usr/sbin/nats-server",
                        "/usr/bin/nats-server",
                        "/usr/local/bin/nats-server",
                    ],
                    "nats-server",
                )?,
                port: free_port()?,
                data: folder.path().join("jetstream"),
                child: None,
            };
            own.start().await?;
            (format!("nats://127.0.0.1:{}", own.port), Maybe(Some(own)))
        }
    };
    let broker = eventually(async || {
        let orders = Nats::builder(url.as_str(), "ORDERS");
        orders.ack_wait(Duration::from_secs(1)).connect().await
    })
    .await?;
    steady::run(broker, server, &folder).await
}
