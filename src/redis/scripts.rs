//! Puts a script together from the rules of the levels that it decides about.
//!
//! Straight code without tables or loops over levels: what the server spends on a level is what its rule takes.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::script::Script;
use crate::sync::{Arc, Mutex};

/// Rule of a level, as its script knows it. Both buckets have one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    Bucket,
    Fixed,
    Log,
    Counter,
}

/// What a script does with its levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Task {
    Decide,
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
        if parts.contains(&Part::Log) {
            text.push_str(&section(LOG, "once"));
        }
        let given = 1 + match task {
            Task::Decide => 1,
            Task::Refund => 0,
        };
        let clock = if self.given { "given" } else { "clock" };
        let clock = section(DECIDE, clock).replace("$given", &given.to_string());
        let first = given + usize::from(self.given) - 1;
        let each = |name: &str, text: &mut String| {
            let mut arguments = first;
            for (index, part) in parts.iter().enumerate() {
                let lines = section(part.source(), name);
                text.push_str(&for_level(&lines, index + 1, arguments));
                arguments += part.arguments(task);
            }
        };
        match task {
            Task::Decide => {
                text.push_str(&section(DECIDE, "head").replace("$now\n", &clock));
                each("read", &mut text);
                each("answer", &mut text);
                text.push_str(&section(DECIDE, "middle"));
                each("charge", &mut text);
                text.push_str(&section(DECIDE, "between"));
                each("repair", &mut text);
                let mut reply = String::new();
                each("reply", &mut reply);
                let reply: Vec<_> = reply.lines().collect();
                let tail = section(DECIDE, "tail");
                text.push_str(&tail.replace("$reply", &reply.join(", ")));
            }
            Task::Refund => {
                text.push_str(&section(DECIDE, "refund").replace("$now\n", &clock));
                each("refund", &mut text);
                text.push_str(&section(DECIDE, "done"));
            }
        }
        text
    }
}

impl Part {
    fn source(self) -> &'static str {
        match self {
            Self::Bucket => include_str!("scripts/bucket.lua"),
            Self::Fixed => include_str!("scripts/fixed_window.lua"),
            Self::Log => LOG,
            Self::Counter => include_str!("scripts/sliding_counter.lua"),
        }
    }

    /// Arguments of a level.
    pub(super) fn arguments(self, task: Task) -> usize {
        match (self, task) {
            (Self::Bucket, Task::Decide) => 7,
            (Self::Bucket, Task::Refund) => 6,
            (Self::Fixed | Self::Counter, Task::Decide) => 4,
            (Self::Log, _) | (_, Task::Refund) => 3,
        }
    }

    /// Numbers of a level in the reply to a decision.
    pub(super) fn fields(self) -> usize {
        match self {
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

/// Lines of a rule for the level with this number, whose arguments follow `before` others.
fn for_level(lines: &str, level: usize, before: usize) -> String {
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
            write!(text, "KEYS[{level}]")
        } else if let Ok(number) = rest[..digits].parse::<usize>() {
            rest = &rest[digits..];
            write!(text, "ARGV[{}]", before + number)
        } else {
            write!(text, "{sign}")
        };
    }
    text.push_str(rest);
    text
}

const DECIDE: &str = include_str!("scripts/decide.lua");
const LOG: &str = include_str!("scripts/sliding_log.lua");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_names_each_level_and_argument_once_it_is_put_together() {
        let parts = [Part::Bucket, Part::Log, Part::Fixed, Part::Counter];
        for (given, task) in [
            (false, Task::Decide),
            (true, Task::Decide),
            (true, Task::Refund),
        ] {
            let text = Scripts::new(given, false).text(task, &parts);
            assert!(!text.contains('@'), "{text}");
            assert!(!text.contains("$key") && !text.contains("$1"), "{text}");
            let arguments: usize = parts.iter().map(|part| part.arguments(task)).sum();
            let before = usize::from(given) + usize::from(task == Task::Decide);
            let last = format!("ARGV[{}]", arguments + before);
            assert!(text.contains(&last), "no {last} in {text}");
            let beyond = format!("ARGV[{}]", arguments + before + 1);
            assert!(!text.contains(&beyond), "{beyond} in {text}");
        }
    }
}
