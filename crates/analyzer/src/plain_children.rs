//! Calls that need no frame, as all that they can matter to is the call that they are children of.

use model::{Avma, BranchKind, FunctionId, FunctionKind, SpaceId, TraceEvent, Transfer};

use crate::frames::Frames;
use crate::session::Session;
use crate::stack::{Frame, FrameKind};
use crate::thread::Thread;

/// Tail calls of one call that are looked at.
const TAIL_CALLS_MAX: usize = 64;

impl<'a> Thread<'a> {
    /// Acts on the first events, if they are a call that returns to where it was made, after tail calls at
    /// most, and the rules could see nothing else in them. Returns the number of these events.
    #[inline]
    pub(crate) fn calls_child(
        &mut self,
        session: &mut Session<'a>,
        space: SpaceId,
        events: &[TraceEvent],
    ) -> Option<usize> {
        let [TraceEvent::Branch(call), after @ ..] = events else { return None };
        let Transfer::Branch { kind: BranchKind::Call | BranchKind::IndirectCall, from, to } = call.transfer
        else {
            return None;
        };
        let is_call = to.at_entry && to.ip != from.next_ip() && !from.ip.is_kernel();
        if !is_call || !self.calls_plainly(session) {
            return None;
        }
        let tail_calls = tail_calls(session, from.next_ip(), to.function, after)?;
        let TraceEvent::Branch(ret) = after.get(tail_calls)? else { return None };
        self.reaches(space, call);
        let frame = Frame { site: from.ip.into(), ..self.frame(to.function, FrameKind::Call) };
        after.iter().take(tail_calls).for_each(|event| self.off_cpu.pass(event.time()));
        self.reaches(space, ret);
        self.add_child_above(session, &frame);
        Some(2 + tail_calls)
    }

    /// Control is in the frame on top, in sight, and what that calls may be a child and nothing else.
    #[inline(always)]
    fn calls_plainly(&self, session: &Session<'a>) -> bool {
        self.is_plainly_inside()
            && self.is_plain(self.depth().wrapping_sub(1))
            && session.regions.is_empty()
            && !self.kernel.is_entered()
    }
}

/// How many tail calls there are before the return to `ret`, where `function` was called, if there is nothing
/// else, and the request asks about none of the functions.
#[inline(always)]
fn tail_calls(
    session: &mut Session<'_>,
    ret: Avma,
    function: FunctionId,
    events: &[TraceEvent],
) -> Option<usize> {
    let mut runs = kind_of_other(session, function).filter(|kind| *kind != FunctionKind::Plt)?;
    for (tail_calls, event) in events.iter().take(TAIL_CALLS_MAX).enumerate() {
        let TraceEvent::Branch(branch) = event else { return None };
        let Transfer::Branch { kind, from, to } = branch.transfer else { return None };
        match kind {
            _ if from.ip.is_kernel() => return None,
            BranchKind::Return if to.ip == ret => return Some(tail_calls),
            // A stub, or the lazy binder, is only in the way of what it jumps to.
            BranchKind::Jump | BranchKind::ConditionalJump | BranchKind::IndirectJump
                if to.at_entry
                    && from.function != to.function
                    && !matches!(runs, FunctionKind::Plt | FunctionKind::Loader) =>
            {
                runs = kind_of_other(session, to.function)?;
            }
            _ => return None,
        }
    }
    None
}

/// What kind of code a function is, if the request does not ask about it.
#[inline(always)]
fn kind_of_other(session: &mut Session<'_>, function: FunctionId) -> Option<FunctionKind> {
    session.roles.get(function).is_none().then(|| session.map.kind_of_entered(function))
}
