//! The page that Prometheus scrapes.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use sluicegate::Rate;
use sluicegate::observe::{self, Kind};
use sluicegate::queue::Builder;

use super::limiters::busy_edge;

/// Status and body of an answer.
fn ask(addr: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(addr).expect("somebody listens");
    let request = format!("{request} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .expect("it takes the request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("it has a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (status.expect("it has a status"), body.to_owned())
}

/// Value of every series on a page.
fn parse(page: &str) -> BTreeMap<&str, f64> {
    page.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            (name, value.parse().expect("a number"))
        })
        .collect()
}

#[test]
fn a_scrape_over_http_is_exact_and_has_real_histograms() {
    let (tx, rx) = Builder::unpaced()
        .name("page")
        .build()
        .expect("it is valid");
    for n in 0..7 {
        tx.try_send(n).expect("there is room");
    }
    rx.try_recv().expect("seven are queued").ack();

    let _edge = busy_edge("page");
    let server = observe::serve("127.0.0.1:0").expect("a port is free");
    assert!(server.addr().ip().is_loopback());
    // Every scrape sees what has happened before it, without a wait.
    for taken in 1..4_u64 {
        let (status, page) = ask(server.addr(), "GET /metrics");
        assert_eq!(status, 200);
        let series = parse(&page);
        assert_eq!(
            series["sluicegate_queue_offered_total{queue=\"page\"}"],
            7.0
        );
        let drained = series["sluicegate_queue_drained_total{queue=\"page\"}"];
        assert_eq!(drained, taken as f64);
        let buckets = "sluicegate_queue_wait_seconds_bucket{queue=\"page\",outcome=\"drained\"";
        assert_eq!(series[format!("{buckets},le=\"+Inf\"}}").as_str()], drained);
        assert!(series.contains_key(format!("{buckets},le=\"0.005\"}}").as_str()));
        rx.try_recv().expect("there are more").ack();
    }
    for metric in observe::catalogue() {
        let (_, page) = ask(server.addr(), "GET /");
        let kind = metric.kind.as_str();
        assert!(page.contains(&format!("# TYPE {} {kind}\n", metric.name)));
        if metric.kind == Kind::Histogram {
            assert!(!page.contains("quantile"), "a summary adds up to nothing");
        }
    }
    assert_eq!(ask(server.addr(), "GET /secrets").0, 404);
    assert_eq!(ask(server.addr(), "POST /metrics").0, 405);

    let addr = server.addr();
    server.stop();
    assert!(TcpStream::connect(addr).is_err(), "the port is free again");
    let again = observe::serve(addr).expect("and can be taken again");
    assert_eq!(again.addr(), addr);
    again.stop();
}

#[test]
fn a_port_in_use_and_an_open_address_are_refused_by_name() {
    let server = observe::serve(("127.0.0.1", 0)).expect("a port is free");
    let taken = observe::serve(server.addr()).expect_err("it is taken");
    assert!(taken.is_addr_in_use(), "{taken}");
    let open = observe::serve("0.0.0.0:0").expect_err("all the world could look");
    assert!(open.is_not_loopback());
    assert_eq!(open.to_string(), "0.0.0.0:0 is not a loopback address");
}

#[test]
fn names_of_queues_cannot_break_the_page() {
    let name = "a\"b\\c\nd 1\n# HELP x";
    let builder = Builder::new(Rate::per_second(1)).name(name);
    let (_tx, _rx) = builder.build::<()>().expect("it is valid");
    let page = observe::prometheus()
        .expect("no other recorder is there")
        .render();
    assert!(page.contains(r#"{queue="a\"b\\c_d 1_# HELP x"}"#));
    parse(&page);
}
