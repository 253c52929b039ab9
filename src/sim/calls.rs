//! The calls under way: one for each arrival, however often it is offered.

use crate::key::Key;
use crate::tick::Tick;
use crate::words::Priority;

/// What is known of an arrival until it has ended.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) first_at: Tick,
    /// When it was offered last.
    pub(crate) offered_at: Tick,
    pub(crate) cost: u64,
    pub(crate) key: Option<Key>,
    pub(crate) priority: Priority,
    /// When the edge charged it, if it did.
    pub(crate) charged_at: Option<Tick>,
    attempt: u32,
}

/// Names one offer of a call; stale once the caller has given it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    index: u32,
    generation: u32,
    pub(crate) attempt: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Calls {
    slots: Vec<(u32, Option<Call>)>,
    free: Vec<u32>,
}

impl Calls {
    pub(crate) fn open(
        &mut self,
        now: Tick,
        cost: u64,
        key: Option<Key>,
        priority: Priority,
    ) -> Token {
        let call = Some(Call {
            first_at: now,
            offered_at: now,
            cost,
            key,
            priority,
            charged_at: None,
            attempt: 0,
        });
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            u32::try_from(self.slots.len() - 1).expect("2^32 calls exceed any memory")
        });
        let slot = &mut self.slots[index as usize];
        slot.1 = call;
        Token {
            index,
            generation: slot.0,
            attempt: 0,
        }
    }

    /// The call, if this offer of it is still the one that counts.
    pub(crate) fn get(&mut self, token: Token) -> Option<&mut Call> {
        let (generation, call) = &mut self.slots[token.index as usize];
        call.as_mut()
            .filter(|call| *generation == token.generation && call.attempt == token.attempt)
    }

    /// Gives the offer up for a new one.
    pub(crate) fn again(&mut self, token: Token) -> Token {
        if let Some(call) = self.get(token) {
            call.attempt += 1;
        }
        Token {
            attempt: token.attempt + 1,
            ..token
        }
    }

    pub(crate) fn end(&mut self, token: Token) {
        let slot = &mut self.slots[token.index as usize];
        *slot = (slot.0.wrapping_add(1), None);
        self.free.push(token.index);
    }

    /// Calls under way.
    pub(crate) fn len(&self) -> u64 {
        (self.slots.len() - self.free.len()) as u64
    }
}
