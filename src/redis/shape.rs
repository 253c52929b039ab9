//! What charges of the same cost at the same limits have in common, worked out once.

use std::collections::VecDeque;

use super::plan::{Layout, escape};
use super::rule::Rule;
use super::script::Script;
use super::scripts::{Numbers, Scripts, Task};
use crate::error::BuildError;
use crate::key::Key;
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
    pub(super) cost: u64,
    pub(super) half: bool,
    /// Positions of the levels in the shape, and what stands between tag and key.
    places: Vec<(usize, Vec<u8>)>,
    apart: bool,
    pub(super) arguments: Numbers,
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
        let same =
            |((name, limit), (other, other_limit, _)): (
                &(Arc<str>, Limit),
                (&Arc<str>, &Limit, _),
            )| { (Arc::ptr_eq(name, other) || name == other) && limit == other_limit };
        self.cost == charge.cost()
            && self.half == charge.keeps_half()
            && self.levels.len() == charge.named().len()
            && self.levels.iter().zip(charge.named()).all(same)
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
            levels,
            cost,
            half,
            places,
            apart,
            arguments,
            tail,
        }
    }

    /// Appends the name of a level's key.
    pub(super) fn key(
        &self,
        layout: &Layout,
        shape: &Shape,
        level: usize,
        keys: &[&Key],
        into: &mut Vec<u8>,
    ) {
        let (place, middle) = &self.places[level];
        into.push(b'{');
        into.extend_from_slice(layout.prefix.as_bytes());
        if !self.apart {
            if let Some(tenant) = shape.tenant {
                into.push(b':');
                escape(keys[tenant].as_bytes(), into);
            }
            into.push(b'}');
        }
        into.extend_from_slice(middle);
        escape(keys[*place].as_bytes(), into);
        if self.apart {
            into.push(b'}');
        }
    }
}

/// Shapes remembered.
const SHAPES: usize = 16;
