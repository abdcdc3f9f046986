//! How certain it is that the open frames are those that were entered in sight.
//!
//! Where control lands in a function that may be open more than once, or in one that is older than the
//! trace, the frames that seem to go on may have been left, and others may go on instead.

use rustc_hash::FxHashSet;

use crate::entered::Open;
use crate::sparse::Sparse;
use crate::stack::Stack;

/// Says which frames of a thread may have been left before they end, and marks them
/// ([`crate::stack::Frame::undecided`]).
#[derive(Default)]
pub(crate) struct Certainty {
    /// The number of outermost frames that may have been left: control has landed in a function of theirs,
    /// or in an older call of it that was not seen.
    unproved: usize,
    /// Some function was open more than once at a loss or a landing: so any may have been before the trace
    /// began.
    is_in_recursion: bool,
    /// Control has landed in one of several frames, and the events after it told in which.
    has_chosen: bool,
    /// That was wrong, or may have been, or it has switched stacks: code that is found running may have
    /// been entered in sight.
    is_lost: bool,
}

impl Certainty {
    /// Frame `i` was not left.
    #[inline(always)]
    pub(crate) fn is_of(&self, i: usize) -> bool {
        i >= self.unproved
    }

    /// No frame may have been left.
    pub(crate) fn is_of_all(&self) -> bool {
        self.unproved == 0
    }

    /// What is found running may have been entered in sight.
    #[inline(always)]
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Control is in one of the outermost `open` frames, or in one that is older than the trace.
    pub(crate) fn land(&mut self, stack: &mut Stack, open: usize) {
        self.look_for_recursion(stack);
        stack.doubt(open..self.unproved);
        self.unproved = open;
    }

    pub(crate) fn look_for_recursion(&mut self, stack: &Stack) {
        let mut functions = FxHashSet::default();
        self.is_in_recursion =
            self.is_in_recursion || !stack.iter().all(|frame| functions.insert(frame.function));
    }

    /// The group on `base` was not left, unless an older call of it was made from the same place, or made
    /// that call.
    #[cold]
    pub(crate) fn prove(&mut self, stack: &mut Stack, wanted: &Sparse<Open>, base: usize) {
        self.unproved = base;
        for (frame, activation) in stack.active(base) {
            let Some(open) = activation.role.wanted.and_then(|number| wanted.get(number)) else { continue };
            let is_recursive = open.is_recursive || self.is_in_recursion;
            frame.undecided |= is_recursive;
            if !is_recursive {
                self.unproved = 0;
            }
        }
    }

    /// The last of `len` frames makes a tail call: what may have left it may have left what it calls.
    #[inline(always)]
    pub(crate) fn tail_call(&mut self, len: usize) {
        self.unproved += usize::from(self.unproved == len && len > 0);
    }

    /// Frame `i` ends.  True if it may have been left before.
    pub(crate) fn end(&mut self, i: usize) -> bool {
        let is_doubt = i < self.unproved;
        self.unproved = self.unproved.min(i);
        is_doubt
    }

    /// The outermost frame, which may have been left before, has returned: to one that was taken for left.
    pub(crate) fn lose(&mut self) {
        self.is_lost = true;
    }

    /// One of several frames had to be chosen.
    pub(crate) fn choose(&mut self) {
        self.has_chosen = true;
    }

    /// Control is where no frame that is open leads.  True if a choice was wrong: control has landed in
    /// another frame than it seemed.
    pub(crate) fn contradict(&mut self) -> bool {
        self.is_lost |= self.has_chosen;
        self.has_chosen
    }
}
