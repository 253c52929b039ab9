//! Shared limits whose replies are lost, cut off or nonsense: unknown, of a type of its own, and never asked twice.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use sluicegate::redis::{Endpoint, Error, Limits, LimitsBuilder};

use crate::kit::{
    DAY, PATIENCE, assert_every_key_ends, built, charge, five, left_there, recovered,
};
use crate::limits::limits;
use crate::proxy::{Fault, Proxy};
use crate::server::{Options, Server};

/// Limits that reach the server only through the proxy, and ask it however often it has failed.
fn through(proxy: &Proxy, deadline: Duration) -> LimitsBuilder {
    let endpoint = Endpoint::new(proxy.url()).expect("the address is valid");
    let store = Limits::builder(endpoint).deadline(deadline);
    store.break_after(1_000_000, Duration::from_secs(1))
}

/// Scripts that the server has run so far; one that it did not know has not run.
fn scripts_run(server: &Server) -> u64 {
    let stats = server.ask(&["INFO", "commandstats"]);
    let line = stats
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
    let number = |name: &str| -> u64 {
        let field =
            line.and_then(|line| line.split(',').find_map(|field| field.strip_prefix(name)));
        field.map_or(0, |number| number.parse().expect("a number"))
    };
    number("calls=") - number("failed_calls=")
}

#[tokio::test]
async fn a_swallowed_reply_is_unknown_charged_once_and_never_asked_again() {
    let server = Server::start();
    for (name, limit) in five(100, DAY) {
        let proxy = Proxy::before(server.address());
        let store = through(&proxy, Duration::from_millis(500)).prefix(name);
        let (store, there) = built(store.never_merge(), limit);
        // No other connection counts here.
        let (direct, _) = built(limits(&server).prefix(name), limit);
        let _ = recovered(&there, 99).await;
        let (run, connections) = (scripts_run(&server), proxy.connections());
        proxy.set(Fault::Swallow);
        let start = Instant::now();
        for ruling in join_all((0..4).map(|_| there.decide(&1, 1))).await {
            assert!(
                ruling.is_degraded() && !ruling.is_granted(),
                "{name}: {ruling:?}"
            );
            // Whoever is refused without knowing gives nothing back either.
            there.refund(ruling.charge());
        }
        assert!(start.elapsed() < PATIENCE, "{name}");
        let error = store.last_error().expect("it is told");
        assert!(
            error.is_timeout() && error.may_have_run(),
            "{name}: {error}"
        );
        assert_eq!(store.counts().timeouts, 4, "{name}: {:?}", store.counts());
        // Each has reached the server, and was charged there; none of them goes out again with the next connection.
        assert_eq!(left_there(&direct, limit, 1).await, 96, "{name}");
        proxy.set(Fault::None);
        let own = recovered(&there, 99).await;
        assert!(own.is_granted(), "{name}: {own:?}");
        assert!(proxy.connections() > connections, "{name}");
        assert_eq!(left_there(&direct, limit, 1).await, 96, "{name}");
        // Four that were lost, looks at what is left, and whatever it took to recover: for the other key.
        let there = 100 - left_there(&direct, limit, 99).await - 1;
        assert_eq!(scripts_run(&server) - run, 4 + 3 + there, "{name}");
    }
    assert_every_key_ends(&server);
}

#[tokio::test]
async fn merged_calls_whose_reply_is_swallowed_charge_each_caller_at_most_once() {
    let server = Server::start();
    for (name, limit) in five(200, DAY) {
        let proxy = Proxy::before(server.address());
        let store = through(&proxy, Duration::from_millis(500)).prefix(name);
        let (_, there) = built(store, limit);
        let (direct, _) = built(limits(&server).prefix(name), limit);
        let _ = recovered(&there, 99).await;
        proxy.set(Fault::Swallow);
        for ruling in join_all((0..50).map(|_| there.decide(&1, 2))).await {
            assert!(ruling.is_degraded(), "{name}: {ruling:?}");
        }
        proxy.set(Fault::None);
        let _ = recovered(&there, 99).await;
        let left = left_there(&direct, limit, 1).await;
        assert!((100..=198).contains(&left), "{name}: {left}");
        // The next one finds what is there, exactly.
        assert!(there.decide(&1, left).await.is_granted(), "{name}: {left}");
        assert!(!there.decide(&1, 1).await.is_granted(), "{name}");
    }
}

#[tokio::test]
async fn a_batch_and_a_refund_whose_replies_are_swallowed_happen_once() {
    let server = Server::start();
    let [(_, limit), ..] = five(100, DAY);
    let proxy = Proxy::before(server.address());
    let (store, there) = built(through(&proxy, Duration::from_millis(500)), limit);
    let (direct, _) = built(limits(&server), limit);
    let _ = recovered(&there, 99).await;
    let given = there.decide(&2, 10).await;
    assert!(given.is_granted(), "{given:?}");
    let other = there.decide(&3, 10).await;
    // The refund's script is known from here on.
    there.refund(other.charge());
    crate::kit::wait_for_left(&store, limit, 3, 100).await;
    // So is the batch's.
    let first = (10..12).map(|user| charge(limit, user, 1));
    assert!(
        store
            .decide_many(first)
            .await
            .iter()
            .all(|ruling| ruling.is_granted())
    );
    proxy.set(Fault::Swallow);
    let batch = (0..30).map(|_| charge(limit, 1, 1));
    for ruling in store.decide_many(batch).await {
        assert!(ruling.is_degraded() && !ruling.is_granted(), "{ruling:?}");
    }
    there.refund(given.charge());
    let start = Instant::now();
    while store.counts().refunds_lost == 0 {
        assert!(start.elapsed() < PATIENCE, "{:?}", store.counts());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    proxy.set(Fault::None);
    let _ = recovered(&there, 99).await;
    assert_eq!(left_there(&direct, limit, 1).await, 70);
    assert_eq!(left_there(&direct, limit, 2).await, 100);
}

#[tokio::test]
async fn a_connection_cut_within_a_reply_is_unknown_and_charged_once() {
    cut_at_each_byte(&Server::start()).await;
}

#[tokio::test]
async fn a_cut_is_noticed_where_the_protocol_does_not_tell_of_it() {
    let old = Options::default().set("rename-command", "HELLO GONE");
    cut_at_each_byte(&old.start()).await;
}

async fn cut_at_each_byte(server: &Server) {
    for (name, limit) in five(100, DAY) {
        let proxy = Proxy::before(server.address());
        let store = through(&proxy, Duration::from_secs(10)).prefix(name);
        let (store, there) = built(store, limit);
        let _ = recovered(&there, 99).await;
        for cut in 0..20 {
            proxy.set(Fault::Cut(cut));
            let start = Instant::now();
            let ruling = there.decide(&1, 1).await;
            assert!(ruling.is_degraded(), "{name} at {cut}: {ruling:?}");
            // It is noticed, rather than waited for.
            assert!(start.elapsed() < Duration::from_secs(10), "{name} at {cut}");
            let error = store.last_error().expect("it is told");
            assert!(
                error.may_have_run() && !error.is_timeout(),
                "{name} at {cut}: {error:?}"
            );
            // Whoever comes next takes a new connection, and loses nothing by it.
            let next = there.decide(&99, 1).await;
            assert!(!next.is_degraded(), "{name} at {cut}: {next:?}");
            assert_eq!(
                left_there(&store, limit, 1).await,
                99 - cut as u64,
                "{name}"
            );
        }
    }
}

/// What the server says, and what that is to a caller.
type Said = (&'static str, fn(&Error) -> bool);

#[tokio::test]
async fn replies_are_typed() {
    let server = Server::start();
    let other = |error: &Error| {
        let known = error.is_timeout() || error.is_denied() || error.is_read_only();
        !known && !error.is_out_of_memory() && !error.is_wrong_type() && !error.is_disconnected()
    };
    let unexpected: fn(&Error) -> bool = |error| error.may_have_run() && !error.is_disconnected();
    let replies: [Said; 27] = [
        // Nothing, in each of its forms.
        ("$-1\r\n", unexpected),
        ("*-1\r\n", unexpected),
        ("_\r\n", unexpected),
        ("*0\r\n", unexpected),
        // Other shapes; a whole reply is not compared with a number.
        (":1\r\n", unexpected),
        ("+OK\r\n", unexpected),
        ("$1\r\n1\r\n", unexpected),
        ("#t\r\n", unexpected),
        (",1.5\r\n", unexpected),
        ("%1\r\n:1\r\n:2\r\n", unexpected),
        ("*2\r\n:1\r\n:1796000000000000\r\n", unexpected),
        ("*3\r\n:1\r\n:1796000000000000\r\n:0\r\n", unexpected),
        (
            "*5\r\n:1\r\n:1796000000000000\r\n:0\r\n:0\r\n:0\r\n",
            unexpected,
        ),
        (
            "*4\r\n:1\r\n$16\r\n1796000000000000\r\n:0\r\n:0\r\n",
            unexpected,
        ),
        ("*4\r\n:1\r\n:1796000000000000\r\n$-1\r\n:0\r\n", unexpected),
        ("*4\r\n:-1\r\n:1796000000000000\r\n:0\r\n:0\r\n", unexpected),
        ("*4\r\n:1\r\n:1796000000000000\r\n:-5\r\n:0\r\n", unexpected),
        // Granted, by numbers that would refuse, and the other way round.
        (
            "*4\r\n:1\r\n:1796000000000000\r\n:86400000000\r\n:0\r\n",
            unexpected,
        ),
        ("*4\r\n:0\r\n:1796000000000000\r\n:0\r\n:0\r\n", unexpected),
        // Errors: none of them is a refusal.
        ("-ERR whatever\r\n", other),
        (
            "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
            Error::is_out_of_memory,
        ),
        (
            "-READONLY You can't write against a read only replica.\r\n",
            Error::is_read_only,
        ),
        ("-NOPERM this user has no permissions\r\n", Error::is_denied),
        (
            "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
            Error::is_wrong_type,
        ),
        ("-LOADING Redis is loading the dataset in memory\r\n", other),
        ("-BUSY Redis is busy running a script.\r\n", other),
        ("-CLUSTERDOWN The cluster is down\r\n", other),
    ];
    let [(_, limit), ..] = five(100, DAY);
    let proxy = Proxy::before(server.address());
    let (store, there) = built(through(&proxy, Duration::from_secs(10)), limit);
    for (reply, is_right) in replies {
        let _ = recovered(&there, 99).await;
        proxy.set(Fault::Say(reply.into()));
        let ruling = there.decide(&1, 1).await;
        assert!(
            ruling.is_degraded() && !ruling.is_granted(),
            "{reply:?}: {ruling:?}"
        );
        let error = store.last_error().expect("it is told");
        assert!(is_right(&error), "{reply:?}: {error:?}");
        assert!(!error.to_string().is_empty());
    }
}

#[tokio::test]
async fn garbage_ends_the_connection_and_the_next_one_works() {
    let server = Server::start();
    let [(_, limit), ..] = five(100, DAY);
    let proxy = Proxy::before(server.address());
    let (store, there) = built(through(&proxy, Duration::from_millis(500)), limit);
    let garbage: [&[u8]; 8] = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"*x\r\n",
        b":12ab\r\n",
        b"\r\n\r\n",
        b"*99999999999\r\n",
        b"$3\r\nabcdefgh\r\n",
        b"\xff\xfe\xfd",
    ];
    let mut used = 0;
    for bytes in garbage {
        let _ = recovered(&there, 99).await;
        proxy.set(Fault::Say(bytes.to_vec()));
        let start = Instant::now();
        let ruling = there.decide(&1, 1).await;
        used += 1;
        assert!(
            ruling.is_degraded() && !ruling.is_granted(),
            "{bytes:?}: {ruling:?}"
        );
        assert!(start.elapsed() < PATIENCE);
        let error = store.last_error().expect("it is told");
        assert!(error.may_have_run(), "{bytes:?}: {error:?}");
        // What belongs to one reply is never taken for another's.
        let _ = recovered(&there, 99).await;
        assert_eq!(left_there(&store, limit, 1).await, 100 - used, "{bytes:?}");
    }
}
