//! Where the calls of a thread return to, as far as its blocks tell.

use std::collections::HashSet;

use model::Avma;

use crate::block::{Block, Terminator};
use crate::sigreturn::{Came, Onward};

/// Of more calls the older half is forgotten: those that were unwound are never taken off.
const MOST: usize = 1 << 16;

/// The innermost calls, among which the one is searched that an unexpected return ends.
const NEAR: usize = 64;

/// A handler of a signal returns to no call.
const HANDLER: Avma = Avma(0);

/// The open calls of a thread.
#[derive(Debug, Default)]
pub(crate) struct OpenCalls {
    /// The places that they return to, outermost first.
    open: Vec<Avma>,
    /// The first of them with nothing but calls and their returns since: frames below may have been unwound.
    certain_from: usize,
    /// The last block.
    last: Option<Block>,
    /// Where the last block returned to, if it did and that is certain.
    returned_to: Option<Avma>,
    /// Returns that have gone where their call returns to: they are no jumps.
    returns: HashSet<Avma>,
}

impl OpenCalls {
    /// The thread has executed a block to its end.
    pub(crate) fn pass(&mut self, block: &Block) {
        if let Some(last) = self.last.replace(*block) {
            match last.terminator {
                Terminator::Return if self.returned_to == Some(block.start) => {
                    _ = self.returns.insert(last.last)
                }
                Terminator::Return | Terminator::IndirectJump => self.went_to(block.start),
                _ => (),
            }
        }
        self.returned_to = None;
        if block.signal_handler.is_some() {
            self.open.push(HANDLER);
        }
        match block.terminator {
            Terminator::Call | Terminator::IndirectCall => self.open.push(block.end),
            Terminator::Return => {
                let is_certain = self.open.len() > self.certain_from;
                self.returned_to = self.open.pop().filter(|to| is_certain && *to != HANDLER);
                self.certain_from = self.certain_from.min(self.open.len());
            }
            _ => (),
        }
        if self.open.len() > MOST {
            self.open.drain(..MOST / 2);
            self.certain_from = self.certain_from.saturating_sub(MOST / 2);
        }
    }

    /// Control went there by no return that was expected: an older call may return there, and all others may
    /// have ended.
    fn went_to(&mut self, place: Avma) {
        let near = self.open.len().saturating_sub(NEAR);
        if let Some(call) = self.open[near..].iter().rposition(|to| *to == place) {
            self.open.truncate(near + call);
        }
        self.certain_from = self.open.len();
    }

    /// Where an event has come after the return at the end of the last block; `None` if that is no return, or
    /// calls may have been unwound.
    pub(crate) fn came_by_return(&self) -> Option<Came> {
        let (to, last) = self.returned_to.zip(self.last)?;
        let is_return = self.returns.contains(&last.last);
        Some(if is_return { Came::At(Onward::only(to)) } else { Came::ByReturn(to) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Signals;

    /// A block of one instruction, which has one byte.
    fn block(start: u64, terminator: Terminator) -> Block {
        Block {
            start: Avma(start),
            last: Avma(start),
            end: Avma(start + 1),
            target: Avma(0),
            instructions: 1,
            first_function: 0,
            last_function: 0,
            terminator,
            signal_handler: None,
            mapped: true,
        }
    }

    /// `f` at 0x200 is called from 0x100, and returns there.
    #[test]
    fn a_return_is_taken_for_one_once_it_has_gone_to_its_call() {
        let [call, f, after] = [
            block(0x100, Terminator::Call),
            block(0x200, Terminator::Return),
            block(0x101, Terminator::FallThrough),
        ];
        let handler = Block { signal_handler: Some(Signals::Events), ..f };
        let came = |blocks: &[Block]| {
            let mut calls = OpenCalls::default();
            blocks.iter().for_each(|block| calls.pass(block));
            calls.came_by_return()
        };
        let returned = [call, f, after];
        assert_eq!(came(&[call, f]), Some(Came::ByReturn(Avma(0x101))));
        assert_eq!(came(&[&returned[..], &[call, f]].concat()), Some(Came::At(Onward::only(Avma(0x101)))));
        // To the restorer; and where an exception may have ended the call.
        assert_eq!(came(&[call, handler]), None);
        let thrown = [block(0x300, Terminator::IndirectJump), block(0x400, Terminator::FallThrough)];
        assert_eq!(came(&[&[call][..], &thrown, &[f]].concat()), None);
        // A return to an older call ends those within.
        let older = [block(0x500, Terminator::Call), call, f, block(0x501, Terminator::Return)];
        assert_eq!(came(&older), None);
    }
}
