//! The stack of calls after compressed returns (SDM "Indirect Transfer Compression for Returns").

use crate::block::BlockId;

pub(crate) const DEPTH: usize = 64;

/// Beside the number of a block: its call has ended otherwise than by a return that the trace unit expected
/// (`longjmp`, an exception).
const ENDED: u32 = 1 << 31;

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

    /// What [`Self::pop`] would take; none if there is no call. Of a call that has ended it is no block of
    /// which anything is known.
    #[inline]
    pub(crate) fn top(&self) -> BlockId {
        self.entries[self.top % DEPTH]
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<BlockId> {
        let top = std::mem::replace(&mut self.entries[self.top % DEPTH], BlockId::NONE);
        self.top = self.top.wrapping_sub(1); // where there is no call, there is none anywhere
        (top != BlockId::NONE).then_some(BlockId(top.0 & !ENDED))
    }

    /// The entries, youngest first.
    fn youngest_first(&self) -> impl Iterator<Item = usize> + use<> {
        let top = self.top;
        (0..DEPTH).map(move |n| top.wrapping_sub(n) % DEPTH)
    }

    /// Control has returned to a call, which the trace unit did not expect: the youngest of its calls that
    /// `returns_there` has ended, and all after it, which were unwound. Nothing if there is none.
    pub(crate) fn end(&mut self, returns_there: impl Fn(BlockId) -> bool) {
        let is_there = |call: BlockId| call != BlockId::NONE && call.0 & ENDED == 0 && returns_there(call);
        let Some(at) = self.youngest_first().position(|i| is_there(self.entries[i])) else { return };
        for i in self.youngest_first().take(at + 1) {
            self.entries[i].0 |= ENDED;
        }
    }

    /// Drops the calls that have ended: the trace unit still has them, the thread has not.
    pub(crate) fn drop_ended(&mut self) {
        let has_ended = |call: BlockId| call != BlockId::NONE && call.0 & ENDED != 0;
        if !self.entries.iter().any(|&call| has_ended(call)) {
            return;
        }
        let mut open: Vec<BlockId> = self.youngest_first().map(|i| self.entries[i]).collect();
        open.retain(|&call| call != BlockId::NONE && !has_ended(call));
        self.clear();
        open.into_iter().rev().for_each(|call| self.push(call));
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

    #[test]
    fn calls_that_have_ended_stay_until_they_are_dropped() {
        let mut stack = ReturnStack::new();
        [1, 2, 1, 3, 4].into_iter().for_each(|n| stack.push(BlockId(n)));
        stack.end(|call| call == BlockId(5));
        assert_eq!(stack.top(), BlockId(4));
        stack.end(|call| call == BlockId(1));
        assert_eq!(stack.pop(), Some(BlockId(4)));
        stack.push(BlockId(6));
        let mut threads = stack.clone();
        threads.drop_ended();
        let rest = |mut stack: ReturnStack| std::iter::from_fn(|| stack.pop()).map(|call| call.0).collect();
        let [units, threads]: [Vec<u32>; 2] = [stack, threads].map(rest);
        assert_eq!((units, threads), (vec![6, 3, 1, 2, 1], vec![6, 2, 1]));
    }
}
