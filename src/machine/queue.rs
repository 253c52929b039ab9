//! The state of the queue, and what holds after every call.
//!
//! - I1  depth = cost of places out + of queued jobs = the sum of `held`; each of them is in one ledger.
//! - I2  no waiter stands in line that the ladder would grant a place.
//! - I3  the ledger balances, lane by lane.
//! - I4  without a requeue, depth never exceeds the bound.
//! - I5  nothing happens by time alone before `soonest`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::key::Key;
use crate::ledger::Ledger;
use crate::machine::budget::Budget;
use crate::machine::control::{ageing, bounds, standing};
use crate::machine::expiries::Expiries;
use crate::machine::lanes::Lanes;
use crate::machine::line::{Line, Stand};
use crate::machine::outcome::{Effects, Gone, JobKey, Owner, WaiterKey, exit_count};
use crate::machine::pacer::Pacer;
use crate::machine::places::{Entry, Places};
use crate::machine::plainly::is_plain;
use crate::machine::settings::Settings;
use crate::machine::tenants::{TenantId, Tenants};
use crate::policy::ladder::{Ladder, Load};
use crate::policy::schedule::Schedule;
use crate::policy::standing_delay::StandingDelay;
use crate::tally::Tally;
use crate::tick::{Fine, Tick};
use crate::words::{Exit, Pressure, Priority};

/// A queue of jobs with payload `P`.
#[derive(Debug)]
pub(crate) struct Machine<P> {
    pub(super) settings: Settings,
    /// See [`plainly`](crate::machine::plainly).
    pub(super) plain: bool,
    /// Latest instant seen; an older one counts as this.
    pub(super) now: Tick,
    /// What is asked for at every call: until then time alone changes nothing. The true instant may be later.
    pub(super) soonest: Tick,
    pub(super) schedule: Option<Schedule>,
    pub(super) pacer: Pacer,
    pub(super) budget: Option<Budget>,
    pub(super) ladder: Ladder,
    pub(super) standing: Option<StandingDelay>,
    pub(super) places: Places<P>,
    pub(super) lanes: Lanes,
    pub(super) tenants: Tenants,
    pub(super) line: Line,
    /// Latest starts of queued jobs that have one.
    pub(super) expiries: Expiries,
    /// Latest starts of any retry, where it is not that of the first start: rare, so kept beside the slots.
    pub(super) later: BTreeMap<JobKey, Tick>,
    /// Jobs that wait for their retry.
    pub(super) delayed: BTreeSet<(Tick, JobKey)>,
    pub(super) depth: u128,
    /// Depth by priority.
    pub(super) held: [u128; 4],
    pub(super) ledgers: [Ledger; 4],
    /// Large, and looked at by whoever measures only.
    pub(super) tally: Box<Tally>,
    pub(super) paused: Option<Arc<str>>,
    pub(super) closed: bool,
    /// Nothing is queued any more, whatever comes: no receiver is left, or a drain's deadline has passed.
    pub(super) ended: bool,
    pub(super) drain: Option<Tick>,
    /// When the next refused caller may come back at the earliest.
    pub(super) comeback: Fine,
    pub(super) last_departure: Option<Tick>,
    /// When work last began to be possible: a first ready job, or a resumption.
    pub(super) busy_since: Tick,
    told: Pressure,
    /// When that state began; only who measures asks.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code))]
    told_at: Tick,
}

impl<P> Machine<P> {
    pub(crate) fn new(settings: Settings, now: Tick) -> Self {
        let mut machine = Self {
            plain: is_plain(&settings),
            now,
            soonest: Tick::ZERO,
            schedule: settings
                .rate
                .map(|rate| Schedule::new(settings.pace(rate), now)),
            pacer: Pacer::new(settings.rate),
            budget: settings.retries.map(Budget::new),
            ladder: Ladder::new(bounds(&settings)),
            standing: standing(&settings),
            places: Places::new(),
            lanes: Lanes::new(ageing(&settings), settings.lane_shares),
            tenants: Tenants::new(settings.tenancy),
            line: Line::default(),
            expiries: Expiries::default(),
            later: BTreeMap::new(),
            delayed: BTreeSet::new(),
            depth: 0,
            held: [0; 4],
            ledgers: [Ledger::default(); 4],
            tally: Box::default(),
            paused: None,
            closed: false,
            ended: false,
            drain: None,
            comeback: Fine::ZERO,
            last_departure: None,
            busy_since: now,
            told: Pressure::Healthy,
            told_at: now,
            settings,
        };
        let rule = machine.settings.when_full;
        machine
            .lanes
            .set_rule(&machine.places, &machine.tenants, rule);
        machine
    }

    // -- looking

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Counts of the whole queue.
    pub(crate) fn ledger(&self) -> Ledger {
        let mut total = Ledger::default();
        self.ledgers.iter().for_each(|lane| total.add(lane));
        total
    }

    pub(crate) fn lane(&self, priority: Priority) -> &Ledger {
        &self.ledgers[priority.index()]
    }

    /// Counts beside the ledger.
    #[cfg(any(test, feature = "metrics"))]
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Whose it is, if that is known by name.
    pub(crate) fn tenant_of(&self, owner: Owner) -> Option<&Key> {
        self.tenants.get(owner.tenant).key()
    }

    /// Counts of every tenant known by name.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = (&Key, &Ledger)> {
        self.tenants.ledgers()
    }

    /// Counts of everybody else.
    pub(crate) fn others(&self) -> Ledger {
        let mut others = self.ledger();
        self.tenants
            .ledgers()
            .for_each(|(_, own)| others.subtract(own));
        others
    }

    /// Cost of queued jobs and places out.
    #[inline]
    pub(crate) fn depth(&self) -> u64 {
        u64::try_from(self.depth).unwrap_or(u64::MAX)
    }

    pub(crate) fn pressure(&self) -> Pressure {
        self.ladder.state()
    }

    /// When the state of the ladder became what it is.
    #[cfg(feature = "metrics")]
    pub(crate) fn pressure_since(&self) -> Tick {
        self.told_at
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(crate) fn paused(&self) -> Option<&Arc<str>> {
        self.paused.as_ref()
    }

    /// Units of departure that lateness owes.
    pub(crate) fn owed(&self, now: Tick) -> u64 {
        match &self.schedule {
            Some(schedule) if !self.is_idle() => schedule.owed(now.max(self.now)),
            _ => 0,
        }
    }

    /// Age of the ready job that waits longest.
    pub(crate) fn oldest_wait(&self, now: Tick) -> Option<Duration> {
        let oldest = self.lanes.oldest(&self.places, &self.tenants)?;
        self.places
            .get(oldest)
            .map(|slot| now.max(self.now) - slot.since)
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn last_departure(&self) -> Option<Tick> {
        self.last_departure
    }

    // -- shared by the other rooms

    /// Nothing may leave: idle time earns no departures.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.lanes.ready() == 0 || self.paused.is_some()
    }

    /// Work becomes possible at this instant.
    pub(super) fn begin_work(&mut self) {
        self.busy_since = self.now;
        if let Some(schedule) = &mut self.schedule {
            schedule.begin(self.now);
        }
    }

    #[inline]
    pub(super) fn hold(&mut self, cost: u64, owner: Owner) {
        self.depth += u128::from(cost);
        self.held[owner.priority.index()] += u128::from(cost);
        self.tenants.get_mut(owner.tenant).depth += u128::from(cost);
    }

    #[inline]
    pub(super) fn release(&mut self, cost: u64, owner: Owner) {
        self.depth -= u128::from(cost);
        self.held[owner.priority.index()] -= u128::from(cost);
        self.tenants.get_mut(owner.tenant).depth -= u128::from(cost);
    }

    #[inline]
    pub(super) fn critical(&self) -> u64 {
        u64::try_from(self.held[Priority::Critical.index()]).unwrap_or(u64::MAX)
    }

    /// Counts in the lane's ledger and in the tenant's.
    #[inline]
    pub(super) fn count(&mut self, owner: Owner, change: impl Fn(&mut Ledger)) {
        change(&mut self.ledgers[owner.priority.index()]);
        // What nobody owns is the rest of the whole; it is not counted twice.
        if owner.tenant != TenantId::NONE {
            change(&mut self.tenants.get_mut(owner.tenant).ledger);
            self.tenants.ended(owner.tenant);
        }
    }

    #[inline]
    pub(super) fn is_standing_delay(&self) -> bool {
        self.standing.is_some_and(|delay| delay.is_standing())
    }

    /// Queues a job that may leave at once.
    pub(super) fn enqueue(&mut self, entry: Entry<P>) -> JobKey {
        let was_empty = self.lanes.ready() == 0;
        let expires_at = entry.expires_at;
        let key = self
            .lanes
            .push(&mut self.places, &mut self.tenants, self.now, entry);
        self.expire(key, expires_at);
        self.expect_resting();
        if was_empty && self.lanes.ready() > 0 {
            self.begin_work();
        }
        key
    }

    /// A job that was lined up may belong to a tenant that rests.
    pub(super) fn expect_resting(&mut self) {
        if let Some(due) = self.lanes.next_due() {
            self.expect(due);
        }
    }

    /// Notes when a job is to expire, if ever.
    pub(super) fn expire(&mut self, key: JobKey, at: Tick) {
        if at < Tick::MAX {
            self.expiries.insert(at, key);
            self.expect(at);
        }
    }

    /// Takes a job out of everything it is in, depth included; `charge` = it departs. The ledger is the caller's.
    pub(super) fn extract(&mut self, key: JobKey, charge: bool) -> Option<Entry<P>> {
        let entry = self
            .lanes
            .remove(&mut self.places, &mut self.tenants, key, charge)?;
        if entry.expires_at < Tick::MAX {
            self.expiries.left(&self.places);
        }
        if !entry.lasting {
            self.later.remove(&key);
        }
        // A retry that is not due yet is known by the instant at which it will be.
        if !self.delayed.is_empty() {
            self.delayed.remove(&(entry.since, key));
        }
        self.release(entry.cost, entry.owner);
        Some(entry)
    }

    /// A queued job leaves without a consumer. `false` on a stale key.
    pub(super) fn eject(&mut self, key: JobKey, exit: Exit, out: &mut Vec<Gone<P>>) -> bool {
        let Some(entry) = self.extract(key, false) else {
            return false;
        };
        self.count(entry.owner, |count| {
            count.queued -= 1;
            *exit_count(count, exit) += 1;
        });
        let waited = self.now - entry.since;
        self.tally.eject(waited);
        out.push(Gone {
            waited,
            payload: entry.payload,
            exit,
            attempts: entry.attempts,
        });
        true
    }

    /// Judges the ladder and grants places until nobody else gets one (keeps I2).
    #[inline(always)] // Nearly always it is the few comparisons of an empty line.
    pub(super) fn judge(&mut self, fx: &mut Effects<P>) {
        if self.line.len() == 0 && self.standing.is_none() {
            self.ladder.judge(Load {
                depth: self.depth(),
                line: 0,
                standing: false,
            });
        } else {
            self.judge_line(fx);
        }
        let state = self.ladder.state();
        if state != self.told {
            self.told = state;
            self.told_at = self.now;
            fx.pressure = Some(state);
        }
        self.debug_invariants();
    }

    #[inline(never)]
    fn judge_line(&mut self, fx: &mut Effects<P>) {
        loop {
            let load = Load {
                depth: self.depth(),
                line: self.line.len(),
                standing: self.is_standing_delay(),
            };
            self.ladder.judge(load);
            let Some((key, head)) = self.line.head() else {
                break;
            };
            let (cost, owner) = (head.cost, head.owner);
            if !self.ladder.grants(cost, load.depth, self.critical()) {
                break;
            }
            self.grant(key, cost, owner, fx);
        }
        if self.depth > 0
            && let Some(delay) = &mut self.standing
        {
            let end = delay.begin(self.now);
            self.expect(end);
        }
    }

    pub(super) fn grant(&mut self, key: WaiterKey, cost: u64, owner: Owner, fx: &mut Effects<P>) {
        self.tenants.get_mut(owner.tenant).line -= u128::from(cost);
        self.hold(cost, owner);
        let lapse = self.now + LAPSE;
        self.line.set(key, Stand::Granted(lapse));
        self.expect(lapse);
        fx.wake.push(key);
    }

    fn debug_invariants(&self) {
        debug_assert_eq!(self.depth, self.held.iter().sum::<u128>(), "I1");
        debug_assert!(
            self.ledgers.iter().all(Ledger::is_balanced),
            "I3: {:?}",
            self.ledgers
        );
        #[cfg(test)]
        assert!(self.lanes.ends_are_exact(&self.places, &self.tenants));
    }
}

/// A place that was granted and not collected for so long goes to the next: longer than any healthy executor takes to
/// poll a woken task, short enough that a shelved future holds nobody up for long.
const LAPSE: Duration = Duration::from_secs(1);
