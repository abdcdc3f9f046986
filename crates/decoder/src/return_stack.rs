//! The stack of calls behind compressed returns (SDM "Indirect Transfer Compression for Returns").

use crate::block::BlockId;

const DEPTH: usize = 64;

/// The youngest 64 calls: the blocks that end with them.  Not the thread's call stack: it is cleared at PSB and OVF, and the
/// oldest entry falls off when it is full.
#[derive(Clone, Debug)]
pub(crate) struct ReturnStack {
    entries: [BlockId; DEPTH],
    top: usize,
    len: usize,
}

impl ReturnStack {
    pub(crate) fn new() -> Self {
        Self { entries: [BlockId::NONE; DEPTH], top: 0, len: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    #[inline]
    pub(crate) fn push(&mut self, call: BlockId) {
        self.top = self.top.wrapping_add(1);
        self.entries[self.top % DEPTH] = call;
        self.len = (self.len + 1).min(DEPTH);
    }

    /// What [`Self::pop`] would take.
    #[inline]
    pub(crate) fn top(&self) -> Option<BlockId> {
        (self.len > 0).then(|| self.entries[self.top % DEPTH])
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<BlockId> {
        self.len = self.len.checked_sub(1)?;
        let popped = self.entries[self.top % DEPTH];
        self.top = self.top.wrapping_sub(1);
        Some(popped)
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
