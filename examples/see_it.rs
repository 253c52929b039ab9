//! What an operator sees of limits at work, and is advised: ten minutes of a service, in virtual time.
//!
//! Look at the caller who hammers: named with a count that is certain and the time of its last refusal, in memory that
//! does not grow with the number of callers. Then at the advice: a limit that is too tight for what is asked of one
//! route, and none while that one caller makes most of the refusals.
//!
//! `-- --json` prints the whole snapshot at the end. `-- --log FILE` replays an access log in place of all that: whom a
//! limit of so many a minute and address (`-- --per-minute N`, default 30) would have refused most, beside a full count.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lexopt::ValueExt;
use sluicegate::observe::{self, Keys, LimiterView, RefusedKey, Watched};
use sluicegate::{Hierarchy, ManualClock, Rate, SlidingLog, Tick};

#[path = "support/trace.rs"]
#[allow(dead_code, reason = "shared with an example that shows more")]
mod trace;

use trace::{Columns, Trace};

struct Request {
    ip: String,
    route: &'static str,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::read()?;
    match &options.log {
        Some(path) => replay(path, options.per_minute),
        None => play(options.json),
    }
}

/// Plays what is written above.
fn play(json: bool) -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::new();
    let start = Tick::ZERO + Duration::from_secs(1_780_000_000);
    clock.set(start);
    let limits = Hierarchy::<Request>::builder()
        .level("global", Rate::per_second(500).burst(500), |_| ())
        .level("ip", Rate::per_second(3).burst(30), |request: &Request| {
            request.ip.clone()
        })
        .level(
            "endpoint",
            Rate::per_minute(50).burst(10),
            |request: &Request| request.route,
        )
        .clock(clock.clone())
        .build()?;
    let edge = Watched::with_clock("edge", limits, clock.clone())
        .by_endpoint(|request: &Request| Some(request.route));

    observe::sample();
    for second in 0..600_u64 {
        // Two searches a second, from ever other callers: 120 a minute, of which 50 are allowed.
        for n in 0..2 {
            let ip = format!("198.51.100.{}", (2 * second + n) % 250);
            let route = "GET /search";
            let _ = edge.check(&Request { ip, route }, 1);
        }
        // For the last five minutes, one that does not obey.
        let hammers = if second < 300 { 0 } else { 8 };
        for _ in 0..hammers {
            let ip = "203.0.113.7".to_owned();
            let route = "POST /login";
            let _ = edge.check(&Request { ip, route }, 1);
        }
        clock.advance(Duration::from_secs(1));
        observe::sample();
        if second == 299 {
            println!("after five minutes");
            report(start);
        }
    }
    println!("after ten, five of them with one that hammers");
    let snapshot = report(start);
    if json {
        println!("{}", snapshot.to_json());
    }
    Ok(())
}

fn report(start: Tick) -> observe::Snapshot {
    let snapshot = observe::snapshot_with(Keys::Cut);
    for limiter in &snapshot.limiters {
        let verdicts = &limiter.verdicts;
        println!(
            "  {}: {} allowed, {} refused",
            limiter.name, verdicts.allowed, verdicts.rejected
        );
        for endpoint in &limiter.endpoints {
            let verdicts = &endpoint.verdicts;
            println!(
                "    {:12} {:5} allowed, {:5} refused",
                endpoint.name, verdicts.allowed, verdicts.rejected
            );
        }
        print_top(limiter, start);
    }
    for advice in &snapshot.advice {
        println!("  advice: {advice}");
    }
    if snapshot.advice.is_empty() {
        println!("  advice: none");
    }
    println!();
    snapshot
}

fn print_top(limiter: &LimiterView, start: Tick) {
    for top in &limiter.top_refused {
        println!(
            "    refused in the last minute, by {}: {}",
            top.level, top.refusals
        );
        for key in top.keys.iter().take(3) {
            let last = key.last_refused.saturating_sub(start - Tick::ZERO);
            println!(
                "      {:14} {:4} for certain, {:4} at most, last at {last:?}",
                key.key, key.guaranteed, key.at_most
            );
        }
    }
}

/// Replays a log, and tells who was refused most in any minute.
fn replay(path: &Path, per_minute: u64) -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::new();
    let limit = SlidingLog::new(per_minute, Duration::from_secs(60))?;
    let limits = Hierarchy::<String>::builder()
        .level("ip", limit, |ip: &String| ip.clone())
        .clock(clock.clone())
        .build()?;
    let edge = Watched::with_clock("log", limits, clock.clone());
    let mut minute = Minute::default();
    let mut hottest: Option<(RefusedKey, u64)> = None;
    for arrival in Trace::open_with(path, Columns::new().key("client"))? {
        let arrival = arrival?;
        clock.set(Tick::ZERO + arrival.offset);
        let ip = String::from(arrival.key.unwrap_or_default());
        if edge.check(&ip, 1).is_granted() {
            continue;
        }
        minute.add(arrival.offset, ip);
        let limiters = observe::snapshot_with(Keys::Cut).limiters;
        let top = limiters
            .first()
            .and_then(|limiter| limiter.top_refused.first());
        for key in top.iter().flat_map(|top| &top.keys) {
            let truth = minute.count(&key.key);
            if !(key.guaranteed..=key.at_most).contains(&truth) {
                return Err(format!("{key:?} was refused {truth} times").into());
            }
        }
        if let Some(key) = top.and_then(|top| top.keys.first())
            && hottest
                .as_ref()
                .is_none_or(|(most, _)| most.guaranteed < key.guaranteed)
        {
            hottest = Some((key.clone(), minute.most()));
        }
    }
    println!(
        "{} requests refused at {per_minute} a minute and address",
        minute.total
    );
    if let Some((key, truth)) = hottest {
        println!(
            "most in a minute: {}, {} times for certain and {} at most, the last {:?} after the start of the log",
            key.key, key.guaranteed, key.at_most, key.last_refused
        );
        println!("a full count of every address has {truth} for the most refused in that minute");
    }
    Ok(())
}

/// Every refusal of the last minute, in the steps of ten seconds that the summary has.
#[derive(Default)]
struct Minute {
    refusals: VecDeque<(Duration, String)>,
    counts: HashMap<String, u64>,
    total: u64,
}

impl Minute {
    fn add(&mut self, now: Duration, ip: String) {
        let since = (now.as_secs() / 10).saturating_sub(5) * 10;
        while self
            .refusals
            .front()
            .is_some_and(|(at, _)| at.as_secs() < since)
        {
            let gone = self
                .refusals
                .pop_front()
                .map(|(_, ip)| ip)
                .unwrap_or_default();
            self.counts.entry(gone).and_modify(|count| *count -= 1);
        }
        *self.counts.entry(ip.clone()).or_default() += 1;
        self.refusals.push_back((now, ip));
        self.total += 1;
    }

    fn count(&self, ip: &str) -> u64 {
        self.counts.get(ip).copied().unwrap_or(0)
    }

    fn most(&self) -> u64 {
        self.counts.values().copied().max().unwrap_or(0)
    }
}

struct Options {
    log: Option<PathBuf>,
    per_minute: u64,
    json: bool,
}

impl Options {
    fn read() -> Result<Self, lexopt::Error> {
        let mut options = Self {
            log: None,
            per_minute: 30,
            json: false,
        };
        let mut arguments = lexopt::Parser::from_env();
        while let Some(argument) = arguments.next()? {
            match argument {
                lexopt::Arg::Long("log") => options.log = Some(arguments.value()?.into()),
                lexopt::Arg::Long("per-minute") => {
                    options.per_minute = arguments.value()?.parse()?;
                }
                lexopt::Arg::Long("json") => options.json = true,
                other => return Err(other.unexpected()),
            }
        }
        Ok(options)
    }
}
