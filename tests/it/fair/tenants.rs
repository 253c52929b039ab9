//! Tenants: shares, bounds, rates, and a ledger for each.

use std::collections::HashMap;
use std::time::Duration;

use sluicegate::queue::{Builder, Priority, Reason, Terms};
use sluicegate::{Key, Rate};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{MILLI, SECOND, assert_exact, tenant};

#[tokio::test(start_paused = true)]
async fn the_ledger_is_exact_for_each_lane_and_tenant_whatever_happens() {
    let builder = Builder::new(Rate::per_second(100))
        .max_depth(30)
        .max_waiters(2);
    let (tx, rx) = builder.max_attempts(2).build().unwrap();
    let names = ["a", "b", "c"];
    let token = CancellationToken::new();
    for n in 0..40 {
        let mut terms = tenant(names[n % 3]).priority(Priority::ALL[n % 4]);
        if n % 5 == 0 {
            terms = Terms::new().priority(Priority::High);
        }
        if n % 7 == 0 {
            terms = terms.cancelled_by(token.clone());
        }
        if n % 4 == 1 {
            terms = terms.expires_in(15 * MILLI);
        }
        let _ = tx.offer(n).terms(terms).try_send();
        assert_exact(&tx);
        if n % 3 == 2
            && let Ok(job) = rx.try_recv()
        {
            match n % 4 {
                0 => job.ack(),
                1 => job.retry(20 * MILLI),
                2 => job.fail(),
                _ => drop(job),
            }
            assert_exact(&tx);
        }
        tokio::time::sleep(4 * MILLI).await;
    }
    let permit = tx.reserve_with(tenant("a")).await.unwrap();
    assert_exact(&tx);
    token.cancel();
    let waiting: Vec<_> = (0..3)
        .map(|n| tx.offer(n).terms(tenant("b")).send())
        .collect();
    for send in waiting {
        let _ = tokio::time::timeout(5 * MILLI, send).await;
        assert_exact(&tx);
    }
    drop(permit);
    let report = rx.drain(SECOND / 100).await;
    assert_exact(&tx);
    drop(report);
    let whole = tx.snapshot().ledger;
    assert!(
        whole.acked > 0 && whole.failed > 0 && whole.abandoned > 0,
        "{whole:?}"
    );
    assert!(
        whole.refused > 0 && whole.expired > 0 && whole.cancelled > 0,
        "{whole:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn weights_of_one_and_three_share_departures_by_cost() {
    let builder = Builder::new(Rate::per_second(100_000)).max_depth(1_000_000);
    let (tx, rx) = builder.tenant_weight("large", 3).build().unwrap();
    let cost = |n: u64| 1 + n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 50;
    let names = ["small", "large"];
    for n in 0..20_u64 {
        let who = n as usize % 2;
        tx.offer(who)
            .tenant(names[who])
            .cost(cost(n))
            .try_send()
            .unwrap();
    }
    let mut sent = [0_u64; 2];
    for n in 0..10_000 {
        let job = rx.recv().await.unwrap();
        sent[*job] += job.cost();
        let who = job.into_inner();
        tx.offer(who)
            .tenant(names[who])
            .cost(cost(n))
            .try_send()
            .unwrap();
    }
    let share = sent[0] as f64 / (sent[0] + sent[1]) as f64;
    assert!((share - 0.25).abs() < 0.01, "{share}");
    assert_exact(&tx);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_tenant_beside_a_flood_waits_under_three_departures() {
    let (tx, rx) = Builder::new(Rate::per_second(100))
        .max_depth(1000)
        .build()
        .unwrap();
    let mut waits = Vec::new();
    for step in 0..3000 {
        while tx.offer(0).tenant("flood").try_send().is_ok() && tx.depth() < 700 {}
        if step % 30 == 7 {
            tx.offer(1).tenant("quiet").try_send().unwrap();
        }
        let job = rx.recv().await.unwrap();
        if *job == 1 {
            waits.push(job.waited());
        }
        job.ack();
    }
    waits.sort();
    assert!(waits.len() >= 99, "{}", waits.len());
    assert!(waits[waits.len() * 99 / 100] < 30 * MILLI, "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn five_a_second_for_each_customer_and_two_hundred_in_all() {
    let builder = Builder::new(Rate::per_second(200)).max_depth(10_000);
    let (tx, rx) = builder.tenant_rate(Rate::per_second(5)).build().unwrap();
    for n in 0..100 {
        for name in ["a", "b", "c"] {
            tx.offer(name).tenant(name).try_send().unwrap();
        }
        tx.offer("nobody").try_send().unwrap();
        assert!(n < 100);
    }
    let (start, mut left) = (Instant::now(), HashMap::new());
    while let Ok(Some(job)) = tokio::time::timeout_at(start + 10 * SECOND, rx.recv()).await {
        *left.entry(*job).or_insert(0) += 1;
        job.ack();
    }
    for name in ["a", "b", "c"] {
        assert!((50..=51).contains(&left[name]), "{left:?}");
    }
    assert_eq!(
        left["nobody"], 100,
        "who names no tenant has the queue's rate"
    );
}

#[tokio::test(start_paused = true)]
async fn a_tenant_at_its_bound_is_refused_in_every_form_and_the_others_are_not() {
    let builder = Builder::new(Rate::per_second(10))
        .max_depth(100)
        .tenant_max_depth(3);
    let (tx, rx) = builder.build().unwrap();
    tx.offer(0).tenant("a").cost(2).try_send().unwrap();
    let permit = tx.reserve_with(tenant("a")).await.unwrap();
    let now = tx.offer(1).tenant("a").try_send().unwrap_err();
    let waiting = tx.offer(1).tenant("a").send().await.unwrap_err();
    assert_eq!(
        (now.reason(), waiting.reason()),
        (Reason::Full, Reason::Full)
    );
    let dear = tx.offer(1).tenant("b").cost(4).try_send().unwrap_err();
    assert_eq!(dear.reason(), Reason::TooCostly);
    tx.offer(1).tenant("b").try_send().unwrap();
    tx.try_send(2).unwrap();
    drop(permit);
    tx.offer(3).tenant("a").try_send().unwrap();
    rx.recv().await.unwrap().ack();
    assert_exact(&tx);
}

#[tokio::test(start_paused = true)]
async fn settings_of_tenants_that_break_a_rule_are_refused_by_name() {
    let check = |builder: Builder, says: &str| {
        let error = builder.build::<()>().unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    let builder = || Builder::unpaced().max_depth(10);
    check(builder().tenant_max_depth(11), "tenant max_depth is 11");
    check(builder().tenant_max_depth(0), "tenant max_depth is 0");
    check(builder().max_tenants(0), "max_tenants is 0");
    let (tx, rx) = builder()
        .tenant_weight("none", 0)
        .tenant_weight("all", u64::MAX)
        .build()
        .unwrap();
    for name in ["none", "all", "none"] {
        tx.offer(name).tenant(name).try_send().unwrap();
    }
    for _ in 0..3 {
        rx.recv().await.unwrap().ack();
    }
    assert_exact(&tx);
}

#[tokio::test(start_paused = true)]
async fn tenants_without_end_and_keys_of_64_kb_are_counted_in_bounded_memory() {
    let (tx, rx) = Builder::unpaced().max_tenants(10).build().unwrap();
    let long = "k".repeat(64 * 1024);
    for n in 0..500 {
        let name = format!("{long}{n}");
        tx.offer(n).tenant(name).try_send().unwrap();
        rx.recv().await.unwrap().ack();
    }
    let ledgers = assert_exact(&tx);
    assert!(ledgers.tenants.len() <= 10, "{}", ledgers.tenants.len());
    assert!(
        ledgers
            .tenants
            .contains_key(&Key::from(format!("{long}499")))
    );
    // None of them idle: newcomers share flows, and every job leaves all the same.
    for n in 0..100 {
        tx.offer(n).tenant(n as u64).try_send().unwrap();
    }
    for _ in 0..100 {
        rx.try_recv().unwrap().ack();
    }
    let whole = assert_exact(&tx);
    assert!(whole.tenants.len() <= 10);
    assert_eq!(tx.snapshot().ledger.acked, 600);
}

#[tokio::test(start_paused = true)]
async fn an_idle_hour_earns_nothing() {
    let (tx, rx) = Builder::new(Rate::per_second(10))
        .max_depth(100_000)
        .build()
        .unwrap();
    for _ in 0..200 {
        tx.offer("busy").tenant("busy").try_send().unwrap();
    }
    rx.recv().await.unwrap().ack();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    for _ in 0..100 {
        tx.offer("idle").tenant("idle").try_send().unwrap();
    }
    let mut idle = 0;
    for _ in 0..100 {
        let job = rx.recv().await.unwrap();
        idle += u64::from(*job == "idle");
        job.ack();
    }
    assert!((49..=51).contains(&idle), "{idle} of 100");
}
