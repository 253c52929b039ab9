//! Limits and queues shared on Redis, each test with a server of its own.

mod access;
mod apart;
mod batches;
mod changes;
mod clock_step;
#[path = "../broker/conformance.rs"]
#[allow(dead_code)] // The suite of all brokers: another binary uses more of it.
mod conformance;
mod gate;
mod gathered;
mod kit;
mod limits;
mod lost;
mod origin;
mod origin_keys;
mod outage;
mod proxy;
mod queue;
mod queue_broker;
mod queue_claims;
mod queue_fleet;
mod queue_pace;
mod queue_random;
mod queue_trouble;
mod queue_worker;
mod random;
mod rules;
mod server;
mod trouble;

use server::{Options, Server};

#[test]
fn a_server_starts_freezes_restarts_empty_and_forms_a_cluster() {
    let mut server = Server::start();
    server.ask(&["SET", "a", "1"]);
    assert_eq!(server.keys(), ["a"]);
    server.freeze();
    server.thaw();
    server.restart();
    assert_eq!(server.number(&["DBSIZE"]), 0);
    let cluster = Options::default().cluster().start();
    assert!(
        cluster
            .ask(&["MSET", "a", "1", "b", "2"])
            .contains("CROSSSLOT")
    );
}
