//! Calls that need no frame, as all that they can matter to is the call that they are children of.

use model::{Avma, BranchKind, FunctionId, FunctionKind, SpaceId, TraceEvent, Transfer};

use crate::counted::Counted;
use crate::frames::Frames;
use crate::session::Session;
use crate::stack::FrameKind;
use crate::thread::Thread;

/// Jumps from function to function in one call that are looked at.
const JUMPS_MAX: usize = 64;

/// A call that returns to where it was made, after jumps from function to function at most.
struct PlainChild {
    function: FunctionId,
    /// The number of the event with which it begins: the call, or the jump of the stub that was called.
    begin: usize,
    /// The number of the event with which it ends.
    end: usize,
}

impl<'a> Thread<'a> {
    /// Acts on the first events, if they are a call that returns to where it was made, after jumps at most,
    /// and the rules could see nothing in them but a child of a call that gathers its children. Returns the
    /// number of these events. `counted`: the counts between two of the events, where those were asked for;
    /// the thread's counters are not set.
    #[inline(always)]
    pub(crate) fn calls_child(
        &mut self,
        session: &mut Session<'a>,
        space: SpaceId,
        events: &[TraceEvent],
        counted: impl FnOnce(usize, usize) -> Option<Counted>,
    ) -> Option<usize> {
        // Otherwise no child counts.
        if self.stack.gathers() { self.calls_plain_child(session, space, events, counted) } else { None }
    }

    #[inline(never)]
    fn calls_plain_child(
        &mut self,
        session: &mut Session<'a>,
        space: SpaceId,
        events: &[TraceEvent],
        counted: impl FnOnce(usize, usize) -> Option<Counted>,
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
        let child = plain_child(session, from.next_ip(), to.function, after)?;
        let [Some(TraceEvent::Branch(begun)), Some(TraceEvent::Branch(ended))] =
            [events.get(child.begin), events.get(child.end)]
        else {
            return None;
        };
        // Between the two only time passes.
        self.reaches(space, begun);
        let mut frame = self.frame(child.function, FrameKind::Call);
        frame.site.ip = from.ip.into();
        self.reaches(space, ended);
        let counted = counted(child.begin, child.end);
        self.add_child_above(session, &frame, counted.as_ref());
        Some(child.end + 1)
    }

    /// Control is in the frame on top, in sight, and what that calls may be a child and nothing else.
    #[inline(always)]
    fn calls_plainly(&self, session: &Session<'a>) -> bool {
        self.is_plainly_inside()
            && self.is_plain(self.depth().wrapping_sub(1))
            && session.asked.regions.is_empty()
            && !self.kernel.is_entered()
    }
}

/// The child that a call of `function` is which returns to `ret`, if the events `after` it are nothing else,
/// and the request asks about none of the functions.
#[inline(always)]
fn plain_child(
    session: &mut Session<'_>,
    ret: Avma,
    function: FunctionId,
    after: &[TraceEvent],
) -> Option<PlainChild> {
    let mut child = PlainChild { function, begin: 0, end: 0 };
    let mut runs = kind_of_other(session, function)?;
    // A stub is only in the way of what it jumps to: that is the child.
    let mut is_in_stub = runs == FunctionKind::Plt;
    for (event, number) in after.iter().zip(1..=JUMPS_MAX) {
        let TraceEvent::Branch(branch) = event else { return None };
        let Transfer::Branch { kind, from, to } = branch.transfer else { return None };
        match kind {
            _ if from.ip.is_kernel() => return None,
            BranchKind::Return if to.ip == ret && runs != FunctionKind::Plt => {
                child.end = number;
                return Some(child);
            }
            // The lazy binder is in the way of what it jumps to, too.
            BranchKind::Jump | BranchKind::ConditionalJump | BranchKind::IndirectJump
                if to.at_entry && from.function != to.function && runs != FunctionKind::Loader =>
            {
                let next = kind_of_other(session, to.function)?;
                if runs == FunctionKind::Plt && next == FunctionKind::Plt {
                    return None; // from stub to stub, in a table
                }
                if std::mem::take(&mut is_in_stub) {
                    (child.function, child.begin) = (to.function, number);
                }
                runs = next;
            }
            _ => return None,
        }
    }
    None
}

/// What kind of code a function is, if the request does not ask about it.
#[inline(always)]
fn kind_of_other(session: &mut Session<'_>, function: FunctionId) -> Option<FunctionKind> {
    (!session.asked.roles.has(function)).then(|| session.map.kind_of_entered(function))
}
