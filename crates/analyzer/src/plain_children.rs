//! Calls that need no frame, as all that they can matter to is the call that they are children of.

use model::{Avma, BranchEvent, BranchKind, FunctionId, FunctionKind, SpaceId, TraceEvent, Transfer};

use crate::children::Child;
use crate::counted::Counted;
use crate::frames::Frames;
use crate::place::ChildKind;
use crate::session::Session;
use crate::thread::Thread;

/// Jumps from function to function in one call that are looked at.
const JUMPS_MAX: usize = 64;

/// A call that returns to where it was made, after jumps from function to function at most.
struct PlainChild<'e> {
    site: Avma,
    function: FunctionId,
    /// The event with which it begins, and its number: the call, or the jump of the stub that was called.
    begin: (usize, &'e BranchEvent),
    /// The event with which it ends.
    end: (usize, &'e BranchEvent),
}

impl<'a> Thread<'a> {
    /// Acts on the first events, as far as they are calls that return to where they were made, after jumps at
    /// most, and the rules could see nothing in them but children of a call that gathers its children.
    /// Returns the number of these events. `counted`: the counts between two of the events, where those were
    /// asked for; the thread's counters are not set.
    #[inline(always)]
    pub(crate) fn calls_children(
        &mut self,
        session: &mut Session<'a>,
        space: SpaceId,
        events: &[TraceEvent],
        counted: impl Fn(usize, usize) -> Option<Counted>,
    ) -> usize {
        // Otherwise no child counts.
        if self.stack.gathers() { self.calls_plain_children(session, space, events, counted) } else { 0 }
    }

    #[inline(never)]
    fn calls_plain_children(
        &mut self,
        session: &mut Session<'a>,
        space: SpaceId,
        events: &[TraceEvent],
        counted: impl Fn(usize, usize) -> Option<Counted>,
    ) -> usize {
        let mut passed = 0;
        if !self.calls_plainly(session) {
            return passed;
        }
        let caller = self.stack.owner(self.stack.len()).and_then(|owner| self.stack.get(owner));
        let caller = caller.map(|caller| caller.function);
        // In a child only time passes: what was found of the caller still holds.
        while let Some(plain) = plain_child(session, events.get(passed..).unwrap_or_default()) {
            let PlainChild { site, function, begin: (begin, begun), end: (end, ended) } = plain;
            self.reaches(space, begun);
            let since = self.clock.time();
            self.reaches(space, ended);
            let total = self.clock.time().since(&since);
            let kind = ChildKind::of_call(function, caller);
            let child = Child { kind, function, space, site: site.into() };
            let counted = counted(passed + begin, passed + end);
            let depth = self.stack.len();
            self.stack.add_child(&mut session.pool.places, depth, (child, total), counted.as_ref());
            passed += end + 1;
        }
        passed
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

/// The child that the first events are, if they are nothing else, and the request asks about none of the
/// functions.
#[inline(always)]
fn plain_child<'e>(session: &mut Session<'_>, events: &'e [TraceEvent]) -> Option<PlainChild<'e>> {
    let [TraceEvent::Branch(call), after @ ..] = events else { return None };
    let Transfer::Branch { kind: BranchKind::Call | BranchKind::IndirectCall, from: site, to } =
        call.transfer
    else {
        return None;
    };
    let ret = site.next_ip();
    if !to.at_entry || to.ip == ret || site.ip.is_kernel() {
        return None;
    }
    let (mut function, mut begin) = (to.function, (0, call));
    let mut runs = kind_of_other(session, function)?;
    // A stub is only in the way of what it jumps to: that is the child.
    let mut is_in_stub = runs == FunctionKind::Plt;
    for (event, number) in after.iter().zip(1..=JUMPS_MAX) {
        let TraceEvent::Branch(branch) = event else { return None };
        let Transfer::Branch { kind, from, to } = branch.transfer else { return None };
        match kind {
            _ if from.ip.is_kernel() => return None,
            BranchKind::Return if to.ip == ret && runs != FunctionKind::Plt => {
                return Some(PlainChild { site: site.ip, function, begin, end: (number, branch) });
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
                    (function, begin) = (to.function, (number, branch));
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
