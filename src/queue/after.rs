//! What a step leaves to do once its lock is released: everything that runs foreign code.

use std::error::Error;
use std::task::Waker;

use super::core::Core;
use super::dead_letters::DeadLetter;
use super::journal::{Journal, News};
use super::parcel::{Extras, Parcel};
use super::state::letter;
use super::wakers::{Shield, Wakers};
use super::watch::Watch;
use crate::machine::{Effects, InFlight};
use crate::sync::Arc;
use crate::words::{Exit, Pressure};

/// Collected under the lock, run after it.
pub(crate) struct After<T> {
    pub(crate) fx: Effects<Parcel<T>>,
    pub(crate) wakers: Wakers,
    /// New state of pressure with its sequence.
    pub(crate) publish: Option<(u64, Pressure)>,
    /// What most steps leave nothing of.
    rare: Option<Box<Rare<T>>>,
    /// Whether letters were announced to the outlet.
    pub(crate) posted: bool,
    pub(crate) start: bool,
    pub(crate) closed: bool,
    pub(crate) drained: bool,
    pub(crate) over: bool,
}

/// What few steps leave to do, kept aside so that the others pay for one empty pointer only.
pub(crate) struct Rare<T> {
    /// Letters of jobs that were in flight.
    pub(crate) letters: Vec<(DeadLetter<T>, Option<Box<Extras>>)>,
    /// Jobs whose items went elsewhere.
    pub(crate) ended: Vec<(Box<Extras>, Exit)>,
    pub(crate) unwatched: Vec<Watch>,
    /// Wakers that were replaced: their drop is foreign code.
    stale: Wakers,
    /// Changes of state to be told.
    pub(crate) news: Vec<News>,
}

impl<T> After<T> {
    pub(crate) const fn new() -> Self {
        Self {
            fx: Effects::new(),
            wakers: Wakers::new(),
            publish: None,
            rare: None,
            posted: false,
            start: false,
            closed: false,
            drained: false,
            over: false,
        }
    }

    #[cold]
    pub(crate) fn rare(&mut self) -> &mut Rare<T> {
        self.rare.get_or_insert_with(|| Box::new(Rare::new()))
    }

    /// Keeps a waker that is not needed any more, to be dropped unlocked.
    #[inline]
    pub(crate) fn drop_later(&mut self, waker: Option<Waker>) {
        if let Some(waker) = waker {
            self.rare().stale.push(waker);
        }
    }

    /// Writes the letter of a job that was in flight.
    pub(crate) fn bury(
        &mut self,
        run: &InFlight,
        parcel: Parcel<T>,
        exit: Exit,
        cause: Option<Box<dyn Error + Send + Sync>>,
    ) {
        let Parcel { item, mut extras } = parcel;
        // The latest cause is the one that counts.
        let cause = cause.or_else(|| extras.as_mut().and_then(|extras| extras.cause.take()));
        let (waited, attempts) = (run.waited, run.attempt);
        self.rare().letters.push((
            DeadLetter {
                item,
                exit,
                waited,
                attempts,
                cause,
            },
            extras,
        ));
    }

    pub(crate) fn has_letters(&self) -> bool {
        !self.fx.gone.is_empty()
            || self
                .rare
                .as_ref()
                .is_some_and(|rare| !rare.letters.is_empty())
    }

    /// Runs it all, with no lock held. A panic of foreign code goes on once the rest is done.
    pub(crate) fn run(self, core: &Arc<Core<T>>) {
        let mut shield = Shield::default();
        self.wakers.wake(&mut shield);
        if self.start {
            core.start_driver();
        }
        if let Some((sequence, pressure)) = self.publish {
            shield.call(|| core.publish(sequence, pressure));
        }
        let lost = core.outlet.lost();
        let rare = self.rare.map_or_else(Rare::new, |rare| *rare);
        let letters = rare
            .letters
            .into_iter()
            .chain(self.fx.gone.into_iter().map(letter));
        for (letter, extras) in letters {
            let exit = letter.exit;
            core.outlet.send(letter, &mut shield);
            end(extras, exit, &mut shield);
        }
        for (extras, exit) in rare.ended {
            end(Some(extras), exit, &mut shield);
        }
        for news in rare.news {
            shield.call(|| news.tell());
        }
        if self.posted {
            core.outlet.done();
        }
        if self.over {
            core.outlet.end();
        }
        if self.closed {
            shield.call(|| core.closed.cancel());
        }
        if self.drained {
            shield.call(|| core.drained.cancel());
        }
        shield.call(|| drop((rare.unwatched, rare.stale)));
        if Journal::is_on() && core.outlet.lost() != lost {
            // Letters were lost with the lock released: only another step sees it.
            shield.call(|| core.step(|_, _, _| ()));
        }
        shield.finish();
    }

    /// Whether there is nothing to run.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.wakers.is_empty() && self.only_wakes()
    }

    /// Whether there is nothing to run but wakers.
    #[inline]
    pub(crate) fn only_wakes(&self) -> bool {
        self.publish.is_none()
            && self.rare.is_none()
            && self.fx.gone.is_empty()
            && !(self.start | self.closed | self.drained | self.over)
    }

    /// Takes all of it out; what memory the list of waiters has stays for the next step.
    pub(crate) fn take(&mut self) -> Self {
        let mut taken = std::mem::replace(self, Self::new());
        std::mem::swap(&mut self.fx.wake, &mut taken.fx.wake);
        taken
    }
}

impl<T> Rare<T> {
    const fn new() -> Self {
        Self {
            letters: Vec::new(),
            ended: Vec::new(),
            unwatched: Vec::new(),
            stale: Wakers::new(),
            news: Vec::new(),
        }
    }
}

fn end(extras: Option<Box<Extras>>, exit: Exit, shield: &mut Shield) {
    if let Some(mut extras) = extras {
        shield.call(move || extras.end(exit.into()));
    }
}
