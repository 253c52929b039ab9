//! What charges of the same cost at the same limits have in common, worked out once.

use std::collections::VecDeque;

use super::plan::{Layout, escape};
use super::rule::Rule;
use super::script::Script;
use super::scripts::{Numbers, Part, Scripts, Task, reply_numbers};
use crate::error::BuildError;
use crate::limiter::Charge;
use crate::policy::Limit;
use crate::sync::{Arc, Mutex};

/// What all requests have in common that are charged the same cost at the same limits.
#[derive(Debug)]
pub(super) struct Shape {
    levels: Vec<(Arc<str>, Limit)>,
    cost: u64,
    half: bool,
    pub(super) is_possible: bool,
    /// Position of the level whose key is the tag.
    tenant: Option<usize>,
    pub(super) frames: Vec<Arc<Frame>>,
}

/// The part of a shape that one script decides about.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) levels: Vec<(Arc<str>, Rule)>,
    pub(super) script: Arc<Script>,
    parts: Box<[Part]>,
    /// Numbers of a reply to a decision.
    pub(super) reply_numbers: usize,
    pub(super) cost: u64,
    pub(super) half: bool,
    /// Positions of the levels in the shape, and what stands between tag and key.
    places: Vec<(usize, Vec<u8>)>,
    apart: bool,
    pub(super) arguments: Numbers,
    /// What is told to charge it once, by the server's clock.
    pub(super) single: Numbers,
    /// What makes two requests for the same keys the same: rules, limits and cost.
    pub(super) tail: Vec<u8>,
}

/// Shapes that were asked for lately: working one out takes as long as much of the rest of a decision.
#[derive(Debug, Default)]
pub(super) struct Shapes(Mutex<VecDeque<Arc<Shape>>>);

impl Shapes {
    pub(super) fn of(
        &self,
        layout: &Layout,
        scripts: &Scripts,
        charge: &Charge,
    ) -> Result<Arc<Shape>, BuildError> {
        if let Some(known) = self.0.lock().iter().find(|shape| shape.fits(charge)) {
            return Ok(Arc::clone(known));
        }
        let shape = Arc::new(Shape::new(layout, scripts, charge)?);
        let mut known = self.0.lock();
        if known.len() >= SHAPES {
            known.pop_front();
        }
        known.push_back(Arc::clone(&shape));
        Ok(shape)
    }
}

impl Shape {
    fn new(layout: &Layout, scripts: &Scripts, charge: &Charge) -> Result<Self, BuildError> {
        let mut together = Vec::new();
        let mut apart = Vec::new();
        let mut is_possible = charge.cost() > 0;
        for (place, (name, limit, _)) in charge.named().enumerate() {
            let rule = Rule::new(limit)?;
            is_possible &= charge.cost() <= rule.quota();
            let level = (place, Arc::clone(name), rule);
            match layout.is_apart(name) {
                true => apart.push(level),
                false => together.push(level),
            }
        }
        let mut frames = Vec::with_capacity(1 + apart.len());
        // The tenant refuses most, and what it refuses must not be charged to everybody.
        if !together.is_empty() {
            frames.push(Arc::new(Frame::new(scripts, charge, together, false)));
        }
        let apart = apart.into_iter();
        frames.extend(apart.map(|level| Arc::new(Frame::new(scripts, charge, vec![level], true))));
        let is_tenant = |name: &str| {
            layout
                .tenant
                .as_ref()
                .is_some_and(|tenant| **tenant == *name)
        };
        Ok(Self {
            levels: charge
                .named()
                .map(|(name, limit, _)| (Arc::clone(name), *limit))
                .collect(),
            cost: charge.cost(),
            half: charge.keeps_half(),
            is_possible,
            tenant: charge.named().position(|(name, ..)| is_tenant(name)),
            frames,
        })
    }

    fn fits(&self, charge: &Charge) -> bool {
        let mut levels = self.levels.iter();
        let mut same = |name: &Arc<str>, limit: &Limit| {
            let known = levels.next();
            known.is_some_and(|(known, its)| known == name && its == limit)
        };
        self.cost == charge.cost()
            && self.half == charge.keeps_half()
            && self.levels.len() == charge.named().len()
            && charge.named().all(|(name, limit, _)| same(name, limit))
    }
}

impl Frame {
    fn new(
        scripts: &Scripts,
        charge: &Charge,
        placed: Vec<(usize, Arc<str>, Rule)>,
        apart: bool,
    ) -> Self {
        let (cost, half) = (charge.cost(), charge.keeps_half());
        let parts: Vec<_> = placed.iter().map(|(.., rule)| rule.part()).collect();
        let mut arguments = Numbers::default();
        let mut tail = Vec::new();
        let mut places = Vec::with_capacity(placed.len());
        let mut levels = Vec::with_capacity(placed.len());
        for (place, name, rule) in placed {
            // How many numbers follow depends on the rule.
            tail.push(rule.part() as u8);
            rule.arguments(cost, half, &mut |number| arguments.push(number));
            places.push((place, Layout::middle(&name, &rule)));
            levels.push((name, rule));
        }
        tail.extend_from_slice(arguments.as_bytes());
        Self {
            script: scripts.get(Task::Decide, &parts),
            reply_numbers: reply_numbers(&parts),
            parts: parts.into(),
            levels,
            cost,
            half,
            places,
            apart,
            single: {
                let mut single = Numbers::default();
                single.push(1);
                single.extend(&arguments);
                single
            },
            arguments,
            tail,
        }
    }

    /// The script that decides about several requests of the same kinds of limits.
    pub(super) fn script_of_many(&self, scripts: &Scripts) -> Arc<Script> {
        scripts.get(Task::DecideMany, &self.parts)
    }

    /// Appends the name of a level's key.
    pub(super) fn key(
        &self,
        layout: &Layout,
        shape: &Shape,
        level: usize,
        charge: &Charge,
        into: &mut Vec<u8>,
    ) {
        let key = |place| charge.named().nth(place).map(|(_, _, key)| key.as_bytes());
        let (place, middle) = &self.places[level];
        into.push(b'{');
        into.extend_from_slice(layout.prefix.as_bytes());
        if !self.apart {
            if let Some(tenant) = shape.tenant {
                into.push(b':');
                escape(key(tenant).unwrap_or_default(), into);
            }
            into.push(b'}');
        }
        into.extend_from_slice(middle);
        escape(key(*place).unwrap_or_default(), into);
        if self.apart {
            into.push(b'}');
        }
    }
}

/// Shapes remembered.
const SHAPES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;
    use crate::rate::Rate;

    fn charge(cost: u64, level: &str, count: u64) -> Charge {
        let limit: Limit = Rate::per_second(count).burst(10).into();
        Charge::new(cost, [(level, limit, Key::from(count))])
    }

    #[test]
    fn only_a_charge_of_the_same_cost_at_the_same_limits_has_the_same_shape() {
        let layout = Layout::new("p", None, Vec::new());
        let (scripts, shapes) = (Scripts::new(false, false), Shapes::default());
        let of = |charge: &Charge| shapes.of(&layout, &scripts, charge).unwrap();
        let first = of(&charge(1, "a", 5));
        assert!(Arc::ptr_eq(&first, &of(&charge(1, "a", 5))));
        let others = [
            charge(2, "a", 5),
            charge(1, "b", 5),
            charge(1, "a", 6),
            charge(1, "a", 5).keep_half(),
            Charge::new(1, Vec::<(&str, Limit, Key)>::new()),
        ];
        for other in &others {
            assert!(!Arc::ptr_eq(&first, &of(other)), "{other:?}");
        }
        for count in 1..=2 * SHAPES as u64 {
            let _ = of(&charge(1, "many", count));
        }
        assert_eq!(shapes.0.lock().len(), SHAPES);
    }
}
