//! The stack that return compression compares with.
//!
//! A return is compressed to one TNT bit when it goes after the call that was traced last and has not
//! returned (SDM "Indirect Transfer Compression for Returns (RET)"). 64 deep, the oldest falls off; PSB and
//! OVF clear it; the end of tracing does not.

use model::Avma;

const DEPTH: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct ReturnStack {
    ring: [Avma; DEPTH],
    top: usize,
    len: usize,
}

impl ReturnStack {
    pub(crate) fn new() -> Self {
        Self { ring: [Avma(0); DEPTH], top: 0, len: 0 }
    }

    pub(crate) fn push(&mut self, return_to: Avma) {
        self.top = (self.top + 1) % DEPTH;
        self.ring[self.top] = return_to;
        self.len = (self.len + 1).min(DEPTH);
    }

    pub(crate) fn pop(&mut self) -> Option<Avma> {
        self.len = self.len.checked_sub(1)?;
        let popped = self.ring[self.top];
        self.top = (self.top + DEPTH - 1) % DEPTH;
        Some(popped)
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_falls_off() {
        let mut stack = ReturnStack::new();
        (0..100).for_each(|i| stack.push(Avma(i)));
        let popped: Vec<u64> = std::iter::from_fn(|| stack.pop()).map(|a| a.0).collect();
        assert_eq!(popped, (36..100).rev().collect::<Vec<_>>());
    }

    #[test]
    fn nothing_is_left_after_clear() {
        let mut stack = ReturnStack::new();
        stack.push(Avma(1));
        stack.clear();
        assert_eq!(stack.pop(), None);
    }
}
