//! Lines before single keys: there is one only while somebody waits for that key.
//!
//! A key that is waited for stays known, so its state is always at hand. Keys are made before the lock is taken and
//! dropped after it is released.

use std::borrow::Borrow;
use std::hash::Hash;
use std::task::Waker;

use futures_util::future::BoxFuture;

use super::account::Account;
use super::keyed::Shared;
use super::line::{Before, Entered, Line, Standing};
use super::shard::{KeyLine, Shard};
use super::state::Keep;
use super::table::WhenKeysFull;
use super::waiting::{Place, Waiting};
use crate::decision::Decision;
use crate::error::AcquireError;
use crate::policy::{Limit, LimitState};
use crate::tick::Tick;

/// As the limiter's check, where some key of the shard is waited for.
pub(super) fn check<K>(
    shared: &Shared<K>,
    hash: u64,
    key: K,
    own: Option<Limit>,
    (now, cost, keep): (Tick, u64, Keep),
) -> Decision
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    let half = keep == Keep::Half;
    let in_line = at_line(shared, hash, &key, now, |line, before| {
        line.check(before, cost, half)
    });
    // Nobody waits for this one: it is decided as if it were new, which finds it if it is not.
    in_line.unwrap_or_else(|| shared.table.check_new(hash, key, own, (now, cost, keep)))
}

/// What a key would be told that is waited for; `None` if it is not.
pub(super) fn peek<K, Q>(
    shared: &Shared<K>,
    key: &Q,
    (now, cost, keep): (Tick, u64, Keep),
) -> Option<Decision>
where
    K: Borrow<Q> + Hash + Eq + Clone + Send + Sync + 'static,
    Q: Hash + Eq + ?Sized,
{
    let hash = shared.table.hash(key);
    at_line(shared, hash, key, now, |line, before| {
        line.peek(before, cost, keep == Keep::Half)
    })
}

pub(super) fn refund<K, Q>(
    shared: &Shared<K>,
    key: &Q,
    own: Option<Limit>,
    (now, charged_at, cost): (Tick, Tick, u64),
) where
    K: Borrow<Q> + Hash + Eq + Clone + Send + Sync + 'static,
    Q: Hash + Eq + ?Sized,
{
    let hash = shared.table.hash(key);
    let in_line = at_line(shared, hash, key, now, |line, before| {
        let Before { limit, now, .. } = *before;
        limit.refund_at(before.state, charged_at, cost, now);
        line.serve(before);
    });
    if in_line.is_none() {
        let mut shard = shared.table.lock(hash);
        let now = shard.clamp(now);
        let limit = own.unwrap_or(shard.limit);
        shard.change(hash, key, &limit, now, |state| {
            limit.refund_at(state, charged_at, cost, now);
        });
    }
}

pub(super) async fn acquire<K>(shared: &Shared<K>, key: K, cost: u64) -> Result<(), AcquireError>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    let own = shared.own_limit(&key);
    match enter(shared, &key, own, cost)? {
        At::Key(Entered::Granted(_)) | At::Shared(Entered::Granted(_)) => Ok(()),
        At::Key(Entered::Waits(id)) => {
            let hash = shared.table.hash(&key);
            let place = InKeyLine {
                shared,
                key,
                hash,
                id,
            };
            Waiting::new(place).await
        }
        At::Shared(Entered::Waits(id)) => {
            let account = &shared.table.shared;
            Waiting::new(InSharedLine {
                account,
                shared,
                id,
            })
            .await
        }
    }
}

/// Where a newcomer got its grant or its place.
enum At {
    Key(Entered),
    /// Beyond the cap on keys.
    Shared(Entered),
}

fn enter<K>(shared: &Shared<K>, key: &K, own: Option<Limit>, cost: u64) -> Result<At, AcquireError>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    let table = &shared.table;
    let hash = table.hash(key);
    let now = shared.clock.now();
    // One to be remembered by, one for its line.
    let (known_as, line_of) = (key.clone(), key.clone());
    let mut forgotten = Vec::new();
    let mut wakes = Vec::new();
    let mut line_of = Some(line_of);
    let mut shard = table.lock(hash);
    let now = shard.clamp(now);
    let limit = own.unwrap_or(shard.limit);
    let max_cost = limit.quota();
    if cost > max_cost {
        return Err(AcquireError::Never { max_cost });
    }
    let known = shard.change(hash, key, &limit, now, |_| ()).is_some();
    if !known && cost > 0 {
        if !table.reserve(&mut shard, now, &mut forgotten) {
            drop(shard);
            return match table.when_full() {
                WhenKeysFull::Share => table.shared.enter(now, cost, Tick::MAX).map(At::Shared),
                WhenKeysFull::Refuse => Err(AcquireError::TooLate {
                    retry_after: limit.window(),
                }),
            };
        }
        let state = crate::policy::Policy::start(&limit, now);
        shard.insert(hash, known_as, &limit, state, &table.hasher);
    }
    let mut key_line = take_line(&mut shard, key);
    if let Some((_, line)) = &mut key_line {
        line.own = own;
    }
    let mut line = key_line.take().map_or_else(
        || KeyLine {
            line: Line::default(),
            own,
        },
        |(key, line)| {
            line_of = Some(key);
            line
        },
    );
    let entered = on_state(&mut shard, hash, key, &limit, now, &mut wakes, |before| {
        line.line.enter(before, cost, Tick::MAX)
    });
    if !line.line.is_over() {
        let line_of = line_of.take().expect("it was made above");
        shard.lines().insert(line_of, line);
    }
    drop(shard);
    wakes.into_iter().for_each(Waker::wake);
    entered.map(At::Key)
}

/// Changes the limit of every key that has none of its own.
pub(super) fn set_limit<K>(shared: &Shared<K>, limit: Limit)
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
{
    let now = shared.clock.now();
    let table = &shared.table;
    table.shared.set_limit(now, limit);
    let mut wakes = Vec::new();
    table.each_shard(|shard| {
        let now = shard.clamp(now);
        let old = std::mem::replace(&mut shard.limit, limit);
        let mut lines = std::mem::take(shard.lines());
        for (key, line) in lines.iter_mut().filter(|(_, line)| line.own.is_none()) {
            let hash = table.hash(key);
            shard.change_raw(hash, key, &limit, |state| {
                let mut before = Before {
                    limit: &old,
                    state,
                    now,
                    wakes: &mut wakes,
                };
                line.line.replan(&mut before, &limit, false);
            });
        }
        *shard.lines() = lines;
    });
    wakes.into_iter().for_each(Waker::wake);
}

/// Runs with the line of a key; `None` if nobody waits for it.
fn at_line<K, Q, R>(
    shared: &Shared<K>,
    hash: u64,
    key: &Q,
    now: Tick,
    run: impl FnOnce(&mut Line, &mut Before<'_>) -> R,
) -> Option<R>
where
    K: Borrow<Q> + Hash + Eq + Clone + Send + Sync + 'static,
    Q: Hash + Eq + ?Sized,
{
    let mut wakes = Vec::new();
    let mut over = None;
    let mut shard = shared.table.lock(hash);
    if !shard.has_lines() {
        return None;
    }
    let now = shard.clamp(now);
    let (line_of, mut line) = take_line(&mut shard, key)?;
    let limit = line.own.unwrap_or(shard.limit);
    let result = on_state(&mut shard, hash, key, &limit, now, &mut wakes, |before| {
        run(&mut line.line, before)
    });
    if line.line.is_over() {
        over = Some(line_of);
    } else {
        shard.lines().insert(line_of, line);
    }
    drop(shard);
    wakes.into_iter().for_each(Waker::wake);
    drop(over);
    Some(result)
}

fn take_line<K, Q>(shard: &mut Shard<K>, key: &Q) -> Option<(K, KeyLine)>
where
    K: Borrow<Q> + Hash + Eq,
    Q: Hash + Eq + ?Sized,
{
    shard.lines().remove_entry(key)
}

fn on_state<K, Q, R>(
    shard: &mut Shard<K>,
    hash: u64,
    key: &Q,
    limit: &Limit,
    now: Tick,
    wakes: &mut Vec<Waker>,
    run: impl FnOnce(&mut Before<'_>) -> R,
) -> R
where
    K: Borrow<Q> + Hash + Eq,
    Q: Hash + Eq + ?Sized,
{
    let mut run = Some(run);
    let mut on = |state: &mut LimitState| {
        let run = run.take().expect("it runs once");
        let mut before = Before {
            limit,
            state,
            now,
            wakes: &mut *wakes,
        };
        run(&mut before)
    };
    match shard.change(hash, key, limit, now, &mut on) {
        Some(result) => result,
        // Only a cost of 0 comes here for a key that is not known, and that leaves nothing to remember.
        None => on(&mut crate::policy::Policy::start(limit, now)),
    }
}

/// A place in the line before a key.
struct InKeyLine<'a, K> {
    shared: &'a Shared<K>,
    key: K,
    hash: u64,
    id: u64,
}

impl<K> Unpin for InKeyLine<'_, K> {}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Place for InKeyLine<'_, K> {
    fn poll_place(&self, waker: Waker) -> Standing {
        let now = self.shared.clock.now();
        let polled = at_line(self.shared, self.hash, &self.key, now, |line, before| {
            line.poll(before, self.id, Some(waker))
        });
        // A line ends when the last of its grants is collected, so it is there as long as this place is.
        polled.map_or(Standing::Done(Ok(())), |(standing, _)| standing)
    }

    fn cancel(&self) {
        let now = self.shared.clock.now();
        at_line(self.shared, self.hash, &self.key, now, |line, before| {
            line.cancel(before, self.id)
        });
    }

    fn sleep_until(&self, deadline: Tick) -> BoxFuture<'static, ()> {
        self.shared.clock.sleep_until(deadline)
    }
}

/// A place in the line of those who share one state.
struct InSharedLine<'a, K> {
    account: &'a Account,
    shared: &'a Shared<K>,
    id: u64,
}

impl<K> Unpin for InSharedLine<'_, K> {}

impl<K> Place for InSharedLine<'_, K> {
    fn poll_place(&self, waker: Waker) -> Standing {
        self.account.poll(self.shared.clock.now(), self.id, waker)
    }

    fn cancel(&self) {
        self.account.cancel(self.shared.clock.now(), self.id);
    }

    fn sleep_until(&self, deadline: Tick) -> BoxFuture<'static, ()> {
        self.shared.clock.sleep_until(deadline)
    }
}
