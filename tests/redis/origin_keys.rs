//! Mistakes that limiters on Redis are known for, none of which is repeated: clocks, expiry, levels and keys.

use std::time::Duration;

use sluicegate::redis::{Endpoint, Limits};
use sluicegate::{Hierarchy, Key, Limit, Rate, Verdict};

use crate::kit::{
    DAY, Watch, assert_every_key_ends, built, charge, contents, five, left, server_time, words,
    writes,
};
use crate::limits::limits;
use crate::server::{Options, Server};

/// A level for each limit, all of them for everybody.
fn stacked(store: &Limits, levels: &[(String, Limit)]) -> Hierarchy<(), Limits> {
    let mut hierarchy = Hierarchy::<()>::builder();
    for (name, limit) in levels {
        hierarchy = hierarchy.level(name.as_str(), *limit, |()| ());
    }
    let hierarchy = hierarchy.build_on(store.clone());
    hierarchy.expect("the levels can be kept")
}

#[tokio::test]
async fn server_clock_only() {
    let server = Server::start();
    let watch = Watch::begin(&server);
    for (name, limit) in five(10, DAY) {
        let (store, there) = built(limits(&server).prefix(name), limit);
        let before = server_time(&server);
        let ruling = there.decide(&1, 1).await;
        let at = ruling.charge().at().expect("it was granted").as_nanos() / 1000;
        let after = server_time(&server);
        assert!(
            (before..=after).contains(&at),
            "{name}: {before} {at} {after}"
        );
        let _ = there.decide(&1, 10).await;
        let _ = store.peek(charge(limit, 1, 0)).await;
    }
    let now = server_time(&server);
    let seen = watch.end(&server);
    let asked = seen.iter().map(|line| words(line));
    let asked: Vec<_> = asked.filter(|words| words[0] == "EVALSHA").collect();
    assert!(asked.len() >= 15, "{seen:?}");
    // No argument is an instant of the asking process, in whatever unit.
    for words in asked {
        let packed = packed(words.last().expect("it has arguments"));
        assert!(packed.len() >= 4, "{words:?}");
        let plain = words[3..].iter().filter_map(|word| word.parse().ok());
        for number in plain.chain(packed) {
            for unit in [1, 1_000, 1_000_000] {
                let distance = (now / unit).abs_diff(number);
                assert!(distance > 3_600_000_000 / unit, "{number} in {words:?}");
            }
        }
    }
    // A refund names the instant of its charge, which the server's clock has told.
    let [(_, limit), ..] = five(10, DAY);
    let (_, there) = built(limits(&server), limit);
    let charged = there.decide(&1, 1).await.charge();
    let at = charged.at().expect("it was granted").as_nanos() / 1000;
    let watch = Watch::begin(&server);
    there.refund(charged);
    let key = &server
        .keys()
        .into_iter()
        .find(|key| key.starts_with("{sluicegate}"));
    let key = key.as_ref().expect("it is charged");
    for _ in 0..1_000 {
        if server.number(&["EXISTS", key]) == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let seen = watch.end(&server);
    let told = seen.iter().find(|line| line.contains("EVALSHA"));
    let told = words(told.expect("it was given back"));
    let packed = packed(told.last().expect("it has arguments"));
    assert_eq!(packed.last(), Some(&at));
}

/// The numbers that a script is told: doubles in one argument, which MONITOR shows with escapes.
fn packed(word: &str) -> Vec<u64> {
    let mut bytes = Vec::new();
    let mut rest = word.chars();
    while let Some(char) = rest.next() {
        let code = match (char, char == '\\') {
            (char, false) => char as u32,
            (_, true) => match rest.next().expect("an escape has a letter") {
                'x' => {
                    let digits: String = rest.by_ref().take(2).collect();
                    u32::from_str_radix(&digits, 16).expect("two digits")
                }
                'n' => 10,
                'r' => 13,
                't' => 9,
                'a' => 7,
                'b' => 8,
                other => other as u32,
            },
        };
        bytes.push(u8::try_from(code).expect("MONITOR shows bytes"));
    }
    let (doubles, rest) = bytes.as_chunks::<8>();
    assert!(rest.is_empty(), "{word} is no list of doubles");
    let doubles = doubles.iter().map(|double| f64::from_le_bytes(*double));
    doubles.map(|double| double as u64).collect()
}

#[tokio::test]
async fn expiry_is_set_with_the_value() {
    let server = Server::start();
    let watch = Watch::begin(&server);
    for (name, limit) in five(40, DAY) {
        let (_, there) = built(limits(&server).prefix(name), limit);
        for _ in 0..3 {
            assert!(there.decide(&1, 2).await.is_granted(), "{name}");
            assert_every_key_ends(&server);
        }
    }
    let seen = watch.end(&server);
    let mut of_scripts = seen.iter().filter(|line| line.contains(" lua]")).peekable();
    let mut written = 0;
    while let Some(line) = of_scripts.next() {
        let command = words(line);
        match command[0].to_uppercase().as_str() {
            "TIME" | "GET" | "GETRANGE" | "STRLEN" => continue,
            "SET" => assert!(command.iter().any(|word| word == "PX"), "{line}"),
            // A log grows in place, and its end is moved in the same script.
            "APPEND" | "SETRANGE" => {
                let next = of_scripts.peek().map(|line| words(line));
                let next = next.expect("it goes on");
                assert_eq!(next[0].to_uppercase(), "PEXPIRE", "after {line}");
                assert_eq!(next[1], command[1]);
            }
            "PEXPIRE" => continue,
            _ => panic!("unexpected: {line}"),
        }
        written += 1;
    }
    assert_eq!(written, 15, "one write for each charge");
}

#[tokio::test]
async fn a_key_ends_no_sooner_than_its_state_is_needed_and_little_later() {
    let server = Server::start();
    for micros in [1_000, 1_001, 7_003, 60_000, 999_999, 3_600_000_000] {
        for (name, limit) in five(7, Duration::from_micros(micros)) {
            let (_, there) = built(limits(&server).prefix(format!("{name} {micros}")), limit);
            for cost in [3, 1, 7] {
                let ruling = there.decide(&1, cost).await;
                let Some(at) = ruling.charge().at() else {
                    continue;
                };
                let (_, decision) = ruling.decisions().next().expect("there is a level");
                let needed = (at + decision.reset_after).as_nanos() / 1_000;
                let [key] = &server.keys()[..] else {
                    // It is over already.
                    continue;
                };
                let end = server.number(&["PEXPIRETIME", key]);
                let Ok(end) = u64::try_from(end) else {
                    assert_eq!(end, -2, "{name}: {key} has no end");
                    continue;
                };
                // It lives through its last millisecond.
                let end = (end + 1) * 1_000;
                assert!(end > needed, "{name}, {micros} us: {end} {needed}");
                let longest = if name == "sliding counter" {
                    2 * micros
                } else {
                    micros
                };
                // What the script takes between its look at the clock and its write comes on top.
                let latest = at.as_nanos() / 1_000 + longest + 2_000_000;
                assert!(end <= latest, "{name}, {micros} us: {end} {latest}");
            }
            server.ask(&["FLUSHALL"]);
        }
    }
}

#[tokio::test]
async fn refusals_do_not_prolong_expiry() {
    let server = Server::start();
    for (name, limit) in five(10, DAY) {
        let store = limits(&server).prefix(name).forget_refusals();
        let (store, there) = built(store, limit);
        assert!(there.decide(&1, 10).await.is_granted(), "{name}");
        let before = (contents(&server), writes(&server));
        tokio::time::sleep(Duration::from_millis(20)).await;
        let sent = store.counts().sent;
        for cost in [1, 1, 10, 1, 3, 1, 11] {
            let ruling = there.decide(&1, cost).await;
            assert!(!ruling.is_granted() && !ruling.is_degraded(), "{name}");
        }
        assert_eq!(store.counts().sent - sent, 7, "each has asked the server");
        assert_eq!((contents(&server), writes(&server)), before, "{name}");
    }
}

#[tokio::test]
async fn a_key_that_lost_its_end_refuses_nobody_for_ever() {
    let server = Server::start();
    let span = Duration::from_millis(600);
    for (name, limit) in five(3, span) {
        let store = limits(&server).prefix(name).forget_refusals();
        let (_, there) = built(store, limit);
        assert!(there.decide(&1, 3).await.is_granted(), "{name}");
        for key in server.keys() {
            server.ask(&["PERSIST", &key]);
        }
        // Two windows later even the sliding counter has forgotten.
        tokio::time::sleep(2 * span).await;
        let ruling = there.decide(&1, 3).await;
        assert!(ruling.is_granted(), "{name}: {ruling:?}");
        assert_every_key_ends(&server);
        server.ask(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn keys_of_one_decision_share_a_hash_tag() {
    let server = Options::default().cluster().start();
    let endpoint = Endpoint::cluster([server.url()]).expect("the address is valid");
    let store = Limits::builder(endpoint).deadline(Duration::from_secs(5));
    let store = store.tenant("tenant").build().expect("valid");
    let mut hierarchy = Hierarchy::<&'static str>::builder().level(
        "tenant",
        Rate::per_hour(1).burst(5),
        |tenant| *tenant,
    );
    for (name, limit) in five(10, DAY) {
        hierarchy = hierarchy.level(name, limit, |_| "}{a} b:{c}");
    }
    let hierarchy = hierarchy.build_on(store).expect("the levels can be kept");
    let mut slots = Vec::new();
    for tenant in ["", "{}", "one", "{one}", "two}"] {
        server.ask(&["FLUSHALL"]);
        let ruling = hierarchy.decide(&tenant, 1).await;
        assert!(ruling.is_granted() && !ruling.is_degraded(), "{ruling:?}");
        let keys = server.keys();
        assert_eq!(keys.len(), 6, "{keys:?}");
        let slot = |key: &String| server.number(&["CLUSTER", "KEYSLOT", key]);
        let mut own: Vec<_> = keys.iter().map(slot).collect();
        own.dedup();
        assert_eq!(own.len(), 1, "{keys:?}");
        slots.extend(own);
    }
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), 5, "each tenant has a slot of its own");
}

#[tokio::test]
async fn hierarchy_charges_all_or_none() {
    let server = Server::start();
    let kinds = |units: u64| five(units, DAY).map(|(_, limit)| limit);
    // Whatever rule refuses, at whatever place: nobody else is charged, and the refuser is named.
    for (refusing, tight) in kinds(2).into_iter().enumerate() {
        for place in 0..6 {
            let levels: Vec<(String, Limit)> = (0..6)
                .map(|level| {
                    let limit = if level == place {
                        tight
                    } else {
                        kinds(10)[level % 5]
                    };
                    (format!("level {level}"), limit)
                })
                .collect();
            let store = limits(&server).prefix(format!("{refusing} at {place}"));
            let store = store.forget_refusals().build().expect("valid");
            let there = stacked(&store, &levels);
            assert!(there.decide(&(), 2).await.is_granted());
            let before = (contents(&server), writes(&server));
            for cost in [1, 2] {
                let refused = there.decide(&(), cost).await;
                assert!(!refused.is_degraded(), "{refused:?}");
                assert_eq!(refused.binding(), Some(levels[place].0.as_str()));
                let expected: Vec<u64> = (0..6)
                    .map(|level| if level == place { 0 } else { 8 })
                    .collect();
                assert_eq!(left(&refused), expected, "{refused:?}");
            }
            assert_eq!((contents(&server), writes(&server)), before);
            server.ask(&["FLUSHALL"]);
        }
    }
}

#[tokio::test]
async fn the_longest_wait_is_told_not_the_first_refusers() {
    let server = Server::start();
    let store = limits(&server).build().expect("valid");
    let hours = [1, 5, 3, 2, 4];
    let levels = hours.into_iter().zip(five(1, DAY));
    let levels: Vec<(String, Limit)> = levels
        .map(|(hours, (name, _))| {
            let limits = five(1, Duration::from_secs(3600 * hours));
            let own = limits.into_iter().find(|(other, _)| *other == name);
            (name.to_owned(), own.expect("it is one of them").1)
        })
        .collect();
    let there = stacked(&store, &levels);
    assert!(there.decide(&(), 1).await.is_granted());
    let refused = there.decide(&(), 1).await;
    let waits: Vec<Duration> = refused
        .decisions()
        .map(|(name, decision)| match decision.verdict {
            Verdict::Refused { retry_after } => retry_after,
            _ => panic!("{name} should refuse: {decision:?}"),
        })
        .collect();
    let longest = waits.iter().max().copied();
    assert_eq!(refused.retry_after(), longest, "{refused:?}");
    let place = waits.iter().position(|wait| Some(*wait) == longest);
    let binding = levels
        .iter()
        .position(|(name, _)| refused.binding() == Some(name.as_str()));
    assert_eq!(binding, place, "{refused:?}");
    // The sliding counter lets a unit go after two windows, so it outlasts the five hours of the second level.
    assert_eq!(binding, Some(4), "{waits:?}");
    assert!(waits[0] <= Duration::from_secs(3600), "{waits:?}");
}

#[tokio::test]
async fn level_keys_cannot_collide() {
    let server = Server::start();
    let store = limits(&server).build().expect("valid");
    type Caller = (Option<&'static str>, &'static str, &'static str);
    let one = || Rate::per_hour(1).burst(1);
    let hierarchy = Hierarchy::<Caller>::builder()
        .level("global", Rate::per_hour(1).burst(1_000), |_| "global")
        .level(
            "address",
            Rate::per_hour(1).burst(100),
            |(_, address, _)| *address,
        )
        .level("user", one(), |(user, ..)| *user)
        // Whoever has not signed in is told apart by the address.
        .level("endpoint", one(), |(user, address, path)| {
            (user.map_or((1, *address), |user| (0, user)), *path)
        })
        .build_on(store.clone())
        .expect("the levels can be kept");
    let callers: [Caller; 12] = [
        (Some("global"), "1.2.3.4", "/"),
        (Some("1.2.3.4"), "1.2.3.4", "/"),
        (Some("user"), "1.2.3.4", "/"),
        (Some("a"), "1.2.3.4", "b:c"),
        (Some("a:b"), "1.2.3.4", "c"),
        (Some("a:b:"), "1.2.3.4", "c"),
        (Some(""), "1.2.3.4", "/"),
        (Some("}"), "1.2.3.4", "/"),
        (None, "1.2.3.4", "/"),
        (None, "1.2.3.5", "/"),
        (None, "global", "/"),
        (None, "", "/"),
    ];
    for caller in &callers {
        let ruling = hierarchy.decide(caller, 1).await;
        assert!(
            ruling.is_granted() && !ruling.is_degraded(),
            "{caller:?}: {ruling:?}"
        );
    }
    for caller in &callers {
        let ruling = hierarchy.decide(caller, 1).await;
        let own = ["user", "endpoint"];
        assert!(!ruling.is_granted(), "{caller:?}: {ruling:?}");
        assert!(
            ruling.binding().is_some_and(|level| own.contains(&level)),
            "{caller:?}"
        );
    }
    // Everybody's, four addresses, eight users, and an endpoint for each caller.
    let keys = server.keys();
    assert_eq!(keys.len(), 1 + 4 + 8 + 12, "{keys:?}");
    let name = |level: &'static str, key: Key| {
        let charge = sluicegate::Charge::new(0, [(level, Limit::from(one()), key)]);
        store.peek(charge)
    };
    // The user of that name is not everybody, and everybody is no user.
    let user = name("user", "1.2.3.5".into()).await.expect("it answers");
    assert_eq!(left(&user), [1], "an address is no user");
}
