//! Models of a hierarchy's locks: every order in which two threads can take them.

use futures_util::future::BoxFuture;

use super::hierarchy::Hierarchy;
use crate::clock::Clock;
use crate::rate::Rate;
use crate::sync::Arc;
use crate::tick::Tick;

/// A clock that stands still.
#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now(&self) -> Tick {
        Tick::from_nanos(1_000_000_000)
    }

    fn sleep_until(&self, _: Tick) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// A level for everybody and one by user, of one unit an hour each.
fn hierarchy(max_keys: u64) -> Arc<Hierarchy<u64>> {
    let once = || Rate::per_hour(1).burst(1);
    let hierarchy = Hierarchy::<u64>::builder()
        .level("global", once(), |_| ())
        .level("user", once(), |user| *user)
        .max_keys(max_keys)
        .clock(Still)
        .build()
        .expect("the settings are valid");
    Arc::new(hierarchy)
}

/// Every interleaving with up to two forced switches.
fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(body);
}

/// Of two users that race for the only unit of the outer level one gets it, and the other one's own level, which would
/// have granted, is not charged.
#[test]
fn loom_every_level_is_charged_or_none() {
    model(|| {
        let hierarchy = hierarchy(8);
        let other = Arc::clone(&hierarchy);
        let first = loom::thread::spawn(move || other.check(&1, 1).is_granted());
        let second = hierarchy.check(&2, 1).is_granted();
        let first = first.join().expect("it does not panic");
        assert!(first ^ second, "first {first}, second {second}");
        for (user, granted) in [(1, first), (2, second)] {
            let ruling = hierarchy.peek(&user, 0);
            let left: Vec<u64> = ruling
                .decisions()
                .map(|(_, decision)| decision.remaining)
                .collect();
            assert_eq!(left, [0, u64::from(!granted)], "of user {user}");
        }
    });
}

/// Two users beyond the cap on keys meet in what newcomers share, and a refund passes them: nobody waits for ever, and
/// the share is charged once.
#[test]
fn loom_newcomers_and_a_refund_do_not_block_each_other() {
    model(|| {
        let hierarchy = hierarchy(1);
        let taken = hierarchy.check(&1, 1);
        assert!(taken.is_granted());
        let other = Arc::clone(&hierarchy);
        let refund = loom::thread::spawn(move || other.refund(taken.charge()));
        let second = hierarchy.check(&2, 1).is_granted();
        refund.join().expect("it does not panic");
        let third = hierarchy.check(&3, 1).is_granted();
        // After the refund there is one unit: the second took it if it came late enough, else nobody has.
        assert!(!(second && third), "second {second}, third {third}");
        assert!(second || third, "the refunded unit is lost");
    });
}
