//! How a file becomes a [`Config`].

use std::collections::{BTreeMap, HashMap, HashSet};

use super::calendar::{Calendar, DAY, Window};
use super::error::ConfigError;
use super::raw::{File, Full, Lanes, Queue, RawLevel, Tenants, Timing, Whom};
use super::text::Minute;
use super::{Config, Level};
use crate::error::BuildError;
use crate::queue::{Builder, Timer};
use crate::words::{Priority, WhenFull};

/// A rule that is broken, and the path of what breaks it.
type Broken = (Vec<String>, String);

pub(super) fn read(text: &str) -> Result<Config, ConfigError> {
    let file: File = toml::from_str(text).map_err(|error| ConfigError::from_toml(text, &error))?;
    build(&file).map_err(|(path, message)| ConfigError::at(text, place(text, &path), message))
}

fn build(file: &File) -> Result<Config, Broken> {
    let mut builder = queue(&file.queue)?;
    if let Some(name) = &file.name {
        builder = builder.name(name.as_str());
    }
    if let Some(tenants) = &file.tenants {
        builder = tenancy(builder, tenants)?;
    }
    let shares = file.lanes.shares;
    let builder = builder
        .lane_share(Priority::Low, shares.low)
        .lane_share(Priority::Normal, shares.normal)
        .lane_share(Priority::High, shares.high)
        .lane_share(Priority::Critical, shares.critical);
    let config = Config {
        builder,
        rate: file.queue.rate.as_ref().map(|rate| rate.0),
        levels: levels(&file.level)?,
        lanes: lanes(&file.lanes)?,
        fair: file.tenants.is_some(),
        weights: weights(file),
        calendar: calendar(file)?,
    };
    config
        .check()
        .map_err(|error| (path_of(&error), error.to_string()))?;
    check_calendar(&config)?;
    Ok(config)
}

fn queue(queue: &Queue) -> Result<Builder, Broken> {
    let path = |field: &str| vec!["queue".to_owned(), field.to_owned()];
    let mut builder = match (&queue.rate, &queue.promise) {
        (Some(rate), Some(promise)) => Builder::shedding(rate.0, promise.0),
        (Some(rate), None) => Builder::new(rate.0),
        (None, Some(_)) => {
            let message =
                "a promise needs a rate: without one no wait is known; add rate = \"200/s\"";
            return Err((path("promise"), message.to_owned()));
        }
        (None, None) => Builder::unpaced(),
    };
    macro_rules! set {
        ($($field:ident),*) => {
            $(if let Some(value) = queue.$field { builder = builder.$field(value); })*
        };
    }
    macro_rules! set_text {
        ($($field:ident),*) => {
            $(if let Some(value) = &queue.$field { builder = builder.$field(value.0); })*
        };
    }
    // The timer first: bounds of times depend on its grain.
    if let Some(timing) = queue.timer {
        builder = builder.timer(match timing {
            Timing::Runtime => Timer::Runtime,
            Timing::Precise => Timer::Precise,
        });
    }
    set!(
        max_depth,
        max_waiters,
        max_in_flight,
        catch_up,
        catch_up_pace,
        max_attempts,
        newest_first
    );
    set_text!(max_wait, expire_after, slow_start);
    if let Some([low, high]) = queue.watermarks {
        builder = builder.watermarks(low, high);
    }
    if let Some(full) = queue.when_full {
        builder = builder.when_full(match full {
            Full::Refuse => WhenFull::Refuse,
            Full::EvictOldest => WhenFull::EvictOldest,
            Full::EvictNewest => WhenFull::EvictNewest,
            Full::EvictLowest => WhenFull::EvictLowest,
            Full::EvictLower => WhenFull::EvictLower,
        });
    }
    if let Some(delay) = &queue.standing_delay {
        builder = builder
            .standing_delay(delay.target.0, delay.interval.0)
            .drop_stale(delay.drop_stale);
    }
    if let Some(budget) = &queue.retry_budget {
        builder = builder.retry_budget(budget.share, budget.at_least.0);
    }
    if let Some(letters) = queue.dead_letters {
        builder = builder.dead_letters(letters as usize);
    }
    Ok(builder)
}

fn tenancy(mut builder: Builder, tenants: &Tenants) -> Result<Builder, Broken> {
    if let Some(depth) = tenants.max_depth {
        builder = builder.tenant_max_depth(depth);
    }
    if let Some(rate) = &tenants.rate {
        builder = builder.tenant_rate(rate.0);
    }
    if let Some(most) = tenants.max_tenants {
        builder = builder.max_tenants(most);
    }
    for (tenant, weight) in &tenants.weights {
        if *weight == 0 {
            let path = ["tenants", "weights", tenant].map(str::to_owned).to_vec();
            return Err((
                path,
                "a weight is at least 1: a tenant with 0 would never get a turn".into(),
            ));
        }
        builder = builder.tenant_weight(tenant.as_str(), *weight);
    }
    Ok(builder)
}

fn weights(file: &File) -> BTreeMap<Box<str>, u64> {
    let weights = file.tenants.iter().flat_map(|tenants| &tenants.weights);
    weights
        .map(|(tenant, weight)| (tenant.as_str().into(), *weight))
        .collect()
}

fn levels(raw: &[RawLevel]) -> Result<Vec<Level>, Broken> {
    let mut names = HashSet::new();
    raw.iter()
        .enumerate()
        .map(|(index, level)| {
            let path = |field: &str| vec!["level".to_owned(), index.to_string(), field.to_owned()];
            if !names.insert(&level.name) {
                let message = format!("a second level {:?}: each level needs a name of its own", level.name);
                return Err((path("name"), message));
            }
            let limit = level.limit.0;
            let per_key = matches!(level.per, Whom::Key);
            if per_key && !limit.starts_full() {
                let message = "a bucket that does not start full cannot be forgotten and found again, so a level per key \
                               needs one without `initial`";
                return Err((path("limit"), message.to_owned()));
            }
            Ok(Level {
                name: level.name.as_str().into(),
                limit,
                per_key,
            })
        })
        .collect()
}

fn lanes(raw: &Lanes) -> Result<HashMap<Box<str>, Priority>, Broken> {
    let mut lanes = HashMap::new();
    for (lane, keys, priority) in [
        ("low", &raw.low, Priority::Low),
        ("high", &raw.high, Priority::High),
        ("critical", &raw.critical, Priority::Critical),
    ] {
        for (index, key) in keys.iter().enumerate() {
            if let Some(other) = lanes.insert(key.as_str().into(), priority) {
                let path = vec!["lanes".to_owned(), lane.to_owned(), index.to_string()];
                let other = other.as_str();
                return Err((
                    path,
                    format!("{key:?} is in lane {other} already: a key has one lane"),
                ));
            }
        }
    }
    Ok(lanes)
}

fn calendar(file: &File) -> Result<Calendar, Broken> {
    let mut windows = Vec::new();
    for (index, raw) in file.calendar.iter().enumerate() {
        let path = |field: &str| vec!["calendar".to_owned(), index.to_string(), field.to_owned()];
        let (Minute(from), Minute(to)) = (raw.from.0, raw.to.0);
        if from == to {
            let message =
                "the window ends where it starts; a whole day is from \"00:00\" to \"24:00\"";
            return Err((path("to"), message.to_owned()));
        }
        let minutes = (to + 24 * 60 - from) % (24 * 60);
        let length = u64::from(if minutes == 0 { 24 * 60 } else { minutes }) * 60;
        let ramp = raw.ramp.as_ref().map_or(0, |ramp| ramp.0.as_secs());
        if ramp > length {
            let message = format!("a slope of {ramp} s is longer than the window of {length} s");
            return Err((path("ramp"), message));
        }
        let all = [0, 1, 2, 3, 4, 5, 6];
        let days = raw.days.iter().map(|day| *day as u64);
        let days: Vec<u64> = if raw.days.is_empty() {
            all.into()
        } else {
            days.collect()
        };
        windows.extend(days.into_iter().map(|day| Window {
            name: raw.name.as_str().into(),
            from: day * DAY + u64::from(from) * 60,
            length,
            ramp,
            share: raw.rate.0,
        }));
    }
    let offset = file.utc_offset.as_ref().map_or(0, |offset| offset.0.0);
    Ok(Calendar::new(windows, offset))
}

fn check_calendar(config: &Config) -> Result<(), Broken> {
    let calendar = &config.calendar;
    let top = || vec!["calendar".to_owned()];
    if calendar.is_empty() {
        return Ok(());
    }
    let Some(usual) = config.rate else {
        return Err((
            top(),
            "a calendar changes the rate, and the queue has none; add rate = \"200/s\"".into(),
        ));
    };
    if let Some((earlier, later)) = calendar.overlap() {
        let name = |index: usize| calendar.windows()[index].name.clone();
        let (earlier, later) = (name(earlier), name(later));
        return Err((
            top(),
            format!("{later:?} and {earlier:?} claim the same time, slopes included"),
        ));
    }
    for window in calendar.windows() {
        let rate = window.share.of(usual);
        let spec = config.builder.clone().at_rate(rate).into_spec();
        if let Err(error) = spec.resolve() {
            return Err((top(), format!("at {rate} in {:?}: {error}", window.name)));
        }
    }
    Ok(())
}

/// Where the file says what a builder refuses.
fn path_of(error: &BuildError) -> Vec<String> {
    let BuildError::Setting { field, .. } = error else {
        return vec!["queue".to_owned()];
    };
    match *field {
        "tenant max_depth" => vec!["tenants".into(), "max_depth".into()],
        "max_tenants" => vec!["tenants".into(), "max_tenants".into()],
        "tenant_weight" => vec!["tenants".into(), "weights".into()],
        "lane_share" => vec!["lanes".into(), "shares".into()],
        "drop_stale" => vec!["queue".into(), "standing_delay".into()],
        field => vec!["queue".into(), field.into()],
    }
}

/// Where the value with this path stands; of what is not there, where the table is in which it would stand.
fn place(text: &str, path: &[String]) -> Option<std::ops::Range<usize>> {
    use toml::de::{DeTable, DeValue};
    let root = DeTable::parse(text).ok()?.into_inner();
    let (first, rest) = path.split_first()?;
    let mut value = root.get(first.as_str())?;
    for step in rest {
        let next = match value.get_ref() {
            DeValue::Table(table) => table.get(step.as_str()),
            DeValue::Array(array) => step.parse().ok().and_then(|index: usize| array.get(index)),
            _ => None,
        };
        match next {
            Some(next) => value = next,
            None => break,
        }
    }
    Some(value.span())
}
