//! Every name of the public contract, used as others use it. That it compiles is most of what it shows.

#![allow(clippy::too_many_lines)]

use std::borrow::Cow;
use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use sluicegate::queue::workers::{Outcome, Workers};
use sluicegate::queue::{
    Accepted, Backoff, Builder, Control, DeadLetter, DeadLetters, DrainReport, Ending, Enter, Exit,
    Health, Job, Ledger, Ledgers, Offer, OwnedPermit, Permit, Pressure, Priority, Reason, Receiver,
    Refusal, Refused, ReserveOwned, Sender, SenderSink, Snapshot, Terms, Ticket, Timer,
    TryRecvError, Turn, Turnstile, WeakSender, WhenFull,
};
use sluicegate::{
    AcquireError, Admission, BuildError, Cause, Charge, Clock, Decision, Denied, FixedWindow, Gate,
    GateOffer, Hierarchy, HierarchyBuilder, IntoKey, Key, KeyedLimiter, KeyedLimiterBuilder,
    LeakyBucket, Limit, LimitError, LimitState, Limited, Local, ManualClock, Policy, Rate,
    RateError, RateLimiter, Recommendation, Requirements, Reservation, Ruling, SlidingCounter,
    SlidingLog, Store, Tick, TokenBucket, TokioClock, Verdict, WhenKeysFull,
};
use tokio_util::sync::CancellationToken;

type Outcomes = Result<(), Box<dyn Error + Send + Sync>>;

const _: Rate = Rate::per_second(1);
const _: TokenBucket = Rate::per_minute(10).burst(50);
const _: Result<Rate, RateError> = Rate::new(1, Duration::from_secs(1));
const _: Result<TokenBucket, LimitError> = TokenBucket::new(Rate::per_hour(1), 5);
const _: Result<LeakyBucket, LimitError> = LeakyBucket::new(Rate::per_day(1), 1);
const _: Result<FixedWindow, LimitError> = FixedWindow::new(1, Duration::from_secs(1));
const _: Result<SlidingLog, LimitError> = SlidingLog::new(1, Duration::from_secs(1));
const _: Result<SlidingCounter, LimitError> = SlidingCounter::new(1, Duration::from_secs(1));
const _: fn(u64) -> Tick = Tick::from_nanos;

#[test]
fn numbers_and_decisions() -> Outcomes {
    for text in ["200/s", "5/min", "1/day", "10/250ms", "1/2s"] {
        assert_eq!(text.parse::<Rate>()?.to_string(), text);
    }
    for text in [
        "token_bucket 10/s burst 50",
        "token_bucket 10/s burst 50 initial 0",
        "leaky_bucket 10/s depth 5",
        "fixed_window 100 per 1min",
        "fixed_window 100 per 1min aligned 0s",
        "sliding_log 100 per 1min",
        "sliding_counter 100 per 1min",
    ] {
        assert_eq!(text.parse::<Limit>()?.to_string(), text);
    }
    assert!("fixed_window 100 per 60s aligned".parse::<Limit>().is_ok());
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1));
    clock.set(Tick::from_nanos(5));
    let tick: Tick = clock.now() + Duration::from_nanos(2);
    let _: Duration = tick - Tick::from_nanos(1);
    assert_eq!(tick.as_nanos(), 7);
    let limiter = RateLimiter::with_clock(TokenBucket::new(Rate::per_second(10), 2)?, clock);
    let decision: Decision = limiter.check(2);
    let Decision {
        at,
        verdict,
        limit,
        remaining,
        next_unit_in,
        reset_after,
    } = decision.clone();
    assert_eq!((verdict, limit, remaining), (Verdict::Granted, 2, 0));
    assert_eq!(next_unit_in, Duration::from_millis(100));
    assert_eq!(reset_after, Duration::from_millis(200));
    assert!(decision.is_granted() && decision.into_result().is_ok());
    let refused = limiter.check(1);
    assert_eq!(
        refused.verdict,
        Verdict::Refused {
            retry_after: Duration::from_millis(100)
        }
    );
    assert_eq!(refused.retry_after(), Some(Duration::from_millis(100)));
    let limited: Limited = refused.into_result().expect_err("refused");
    let _: (Option<Duration>, Option<&str>) = (Some(Duration::ZERO), limited.level());
    let _ = limited.clone() == limited;
    assert_eq!(limiter.check(3).verdict, Verdict::Never { max_cost: 2 });
    limiter.refund(at, 1);
    assert!(limiter.peek(1).is_granted());
    limiter.set_limit(SlidingLog::new(5, Duration::from_secs(1))?);
    let limit: Limit = FixedWindow::new(5, Duration::from_secs(60))?
        .aligned(Duration::ZERO)
        .into();
    let _: (u64, Duration) = (limit.quota(), limit.window());
    fn rule<P: Policy>(rule: &P) -> P::State {
        let mut state = rule.start(Tick::from_nanos(0));
        let _ = rule.check(&mut state, Tick::from_nanos(0), 1);
        let _ = rule.peek(&state, Tick::from_nanos(0), 1);
        rule.refund(&mut state, Tick::from_nanos(0), 1);
        let _ = rule.is_idle(&state, Tick::from_nanos(0));
        state
    }
    rule(&LeakyBucket::new(Rate::per_second(1), 1)?);
    let _: LimitState = rule(&limit);
    rule(&TokenBucket::new(Rate::per_second(1), 5)?.initial(2));
    let advice: Recommendation = Requirements::new(Rate::per_second(5))
        .burst(10)
        .keys(100)
        .exact(true)
        .steady(false)
        .processes(2)
        .recommend();
    let Recommendation {
        limit: _,
        implementation: _,
        why: _,
        bound: _,
        ..
    } = advice;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn limiters_and_doors() -> Outcomes {
    let limiter = RateLimiter::new(Rate::per_second(10).burst(2)).clone();
    limiter.acquire(1).await?;
    limiter.acquire_within(1, Duration::from_secs(1)).await?;
    let never = limiter.acquire(9).await.expect_err("it never fits");
    assert_eq!(never, AcquireError::Never { max_cost: 2 });
    let reservation: Reservation = limiter.reserve(1)?;
    let _: Duration = reservation.delay();
    reservation.wait().await?;
    limiter.reserve(1)?.take();
    let builder: KeyedLimiterBuilder<String> =
        KeyedLimiter::<String>::builder(Rate::per_second(5).burst(5));
    let keyed: KeyedLimiter<String> = builder
        .max_keys(100)
        .when_keys_full(WhenKeysFull::Refuse)
        .limit_for(|key: &String| {
            key.starts_with("big")
                .then(|| Rate::per_second(50).burst(50).into())
        })
        .clock(TokioClock)
        .build()?;
    let decision = keyed.check("ann", 1);
    keyed.refund("ann", decision.at, 1);
    let _ = keyed.peek("ann", 1);
    keyed.acquire("ann", 1).await?;
    keyed.set_limit(Rate::per_second(7).burst(7))?;
    let _: u64 = keyed.len();
    let _ = WhenKeysFull::Share;
    struct Request {
        user: Option<u64>,
        address: IpAddr,
    }
    let builder: HierarchyBuilder<Request> = Hierarchy::<Request>::builder();
    let edge: Hierarchy<Request, Local> = builder
        .level(
            "global",
            Rate::per_second(1000).burst(1000),
            |_: &Request| (),
        )
        .level(
            "address",
            SlidingLog::new(100, Duration::from_secs(60))?,
            |r: &Request| r.address,
        )
        .level("user", Rate::per_second(5).burst(5), |r: &Request| r.user)
        .limit_for("user", |r: &Request| {
            (r.user == Some(1)).then(|| Rate::per_second(9).burst(9).into())
        })
        .clock(TokioClock)
        .build()?;
    let request = Request {
        user: Some(2),
        address: IpAddr::from([127, 0, 0, 1]),
    };
    let ruling: Ruling = edge.check(&request, 1);
    assert!(ruling.is_granted() && !ruling.is_degraded());
    let _: (Option<&str>, Option<Duration>) = (ruling.binding(), ruling.retry_after());
    let _: Option<(&str, &Decision)> = ruling.tightest();
    assert_eq!(ruling.decisions().count(), 3);
    let charge: Charge = ruling.charge();
    let _: (u64, Option<Tick>, bool) = (charge.cost(), charge.at(), charge.keeps_half());
    for level in charge.levels() {
        let _: (&str, &Limit, &Key) = level;
    }
    edge.refund(charge);
    let _ = edge.peek(&request, 1);
    let _ = edge.decide(&request, 1).await.into_result();
    edge.set_limit("global", Rate::per_second(10).burst(10))?;
    let _: Vec<(Arc<str>, Limit)> = edge.levels();
    async fn door<A: Admission>(edge: &A, context: &A::Context) {
        let ruling = edge.admit(edge.charge(context, 1)).await;
        edge.give_back(ruling.charge());
    }
    door(&edge, &request).await;
    door(&limiter, &()).await;
    door(&keyed, &"ann".to_owned()).await;
    fn store<S: Store>() {}
    store::<Local>();
    fn key(_: impl IntoKey) {}
    key(7_u64);
    key("a");
    key(String::new());
    key(Arc::<str>::from("a"));
    key(Cow::Borrowed("a"));
    key(&b"a"[..]);
    key(Some(IpAddr::from([0, 0, 0, 0])));
    key(("a", 7_u32));
    key(());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_queue() -> Outcomes {
    let builder: Builder = Builder::new(Rate::per_second(1000))
        .max_depth(100)
        .watermarks(50, 80)
        .max_waiters(10)
        .max_wait(Duration::from_secs(9))
        .expire_after(Duration::from_secs(9))
        .max_in_flight(50)
        .catch_up(10)
        .catch_up_pace(1.1)
        .when_full(WhenFull::Refuse)
        .standing_delay(Duration::from_millis(50), Duration::from_millis(500))
        .drop_stale(true)
        .max_attempts(5)
        .dead_letters(100)
        .timer(Timer::Runtime)
        .clock(TokioClock)
        .name("orders-db");
    let _ = Builder::shedding(Rate::per_second(10), Duration::from_secs(1)).clone();
    let (tx, rx): (Sender<u32>, Receiver<u32>) = builder.clone().build::<u32>()?;
    let _: Accepted = tx.send(1).await?;
    let Accepted {
        depth,
        expected_wait,
        ..
    } = tx.send_within(2, Duration::from_secs(1)).await?;
    let _: (u64, Duration) = (depth, expected_wait);
    tx.try_send(3)?;
    let permit: Permit<'_, u32> = tx.reserve().await?;
    let _: Accepted = permit.send(4);
    tx.reserve_cost(2).await?.send(5);
    let token = CancellationToken::new();
    let terms = Terms::new()
        .cost(1)
        .priority(Priority::High)
        .tenant("ann")
        .expires_in(Duration::from_secs(5))
        .expires_at(tokio::time::Instant::now() + Duration::from_secs(5))
        .run_estimate(Duration::from_millis(1))
        .cancelled_by(token.clone());
    tx.reserve_with(terms.clone()).await?.send(6);
    tx.try_reserve()?.send(7);
    let owned: ReserveOwned<u32> = tx.reserve_owned();
    let owned: OwnedPermit<u32> = owned.await?;
    owned.send(8);
    drop(tx.reserve_owned_with(Terms::new()));
    let offer: Offer<'_, u32> = tx.offer(9).terms(terms.clone()).cost(2);
    offer.send().await?;
    tx.offer(10).priority(Priority::Critical).try_send()?;
    tx.offer(11).send_within(Duration::from_secs(1)).await?;
    let ticket: Ticket = tx.offer(12).track().await?;
    let _: Pressure = tx.pressure();
    let _: Pressure = *tx.watch_pressure().borrow();
    let weak: WeakSender<u32> = tx.downgrade();
    assert!(weak.upgrade().is_some() && !tx.is_closed());
    let control: Control = tx.control();
    let mut job: Job<u32> = rx.recv().await.expect("a job");
    *job += 1;
    let _: (Duration, Tick, u32, u64) =
        (job.waited(), job.departed_at(), job.attempt(), job.cost());
    let _: Terms = job.terms().clone();
    job.settle_cost(1);
    job.retry(Duration::ZERO);
    rx.recv().await.expect("a job").retry(Backoff::exponential(
        Duration::from_millis(1),
        Duration::from_secs(1),
    ));
    rx.recv()
        .await
        .expect("a job")
        .defer(Duration::from_millis(1));
    rx.recv().await.expect("a job").fail();
    rx.recv().await.expect("a job").fail_because("broken");
    let _: u32 = rx.recv().await.expect("a job").into_inner();
    match rx.try_recv() {
        Ok(job) => job.ack(),
        Err(TryRecvError::Empty | TryRecvError::Held | TryRecvError::Closed) => {}
        Err(TryRecvError::NotDue { after }) => assert!(after > Duration::ZERO),
    }
    let letters: DeadLetters<u32> = rx.dead_letters();
    let DeadLetter {
        item: _,
        exit,
        waited: _,
        attempts: _,
        cause,
        ..
    } = letters.recv().await.expect("a letter");
    assert_eq!((exit, cause.is_none()), (Exit::Failed, true));
    assert!(
        letters
            .try_recv()
            .is_some_and(|letter| letter.cause.is_some())
    );
    for job in rx.recv_many(4).await {
        job.ack();
    }
    for job in rx.recv_batch(4).await {
        job.ack();
    }
    control.set_rate(Rate::per_second(2000))?;
    control.ramp(Rate::per_second(3000), Duration::from_millis(1))?;
    control.set_max_depth(200)?;
    control.set_watermarks(60, 90)?;
    control.apply(builder)?;
    control.pause("backup");
    control.resume();
    let snapshot: Snapshot = control.snapshot();
    let Snapshot {
        depth: _,
        max_depth: _,
        waiting: _,
        in_flight: _,
        pressure: _,
        rate: _,
        owed: _,
        oldest_wait: _,
        ledger,
        dead_letters_lost: _,
        ..
    } = snapshot;
    let ledger: Ledger = ledger;
    assert!(ledger.is_balanced());
    let Ledgers {
        lanes: _,
        tenants: _,
        others: _,
        ..
    } = control.ledgers();
    let _: Health = control.health();
    let _: (Health, Health) = (Health::Green, Health::Red);
    drop(rx.control());
    tx.close();
    tx.closed().await;
    let refused: Refused<u32> = tx.try_send(99).expect_err("closed");
    assert_eq!(
        (
            refused.reason(),
            refused.retry_after(),
            refused.retry_after_secs()
        ),
        (Reason::Closed, None, None)
    );
    let _: (u64, Pressure, Option<&str>) = (refused.depth(), refused.pressure(), refused.queue());
    let refusal: &Refusal = refused.refusal();
    let _ = refusal.clone() == *refusal;
    let (item, refusal) = refused.into_parts();
    assert_eq!((item, refusal.queue()), (99, Some("orders-db")));
    let report: DrainReport<u32> = rx.drain(Duration::from_millis(1)).await;
    let DrainReport {
        settled: _,
        in_flight: _,
        returned,
        ..
    } = report;
    let _: Vec<DeadLetter<u32>> = returned;
    let ending: Ending = ticket.await;
    let _ = matches!(
        ending,
        Ending::Acked
            | Ending::Failed
            | Ending::Evicted
            | Ending::Expired
            | Ending::Cancelled
            | Ending::Abandoned
            | Ending::Returned
    );
    rx.close();
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn turnstile_gate_workers_and_sinks() -> Outcomes {
    let turnstile: Turnstile = Builder::unpaced().max_in_flight(1).turnstile()?;
    let enter: Enter = turnstile.enter();
    let turn: Turn = enter.await?;
    drop(turn);
    drop(turnstile.enter_with(Terms::new().cost(1)).await?);
    drop(turnstile.try_enter()?);
    assert_eq!(turnstile.run(async { 7 }).await?, 7);
    let _: (Control, Snapshot) = (turnstile.control(), turnstile.snapshot());
    turnstile.close();
    assert!(turnstile.clone().is_closed());

    let (tx, rx) = Builder::unpaced().build::<u32>()?;
    let gate: Gate<RateLimiter, u32> =
        Gate::new(RateLimiter::new(Rate::per_second(5).burst(9)), tx.clone());
    gate.clone().send(&(), 1).await?;
    gate.try_send(&(), 2)?;
    let offer: GateOffer<'_, RateLimiter, u32> = gate.offer(&(), 3).cost(1).priority(Priority::Low);
    offer.send_within(Duration::from_secs(1)).await?;
    gate.offer(&(), 4).try_send()?;
    gate.reserve(&()).await?.send(5);
    let denied: Denied<u32> = gate
        .offer(&(), 6)
        .cost(100)
        .try_send()
        .expect_err("it never fits");
    let _: Option<Duration> = denied.retry_after();
    match denied.cause() {
        Cause::Edge(ruling) => assert!(!ruling.is_granted()),
        Cause::Queue(refusal) => panic!("{refusal}"),
    }
    let sink: SenderSink<u32> = tx.clone().into_sink();
    drop(sink);
    drop(tx.clone().into_sink_with(|_: &u32| Terms::new().cost(1)));
    drop((tx, gate));
    let report: DrainReport<u32> = Workers::new(rx)
        .concurrency(8)
        .backoff(Backoff::from(Duration::from_millis(1)))
        .finish_within(Duration::from_secs(1))
        .run(
            |job: Job<u32>| async move {
                if *job == 1 {
                    Outcome::Fail
                } else {
                    Outcome::Ack
                }
            },
            CancellationToken::new(),
        )
        .await;
    assert!(report.returned.is_empty());
    let _: (Outcome, Outcome) = (Outcome::from(()), Outcome::from(Err::<(), _>("broken")));
    let _ = Outcome::Retry(Duration::ZERO.into());
    let error: BuildError = Builder::unpaced()
        .max_depth(0)
        .build::<u32>()
        .expect_err("no depth");
    let _: &dyn Error = &error;
    Ok(())
}
