//! The stack of calls after compressed returns (SDM "Indirect Transfer Compression for Returns").

use crate::block::BlockId;

pub(crate) const DEPTH: usize = 64;

/// The youngest 64 calls: the blocks that end with them. Not the thread's call stack: it is cleared at PSB
/// and OVF, and the oldest entry falls off when it is full.
#[derive(Clone, Debug)]
pub(crate) struct ReturnStack {
    /// None where there is no call: so a push need not count them.
    entries: [BlockId; DEPTH],
    top: usize,
}

impl ReturnStack {
    pub(crate) fn new() -> Self {
        Self { entries: [BlockId::NONE; DEPTH], top: 0 }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    #[inline]
    pub(crate) fn push(&mut self, call: BlockId) {
        self.top = self.top.wrapping_add(1);
        self.entries[self.top % DEPTH] = call;
    }

    /// What [`Self::pop`] would take; none if there is no call.
    #[inline]
    pub(crate) fn top(&self) -> BlockId {
        self.entries[self.top % DEPTH]
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<BlockId> {
        let top = std::mem::replace(&mut self.entries[self.top % DEPTH], BlockId::NONE);
        self.top = self.top.wrapping_sub(1); // where there is no call, there is none anywhere
        (top != BlockId::NONE).then_some(top)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_falls_off() {
        let mut stack = ReturnStack::new();
        (0..70).for_each(|n| stack.push(BlockId(n)));
        let popped: Vec<_> = std::iter::from_fn(|| stack.pop()).collect();
        assert_eq!(popped, (6..70).rev().map(BlockId).collect::<Vec<_>>());
    }
}
