//! Levels that are kept apart: two calls in turn, and what is given back when the second does not grant.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use sluicegate::redis::{Endpoint, Limits, LimitsBuilder, WhenUnknown};
use sluicegate::{Charge, Hierarchy, Key, Limit, Ruling};

use crate::kit::{DAY, PATIENCE, assert_every_key_ends, five, left};
use crate::proxy::{Fault, Proxy};
use crate::server::{Options, Server};

/// Everybody's level apart, the tenant's and the user's together.
type Caller = (u64, u64);

struct Levels {
    store: Limits,
    hierarchy: Hierarchy<Caller, Limits>,
    global: Limit,
    own: Limit,
}

impl Levels {
    fn on(store: LimitsBuilder, global: Limit, own: Limit) -> Self {
        let store = store.tenant("tenant").apart("global");
        let store = store.build().expect("the settings are valid");
        let hierarchy = Hierarchy::<Caller>::builder()
            .level("global", global, |_| ())
            .level("tenant", own, |caller| caller.0)
            .level("user", own, |caller| *caller)
            .build_on(store.clone())
            .expect("the levels can be kept");
        Self {
            store,
            hierarchy,
            global,
            own,
        }
    }

    async fn decide(&self, caller: Caller, cost: u64) -> Ruling {
        self.hierarchy.decide(&caller, cost).await
    }

    /// What is left at the three levels.
    async fn left(&self, caller: Caller) -> Vec<u64> {
        let (tenant, user) = caller;
        let user = sluicegate::IntoKey::into_key((tenant, user)).expect("there is one");
        let levels = [
            ("global", self.global, Key::from(())),
            ("tenant", self.own, Key::from(tenant)),
            ("user", self.own, user),
        ];
        let there = self.store.peek(Charge::new(0, levels)).await;
        left(&there.expect("the server answers"))
    }

    /// Refunds arrive by themselves.
    async fn wait_for(&self, caller: Caller, expected: [u64; 3]) {
        let start = Instant::now();
        loop {
            let there = self.left(caller).await;
            if there == expected {
                return;
            }
            let late = start.elapsed() > PATIENCE;
            assert!(!late, "{there:?} instead of {expected:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn cluster(server: &Server) -> LimitsBuilder {
    let endpoint = Endpoint::cluster([server.url()]).expect("the address is valid");
    Limits::builder(endpoint).deadline(Duration::from_secs(5))
}

/// One limit for everybody and one for each, in each pair of kinds.
fn pairs(global: u64, own: u64) -> Vec<(String, Limit, Limit)> {
    let mut pairs = Vec::new();
    for (name, first) in five(global, DAY) {
        for (other, second) in five(own, DAY) {
            pairs.push((format!("{name} over {other}"), first, second));
        }
    }
    pairs
}

#[tokio::test]
async fn a_refusal_by_everybodys_level_gives_back_what_the_others_were_charged() {
    let server = Options::default().cluster().start();
    for (name, global, own) in pairs(5, 9) {
        let levels = Levels::on(
            cluster(&server).prefix(&name).forget_refusals(),
            global,
            own,
        );
        let ruling = levels.decide((1, 1), 4).await;
        assert!(
            ruling.is_granted() && !ruling.is_degraded(),
            "{name}: {ruling:?}"
        );
        let refused = levels.decide((1, 1), 3).await;
        assert!(
            !refused.is_granted() && !refused.is_degraded(),
            "{name}: {refused:?}"
        );
        assert_eq!(refused.binding(), Some("global"), "{name}");
        // It tells what is left once that has come back, in the order of the levels.
        assert_eq!(left(&refused), [1, 5, 5], "{name}");
        levels.wait_for((1, 1), [1, 5, 5]).await;
        // The tenant refuses before everybody is asked: nothing is charged there in between.
        let refused = levels.decide((1, 1), 6).await;
        assert!(!refused.is_granted(), "{name}: {refused:?}");
        assert_eq!(levels.store.counts().refunds, 1, "{name}");
        let granted = levels.decide((1, 1), 1).await;
        assert!(granted.is_granted(), "{name}: {granted:?}");
        assert_eq!(left(&granted), [0, 4, 4], "{name}");
    }
    assert_every_key_ends(&server);
}

#[tokio::test]
async fn a_charge_over_two_calls_is_given_back_at_the_instant_of_each() {
    let server = Options::default().cluster().start();
    for (name, global, own) in pairs(9, 9) {
        let levels = Levels::on(cluster(&server).prefix(&name), global, own);
        let first = levels.decide((1, 1), 4).await;
        let second = levels.decide((1, 2), 5).await;
        assert!(first.is_granted() && second.is_granted(), "{name}");
        levels.hierarchy.refund(first.charge());
        levels.wait_for((1, 1), [4, 4, 9]).await;
        levels.hierarchy.refund(second.charge());
        levels.wait_for((1, 2), [9, 9, 9]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_get_no_more_than_everybody_has_and_leave_no_charge_behind() {
    let server = Options::default().cluster().start();
    for (name, global, own) in pairs(20, 1_000) {
        let levels = Levels::on(
            cluster(&server).prefix(&name).forget_refusals(),
            global,
            own,
        );
        let calls = (0..60).map(|call| levels.decide((call % 3, call % 3), 1));
        let rulings = join_all(calls).await;
        assert!(rulings.iter().all(|ruling| !ruling.is_degraded()), "{name}");
        let granted = |tenant| {
            let own = (0..60_usize).filter(|call| *call as u64 % 3 == tenant);
            own.filter(|call| rulings[*call].is_granted()).count() as u64
        };
        let each = [granted(0), granted(1), granted(2)];
        assert_eq!(each.iter().sum::<u64>(), 20, "{name}: {each:?}");
        for tenant in 0..3 {
            let left = 1_000 - each[tenant as usize];
            levels.wait_for((tenant, tenant), [0, left, left]).await;
        }
    }
}

#[tokio::test]
async fn an_unknown_answer_of_everybodys_level_gives_back_the_others() {
    let server = Options::default().cluster().start();
    let (name, global, own) = pairs(5, 9).remove(0);
    let levels = Levels::on(cluster(&server).prefix(name), global, own);
    let ruling = levels.decide((1, 1), 1).await;
    assert!(ruling.is_granted() && !ruling.is_degraded(), "{ruling:?}");
    let keys = server.keys();
    let key = keys.iter().find(|key| key.contains("global"));
    let key = key.expect("everybody is charged");
    // Something else lies under its key: the server can decide about the tenant, and not about everybody.
    server.ask(&["DEL", key]);
    server.ask(&["LPUSH", key, "something else"]);
    let unknown = levels.decide((1, 1), 1).await;
    assert!(
        unknown.is_degraded() && !unknown.is_granted(),
        "{unknown:?}"
    );
    server.ask(&["DEL", key]);
    levels.wait_for((1, 1), [5, 8, 8]).await;
}

#[tokio::test]
async fn a_lost_answer_of_everybodys_level_charges_it_at_most_once_and_gives_back_the_others() {
    let server = Server::start();
    let faults = [
        Fault::Swallow,
        Fault::Cut(3),
        Fault::Cut(0),
        Fault::Say(b"$-1\r\n".to_vec()),
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let proxy = Proxy::before(server.address());
        let endpoint = Endpoint::new(proxy.url()).expect("the address is valid");
        let store = Limits::builder(endpoint).deadline(Duration::from_millis(700));
        let store = store.prefix(format!("fault {number}"));
        let store = store.break_after(1_000_000, Duration::from_secs(1));
        let (_, global, own) = pairs(50, 90).remove(12);
        let levels = Levels::on(store, global, own);
        let start = Instant::now();
        // Until the connection stands and the scripts are known, that of a refund, too.
        let charged = loop {
            let ruling = levels.decide((2, 2), 1).await;
            if !ruling.is_degraded() {
                break ruling.charge();
            }
            assert!(start.elapsed() < PATIENCE, "{ruling:?}");
        };
        let there = levels.left((2, 2)).await;
        levels.hierarchy.refund(charged);
        let there: Vec<_> = there.iter().map(|left| left + 1).collect();
        levels
            .wait_for((2, 2), [there[0], there[1], there[2]])
            .await;
        let before = there[0];
        proxy.set(Fault::After(1, Box::new(fault.clone())));
        let unknown = levels.decide((1, 1), 3).await;
        assert!(
            unknown.is_degraded() && !unknown.is_granted(),
            "{fault:?}: {unknown:?}"
        );
        let error = levels.store.last_error().expect("it is told");
        assert!(error.may_have_run(), "{fault:?}: {error:?}");
        proxy.set(Fault::None);
        // The request has arrived: everybody's level is charged, once. The refund went out by itself.
        let direct = Endpoint::new(server.url()).expect("the address is valid");
        let direct = Limits::builder(direct).deadline(Duration::from_secs(5));
        let direct = Levels::on(direct.prefix(format!("fault {number}")), global, own);
        direct.wait_for((1, 1), [before - 3, 90, 90]).await;
        // It gives back nothing of what is not known.
        levels.hierarchy.refund(unknown.charge());
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(direct.left((1, 1)).await, [before - 3, 90, 90], "{fault:?}");
    }
}

#[tokio::test]
async fn a_lost_answer_about_the_tenant_asks_nobody_else() {
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let endpoint = Endpoint::new(proxy.url()).expect("the address is valid");
    let store = Limits::builder(endpoint).deadline(Duration::from_secs(10));
    let (_, global, own) = pairs(50, 90).remove(7);
    let levels = Levels::on(
        store.when_unknown_at("global", WhenUnknown::Allow),
        global,
        own,
    );
    assert!(levels.decide((2, 2), 1).await.is_granted());
    proxy.set(Fault::Cut(1));
    let unknown = levels.decide((1, 1), 1).await;
    // Each level answers by its own policy, and one refusal is enough.
    assert!(
        unknown.is_degraded() && !unknown.is_granted(),
        "{unknown:?}"
    );
    let granted: Vec<_> = unknown
        .decisions()
        .map(|(_, decision)| decision.is_granted())
        .collect();
    assert_eq!(granted, [true, false, false]);
    assert_eq!(levels.left((1, 1)).await, [49, 89, 89]);
    assert_eq!(levels.store.counts().refunds, 0);
}
