//! Puts a script together from the rules of the levels that it decides about.
//!
//! Straight code without tables or loops over levels: what the server spends on a level is what its rule takes.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::script::Script;
use crate::sync::{Arc, Mutex};

/// Rule of a level, as its script knows it. Both buckets have one rule, and a shorter one where a unit takes whole
/// microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    Bucket,
    Interval,
    Fixed,
    Log,
    Counter,
}

/// What a script does with its levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Task {
    Decide,
    /// Several decisions about the same kinds of limits.
    DecideMany,
    Refund,
}

/// What a script does, and for which kinds of limits.
type Kind = (Task, Box<[Part]>);

/// Scripts put together so far.
#[derive(Debug)]
pub(super) struct Scripts {
    /// Whether time comes with the arguments instead of from the server.
    given: bool,
    /// Whether the server is to check that all keys are declared.
    strict: bool,
    made: Mutex<HashMap<Kind, Arc<Script>>>,
}

impl Scripts {
    pub(super) fn new(given: bool, strict: bool) -> Self {
        Self {
            given,
            strict,
            made: Mutex::new(HashMap::new()),
        }
    }

    /// The script for levels of these rules, in this order.
    pub(super) fn get(&self, task: Task, parts: &[Part]) -> Arc<Script> {
        let key = (task, Box::from(parts));
        let mut made = self.made.lock();
        let script = made
            .entry(key)
            .or_insert_with(|| Arc::new(Script::new(self.text(task, parts))));
        Arc::clone(script)
    }

    /// Times that a server had to be told a script.
    pub(super) fn loads(&self) -> u64 {
        self.made.lock().values().map(|script| script.loads()).sum()
    }

    fn text(&self, task: Task, parts: &[Part]) -> String {
        let mut text = match self.strict {
            true => String::from("#!lua\n"),
            false => String::new(),
        };
        text.push_str(&section(DECIDE, "first"));
        if parts.contains(&Part::Log) {
            text.push_str(&section(LOG, "once"));
        }
        let clock = section(DECIDE, if self.given { "given" } else { "clock" });
        let many = task == Task::DecideMany;
        if many {
            let given = self
                .given
                .then_some("local given = struct.unpack('<d', ARGV[2])\n");
            text.push_str(given.unwrap_or_default());
            text.push_str(&clock);
            text.push_str("local function one(base, from)\n");
            text.push_str(&self.arguments(task, parts));
        } else {
            text.push_str(&self.arguments(task, parts));
            text.push_str(&clock);
        }
        let each = |name: &str, text: &mut String| {
            for (index, part) in parts.iter().enumerate() {
                let lines = section(part.source(task), name);
                text.push_str(&for_level(&lines, index + 1, many));
            }
        };
        match task {
            Task::Decide | Task::DecideMany => {
                text.push_str(&section(DECIDE, "head"));
                each("read", &mut text);
                each("answer", &mut text);
                text.push_str(&section(DECIDE, "middle"));
                each("charge", &mut text);
                text.push_str(&section(DECIDE, "between"));
                each("repair", &mut text);
                let mut reply = String::new();
                each("reply", &mut reply);
                let reply: Vec<_> = reply.lines().collect();
                let numbers = reply_numbers(parts);
                let tail = section(DECIDE, "tail").replace("$doubles", &"d".repeat(numbers));
                text.push_str(&tail.replace("$reply", &reply.join(", ")));
                if many {
                    text.push_str("end\n");
                    let arguments = parts.iter().map(|part| part.arguments(task));
                    let width = 8 * (1 + arguments.sum::<usize>());
                    let many = section(DECIDE, "many")
                        .replace("$levels", &parts.len().to_string())
                        .replace("$width", &width.to_string())
                        .replace("$length", &(8 * numbers).to_string());
                    text.push_str(&many);
                }
            }
            Task::Refund => {
                each("refund", &mut text);
                text.push_str(&section(DECIDE, "done"));
            }
        }
        text
    }

    /// The line that unpacks the numbers of [`Numbers`] under their names.
    fn arguments(&self, task: Task, parts: &[Part]) -> String {
        let mut names: Vec<String> = match task {
            Task::Decide | Task::DecideMany => vec!["n".into()],
            Task::Refund => Vec::new(),
        };
        let many = task == Task::DecideMany;
        names.extend((self.given && !many).then(|| "given".into()));
        for (index, part) in parts.iter().enumerate() {
            let own = 1..=part.arguments(task);
            names.extend(own.map(|number| format!("a{}_{number}", index + 1)));
        }
        let doubles = "d".repeat(names.len());
        let names = names.join(", ");
        let from = if many { ", from" } else { "" };
        format!("local {names} = struct.unpack('<{doubles}', ARGV[1]{from})\n")
    }
}

/// What a script is told, in one argument: whole numbers below 2^53 as doubles.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers(Vec<u8>);

impl Numbers {
    pub(super) fn with_capacity(numbers: usize) -> Self {
        Self(Vec::with_capacity(8 * numbers))
    }

    pub(super) fn push(&mut self, number: i64) {
        self.0.extend_from_slice(&(number as f64).to_le_bytes());
    }

    pub(super) fn extend(&mut self, others: &Self) {
        self.0.extend_from_slice(&others.0);
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Part {
    fn source(self, task: Task) -> &'static str {
        match (self, task) {
            (Self::Interval, Task::Decide | Task::DecideMany) => INTERVAL,
            // What is given back may have been charged at another rate, so it has a remainder there.
            (Self::Bucket, _) | (Self::Interval, Task::Refund) => BUCKET,
            (Self::Fixed, _) => include_str!("scripts/fixed_window.lua"),
            (Self::Log, _) => LOG,
            (Self::Counter, _) => include_str!("scripts/sliding_counter.lua"),
        }
    }

    /// Arguments of a level.
    pub(super) fn arguments(self, task: Task) -> usize {
        match (self, task) {
            (Self::Bucket, Task::Decide | Task::DecideMany) => 7,
            (Self::Bucket | Self::Interval, Task::Refund) => 6,
            (Self::Fixed | Self::Counter, Task::Decide | Task::DecideMany) => 4,
            (Self::Log | Self::Interval, _) | (_, Task::Refund) => 3,
        }
    }

    /// Numbers of a level in the reply to a decision.
    pub(super) fn fields(self) -> usize {
        match self {
            Self::Interval => 1,
            Self::Bucket | Self::Fixed => 2,
            Self::Counter => 3,
            Self::Log => 4,
        }
    }
}

/// The lines of a part between its title and the next one, without comments.
fn section(source: &str, title: &str) -> String {
    let mut inside = false;
    let mut text = String::new();
    for line in source.lines() {
        if let Some(found) = line.strip_prefix("--- ") {
            inside = found == title;
        } else if inside && !line.trim_start().starts_with("--") {
            text.push_str(line.trim_start());
            text.push('\n');
        }
    }
    text
}

/// Numbers of the reply to a decision about levels of these rules.
pub(super) fn reply_numbers(parts: &[Part]) -> usize {
    2 + parts.iter().map(|part| part.fields()).sum::<usize>()
}

/// Lines of a rule for the level with this number, of one decision or of each of `many`.
fn for_level(lines: &str, level: usize, many: bool) -> String {
    let mut text = String::with_capacity(lines.len() + 64);
    let mut rest = lines;
    while let Some(at) = rest.find(['@', '$']) {
        text.push_str(&rest[..at]);
        let (sign, after) = rest[at..].split_at(1);
        rest = after;
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        // Writing to a string cannot fail.
        let _ = if sign == "@" {
            write!(text, "{level}")
        } else if let Some(after) = rest.strip_prefix("key") {
            rest = after;
            let base = if many { "base + " } else { "" };
            write!(text, "KEYS[{base}{level}]")
        } else if let Ok(number) = rest[..digits].parse::<usize>() {
            rest = &rest[digits..];
            write!(text, "a{level}_{number}")
        } else {
            write!(text, "{sign}")
        };
    }
    text.push_str(rest);
    text
}

const DECIDE: &str = include_str!("scripts/decide.lua");
const BUCKET: &str = include_str!("scripts/bucket.lua");
const INTERVAL: &str = include_str!("scripts/interval.lua");
const LOG: &str = include_str!("scripts/sliding_log.lua");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_names_each_level_and_argument_once_it_is_put_together() {
        let parts = [
            Part::Bucket,
            Part::Log,
            Part::Fixed,
            Part::Counter,
            Part::Interval,
        ];
        for (given, task) in [
            (false, Task::Decide),
            (true, Task::Decide),
            (false, Task::DecideMany),
            (true, Task::DecideMany),
            (true, Task::Refund),
        ] {
            let text = Scripts::new(given, false).text(task, &parts);
            assert!(!text.contains('@'), "{text}");
            assert!(!text.contains("$key") && !text.contains("$1"), "{text}");
            for (index, part) in parts.iter().enumerate() {
                let level = index + 1;
                let last = format!("a{level}_{}", part.arguments(task));
                assert!(text.matches(&last).count() >= 2, "no {last} in {text}");
                let beyond = format!("a{level}_{}", part.arguments(task) + 1);
                assert!(!text.contains(&beyond), "{beyond} in {text}");
            }
            assert_eq!(text.matches("given").count(), 2 * usize::from(given));
            let apart = usize::from(given && task == Task::DecideMany);
            assert_eq!(text.matches("ARGV").count(), 1 + apart);
        }
    }
}
