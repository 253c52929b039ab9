//! What was asked of a queue, and what follows from it.
//!
//! [`Spec`] keeps apart what was set by hand and what was left open, so that a change of rate or bound derives anew
//! what nobody fixed. [`Settings`] is the outcome: complete, checked, and what the machine runs on.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::error::BuildError;
use crate::key::Key;
use crate::machine::budget::Allowance;
use crate::policy::schedule::{Pace, usual_catch_up};
use crate::rate::{Rate, Span};
use crate::words::WhenFull;

/// Which defaults a queue starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preset {
    /// Producers wait, nothing expires.
    Lossless,
    /// Started within so long, or refused or expired.
    Shedding(Duration),
    /// No rate: a bounded queue.
    Unpaced,
}

/// Bounds that each tenant has of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tenancy {
    /// Tenants known by name at once.
    pub(crate) max_tenants: u64,
    /// Depth of one tenant, in cost, its offers in line included.
    pub(crate) max_depth: Option<u64>,
    /// Departures of one tenant.
    pub(crate) rate: Option<Rate>,
    /// Flows that all further tenants share, and how many of them each is dealt.
    pub(crate) shared_flows: u32,
    pub(crate) hand: u32,
}

impl Default for Tenancy {
    fn default() -> Self {
        Self {
            max_tenants: 4096,
            max_depth: None,
            rate: None,
            shared_flows: 64,
            hand: 8,
        }
    }
}

/// Settings as given: `None` = derived from the others.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) preset: Preset,
    pub(crate) rate: Option<Rate>,
    pub(crate) max_depth: Option<u64>,
    pub(crate) watermarks: Option<(u64, u64)>,
    pub(crate) max_waiters: Option<u64>,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) expire_after: Option<Duration>,
    pub(crate) max_in_flight: Option<u64>,
    pub(crate) catch_up: Option<u64>,
    pub(crate) catch_up_pace: f64,
    pub(crate) when_full: WhenFull,
    pub(crate) standing_delay: Option<(Duration, Duration)>,
    pub(crate) drop_stale: bool,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) newest_first: bool,
    pub(crate) slow_start: Option<Duration>,
    pub(crate) retry_budget: Option<(f64, Rate)>,
    pub(crate) lane_shares: [f64; 4],
    pub(crate) tenancy: Tenancy,
    /// Shares of tenants that have another than 1.
    pub(crate) weights: HashMap<Key, u64>,
    /// Usual lateness of the timer that drives the queue.
    pub(crate) grain: Duration,
    pub(crate) name: Option<Arc<str>>,
}

/// Complete and checked settings.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) rate: Option<Rate>,
    pub(crate) max_depth: u64,
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) max_waiters: u64,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) expire_after: Option<Duration>,
    pub(crate) max_in_flight: u64,
    /// Units that may be owed, if set by hand.
    catch_up: Option<u64>,
    /// Pace of repayment in millionths of the rate.
    pub(crate) pace_ppm: u64,
    pub(crate) when_full: WhenFull,
    pub(crate) standing_delay: Option<(Duration, Duration)>,
    pub(crate) drop_stale: bool,
    pub(crate) max_attempts: u32,
    /// While overloaded, the job that came last goes first.
    pub(crate) newest_first: bool,
    pub(crate) slow_start: Option<Duration>,
    pub(crate) retries: Option<Allowance>,
    /// What lanes get at least of the departures, in millionths.
    pub(crate) lane_shares: [u64; 4],
    pub(crate) tenancy: Tenancy,
    pub(crate) grain: Duration,
    pub(crate) name: Option<Arc<str>>,
}

impl Spec {
    pub(crate) fn new(preset: Preset, rate: Option<Rate>, grain: Duration) -> Self {
        Self {
            preset,
            rate,
            max_depth: None,
            watermarks: None,
            max_waiters: None,
            max_wait: None,
            expire_after: None,
            max_in_flight: None,
            catch_up: None,
            catch_up_pace: 1.1,
            when_full: WhenFull::Refuse,
            standing_delay: None,
            drop_stale: false,
            max_attempts: None,
            newest_first: false,
            slow_start: None,
            retry_budget: None,
            lane_shares: [0.0; 4],
            tenancy: Tenancy::default(),
            weights: HashMap::new(),
            grain,
            name: None,
        }
    }

    /// Share of a tenant.
    pub(crate) fn weight(&self, tenant: &Key) -> u64 {
        self.weights.get(tenant).copied().unwrap_or(1)
    }

    /// Derives what was left open and checks the whole.
    ///
    /// # Errors
    /// The first setting that breaks a rule, by name and number.
    pub(crate) fn resolve(&self) -> Result<Settings, BuildError> {
        let max_depth = match self.max_depth {
            Some(0) => return Err(BuildError::setting("max_depth", 0, "must be at least 1")),
            Some(depth) => depth,
            None => self.default_depth(),
        };
        let (low, high) = match self.watermarks {
            Some(marks) => checked_marks(marks, max_depth)?,
            None => default_marks(max_depth),
        };
        let promise = match self.preset {
            Preset::Shedding(promise) => Some(promise),
            Preset::Lossless | Preset::Unpaced => None,
        };
        let max_wait = self.max_wait.or(promise);
        let expire_after = self.expire_after.or(promise);
        self.check_times(max_wait, expire_after)?;
        Ok(Settings {
            rate: self.rate,
            max_depth,
            low,
            high,
            max_waiters: self.max_waiters.unwrap_or(match self.preset {
                Preset::Shedding(_) => (max_depth - high).max(1),
                Preset::Lossless | Preset::Unpaced => MAX_WAITERS,
            }),
            max_wait,
            expire_after,
            max_in_flight: at_least_one("max_in_flight", self.max_in_flight)?.unwrap_or(u64::MAX),
            catch_up: self.catch_up,
            pace_ppm: self.pace()?,
            when_full: self.when_full,
            standing_delay: self.standing_delay,
            drop_stale: self.drop_stale,
            max_attempts: at_least_one("max_attempts", self.max_attempts.map(u64::from))?
                .map_or(u32::MAX, |most| u32::try_from(most).unwrap_or(u32::MAX)),
            newest_first: self.newest_first,
            slow_start: self.slow_start,
            retries: self.checked_retries()?,
            lane_shares: self.checked_shares()?,
            tenancy: self.checked_tenancy(max_depth)?,
            grain: self.grain,
            name: self.name.clone(),
        })
    }

    fn default_depth(&self) -> u64 {
        match (self.preset, self.rate) {
            (Preset::Lossless, Some(rate)) => rate.units_in(BACKLOG).clamp(1, MAX_DEPTH),
            (Preset::Shedding(promise), Some(rate)) => rate.units_in(promise).max(1),
            (_, None) | (Preset::Unpaced, _) => UNPACED_DEPTH,
        }
    }

    fn checked_retries(&self) -> Result<Option<Allowance>, BuildError> {
        let Some((share, at_least)) = self.retry_budget else {
            return Ok(None);
        };
        if !(0.0..=MAX_RETRY_SHARE).contains(&share) {
            let rule = format!("the share must be from 0 to {MAX_RETRY_SHARE}");
            return Err(BuildError::setting("retry_budget", share, rule));
        }
        Ok(Some(Allowance {
            share_ppm: (share * 1e6).round() as u64,
            at_least,
        }))
    }

    fn checked_shares(&self) -> Result<[u64; 4], BuildError> {
        for share in self.lane_shares {
            if !(0.0..=1.0).contains(&share) {
                return Err(BuildError::setting(
                    "lane_share",
                    share,
                    "must be from 0 to 1",
                ));
            }
        }
        let shares = self.lane_shares.map(|share| (share * 1e6).round() as u64);
        let all: u64 = shares.iter().sum();
        // A millionth for each that was rounded up.
        if all > 1_000_002 {
            let sum = all as f64 / 1e6;
            let rule = "all shares together must not be above 1";
            return Err(BuildError::setting("lane_share", sum, rule));
        }
        Ok(shares)
    }

    fn checked_tenancy(&self, max_depth: u64) -> Result<Tenancy, BuildError> {
        let tenancy = self.tenancy;
        if let Some(own) = at_least_one("tenant max_depth", tenancy.max_depth)?
            && own > max_depth
        {
            let rule = format!("must not be above max_depth, which is {max_depth}");
            return Err(BuildError::setting("tenant max_depth", own, rule));
        }
        if !(1..=MAX_TENANTS).contains(&tenancy.max_tenants) {
            let rule = format!("must be from 1 to {MAX_TENANTS}");
            return Err(BuildError::setting(
                "max_tenants",
                tenancy.max_tenants,
                rule,
            ));
        }
        let Tenancy {
            shared_flows, hand, ..
        } = tenancy;
        if !(1..=MAX_SHARED).contains(&shared_flows) || !(1..=shared_flows).contains(&hand) {
            let rule = format!("1 <= hand <= flows <= {MAX_SHARED} must hold");
            let asked = format_args!("({shared_flows}, {hand})");
            return Err(BuildError::setting("shared_flows", asked, rule));
        }
        Ok(tenancy)
    }

    fn pace(&self) -> Result<u64, BuildError> {
        let pace = self.catch_up_pace;
        if pace.is_finite() && (1.0..=MAX_PACE).contains(&pace) {
            Ok((pace * 1e6).round() as u64)
        } else {
            Err(BuildError::setting(
                "catch_up_pace",
                pace,
                "must be from 1 to 1000000",
            ))
        }
    }

    fn check_times(
        &self,
        max_wait: Option<Duration>,
        expire_after: Option<Duration>,
    ) -> Result<(), BuildError> {
        // A wait shorter than the timer is late by cannot be promised; without a rate no timer is involved.
        let least = if self.rate.is_some() {
            self.grain
        } else {
            Duration::from_nanos(1)
        };
        for (field, time) in [("max_wait", max_wait), ("expire_after", expire_after)] {
            if let Some(time) = time.filter(|time| *time < least) {
                let rule = format!("must be at least the timer's grain of {least:?}");
                return Err(BuildError::setting(field, Span(time), rule));
            }
        }
        match self.standing_delay {
            Some((target, interval)) => {
                for (time, which) in [(target, "target"), (interval, "interval")] {
                    if time.is_zero() {
                        let rule = format!("the {which} must be above 0");
                        return Err(BuildError::setting("standing_delay", "0s", rule));
                    }
                }
                if let Some(wait) = max_wait.filter(|wait| target > *wait) {
                    let rule = format!("the target must not be above max_wait, which is {wait:?}");
                    return Err(BuildError::setting("standing_delay", Span(target), rule));
                }
            }
            None if self.drop_stale => {
                return Err(BuildError::setting(
                    "drop_stale",
                    true,
                    "needs standing_delay",
                ));
            }
            None => {}
        }
        Ok(())
    }
}

impl Settings {
    /// What the schedule is set to at a rate.
    pub(crate) fn pace(&self, rate: Rate) -> Pace {
        Pace::new(rate, self.catch_up(rate), self.pace_ppm, self.grain)
    }

    /// Units that may be owed at a rate: as set, or what falls due in 100 ms and what a late timer can owe.
    pub(crate) fn catch_up(&self, rate: Rate) -> u64 {
        self.catch_up
            .unwrap_or_else(|| usual_catch_up(rate, self.grain))
    }
}

fn default_marks(max_depth: u64) -> (u64, u64) {
    let low = max_depth / 2;
    let high = u64::try_from(u128::from(max_depth) * 4 / 5).unwrap_or(max_depth);
    (low, high.max(low + 1))
}

fn checked_marks((low, high): (u64, u64), max_depth: u64) -> Result<(u64, u64), BuildError> {
    if low < high && high <= max_depth {
        return Ok((low, high));
    }
    let rule = format!("low < high <= max_depth must hold, and max_depth is {max_depth}");
    Err(BuildError::setting(
        "watermarks",
        format_args!("({low}, {high})"),
        rule,
    ))
}

fn at_least_one(field: &'static str, value: Option<u64>) -> Result<Option<u64>, BuildError> {
    match value {
        Some(0) => Err(BuildError::setting(field, 0, "must be at least 1")),
        other => Ok(other),
    }
}

/// Depth of a lossless queue: what departs in so long.
const BACKLOG: Duration = Duration::from_secs(5);
/// Bound of the derived depth: a million jobs of 100 bytes are 100 MB.
const MAX_DEPTH: u64 = 1 << 20;
const UNPACED_DEPTH: u64 = 1024;
/// A million known tenants are 300 MB.
const MAX_TENANTS: u64 = 1 << 20;
const MAX_SHARED: u32 = 4096;
/// Ten retries for each fresh job are no budget any more.
const MAX_RETRY_SHARE: f64 = 10.0;
const MAX_WAITERS: u64 = 65_536;
/// Beyond it a pace is no pace, and its millionths leave the exact range of f64.
const MAX_PACE: f64 = 1e6;
