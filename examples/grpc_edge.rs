//! A gRPC service behind limits: a client reads when to come back, obeys, and gets in.
//!
//! Look at the codes. A client over its own quota is told RESOURCE_EXHAUSTED with the exact delay in `RetryInfo`; a call
//! that could not have its turn before its timeout is told UNAVAILABLE at once, long before the timeout is over.

#[path = "support/echo.rs"]
mod echo;

use std::error::Error;
use std::time::{Duration, Instant};

use echo::{Echo, SAY, say};
use sluicegate::http::{AdmissionLayer, Caller, Callers, QueueLayer};
use sluicegate::queue::Builder;
use sluicegate::{Hierarchy, Rate};
use tokio::net::TcpListener;
use tonic::Request;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic_types::StatusExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Each address may call each method three times at once, and then twice a second.
    let callers = Callers::builder().known_paths([SAY]).build()?;
    let limits = Hierarchy::<Caller>::builder()
        .level(
            "method",
            Rate::per_second(2).burst(3),
            Caller::address_at_endpoint,
        )
        .build()?;
    let limits = AdmissionLayer::builder(limits, callers.identities()).build()?;
    // And what is behind it takes four calls a second.
    let database = Builder::new(Rate::per_second(4)).turnstile()?;
    let queue = QueueLayer::builder(database).build()?;

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    // The first layer is the outermost: limits before the queue.
    let server = Server::builder()
        .layer(limits.clone())
        .layer(queue.clone())
        .add_service(Echo);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    println!("serving {SAY} on {address}\n");

    let channel = Endpoint::from_shared(format!("http://{address}"))?
        .connect()
        .await?;
    let start = Instant::now();
    let call = async |what: &str, timeout: Option<Duration>| {
        let mut request = Request::new(what.to_owned());
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        let asked = Instant::now();
        let said = say(&channel, request).await;
        let took = asked.elapsed().as_millis();
        let at = start.elapsed().as_secs_f64();
        match &said {
            Ok(response) => println!("{at:>5.2} s  {:<8} OK after {took} ms", response.get_ref()),
            Err(status) => {
                let retry = status
                    .get_details_retry_info()
                    .and_then(|retry| retry.retry_delay);
                println!(
                    "{at:>5.2} s  {what:<8} {:?} after {took} ms, RetryInfo {retry:?}",
                    status.code()
                );
            }
        }
        said
    };

    // The third comes 50 ms after two others: its turn would be in 450 ms, and it has 100.
    let hurried = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        call("hurried", Some(Duration::from_millis(100))).await
    };
    let (first, second, hurried) = tokio::join!(call("first", None), call("second", None), hurried);
    first?;
    second?;
    if let Err(shed) = hurried {
        println!("        by the queue: {}", shed.message());
    }

    // More than the quota holds by now; whoever is refused obeys.
    for name in ["third", "fourth", "fifth"] {
        let mut attempts = 1;
        while let Err(status) = call(name, None).await {
            let retry = status.get_details_retry_info();
            let delay = retry.and_then(|retry| retry.retry_delay);
            tokio::time::sleep(delay.ok_or("there is no use in coming back")?).await;
            attempts += 1;
        }
        println!("        {name} got in at attempt {attempts}");
    }
    println!(
        "\nlimits: {:?}\nqueue:  {:?}",
        limits.counts(),
        queue.counts()
    );
    Ok(())
}
