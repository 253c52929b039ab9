//! Where the levels of a charge live on the server, and what its scripts are told about them.
//!
//! ```text
//!   {sluicegate}:user:t:s%03ada              all levels of a decision under one tag: one script, exact
//!   {sluicegate:s%02eu}:user:t:s%03ada       with a tenant level: under its key as the tag, so tenants spread over slots
//!   {sluicegate:global:t:_}                  a level kept apart: a tag of its own, and a call of its own
//! ```
//!
//! Parts of a key are escaped: only letters, digits, `_`, `.` and `-` stay as they are, so no key of a user can end a part
//! or a tag, or be another level's. The letter is the kind of limit.

use std::ops::Deref;

use super::link::Cmd;
use super::rule::Rule;
use super::script::Script;
use super::scripts::{Numbers, Scripts, Task};
use super::shape::{Frame, Shape, Shapes};
use crate::error::BuildError;
use crate::limiter::Charge;
use crate::sync::Arc;
use crate::tick::Tick;

/// Names of the keys.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) prefix: String,
    /// Level whose key is the tag of a decision.
    pub(super) tenant: Option<Arc<str>>,
    /// Levels that have a call of their own.
    apart: Vec<Arc<str>>,
}

/// A charge as the server is asked for it: one call for each tag, in this order.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) groups: Vec<Arc<Group>>,
    /// Whether the cost fits every level's quota, and is more than nothing.
    pub(super) is_possible: bool,
}

/// Levels that one script decides about, and their keys.
#[derive(Debug)]
pub(super) struct Group {
    frame: Arc<Frame>,
    /// The keys, each ended by a zero, which none of them contains; then the frame's tail.
    identity: Vec<u8>,
}

impl Layout {
    pub(super) fn new(prefix: &str, tenant: Option<Arc<str>>, apart: Vec<Arc<str>>) -> Self {
        let mut escaped = Vec::new();
        escape(prefix.as_bytes(), &mut escaped);
        Self {
            prefix: String::from_utf8_lossy(&escaped).into_owned(),
            tenant,
            apart,
        }
    }

    /// Levels that it names, each with the setting that does.
    pub(super) fn named(&self) -> impl Iterator<Item = (&'static str, &Arc<str>)> {
        let tenant = self.tenant.iter().map(|name| ("tenant", name));
        tenant.chain(self.apart.iter().map(|name| ("apart", name)))
    }

    /// Whether a decision may take several calls.
    pub(super) fn has_apart(&self) -> bool {
        !self.apart.is_empty()
    }

    /// Whether all keys have the same tag.
    pub(super) fn has_one_tag(&self) -> bool {
        self.tenant.is_none() && self.apart.is_empty()
    }

    pub(super) fn is_apart(&self, level: &str) -> bool {
        self.apart.iter().any(|apart| **apart == *level)
    }

    /// What stands between tag and key.
    pub(super) fn middle(level: &str, rule: &Rule) -> Vec<u8> {
        let mut middle = vec![b':'];
        escape(level.as_bytes(), &mut middle);
        middle.extend_from_slice(&[b':', rule.letter(), b':']);
        middle
    }
}

impl Plan {
    /// # Errors
    /// If the scripts cannot keep one of the limits.
    pub(super) fn new(
        layout: &Layout,
        scripts: &Scripts,
        shapes: &Shapes,
        charge: &Charge,
    ) -> Result<Self, BuildError> {
        let shape = shapes.of(layout, scripts, charge)?;
        let group = |frame: &Arc<Frame>| Arc::new(Group::new(layout, &shape, frame, charge));
        Ok(Self {
            groups: shape.frames.iter().map(group).collect(),
            is_possible: shape.is_possible,
        })
    }
}

impl Deref for Group {
    type Target = Frame;

    fn deref(&self) -> &Frame {
        &self.frame
    }
}

impl Group {
    fn new(layout: &Layout, shape: &Shape, frame: &Arc<Frame>, charge: &Charge) -> Self {
        let length = 96 * frame.levels.len() + frame.tail.len();
        let mut identity = Vec::with_capacity(length);
        for level in 0..frame.levels.len() {
            frame.key(layout, shape, level, charge, &mut identity);
            identity.push(0);
        }
        identity.extend_from_slice(&frame.tail);
        Self {
            frame: Arc::clone(frame),
            identity,
        }
    }

    /// What makes two requests the same: keys, kinds, limits and cost.
    pub(super) fn identity(&self) -> &[u8] {
        &self.identity
    }

    /// Names of the keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let length = self.identity.len() - self.frame.tail.len();
        let keys = self.identity[..length].split(|byte| *byte == 0);
        keys.take(self.frame.levels.len())
    }

    /// The command that asks for up to so many charges, at `given` or by the server's clock.
    pub(super) fn command(&self, charges: u64, given: Option<Tick>) -> Cmd {
        if let (1, None) = (charges, given) {
            return self.told(&self.script, &self.single);
        }
        let mut numbers = Numbers::with_capacity(2 + 8 * self.levels.len());
        numbers.push(i64::try_from(charges).unwrap_or(i64::MAX));
        if let Some(now) = given {
            numbers.push(micros(now));
        }
        numbers.extend(&self.arguments);
        self.told(&self.script, &numbers)
    }

    /// The script and the command that give back what was charged at `at`.
    pub(super) fn refund(
        &self,
        scripts: &Scripts,
        at: Tick,
        given: Option<Tick>,
    ) -> (Arc<Script>, Cmd) {
        let parts: Vec<_> = self.levels.iter().map(|(_, rule)| rule.part()).collect();
        let script = scripts.get(Task::Refund, &parts);
        let mut numbers = Numbers::default();
        if let Some(now) = given {
            numbers.push(micros(now));
        }
        for (_, rule) in &self.levels {
            rule.refund(self.cost, at, &mut |number| numbers.push(number));
        }
        let command = self.told(&script, &numbers);
        (script, command)
    }

    fn told(&self, script: &Script, numbers: &Numbers) -> Cmd {
        let mut command = script.command(self.levels.len());
        for key in self.keys() {
            command.arg(key);
        }
        command.arg(numbers.as_bytes());
        command
    }
}

pub(super) fn micros(now: Tick) -> i64 {
    // Below 2^63 whatever the tick.
    (now.as_nanos() / 1000) as i64
}

pub(super) fn escape(bytes: &[u8], into: &mut Vec<u8>) {
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"_.-".contains(byte) {
            into.push(*byte);
        } else {
            let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
            into.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{IntoKey, Key};
    use crate::policy::Limit;
    use crate::rate::Rate;
    use proptest::prelude::*;

    fn keys(layout: &Layout, levels: &[(&str, Key)]) -> Vec<Vec<u8>> {
        let limit: Limit = Rate::per_second(1).burst(1).into();
        let levels = levels.iter().map(|(name, key)| (*name, limit, key.clone()));
        let charge = Charge::new(1, levels);
        let scripts = Scripts::new(false, false);
        let plan = Plan::new(layout, &scripts, &Shapes::default(), &charge).unwrap();
        let keys = plan.groups.iter().flat_map(|group| group.keys());
        keys.map(<[u8]>::to_vec).collect()
    }

    fn tag(key: &[u8]) -> &[u8] {
        let open = key.iter().position(|byte| *byte == b'{').unwrap();
        let close = key[open..].iter().position(|byte| *byte == b'}').unwrap();
        &key[open + 1..open + close]
    }

    #[test]
    fn keys_read_as_they_are_documented() {
        let levels = [("tenant", Key::from("eu")), ("user", Key::from("ada"))];
        let plain = Layout::new("sluicegate", None, Vec::new());
        let names = |layout: &Layout| -> Vec<String> {
            let keys = keys(layout, &levels).into_iter();
            keys.map(|key| String::from_utf8(key).unwrap()).collect()
        };
        let expected = [
            "{sluicegate}:tenant:t:s%02eu",
            "{sluicegate}:user:t:s%03ada",
        ];
        assert_eq!(names(&plain), expected);
        let spread = Layout::new("sluicegate", Some("tenant".into()), vec!["user".into()]);
        let expected = [
            "{sluicegate:s%02eu}:tenant:t:s%02eu",
            "{sluicegate:user:t:s%03ada}",
        ];
        assert_eq!(names(&spread), expected);
    }

    proptest! {
        #[test]
        fn forged_parts_never_make_two_keys_equal_or_move_a_tag(
            a in ("[a{}:%s\\x00]{1,8}", "[a{}:%s\\x00]{0,8}"), b in ("[a{}:%s\\x00]{1,8}", "[a{}:%s\\x00]{0,8}"),
            tenant in "[a{}:%]{0,6}",
        ) {
            let layout = Layout::new("p{}", Some("tenant".into()), vec!["apart".into()]);
            let all = |(level, text): &(String, String)| {
                let levels = [
                    ("tenant", Key::from(tenant.as_str())),
                    (level.as_str(), Key::from(text.as_str())),
                    ("apart", (level.as_str(), text.as_str()).into_key().unwrap()),
                ];
                keys(&layout, &levels)
            };
            let (first, second) = (all(&a), all(&b));
            prop_assert_eq!(first[1] == second[1], a == b);
            prop_assert_eq!(first[2] == second[2], a == b);
            for keys in [&first, &second] {
                prop_assert_eq!(tag(&keys[0]), tag(&keys[1]));
                prop_assert!(keys[0] != keys[1] && keys[1] != keys[2]);
                prop_assert!(!tag(&keys[0]).is_empty());
            }
        }
    }
}
