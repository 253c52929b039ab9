//! An offer that can wait, from its first poll to its place: the part that all waiting futures share.
//!
//! ```text
//!   Fresh --first poll--> Waiting --granted and polled--> Over (place used under the same lock)
//!     |                      +------- refused ----------> Over (refusal handed out)
//!     +--budget of the task used up--> Held --next poll--> Over
//! ```
//! The offer is made, and counted, at the first poll whatever the task's budget; only what it led to is held back until
//! the task has yielded. So the order of offers is that of first polls, and nothing is ever sent by a poll that answers
//! `Pending`. A fresh offer may know a short way, by which it is placed and its place used at once; where that is closed
//! the offer is made the long way, under the same lock.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::coop::poll_proceed;

use super::after::After;
use super::core::Core;
use super::state::State;
use super::terms::Asks;
use super::watch::{NewWatch, Subject, Watch};
use crate::machine::{Collected, Offered, Place, WaiterKey};
use crate::refusal::{Reason, Refusal};
use crate::sync::Arc;
use crate::tick::Tick;

/// How an offer stands. Its owner calls [`leave`](Self::leave) when dropped.
#[derive(Debug, Default)]
pub(crate) enum Line {
    #[default]
    Fresh,
    Waiting {
        key: WaiterKey,
        watch: Option<Watch>,
    },
    Held(Result<Place, Refusal>),
    Over,
}

/// What a look at the offer led to, under the lock.
enum Look<R> {
    Placed(R),
    Waits(WaiterKey),
    Refused(Refusal),
}

impl Line {
    /// Goes on as far as it can. `place` uses the place, under the lock, as soon as there is one; it is called once.
    ///
    /// # Panics
    /// When polled again after it was ready.
    pub(crate) fn poll<T, R>(
        &mut self,
        core: &Arc<Core<T>>,
        cx: &mut Context<'_>,
        terms: &impl Asks,
        stay: Option<Duration>,
        place: impl FnMut(&mut State<T>, Tick, Place, &mut After<T>) -> R,
    ) -> Poll<Result<R, Refusal>> {
        self.poll_shortly(core, cx, terms, stay, |_, _, _| None, place)
    }

    /// As [`poll`](Self::poll); a fresh offer tries the `short` way first, which is the place and its use at once.
    #[inline]
    pub(crate) fn poll_shortly<T, R>(
        &mut self,
        core: &Arc<Core<T>>,
        cx: &mut Context<'_>,
        terms: &impl Asks,
        stay: Option<Duration>,
        short: impl Fn(&mut State<T>, Tick, &mut After<T>) -> Option<R>,
        mut place: impl FnMut(&mut State<T>, Tick, Place, &mut After<T>) -> R,
    ) -> Poll<Result<R, Refusal>> {
        let budget = match poll_proceed(cx) {
            Poll::Ready(budget) => budget,
            Poll::Pending => {
                self.hold(core, terms, stay);
                return Poll::Pending;
            }
        };
        let look = match self {
            Self::Fresh => {
                // Apart from each other: what the short way leads to is small, and stays in registers.
                let mut long = None;
                let done = core.step(|state, now, after| {
                    let done = short(state, now, after);
                    if done.is_none() {
                        long = Some(offer(state, now, after, terms, stay, &mut place));
                    }
                    done
                });
                match (done, long) {
                    (Some(done), _) => {
                        // What was fresh has nothing to drop.
                        std::mem::forget(std::mem::replace(self, Self::Over));
                        budget.made_progress();
                        return Poll::Ready(Ok(done));
                    }
                    (None, Some(look)) => look,
                    (None, None) => unreachable!("one of the two ways was gone"),
                }
            }
            Self::Waiting { key, .. } => {
                core.step(|state, now, after| collect(state, now, after, *key, terms, &mut place))
            }
            Self::Held(_) | Self::Over => match std::mem::replace(self, Self::Over) {
                Self::Held(Ok(held)) => {
                    Look::Placed(core.step(|state, now, after| place(state, now, held, after)))
                }
                Self::Held(Err(refusal)) => Look::Refused(refusal),
                _ => panic!("polled after it was ready"),
            },
        };
        let look = match look {
            Look::Waits(key) => self.wait(core, cx.waker().clone(), key, terms, &mut place),
            done => done,
        };
        let done = match look {
            Look::Waits(_) => return Poll::Pending,
            Look::Placed(result) => Ok(result),
            Look::Refused(refusal) => Err(refusal),
        };
        *self = Self::Over;
        budget.made_progress();
        Poll::Ready(done)
    }

    /// The task has used up its budget: an offer is made all the same, and what it led to is kept.
    #[cold]
    fn hold<T>(&mut self, core: &Arc<Core<T>>, terms: &impl Asks, stay: Option<Duration>) {
        if !matches!(self, Self::Fresh) {
            return;
        }
        let keep = &mut |_: &mut State<T>, _, place, _: &mut After<T>| place;
        let look = core.step(|state, now, after| offer(state, now, after, terms, stay, keep));
        *self = match look {
            Look::Placed(place) => Self::Held(Ok(place)),
            Look::Refused(refusal) => Self::Held(Err(refusal)),
            Look::Waits(key) => Self::Waiting { key, watch: None },
        };
    }

    /// Registers, then looks again: a grant in between is not lost.
    fn wait<T, R>(
        &mut self,
        core: &Arc<Core<T>>,
        waker: Waker,
        key: WaiterKey,
        terms: &impl Asks,
        place: &mut impl FnMut(&mut State<T>, Tick, Place, &mut After<T>) -> R,
    ) -> Look<R> {
        let known = match self {
            Self::Waiting { watch, .. } => watch.take(),
            _ => None,
        };
        let mut new = None;
        let look = core.step(|state, now, after| {
            let look = collect(state, now, after, key, terms, place);
            if let Look::Waits(_) = look {
                after.drop_later(state.waiters.insert(key, waker));
                if let (None, Some(token)) = (&known, terms.token()) {
                    let (watch, entry) = NewWatch::pair(Subject::Waiter(key), token);
                    state.driver.watch(entry);
                    new = Some(watch);
                }
            } else {
                after.drop_later(Some(waker));
            }
            look
        });
        *self = Self::Waiting {
            key,
            watch: known.or(new),
        };
        look
    }

    /// Gives up: whoever stood in line leaves it, a place goes to the next.
    #[inline]
    pub(crate) fn leave<T>(&mut self, core: &Arc<Core<T>>) {
        if !matches!(self, Self::Over) {
            self.give_up(core);
        }
    }

    fn give_up<T>(&mut self, core: &Arc<Core<T>>) {
        match std::mem::replace(self, Self::Over) {
            Self::Waiting { key, watch } => {
                core.step(|state, now, after| {
                    after.drop_later(state.waiters.remove(&key));
                    state.machine.leave(now, key, &mut after.fx);
                });
                drop(watch);
            }
            Self::Held(Ok(place)) => {
                core.step(|state, now, after| state.machine.give_back(now, place, &mut after.fx));
            }
            Self::Fresh | Self::Held(Err(_)) | Self::Over => {}
        }
    }
}

fn offer<T, R>(
    state: &mut State<T>,
    now: Tick,
    after: &mut After<T>,
    terms: &impl Asks,
    stay: Option<Duration>,
    place: &mut impl FnMut(&mut State<T>, Tick, Place, &mut After<T>) -> R,
) -> Look<R> {
    let ask = terms.ask(now, &state.spec);
    if terms.is_cancelled() {
        return Look::Refused(state.machine.refuse(now, &ask, Reason::Cancelled));
    }
    match state.machine.offer(now, &ask, stay, &mut after.fx) {
        Offered::Admitted(admitted) => Look::Placed(place(state, now, admitted, after)),
        Offered::Waiting(key) => Look::Waits(key),
        Offered::Refused(refusal) => Look::Refused(refusal),
    }
}

fn collect<T, R>(
    state: &mut State<T>,
    now: Tick,
    after: &mut After<T>,
    key: WaiterKey,
    terms: &impl Asks,
    place: &mut impl FnMut(&mut State<T>, Tick, Place, &mut After<T>) -> R,
) -> Look<R> {
    if terms.is_cancelled() {
        state.machine.cancel_waiter(now, key, &mut after.fx);
    }
    match state.machine.collect(now, key, &mut after.fx) {
        Collected::Ready(ready) => {
            after.drop_later(state.waiters.remove(&key));
            Look::Placed(place(state, now, ready, after))
        }
        Collected::Waiting => Look::Waits(key),
        Collected::Refused(refusal) => {
            after.drop_later(state.waiters.remove(&key));
            Look::Refused(refusal)
        }
    }
}
