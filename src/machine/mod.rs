//! The whole queue as a pure state machine: no clock, no lock, no runtime, no waker.
//!
//! Every call takes the instant at which it happens and returns what the outer half must do ([`Effects`]). The async
//! queue, the simulator and the tests drive this one machine.
//!
//! ```text
//!  offer -> (refused | standing in line -> granted) -> [place] -> queued -> taken -> in flight -> settled
//!                                                        |          |  ^                  |
//!                                                     given back    |  +----- retry ------+
//!                                                                   +--> evicted, expired, cancelled, returned
//! ```
//! - [`queue`] the state, the ladder and the ledger
//! - [`door`] the one question that every offer passes
//! - [`offers`] who gets a place, who waits, who is refused
//! - [`held`] places that stand ready for who may never come
//! - [`departures`] places that are used, jobs that leave
//! - [`plainly`] the short way of both, where nothing but room and order has a say
//! - [`settling`] jobs that end or come back, [`acks`] those that are simply done
//! - [`lanes`] who goes next, [`shares`] of the lanes, [`victims`] of newcomers
//! - [`upkeep`] what happens by time alone, [`expiries`] among it
//! - [`pacer`] the rate as it is now, [`budget`] what retries may take of it
//! - [`control`] change of settings, pause, close, drain
//! - [`health`] whether work flows
//! - [`estimate`] waits and the time to retry

mod acks;
mod budget;
mod control;
mod departures;
mod door;
mod estimate;
mod expiries;
mod flow;
mod health;
mod held;
mod lanes;
mod line;
mod offers;
mod order;
mod outcome;
mod pacer;
mod places;
mod plainly;
mod queue;
mod settings;
mod settling;
mod shares;
mod tenants;
mod upkeep;
mod victims;

#[cfg(test)]
mod tests;

pub(crate) use acks::Acks;
pub(crate) use outcome::{
    Ask, Collected, Effects, Gone, InFlight, JobKey, NotTaken, Offered, Place, Queued, Settled,
    Taken, WaiterKey,
};
pub(crate) use queue::Machine;
#[cfg(feature = "config")]
pub(crate) use settings::Tenancy;
pub(crate) use settings::{Preset, Settings, Spec};
