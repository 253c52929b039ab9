//! The configuration as it takes effect: every number, given or derived.

use std::fmt;
use std::time::Duration;

use super::Config;
use super::calendar::DAY;
use super::text::Share;
use crate::machine::{Preset, Settings, Spec, Tenancy};
use crate::queue::{Builder, Timer};
use crate::rate::{Rate, Span};
use crate::words::{Priority, WhenFull};

/// One table: every setting with its value, and where it comes from.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = self.builder.clone().into_spec();
        let Ok(settings) = spec.resolve() else {
            return f.write_str("contradictory");
        };
        let name = settings.name.as_deref().unwrap_or("(without a name)");
        writeln!(f, "queue {name}")?;
        bounds(f, &spec, &settings)?;
        troubles(f, &spec, &settings, self.builder.letters_kept())?;
        if let Some(rate) = settings.rate {
            let fills = per_second(rate).recip() * settings.max_depth as f64;
            writeln!(f, "  a full queue holds {fills:.3} s of work")?;
        }
        for level in &self.levels {
            let per = if level.per_key {
                "each key"
            } else {
                "everybody"
            };
            writeln!(f, "level {}: {}, {per}", level.name, level.limit)?;
        }
        self.write_lanes(f, &spec)?;
        self.write_tenants(f, spec.tenancy)?;
        self.write_calendar(f)?;
        for warning in self.warnings() {
            writeln!(f, "warning: {warning}")?;
        }
        Ok(())
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, value: &str, given: bool, or: &str) -> fmt::Result {
    let from = if given { "given" } else { or };
    writeln!(f, "  {name:<16} {value:<24} {from}")
}

/// Rate, room and times.
fn bounds(f: &mut fmt::Formatter<'_>, spec: &Spec, settings: &Settings) -> fmt::Result {
    let rate = settings.rate.map_or("none".into(), |rate| rate.to_string());
    row(f, "rate", &rate, spec.rate.is_some(), "unpaced")?;
    let depth = settings.max_depth.to_string();
    let derived = match (spec.rate, spec.preset) {
        (None, _) => "default",
        (Some(_), Preset::Shedding(_)) => "derived: rate x promise",
        (Some(_), _) => "derived: what leaves in 5 s",
    };
    row(f, "max_depth", &depth, spec.max_depth.is_some(), derived)?;
    let marks = format!("{}, {}", settings.low, settings.high);
    let given = spec.watermarks.is_some();
    row(f, "watermarks", &marks, given, "50 % and 80 % of max_depth")?;
    let (promised, waiters) = match spec.preset {
        Preset::Shedding(_) => ("the promise", "derived: max_depth - high"),
        _ => ("default", "default"),
    };
    let line = settings.max_waiters.to_string();
    row(f, "max_waiters", &line, spec.max_waiters.is_some(), waiters)?;
    for (name, time, given) in [
        ("max_wait", settings.max_wait, spec.max_wait),
        ("expire_after", settings.expire_after, spec.expire_after),
    ] {
        row(f, name, &span(time, "never"), given.is_some(), promised)?;
    }
    let flying = many(settings.max_in_flight);
    row(
        f,
        "max_in_flight",
        &flying,
        spec.max_in_flight.is_some(),
        "default",
    )?;
    let owed = settings.rate;
    let owed = owed.map_or("none".into(), |rate| settings.catch_up(rate).to_string());
    let derived = "derived: what falls due in 100 ms";
    row(f, "catch_up", &owed, spec.catch_up.is_some(), derived)?;
    let pace = spec.catch_up_pace;
    row(
        f,
        "catch_up_pace",
        &pace.to_string(),
        pace != 1.1,
        "default",
    )?;
    let precise = spec.grain == Timer::Precise.grain();
    let timer = if precise { "precise" } else { "runtime" };
    row(f, "timer", timer, precise, "default")
}

/// What happens when it is full, late, or the downstream hurts.
fn troubles(
    f: &mut fmt::Formatter<'_>,
    spec: &Spec,
    settings: &Settings,
    letters: usize,
) -> fmt::Result {
    let full = match settings.when_full {
        WhenFull::Refuse => "refuse",
        WhenFull::EvictOldest => "evict_oldest",
        WhenFull::EvictNewest => "evict_newest",
        WhenFull::EvictLowest => "evict_lowest",
        WhenFull::EvictLower => "evict_lower",
    };
    row(
        f,
        "when_full",
        full,
        spec.when_full != WhenFull::Refuse,
        "default",
    )?;
    let delay = settings
        .standing_delay
        .map_or("off".into(), |(target, interval)| {
            let stale = if settings.drop_stale {
                ", stale dropped"
            } else {
                ""
            };
            format!("{} over {}{stale}", Span(target), Span(interval))
        });
    row(
        f,
        "standing_delay",
        &delay,
        spec.standing_delay.is_some(),
        "default",
    )?;
    let newest = settings.newest_first;
    row(f, "newest_first", &newest.to_string(), newest, "default")?;
    let attempts = match settings.max_attempts {
        u32::MAX => "no bound".into(),
        attempts => attempts.to_string(),
    };
    row(
        f,
        "max_attempts",
        &attempts,
        spec.max_attempts.is_some(),
        "default",
    )?;
    let budget = spec
        .retry_budget
        .map_or("no bound".into(), |(share, at_least)| {
            format!("{share} of fresh work, {at_least}")
        });
    row(
        f,
        "retry_budget",
        &budget,
        spec.retry_budget.is_some(),
        "default",
    )?;
    let climb = span(settings.slow_start, "off");
    row(
        f,
        "slow_start",
        &climb,
        spec.slow_start.is_some(),
        "default",
    )?;
    let usual = letters == Builder::unpaced().letters_kept();
    row(f, "dead_letters", &letters.to_string(), !usual, "default")
}

impl Config {
    fn write_lanes(&self, f: &mut fmt::Formatter<'_>, spec: &Spec) -> fmt::Result {
        for priority in Priority::ALL {
            let share = spec.lane_shares[priority.index()];
            if share > 0.0 {
                writeln!(
                    f,
                    "lane {}: at least {share} of the departures",
                    priority.as_str()
                )?;
            }
        }
        let mut lanes: Vec<_> = self.lanes().collect();
        lanes.sort_unstable();
        for (key, priority) in lanes {
            writeln!(f, "lane {}: {key}", priority.as_str())?;
        }
        Ok(())
    }

    fn write_tenants(&self, f: &mut fmt::Formatter<'_>, tenancy: Tenancy) -> fmt::Result {
        if !self.fair {
            return Ok(());
        }
        let depth = (tenancy.max_depth).map_or("no bound of its own".into(), |depth| {
            format!("depth {depth}")
        });
        let rate = (tenancy.rate).map_or("no rate of its own".into(), |rate| rate.to_string());
        writeln!(
            f,
            "tenants: up to {} by name, each {depth}, {rate}",
            tenancy.max_tenants
        )?;
        for (tenant, weight) in &self.weights {
            writeln!(f, "tenant {tenant}: weight {weight}")?;
        }
        Ok(())
    }

    fn write_calendar(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for window in self.calendar.windows() {
            let share = match window.share {
                Share::Percent(percent) => format!("{percent} %"),
                Share::Rate(rate) => rate.to_string(),
            };
            let day = DAYS[(window.from / DAY) as usize % 7];
            let minute = window.from % DAY / 60;
            let length = Span(Duration::from_secs(window.length));
            writeln!(
                f,
                "calendar: {:?} {day} {:02}:{:02} for {length} at {share}, slopes of {}",
                window.name,
                minute / 60,
                minute % 60,
                Span(Duration::from_secs(window.ramp)),
            )?;
        }
        Ok(())
    }
}

/// What does not fit together, though it is allowed.
pub(super) fn warnings(config: &Config) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(settings) = config.builder.clone().into_spec().resolve() else {
        return found;
    };
    let Some(rate) = settings.rate else {
        return found;
    };
    let queue = per_second(rate);
    let patience = [settings.expire_after, settings.max_wait]
        .into_iter()
        .flatten()
        .min();
    if let Some(patience) = patience {
        let within = queue * patience.as_secs_f64();
        if settings.max_depth as f64 > within.ceil() {
            found.push(format!(
                "max_depth {} is beyond rate x {} ({within:.0}): the deepest places are never reached in time",
                settings.max_depth,
                Span(patience)
            ));
        }
    }
    let shared = config.levels.iter().filter(|level| !level.per_key);
    for level in shared {
        let window = level.limit.window().as_secs_f64();
        let edge = level.limit.quota() as f64 / window.max(f64::MIN_POSITIVE);
        if edge > queue * 1.001 {
            found.push(format!(
                "level {:?} lets {edge:.1}/s in, and {rate} leaves: in the long run the queue refuses what the edge lets through",
                level.name
            ));
        } else if edge > queue * 0.9 {
            found.push(format!(
                "level {:?} lets {edge:.1}/s in, above 90 % of {rate}: a full queue takes long to clear",
                level.name
            ));
        }
        if level.limit.quota() > settings.max_depth {
            found.push(format!(
                "level {:?} lets a burst of {} in at once, and the queue holds {}",
                level.name,
                level.limit.quota(),
                settings.max_depth
            ));
        }
    }
    found
}

fn span(time: Option<Duration>, none: &str) -> String {
    time.map_or_else(|| none.to_owned(), |time| Span(time).to_string())
}

fn many(number: u64) -> String {
    match number {
        u64::MAX => "no bound".to_owned(),
        number => number.to_string(),
    }
}

fn per_second(rate: Rate) -> f64 {
    rate.count() as f64 / rate.period().as_secs_f64()
}

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
