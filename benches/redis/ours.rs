//! Our side of a row: a hierarchy over shared limits, asked as a user asks it.

use std::time::Duration;

use sluicegate::redis::{Endpoint, Limits, LimitsBuilder};
use sluicegate::{
    Admission, Charge, FixedWindow, Hierarchy, LeakyBucket, Limit, Rate, Ruling, SlidingCounter,
    SlidingLog,
};

use crate::server::Server;

/// Number of a key.
pub(crate) type Caller = u64;

/// A hierarchy whose every ruling is what the row is about.
#[derive(Clone)]
pub(crate) struct Ours {
    limits: Limits,
    hierarchy: Hierarchy<Caller, Limits>,
    grants: bool,
}

impl Ours {
    pub(crate) fn new(
        server: &Server,
        levels: &[Limit],
        grants: bool,
        settings: impl FnOnce(LimitsBuilder) -> LimitsBuilder,
    ) -> Self {
        let endpoint = Endpoint::new(server.url()).expect("a valid address");
        // A machine that stalls is no outage.
        let limits = Limits::builder(endpoint).deadline(Duration::from_secs(10));
        let limits = settings(limits).build().expect("valid settings");
        let mut builder = Hierarchy::<Caller>::builder();
        for (index, limit) in levels.iter().enumerate() {
            builder = builder.level(format!("level{index}"), *limit, |caller| *caller);
        }
        let hierarchy = builder.build_on(limits.clone());
        Self {
            limits,
            hierarchy: hierarchy.expect("limits that can be kept"),
            grants,
        }
    }

    pub(crate) async fn decide(&self, caller: Caller) {
        let ruling = self.hierarchy.decide(&caller, 1).await;
        self.check(&ruling);
    }

    pub(crate) async fn decide_many(&self, callers: &[Caller]) {
        let charges = callers.iter().map(|caller| self.charge(*caller));
        let rulings = self.limits.decide_many(charges).await;
        assert_eq!(rulings.len(), callers.len());
        rulings.iter().for_each(|ruling| self.check(ruling));
    }

    /// Uses up what each of the keys has, so that everything after it is refused.
    pub(crate) async fn exhaust(&self, keys: u64) {
        let keys: Vec<Caller> = (0..keys).collect();
        for some in keys.chunks(1_000) {
            let charges = some.iter().map(|caller| self.charge(*caller));
            let rulings = self.limits.decide_many(charges).await;
            assert!(
                rulings.iter().all(Ruling::is_granted),
                "the server is empty"
            );
        }
    }

    fn charge(&self, caller: Caller) -> Charge {
        Admission::charge(&self.hierarchy, &caller, 1)
    }

    /// A row about something else than what happened is worth nothing: it ends the run.
    fn check(&self, ruling: &Ruling) {
        if ruling.is_degraded() || ruling.is_granted() != self.grants {
            let error = self.limits.last_error();
            eprintln!("not what the row is about: {ruling:?}, last error {error:?}");
            std::process::exit(1);
        }
    }
}

/// Of each kind, one that grants as long as a run lasts: of many keys each is charged some hundred times, and the first
/// limit bears that a single one is charged as often as can be.
pub(crate) fn ample() -> [(&'static str, Limit); 5] {
    let hour = Duration::from_secs(3600);
    let leaky = LeakyBucket::new(Rate::per_second(1), 1_000_000);
    let log = SlidingLog::new(1_000, Duration::from_secs(10));
    let counter = SlidingCounter::new(1_000_000, hour);
    [
        (
            "token bucket",
            Rate::per_second(1).burst(1_000_000_000).into(),
        ),
        ("leaky bucket", leaky.expect("valid").into()),
        (
            "fixed window",
            FixedWindow::new(1_000_000, hour).expect("valid").into(),
        ),
        ("sliding log", log.expect("valid").into()),
        ("sliding counter", counter.expect("valid").into()),
    ]
}

/// Of each kind, one that grants once.
pub(crate) fn scarce() -> [(&'static str, Limit); 5] {
    let day = Duration::from_secs(86_400);
    let leaky = LeakyBucket::new(Rate::per_day(1), 1);
    [
        ("token bucket", Rate::per_day(1).burst(1).into()),
        ("leaky bucket", leaky.expect("valid").into()),
        (
            "fixed window",
            FixedWindow::new(1, day).expect("valid").into(),
        ),
        (
            "sliding log",
            SlidingLog::new(1, day).expect("valid").into(),
        ),
        (
            "sliding counter",
            SlidingCounter::new(1, day).expect("valid").into(),
        ),
    ]
}
