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

use super::link::Cmd;
use super::rule::Rule;
use super::script::Script;
use super::scripts::{Scripts, Task};
use crate::error::BuildError;
use crate::key::Key;
use crate::limiter::Charge;
use crate::sync::Arc;
use crate::tick::Tick;

/// Names of the keys.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    prefix: String,
    /// Level whose key is the tag of a decision.
    tenant: Option<Arc<str>>,
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

/// Levels that one script decides about.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) levels: Vec<(Arc<str>, Rule)>,
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) script: Arc<Script>,
    pub(super) cost: u64,
    pub(super) half: bool,
    arguments: Vec<i64>,
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

    fn is_apart(&self, level: &str) -> bool {
        self.apart.iter().any(|apart| **apart == *level)
    }

    /// What stands between the braces for the levels that are together.
    fn tag(&self, charge: &Charge) -> Vec<u8> {
        let mut tag = self.prefix.clone().into_bytes();
        let is_tenant = |name: &str| self.tenant.as_ref().is_some_and(|tenant| **tenant == *name);
        if let Some((_, _, key)) = charge.named().find(|(name, ..)| is_tenant(name)) {
            tag.push(b':');
            escape(key.as_bytes(), &mut tag);
        }
        tag
    }

    fn key(&self, tag: Option<&[u8]>, level: &str, rule: &Rule, key: &Key) -> Vec<u8> {
        let mut name = Vec::with_capacity(64 + key.as_bytes().len());
        name.push(b'{');
        match tag {
            Some(tag) => name.extend_from_slice(tag),
            None => name.extend_from_slice(self.prefix.as_bytes()),
        }
        if tag.is_some() {
            name.push(b'}');
        }
        name.push(b':');
        escape(level.as_bytes(), &mut name);
        name.push(b':');
        name.push(rule.letter());
        name.push(b':');
        escape(key.as_bytes(), &mut name);
        if tag.is_none() {
            name.push(b'}');
        }
        name
    }
}

impl Plan {
    /// # Errors
    /// If the scripts cannot keep one of the limits.
    pub(super) fn new(
        layout: &Layout,
        scripts: &Scripts,
        charge: &Charge,
    ) -> Result<Self, BuildError> {
        let tag = layout.tag(charge);
        let mut together = Vec::new();
        let mut apart = Vec::new();
        let mut is_possible = charge.cost() > 0;
        for (name, limit, key) in charge.named() {
            let rule = Rule::new(limit)?;
            is_possible &= charge.cost() <= rule.quota();
            let alone = layout.is_apart(name);
            let key = layout.key((!alone).then_some(&tag), name, &rule, key);
            let level = (Arc::clone(name), rule, key);
            match alone {
                true => apart.push(vec![level]),
                false => together.push(level),
            }
        }
        // The tenant refuses most, and what it refuses must not be charged to everybody.
        let groups = std::iter::once(together).chain(apart);
        let groups = groups.filter(|levels| !levels.is_empty());
        let groups = groups.map(|levels| Arc::new(Group::new(scripts, charge, levels)));
        Ok(Self {
            groups: groups.collect(),
            is_possible,
        })
    }
}

impl Group {
    fn new(scripts: &Scripts, charge: &Charge, placed: Vec<(Arc<str>, Rule, Vec<u8>)>) -> Self {
        let (cost, half) = (charge.cost(), charge.keeps_half());
        let mut arguments = Vec::with_capacity(8 * placed.len());
        let mut levels = Vec::with_capacity(placed.len());
        let mut keys = Vec::with_capacity(placed.len());
        for (name, rule, key) in placed {
            rule.arguments(cost, half, &mut |number| arguments.push(number));
            levels.push((name, rule));
            keys.push(key);
        }
        let parts: Vec<_> = levels.iter().map(|(_, rule)| rule.part()).collect();
        Self {
            script: scripts.get(Task::Decide, &parts),
            levels,
            keys,
            cost,
            half,
            arguments,
        }
    }

    /// What makes two requests the same: keys, kinds, limits and cost.
    pub(super) fn identity(&self) -> Vec<u8> {
        let length = self.keys.iter().map(|key| key.len() + 1).sum::<usize>();
        let mut identity = Vec::with_capacity(length + 8 * self.arguments.len());
        for key in &self.keys {
            identity.extend_from_slice(key);
            identity.push(0);
        }
        for argument in &self.arguments {
            identity.extend_from_slice(&argument.to_le_bytes());
        }
        identity
    }

    /// The command that asks for up to so many charges, at `given` or by the server's clock.
    pub(super) fn command(&self, charges: u64, given: Option<Tick>) -> Cmd {
        let mut command = self.script.command(self.keys.len());
        for key in &self.keys {
            command.arg(key);
        }
        command.arg(charges);
        if let Some(now) = given {
            command.arg(now.as_nanos() / 1000);
        }
        for argument in &self.arguments {
            command.arg(argument);
        }
        command
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
        let mut command = script.command(self.keys.len());
        for key in &self.keys {
            command.arg(key);
        }
        if let Some(now) = given {
            command.arg(now.as_nanos() / 1000);
        }
        for (_, rule) in &self.levels {
            rule.refund(self.cost, at, &mut |number| {
                command.arg(number);
            });
        }
        (script, command)
    }
}

fn escape(bytes: &[u8], into: &mut Vec<u8>) {
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
    use crate::key::IntoKey;
    use crate::policy::Limit;
    use crate::rate::Rate;
    use proptest::prelude::*;

    fn keys(layout: &Layout, levels: &[(&str, Key)]) -> Vec<Vec<u8>> {
        let limit: Limit = Rate::per_second(1).burst(1).into();
        let levels = levels.iter().map(|(name, key)| (*name, limit, key.clone()));
        let charge = Charge::new(1, levels);
        let plan = Plan::new(layout, &Scripts::new(false, false), &charge).unwrap();
        let keys = plan.groups.iter().flat_map(|group| group.keys.clone());
        keys.collect()
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
