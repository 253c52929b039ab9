//! A place that stands ready for the next item of a sink.

use std::task::Waker;
use std::time::Duration;

use crate::machine::{Ask, Collected, WaiterKey};
use crate::queue::core::Core;
use crate::queue::line::Line;
use crate::queue::parcel::{Extras, Parcel};
use crate::refusal::Refusal;
use crate::sync::Arc;
use crate::tick::Tick;

/// An offer of cost 1 for an item to come.
pub(super) struct Spot {
    key: WaiterKey,
    /// Since when its place stands ready.
    ready: Option<Tick>,
}

impl Spot {
    /// How it stands in line, for whoever waits there with an item.
    pub(super) const fn into_line(self) -> Line {
        Line::Waiting {
            key: self.key,
            watch: None,
        }
    }
}

/// Makes the offer if it is not made, and tells whether its place stands ready; if not, leaves the waker there.
pub(super) fn stand<T>(
    core: &Arc<Core<T>>,
    spot: &mut Option<Spot>,
    waker: &mut Option<Waker>,
) -> Result<bool, Refusal> {
    let ask = plain();
    core.step(|state, now, after| {
        let key = match spot {
            Some(spot) => spot.key,
            None => {
                let key = state.machine.offer_held(now, &ask, &mut after.fx)?;
                spot.insert(Spot { key, ready: None }).key
            }
        };
        let look = state.machine.is_ready(now, key, &mut after.fx);
        match &look {
            Ok(false) => {
                if let Some(waker) = waker.take() {
                    after.drop_later(state.waiters.insert(key, waker));
                }
            }
            _ => after.drop_later(state.waiters.remove(&key)),
        }
        match (&look, &mut *spot) {
            (Ok(is_ready), Some(spot)) => spot.ready = is_ready.then(|| spot.ready.unwrap_or(now)),
            (Err(_), spot) => *spot = None,
            (Ok(_), None) => {}
        }
        after.drop_later(waker.take());
        look
    })
}

/// Puts the item into its place; returns how it stands in line if the place has lapsed.
pub(super) fn fill<T>(
    core: &Arc<Core<T>>,
    spot: Spot,
    item: &mut Option<T>,
) -> Result<Option<Line>, Refusal> {
    let Spot { key, ready } = spot;
    let mut extras = Extras::plain();
    core.step(
        |state, now, after| match state.machine.collect(now, key, &mut after.fx) {
            Collected::Ready(mut place) => {
                after.drop_later(state.waiters.remove(&key));
                place.idle_for(ready.map_or(Duration::ZERO, |ready| now - ready));
                let item = item.take().expect("it is placed once");
                let extras = extras.take();
                state.put(now, place, Parcel { item, extras }, after);
                Ok(None)
            }
            Collected::Waiting => Ok(Some(spot.into_line())),
            Collected::Refused(refusal) => {
                after.drop_later(state.waiters.remove(&key));
                Err(refusal)
            }
        },
    )
}

/// What is asked before the item is known.
pub(super) fn plain() -> Ask {
    Ask::default()
}
