//! The short way of offers and departures, beside the long one.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::{ms, unpaced};
use crate::key::Key;
use crate::machine::{
    Ask, Collected, Effects, InFlight, Machine, NotTaken, Offered, Queued, Settled, Spec, Taken,
    WaiterKey,
};
use crate::refusal::Refusal;
use crate::tick::Tick;
use crate::words::Priority;

/// What happens to both machines.
#[derive(Clone, Debug)]
enum Event {
    /// An offer without terms.
    Put,
    PutOn(Ask),
    Take,
    Settle(usize),
    Retry(usize, Duration),
    /// A waiter asks, or leaves.
    Collect(usize),
    Leave(usize),
    Pause,
    Resume,
    Apply(usize),
    Close,
}

fn ask() -> impl Strategy<Value = Ask> {
    let expires_in = prop::option::weighted(0.2, (0_u64..20).prop_map(Duration::from_millis));
    (1_u64..3, 0_usize..4, any::<bool>(), expires_in).prop_map(|(cost, lane, named, expires_in)| {
        Ask {
            cost,
            priority: Priority::ALL[lane],
            tenant: named.then(|| (Key::from("somebody"), 2)),
            expires_in,
            ..Ask::default()
        }
    })
}

fn event() -> impl Strategy<Value = Event> {
    let delay = (0_u64..10).prop_map(Duration::from_millis);
    prop_oneof![
        30 => Just(Event::Put),
        5 => ask().prop_map(Event::PutOn),
        25 => Just(Event::Take),
        15 => any::<usize>().prop_map(Event::Settle),
        2 => (any::<usize>(), delay).prop_map(|(which, delay)| Event::Retry(which, delay)),
        8 => any::<usize>().prop_map(Event::Collect),
        2 => any::<usize>().prop_map(Event::Leave),
        1 => Just(Event::Pause),
        2 => Just(Event::Resume),
        1 => (0_usize..5).prop_map(Event::Apply),
        1 => prop::bool::weighted(0.02).prop_map(|close| if close { Event::Close } else { Event::Take }),
    ]
}

/// One of the two, and who is under way in it.
struct Side {
    machine: Machine<u64>,
    short: bool,
    shortly: u64,
    lined: Vec<WaiterKey>,
    flying: Vec<InFlight>,
}

impl Side {
    fn new(spec: &Spec, short: bool) -> Self {
        Self {
            machine: super::machine(spec),
            short,
            shortly: 0,
            lined: Vec::new(),
            flying: Vec::new(),
        }
    }

    fn put(
        &mut self,
        now: Tick,
        ask: &Ask,
        fx: &mut Effects<u64>,
    ) -> Option<Result<Queued, Refusal>> {
        match self.machine.offer(now, ask, None, fx) {
            Offered::Admitted(place) => Some(Ok(self.machine.send(now, place, 7, fx))),
            Offered::Waiting(key) => {
                self.lined.push(key);
                None
            }
            Offered::Refused(refusal) => Some(Err(refusal)),
        }
    }

    fn take(&mut self, now: Tick, fx: &mut Effects<u64>) -> Result<Taken<u64>, NotTaken> {
        if self.short
            && let Some(taken) = self.machine.take_plainly(now, fx)
        {
            self.shortly += 1;
            return Ok(taken);
        }
        self.machine.take_next(now, fx)
    }

    /// Lets it happen, and says all there is to say of what came of it.
    fn happen(&mut self, now: Tick, event: &Event, specs: &[Spec]) -> String {
        let fx = &mut Effects::new();
        let said = match event {
            Event::Put => {
                let short = self.short.then(|| self.machine.put_plainly(now, || 7, fx));
                let placed = match short.flatten() {
                    Some(queued) => {
                        self.shortly += 1;
                        Some(Ok(queued))
                    }
                    None => self.put(now, &Ask::default(), fx),
                };
                said(placed)
            }
            Event::PutOn(ask) => said(self.put(now, ask, fx)),
            Event::Take => match self.take(now, fx) {
                Ok(taken) => {
                    let said = format!("{taken:?}");
                    self.flying.push(taken.run);
                    said
                }
                Err(why) => format!("{why:?}"),
            },
            Event::Settle(which) => {
                if !self.flying.is_empty() {
                    let run = self.flying.swap_remove(which % self.flying.len());
                    self.machine.settle(now, run, Settled::Acked, fx);
                }
                String::new()
            }
            Event::Retry(which, delay) if !self.flying.is_empty() => {
                let run = self.flying.swap_remove(which % self.flying.len());
                format!("{:?}", self.machine.retry(now, run, 8, *delay, fx))
            }
            Event::Collect(which) if !self.lined.is_empty() => {
                let which = which % self.lined.len();
                match self.machine.collect(now, self.lined[which], fx) {
                    Collected::Waiting => "waits".into(),
                    Collected::Refused(_) => {
                        self.lined.swap_remove(which);
                        "refused".into()
                    }
                    Collected::Ready(place) => {
                        self.lined.swap_remove(which);
                        format!("{:?}", self.machine.send(now, place, 9, fx))
                    }
                }
            }
            Event::Leave(which) if !self.lined.is_empty() => {
                let key = self.lined.swap_remove(which % self.lined.len());
                self.machine.leave(now, key, fx);
                String::new()
            }
            Event::Retry(..) | Event::Collect(_) | Event::Leave(_) => String::new(),
            Event::Pause => {
                self.machine.pause(now, Arc::from("lunch"), fx);
                String::new()
            }
            Event::Resume => {
                self.machine.resume(now, fx);
                String::new()
            }
            Event::Apply(which) => {
                let settings = specs[which % specs.len()].resolve();
                self.machine.apply(now, settings.expect("valid"), fx);
                String::new()
            }
            Event::Close => format!("{}", self.machine.close(now, fx)),
        };
        format!("{said} {fx:?}")
    }
}

/// A refusal's time to come back is spread by chance.
fn said(placed: Option<Result<Queued, Refusal>>) -> String {
    match placed {
        Some(Ok(queued)) => format!("{queued:?}"),
        Some(Err(refusal)) => format!("refused: {:?}", refusal.reason()),
        None => "waits".into(),
    }
}

/// A plain queue, another one, and some that are not plain.
fn specs() -> Vec<Spec> {
    let mut plain = unpaced();
    plain.max_depth = Some(8);
    plain.watermarks = Some((3, 6));
    plain.max_waiters = Some(4);
    let mut roomy = plain.clone();
    roomy.max_depth = Some(12);
    roomy.watermarks = Some((4, 12));
    let mut bound = plain.clone();
    bound.max_in_flight = Some(3);
    let mut expiring = plain.clone();
    expiring.expire_after = Some(Duration::from_millis(30));
    let mut shared = plain.clone();
    shared.lane_shares = [0.2, 0.0, 0.0, 0.0];
    vec![plain, roomy, bound, expiring, shared]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    /// I1: the whole state, what is handed out and what is left to do are the same after every step.
    #[test]
    fn the_short_way_does_exactly_what_the_long_way_does(
        first in 0_usize..2,
        events in prop::collection::vec((event(), 0_u64..3), 1..200),
    ) {
        let specs = specs();
        let (mut short, mut long) = (Side::new(&specs[first], true), Side::new(&specs[first], false));
        let mut at = 0;
        for (event, later) in events {
            at += later;
            let one = short.happen(ms(at), &event, &specs);
            let two = long.happen(ms(at), &event, &specs);
            prop_assert_eq!(one, two, "{:?}", event);
            let (one, two) = (format!("{:?}", short.machine), format!("{:?}", long.machine));
            prop_assert_eq!(one, two, "{:?}", event);
        }
    }
}

#[test]
fn a_plain_queue_goes_the_short_way_also_while_it_is_elevated() {
    let specs = specs();
    let mut side = Side::new(&specs[0], true);
    for _ in 0..6 {
        side.happen(ms(1), &Event::Put, &specs);
    }
    side.happen(ms(1), &Event::Take, &specs);
    side.happen(ms(1), &Event::Put, &specs);
    // The very first call looks at everything.
    assert_eq!(side.shortly, 7);
}
