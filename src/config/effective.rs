//! The configuration as it takes effect: every number, given or derived.

use std::fmt;
use std::time::Duration;

use super::Config;
use super::text::Share;
use crate::machine::Settings;
use crate::rate::{Rate, Span};

/// One table: every setting with its value, and where it comes from.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = self.builder.clone().into_spec();
        let Ok(settings) = spec.resolve() else {
            return f.write_str("contradictory");
        };
        let name = settings.name.as_deref().unwrap_or("(without a name)");
        writeln!(f, "queue {name}")?;
        let mut row = |name: &str, value: String, given: bool, derived: &str| {
            let from = if given { "given" } else { derived };
            writeln!(f, "  {name:<16} {value:<24} {from}")
        };
        let span =
            |time: Option<Duration>| time.map_or("never".into(), |time| Span(time).to_string());
        let many = |number: u64| match number {
            u64::MAX => "no bound".to_owned(),
            number => number.to_string(),
        };
        row(
            "rate",
            settings.rate.map_or("none".into(), |rate| rate.to_string()),
            spec.rate.is_some(),
            "unpaced",
        )?;
        row(
            "max_depth",
            settings.max_depth.to_string(),
            spec.max_depth.is_some(),
            "derived from the rate",
        )?;
        let marks = format!("{}, {}", settings.low, settings.high);
        row(
            "watermarks",
            marks,
            spec.watermarks.is_some(),
            "50 % and 80 % of max_depth",
        )?;
        row(
            "max_waiters",
            settings.max_waiters.to_string(),
            spec.max_waiters.is_some(),
            "default",
        )?;
        row(
            "max_wait",
            span(settings.max_wait),
            spec.max_wait.is_some(),
            "default, or the promise",
        )?;
        row(
            "expire_after",
            span(settings.expire_after),
            spec.expire_after.is_some(),
            "default, or the promise",
        )?;
        row(
            "max_in_flight",
            many(settings.max_in_flight),
            spec.max_in_flight.is_some(),
            "default",
        )?;
        row(
            "catch_up",
            catch_up(&settings),
            spec.catch_up.is_some(),
            "derived: what falls due in 100 ms",
        )?;
        row(
            "catch_up_pace",
            spec.catch_up_pace.to_string(),
            spec.catch_up_pace != 1.1,
            "default",
        )?;
        row(
            "when_full",
            format!("{:?}", settings.when_full),
            spec.when_full != crate::words::WhenFull::Refuse,
            "default",
        )?;
        let delay = settings
            .standing_delay
            .map_or("off".into(), |(target, interval)| {
                format!("{} over {}", Span(target), Span(interval))
            });
        row(
            "standing_delay",
            delay,
            spec.standing_delay.is_some(),
            "default",
        )?;
        let attempts = many(if settings.max_attempts == u32::MAX {
            u64::MAX
        } else {
            settings.max_attempts.into()
        });
        row(
            "max_attempts",
            attempts,
            spec.max_attempts.is_some(),
            "default",
        )?;
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
        let mut lanes: Vec<_> = self.lanes().collect();
        lanes.sort_unstable();
        for (key, priority) in lanes {
            writeln!(f, "lane {}: {key}", priority.as_str())?;
        }
        if self.fair {
            let tenancy = settings.tenancy;
            let depth = tenancy
                .max_depth
                .map_or("no bound of its own".into(), |depth| {
                    format!("depth {depth}")
                });
            let rate = tenancy
                .rate
                .map_or("no rate of its own".into(), |rate| rate.to_string());
            writeln!(
                f,
                "tenants: up to {} by name, each {depth}, {rate}",
                tenancy.max_tenants
            )?;
        }
        for window in self.calendar.windows() {
            let share = match window.share {
                Share::Percent(percent) => format!("{percent} %"),
                Share::Rate(rate) => rate.to_string(),
            };
            let day = DAYS[(window.from / super::calendar::DAY) as usize % 7];
            let minute = window.from % super::calendar::DAY / 60;
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
        for warning in self.warnings() {
            writeln!(f, "warning: {warning}")?;
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

fn catch_up(settings: &Settings) -> String {
    settings
        .rate
        .map_or("none".into(), |rate| settings.catch_up(rate).to_string())
}

fn per_second(rate: Rate) -> f64 {
    rate.count() as f64 / rate.period().as_secs_f64()
}

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
