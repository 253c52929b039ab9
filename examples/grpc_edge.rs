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
    // Each address may call each method twice at once, and then twice a second.
    let callers = Callers::builder().known_paths([SAY]).build()?;
    let limits = Hierarchy::<Caller>::builder()
        .level(
            "method",
            Rate::per_second(2).burst(2),
            Caller::address_at_endpoint,
        )
        .build()?;
    let limits = AdmissionLayer::builder(limits, callers.identities()).build()?;
    // And what is behind it takes one call a second.
    let database = Builder::new(Rate::per_second(1)).turnstile()?;
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

    let (first, second) = tokio::join!(call("first", None), call("second", None));
    first?;
    second?;
    // The second has waited a second for its turn, in which two more units came back; they are used up at once.
    let (third, hurried) = tokio::join!(
        call("third", None),
        call("hurried", Some(Duration::from_millis(300))),
    );
    third?;
    let shed = hurried.expect_err("its turn would come after its timeout");
    println!("         the queue: {}", shed.message());

    // More at once than the quota holds; whoever is refused obeys.
    for name in ["fourth", "fifth", "sixth"] {
        let mut attempts = 1;
        while let Err(status) = call(name, Some(Duration::from_secs(5))).await {
            let delay = status
                .get_details_retry_info()
                .and_then(|retry| retry.retry_delay);
            tokio::time::sleep(delay.ok_or("it has no use in coming back")?).await;
            attempts += 1;
        }
        println!("         {name} got in at attempt {attempts}");
    }
    println!(
        "\nlimits: {:?}\nqueue:  {:?}",
        limits.counts(),
        queue.counts()
    );
    Ok(())
}
