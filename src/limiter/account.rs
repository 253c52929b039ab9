//! One limit shared by threads: the word in front, the lock with the state and the line behind it. Knows no clock.
//!
//! While the word is open it *is* the state, and checks go by it alone. Whoever takes the lock shuts the word first and
//! takes its content over, so nobody charges beside it; on the way out the word is opened again, unless somebody waits
//! or the limit is none that fits a word. Then every check takes the lock.

use std::task::Waker;

use super::line::{Before, Entered, Line, Standing};
use super::word::{Scale, Word};
use crate::decision::Decision;
use crate::error::AcquireError;
use crate::policy::{Limit, LimitState, Policy};
use crate::sync::{Mutex, MutexGuard};
use crate::tick::Tick;

#[derive(Debug)]
pub(crate) struct Account {
    word: Word,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    limit: Limit,
    /// How the limit fits the word, if it does.
    scale: Option<Scale>,
    state: LimitState,
    line: Line,
    /// Latest reading that counted.
    last: Tick,
    tag: u64,
}

impl Account {
    pub(crate) fn new(limit: Limit, now: Tick) -> Self {
        let account = Self {
            word: Word::new(),
            inner: Mutex::new(Inner {
                limit,
                scale: limit.bucket().and_then(Scale::of),
                state: limit.start(now),
                line: Line::default(),
                last: now,
                tag: 0,
            }),
        };
        account.locked(now, |_, _| ());
        account
    }

    #[inline(always)]
    pub(crate) fn check(&self, now: Tick, cost: u64) -> Decision {
        match self.word.check(now, cost) {
            Some(decision) => decision,
            None => self.check_locked(now, cost, false),
        }
    }

    /// Whether the word alone grants this.
    pub(crate) fn check_open(&self, now: Tick, cost: u64) -> bool {
        let decision = self.word.check(now, cost);
        decision.is_some_and(|decision| decision.is_granted())
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn check_locked(&self, now: Tick, cost: u64, half: bool) -> Decision {
        self.locked(now, |line, before| line.check(before, cost, half))
    }

    pub(crate) fn peek(&self, now: Tick, cost: u64) -> Decision {
        self.locked(now, |line, before| line.peek(before, cost, false))
    }

    pub(crate) fn refund(&self, now: Tick, charged_at: Tick, cost: u64) {
        self.locked(now, |line, before| {
            let Before { limit, now, .. } = *before;
            limit.refund_at(before.state, charged_at, cost, now);
            line.serve(before);
        });
    }

    pub(crate) fn set_limit(&self, now: Tick, limit: Limit) {
        let mut wakes = Vec::new();
        let mut inner = self.inner.lock();
        inner.take_over(&self.word, now);
        let Inner {
            limit: old,
            state,
            line,
            last,
            ..
        } = &mut *inner;
        let mut before = Before {
            limit: old,
            state,
            now: *last,
            wakes: &mut wakes,
        };
        line.replan(&mut before, &limit, true);
        inner.limit = limit;
        inner.scale = limit.bucket().and_then(Scale::of);
        inner.hand_back(&self.word);
        drop(inner);
        wakes.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn limit(&self) -> Limit {
        self.inner.lock().limit
    }

    pub(crate) fn enter(
        &self,
        now: Tick,
        cost: u64,
        deadline: Tick,
    ) -> Result<Entered, AcquireError> {
        self.locked(now, |line, before| line.enter(before, cost, deadline))
    }

    pub(crate) fn poll(&self, now: Tick, id: u64, waker: Waker) -> Standing {
        let (standing, old) = self.locked(now, |line, before| line.poll(before, id, Some(waker)));
        drop(old);
        standing
    }

    pub(crate) fn cancel(&self, now: Tick, id: u64) {
        let waker = self.locked(now, |line, before| line.cancel(before, id));
        drop(waker);
    }

    pub(crate) fn take(&self, id: u64) {
        self.inner.lock().line.take(id);
    }

    pub(crate) fn due(&self, now: Tick, id: u64) -> Tick {
        self.locked(now, |line, before| line.due(before, id))
    }

    /// Runs under the lock with the state in hand, and wakes whom that served once it is released.
    fn locked<R>(&self, now: Tick, run: impl FnOnce(&mut Line, &mut Before<'_>) -> R) -> R {
        let mut wakes = Vec::new();
        let mut inner = self.inner.lock();
        inner.take_over(&self.word, now);
        let Inner {
            limit,
            state,
            line,
            last,
            ..
        } = &mut *inner;
        let mut before = Before {
            limit,
            state,
            now: *last,
            wakes: &mut wakes,
        };
        let result = run(line, &mut before);
        inner.hand_back(&self.word);
        drop(inner);
        wakes.into_iter().for_each(Waker::wake);
        result
    }
}

/// The state of an account in hand, to be judged together with others; nobody waits for it.
pub(crate) struct Hold<'a> {
    word: &'a Word,
    inner: MutexGuard<'a, Inner>,
}

impl Account {
    /// Takes the state in hand.
    pub(crate) fn hold(&self, now: Tick) -> Hold<'_> {
        let word = &self.word;
        let mut inner = self.inner.lock();
        inner.take_over(word, now);
        Hold { word, inner }
    }
}

impl Hold<'_> {
    pub(crate) fn state(&self) -> &LimitState {
        &self.inner.state
    }

    pub(crate) fn state_mut(&mut self) -> &mut LimitState {
        &mut self.inner.state
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.inner.hand_back(self.word);
    }
}

impl Inner {
    fn take_over(&mut self, word: &Word, now: Tick) {
        if let (Some((tat, last)), Some(bucket)) = (word.shut(), self.state.bucket_mut()) {
            bucket.tat = tat;
            bucket.last = last;
            self.last = self.last.max(last);
        }
        self.last = self.last.max(now);
    }

    fn hand_back(&mut self, word: &Word) {
        // Behind a line the lock has to be taken anyway, to serve whoever is due.
        if !self.line.is_empty() {
            return;
        }
        if let (Some(scale), Some(bucket)) = (self.scale, self.state.bucket()) {
            let (tat, last) = (bucket.tat, bucket.last);
            word.open(scale, tat, last, self.last, &mut self.tag);
        }
    }
}

#[cfg(all(test, sluicegate_loom))]
mod models {
    use super::*;
    use crate::rate::Rate;
    use crate::sync::Arc;
    use std::time::Duration;

    /// Every interleaving with up to two forced switches; three take minutes and have found nothing else.
    fn model(body: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(body);
    }

    fn at(millis: u64) -> Tick {
        Tick::from_nanos(millis * 1_000_000)
    }

    /// Two threads ask for three units of two while a third doubles the burst: what is granted is never more than the
    /// limit that stood, and nothing granted is lost from the count, whoever came first.
    #[test]
    fn loom_checks_race_a_new_limit() {
        model(|| {
            let account = Arc::new(Account::new(Rate::per_second(10).burst(2).into(), at(0)));
            let checks = Arc::clone(&account);
            let changes = Arc::clone(&account);
            let first = loom::thread::spawn(move || u64::from(checks.check(at(0), 1).is_granted()));
            let second = loom::thread::spawn(move || {
                changes.set_limit(at(0), Rate::per_second(1000).burst(4).into());
            });
            let mut granted = u64::from(account.check(at(0), 2).is_granted()) * 2;
            granted += first.join().expect("it does not panic");
            second.join().expect("it does not panic");
            assert!((1..=3).contains(&granted), "granted {granted}");
            let after = account.peek(at(0), 0);
            assert_eq!((after.limit, after.remaining), (4, 4 - granted));
        });
    }

    /// One waits while another gives its grant back and a third changes the limit: the waiter is always woken or due.
    #[test]
    fn loom_a_waiter_is_planned_anew_whatever_races() {
        model(|| {
            let account = Arc::new(Account::new(Rate::per_second(10).burst(1).into(), at(0)));
            let taken = account.check(at(0), 1);
            let Ok(Entered::Waits(id)) = account.enter(at(0), 1, Tick::MAX) else {
                panic!("the bucket is empty");
            };
            let (changes, refunds) = (Arc::clone(&account), Arc::clone(&account));
            let first = loom::thread::spawn(move || {
                changes.set_limit(at(0), Rate::per_second(1000).burst(1).into());
            });
            let second = loom::thread::spawn(move || refunds.refund(at(0), taken.at, 1));
            first.join().expect("it does not panic");
            second.join().expect("it does not panic");
            let due = account.due(at(0), id);
            assert!(due - at(0) <= Duration::from_millis(1), "due at {due:?}");
        });
    }
}
