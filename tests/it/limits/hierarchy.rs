//! Several levels decided as one: all are charged or none, whoever asks at the same time.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use sluicegate::{
    BuildError, FixedWindow, Hierarchy, Limit, ManualClock, Rate, Ruling, SlidingLog, Verdict,
};

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
struct Request {
    address: IpAddr,
    user: Option<&'static str>,
    method: &'static str,
    path: &'static str,
}

fn request(user: Option<&'static str>, path: &'static str) -> Request {
    Request {
        address: [192, 0, 2, 1].into(),
        user,
        method: "GET",
        path,
    }
}

/// The example hierarchy: global, address, user, endpoint.
fn public_interface(clock: &ManualClock) -> Hierarchy<Request> {
    Hierarchy::builder()
        .level(
            "global",
            Rate::per_second(1000).burst(10_000),
            |_: &Request| (),
        )
        .level(
            "ip",
            SlidingLog::new(100, MINUTE).expect("it is a limit"),
            |request: &Request| request.address,
        )
        .level(
            "user",
            Rate::per_second(50).burst(500),
            |request: &Request| request.user,
        )
        .level(
            "endpoint",
            FixedWindow::new(50, MINUTE).expect("it is a limit"),
            |request: &Request| {
                (
                    request.user.unwrap_or("anonymous"),
                    request.method,
                    request.path,
                )
            },
        )
        .clock(clock.clone())
        .build()
        .expect("it is valid")
}

fn remaining(ruling: &Ruling) -> Vec<u64> {
    ruling
        .decisions()
        .map(|(_, decision)| decision.remaining)
        .collect()
}

#[test]
fn hierarchy_charges_all_or_none() {
    let clock = ManualClock::new();
    let hierarchy = public_interface(&clock);
    let ada = request(Some("ada"), "/reports");
    assert!(hierarchy.check(&ada, 50).is_granted());
    let refused = hierarchy.check(&ada, 1);
    assert_eq!(refused.binding(), Some("endpoint"));
    assert_eq!(remaining(&refused), [9950, 50, 450, 0]);
    let verdicts: Vec<_> = refused
        .decisions()
        .map(|(_, decision)| decision.is_granted())
        .collect();
    assert_eq!(verdicts, [true, true, true, false]);
    assert_eq!(remaining(&hierarchy.peek(&ada, 0)), [9950, 50, 450, 0]);

    // Another endpoint: the address is next, and the longest wait is told, not that of the first level to refuse.
    let other = request(Some("ada"), "/search");
    assert!(hierarchy.check(&other, 50).is_granted());
    clock.advance(Duration::from_secs(20));
    let refused = hierarchy.check(&ada, 1);
    assert_eq!(refused.retry_after(), Some(Duration::from_secs(40)));
    let error = refused.into_result().expect_err("it is refused");
    assert_eq!(error.level(), Some("ip"));
}

#[test]
fn the_longest_wait_binds_and_what_can_never_be_granted_comes_first() {
    let hierarchy = Hierarchy::<()>::builder()
        .level("slow", Rate::per_second(1).burst(5), |()| ())
        .level("fast", Rate::per_second(10).burst(3), |()| ())
        .clock(ManualClock::new())
        .build()
        .expect("it is valid");
    assert!(hierarchy.check(&(), 3).is_granted());
    let refused = hierarchy.check(&(), 3);
    assert_eq!(
        (refused.binding(), refused.retry_after()),
        (Some("slow"), Some(Duration::from_secs(1)))
    );
    let never = hierarchy.check(&(), 4);
    assert_eq!((never.binding(), never.retry_after()), (Some("fast"), None));
    let (name, decision) = never.tightest().expect("there are levels");
    assert_eq!(
        (name, decision.verdict),
        ("fast", Verdict::Never { max_cost: 3 })
    );
}

#[test]
fn no_other_level_is_touched_by_a_refusal_at_any_of_six_levels() {
    for refusing in 0..6 {
        let mut builder = Hierarchy::<u64>::builder().clock(ManualClock::new());
        for level in 0..6 {
            let burst = if level == refusing { 5 } else { 10_000 };
            builder = builder.level(
                format!("level {level}"),
                Rate::per_day(1).burst(burst),
                move |key| {
                    // The outermost is shared by all, the innermost has a key per thread.
                    key % (level + 1)
                },
            );
        }
        let hierarchy = builder.build().expect("it is valid");
        let granted = AtomicU64::new(0);
        thread::scope(|scope| {
            for key in 0..8 {
                let (hierarchy, granted) = (&hierarchy, &granted);
                scope.spawn(move || {
                    for _ in 0..300 {
                        let ruling = hierarchy.check(&key, 1);
                        granted.fetch_add(u64::from(ruling.is_granted()), Ordering::Relaxed);
                        assert!(
                            ruling.is_granted()
                                || ruling.binding() == Some(&format!("level {refusing}"))
                        );
                    }
                });
            }
        });
        let granted = granted.into_inner();
        assert_eq!(granted, 5 * (refusing + 1));
        // The sum charged at each level is what was granted.
        for level in 0..6 {
            let mut charged = 0;
            for key in 0..=level {
                let peek = hierarchy.peek(&key, 0);
                let (_, decision) = peek.decisions().nth(level as usize).expect("it is there");
                charged += decision.limit - decision.remaining;
            }
            assert_eq!(charged, granted, "refused at {refusing}, looked at {level}");
        }
    }
}

/// One thread is always refused at the inner level. Were the outer one charged until then, the other thread would find
/// it empty now and again.
#[test]
fn no_phantom_entries() {
    let clock = ManualClock::new();
    let hierarchy = Hierarchy::<u64>::builder()
        .level(
            "outer",
            SlidingLog::new(2, MINUTE).expect("it is a limit"),
            |_| (),
        )
        .level("inner", Rate::per_day(1).burst(1), |key| *key)
        .limit_for("inner", |key| {
            (*key == 1).then(|| Rate::per_second(1).burst(1_000_000).into())
        })
        .clock(clock)
        .build()
        .expect("it is valid");
    assert!(hierarchy.check(&0, 1).is_granted());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(!hierarchy.check(&0, 1).is_granted());
            }
        });
        for _ in 0..5000 {
            let ruling = hierarchy.check(&1, 1);
            assert!(ruling.is_granted(), "{ruling:?}");
            hierarchy.refund(ruling.charge());
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn level_keys_cannot_collide() {
    let hierarchy = Hierarchy::<(&'static str, &'static str)>::builder()
        .level("global", Rate::per_day(1).burst(10), |_| "global")
        .level("user", Rate::per_day(1).burst(2), |(user, _)| *user)
        .level("pair", Rate::per_day(1).burst(1), |(user, path)| {
            (*user, *path)
        })
        .clock(ManualClock::new())
        .build()
        .expect("it is valid");
    // A user who is called like the global key has the user's limit, and takes one unit of the global one.
    assert!(hierarchy.check(&("global", "x"), 1).is_granted());
    assert_eq!(remaining(&hierarchy.peek(&("global", "x"), 0)), [9, 1, 0]);
    // Forged delimiters are another pair.
    assert!(hierarchy.check(&("a:b", "c"), 1).is_granted());
    assert!(hierarchy.check(&("a", "b:c"), 1).is_granted());
    assert_eq!(
        hierarchy
            .keys()
            .iter()
            .map(|(_, keys)| *keys)
            .collect::<Vec<_>>(),
        [1, 3, 3]
    );
}

#[test]
fn a_level_without_a_key_is_skipped() {
    let hierarchy = public_interface(&ManualClock::new());
    let ruling = hierarchy.check(&request(None, "/"), 1);
    let names: Vec<_> = ruling
        .decisions()
        .map(|(name, _)| name.to_owned())
        .collect();
    assert_eq!(names, ["global", "ip", "endpoint"]);
    let charge = ruling.charge();
    assert_eq!(charge.levels().len(), 3);
    assert!(charge.levels().all(|(name, ..)| name != "user"));
}

#[test]
fn limits_follow_the_plan_of_the_context() {
    let hierarchy = Hierarchy::<&'static str>::builder()
        .level("user", Rate::per_day(1).burst(2), |plan| *plan)
        .limit_for("user", |plan| match *plan {
            "gold" => Some(Rate::per_day(1).burst(20).into()),
            _ => None,
        })
        .clock(ManualClock::new())
        .build()
        .expect("it is valid");
    let drained = |plan| {
        (0..100)
            .filter(|_| hierarchy.check(&plan, 1).is_granted())
            .count()
    };
    assert_eq!((drained("gold"), drained("free")), (20, 2));
    hierarchy
        .set_limit("user", Rate::per_day(1).burst(5))
        .expect("there is such a level");
    assert_eq!(
        hierarchy.levels()[0].1.to_string(),
        "token_bucket 1/day burst 5"
    );
    assert_eq!(
        hierarchy
            .peek(&"gold", 0)
            .tightest()
            .map(|(_, decision)| decision.limit),
        Some(20)
    );
    assert_eq!(
        hierarchy
            .peek(&"new", 0)
            .tightest()
            .map(|(_, decision)| decision.limit),
        Some(5)
    );
}

#[test]
fn a_refund_restores_every_level_once_and_only_what_was_granted() {
    let clock = ManualClock::new();
    let hierarchy = public_interface(&clock);
    let ada = request(Some("ada"), "/");
    let ruling = hierarchy.check(&ada, 10);
    assert!(ruling.charge().at().is_some());
    hierarchy.refund(ruling.charge());
    assert_eq!(remaining(&hierarchy.peek(&ada, 0)), [10_000, 100, 500, 50]);
    assert!(hierarchy.check(&ada, 50).is_granted());
    let refused = hierarchy.check(&ada, 1);
    assert_eq!(refused.charge().at(), None);
    hierarchy.refund(refused.charge());
    assert_eq!(remaining(&hierarchy.peek(&ada, 0)), [9950, 50, 450, 0]);
}

#[test]
fn a_key_function_that_panics_charges_nothing() {
    let hierarchy = Hierarchy::<u64>::builder()
        .level("global", Rate::per_day(1).burst(10), |_| ())
        .level("user", Rate::per_day(1).burst(10), |user| {
            assert!(*user != 13, "unlucky");
            *user
        })
        .clock(ManualClock::new())
        .build()
        .expect("it is valid");
    let panicked =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| hierarchy.check(&13, 1)));
    assert!(panicked.is_err());
    assert_eq!(remaining(&hierarchy.check(&1, 1)), [9, 9]);
}

#[test]
fn the_cap_on_keys_holds_at_every_level() {
    let hierarchy = Hierarchy::<u64>::builder()
        .level("global", Rate::per_day(1).burst(1000), |_| ())
        .level("user", Rate::per_day(1).burst(5), |user| *user)
        .max_keys(10)
        .clock(ManualClock::new())
        .build()
        .expect("it is valid");
    let rulings: Vec<_> = (0..30).map(|user| hierarchy.check(&user, 1)).collect();
    let granted = rulings.iter().filter(|ruling| ruling.is_granted()).count();
    assert_eq!(
        (granted, hierarchy.keys()[1].1),
        (15, 10),
        "ten of their own, and five of the shared"
    );
    assert_eq!(remaining(&hierarchy.peek(&0, 0))[0], 985);
    // What newcomers share is given back to them.
    hierarchy.refund(rulings[12].charge());
    assert!(hierarchy.check(&29, 1).is_granted());
    assert!(!hierarchy.check(&29, 1).is_granted());
}

#[test]
fn what_cannot_be_built_is_refused_by_name() {
    let level = |name: &'static str| {
        Hierarchy::<()>::builder().level(name, Rate::per_second(1).burst(2), |()| ())
    };
    let field = |error: Result<Hierarchy<()>, BuildError>| match error {
        Err(BuildError::Setting { field, value, .. }) => (field, value),
        other => panic!("{other:?}"),
    };
    let twice = level("a")
        .level("a", Rate::per_second(1).burst(2), |()| ())
        .build();
    assert_eq!(field(twice), ("level", "\"a\"".to_owned()));
    assert_eq!(
        field(level("a").limit_for("b", |()| None).build()),
        ("limit_for", "\"b\"".to_owned())
    );
    assert_eq!(
        field(level("a").max_keys(0).build()),
        ("max_keys", "0".to_owned())
    );
    let low: Limit = Rate::per_second(1).burst(2).initial(0).into();
    let built = Hierarchy::<()>::builder().level("a", low, |()| ()).build();
    assert_eq!(field(built).0, "limit");
    let hierarchy = level("a").build().expect("it is valid");
    assert!(
        hierarchy
            .set_limit("b", Rate::per_second(1).burst(2))
            .is_err()
    );
    assert!(hierarchy.set_limit("a", low).is_err());
}

#[test]
fn eight_threads_through_six_levels_never_pass_any_bound() {
    let clock = ManualClock::new();
    let mut builder = Hierarchy::<u64>::builder().clock(clock.clone());
    let limits = [
        "token_bucket 1000/s burst 400",
        "sliding_log 300 per 1s",
        "sliding_counter 260 per 1s",
        "fixed_window 250 per 1s",
        "leaky_bucket 100/s depth 120",
        "token_bucket 100/s burst 100",
    ];
    for (level, text) in limits.iter().enumerate() {
        let limit: Limit = text.parse().expect("it is a limit");
        builder = builder.level(*text, limit, move |key| key % (level as u64 / 2 + 1));
    }
    let hierarchy = builder.build().expect("it is valid");
    let granted = AtomicU64::new(0);
    for _ in 0..20 {
        thread::scope(|scope| {
            for key in 0..8 {
                let (hierarchy, granted) = (&hierarchy, &granted);
                scope.spawn(move || {
                    for _ in 0..40 {
                        let passes = hierarchy.check(&key, 1).is_granted();
                        granted.fetch_add(u64::from(passes), Ordering::Relaxed);
                    }
                });
            }
        });
        clock.advance(Duration::from_millis(10));
    }
    let granted = granted.into_inner();
    // In 190 ms: three keys with 100 + 19 each at the innermost level, and 250 in the window of each of two keys.
    assert!((250..=300).contains(&granted), "granted {granted}");
}
