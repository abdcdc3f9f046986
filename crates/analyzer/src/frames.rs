//! What the rules of calls work on: frames above a floor.
//!
//! ```text
//!   rules   landing branches filter kernel transfers   what a call, a return, a jump ... does to frames
//!   frames  Thread   those of a thread; the floor is the beginning of the recording
//!           View     those of a hypothesis of where control has landed; the floor is of the stack
//! ```
//! The rules are written once, as traits above [`Frames`]. A thread reports what they say has ended; a
//! hypothesis only finds out whether it fits.

use model::{Avma, EventTime, FunctionId, Target};

use crate::control::{Control, KernelEntry};
use crate::session::Session;
use crate::stack::{Frame, FrameKind};
use crate::status::Status;
use crate::thread_clock::ThreadTime;

/// What the rules say of frames that neither begin nor end by that.
pub(crate) enum Notice<'e> {
    /// The frames from this one on may have ended before.
    Doubt { from: usize },
    /// What the frame on top called has returned to it: it was not left.
    IsProved,
    /// A frame that may have ended before has returned.
    ReturnedInDoubt,
    /// Frames end for no return of theirs.
    EndsAreGuess,
    /// Control is where no frame that is open leads.
    ContradictsChoice,
    /// The frame on top makes a tail call; `is_capped`: one too many in a row.
    TailCall { is_capped: bool },
    /// A stay in the kernel ends, which the code on top made.
    KernelStay(&'e KernelEntry),
    /// Control is in traced code; `starts`: tracing was off before.
    ComesIn { starts: bool },
    /// Control leaves the IP filter.
    GoesOut,
}

/// Frames that control may have landed in.
pub(crate) struct Landings {
    /// Innermost first.
    pub(crate) frames: Vec<usize>,
    /// By a return: the frame called code out of sight, this jumped to a function in sight, and the function
    /// has returned.
    pub(crate) by_return: bool,
    pub(crate) otherwise: Otherwise,
}

/// Where control may have landed if it is in none of the frames that are candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Otherwise {
    /// Nowhere: it is in one of them.
    Nowhere,
    /// In a frame that is older than the recording, if there are any.
    InOlder,
    /// In a frame that is open, too: a frame may run the code of other functions unseen.
    InAny,
}

/// Frames, outermost first, that the rules look at, open and end.
pub(crate) trait Frames<'a> {
    fn control(&self) -> &Control;
    fn control_mut(&mut self) -> &mut Control;
    /// Number of frames.
    fn depth(&self) -> usize;
    fn get(&self, i: usize) -> Option<&Frame>;
    /// Frame `i` may be in code of this function.
    fn has_code_of(&self, i: usize, function: FunctionId) -> bool;
    /// Now.
    fn time(&self) -> ThreadTime;
    /// A frame that starts now.
    fn frame(&self, function: FunctionId, kind: FrameKind) -> Frame;
    /// Opens a frame; `entry`: control is at the function's first instruction (or the function is found
    /// running).
    fn push(&mut self, session: &mut Session<'a>, frame: Frame, entry: bool);
    /// Ends the frame on top, now, or when it left the IP filter for good.
    fn close(&mut self, session: &mut Session<'a>, status: Status, by_jump: bool);
    /// Continues the frame on top in the middle of another function; `may_return`: unless that is an older
    /// frame's return.
    fn run_code_of(&mut self, function: FunctionId, may_return: bool);
    /// Control has landed in one of these frames; the list is not empty.
    fn land_in(&mut self, session: &mut Session<'a>, landings: Landings);
    /// Control is at a place that no open frame explains; `may_go_on`: they may be open still.
    fn appears(&mut self, session: &mut Session<'a>, to: Target, may_go_on: bool);
    /// The outermost frame has returned to this place.
    fn returned_to_unknown(&mut self, session: &mut Session<'a>, to: Target);
    /// The process has executed another program, by a system call made then.
    fn execute(&mut self, session: &mut Session<'a>, since: EventTime, to: Target);

    /// The group on top returns to this place, in sight or out of the IP filter, and ends now.
    fn returns_to(&mut self, session: &mut Session<'a>, to: Avma, in_sight: bool);

    /// Takes what only reports depend on.
    #[inline(always)]
    fn notice(&mut self, _session: &mut Session<'a>, _what: Notice<'_>) {}

    /// Frame `i` is certain to be open.
    #[inline(always)]
    fn is_certain(&self, _i: usize) -> bool {
        true
    }

    // What follows from these.

    /// Frame `i` runs in sight, and is none of the kernel's.
    #[inline(always)]
    fn is_plain(&self, i: usize) -> bool {
        self.get(i).is_some_and(Frame::is_plain)
    }

    #[inline(always)]
    fn top(&self) -> Option<&Frame> {
        self.get(self.depth().wrapping_sub(1))
    }

    /// The innermost frame for which `is_it` holds.
    fn innermost(&self, is_it: impl Fn(&Frame) -> bool) -> Option<usize> {
        (0..self.depth()).rev().find(|&i| self.get(i).is_some_and(&is_it))
    }

    /// Index of the first frame of the group that frame `i` belongs to.
    #[inline]
    fn group_base(&self, i: usize) -> usize {
        let chain = self.get(i).map_or(0, |frame| frame.chain as usize);
        i.saturating_sub(chain)
    }

    /// Index of the first frame after the group that begins with frame `base`.
    fn group_end(&self, base: usize) -> usize {
        let is_in_group = |&i: &usize| self.get(i).is_some_and(|frame| frame.chain != 0);
        base + 1 + (base + 1..self.depth()).take_while(is_in_group).count()
    }

    /// Index of the first frame of the group on top.
    #[inline]
    fn top_base(&self) -> Option<usize> {
        Some(self.group_base(self.depth().checked_sub(1)?))
    }

    /// Ends all frames but the outermost `len`.
    #[inline]
    fn close_to(&mut self, session: &mut Session<'a>, len: usize, status: Status) {
        while self.depth() > len {
            self.close(session, status, false);
        }
    }

    /// Control returned from the frame on top, and so from all that tail-called it.
    fn pop_group(&mut self, session: &mut Session<'a>, by_jump: bool) {
        while let Some(&Frame { chain, undecided, .. }) = self.top() {
            let is_certain = !undecided && self.is_certain(self.depth() - 1);
            self.close(session, Status::Complete, by_jump);
            if chain == 0 {
                if !is_certain {
                    self.notice(session, Notice::ReturnedInDoubt);
                }
                break;
            }
        }
    }

    /// Opens a frame for a function that is running now; its entry was not seen.
    fn found(&mut self, session: &mut Session<'a>, to: Target) {
        let frame = self.frame(to.function, FrameKind::Found);
        self.push(session, frame, true);
    }
}
