//! Follows control through the own code of a wanted call or region, from event to event.

use model::{Avma, BranchKind, EndKind, FunctionId, FunctionKind, Site, SpaceId, Target, Transfer};

use crate::maybe_ip::MaybeIp;
use crate::own_code::{CodeBegin, CodeDetail, CodeSpan, Going, Paused};
use crate::session::Session;
use crate::thread::Thread;
use crate::thread_clock::ThreadTime;
use crate::total::RunningTotal;

/// How straight code ends.
enum How {
    /// The instruction was executed, and control is elsewhere.
    Left(Site),
    /// It goes on at this instruction, after an interrupt or in a stub of the PLT.
    Pauses(Avma),
}

impl<'a> Thread<'a> {
    /// Control comes to a change of control in the code that has run since then. The frames are still those
    /// of that code.
    pub(crate) fn ran(&mut self, session: &mut Session<'a>, since: ThreadTime, transfer: &Transfer) {
        let Some(going) = self.control.going.take() else { return };
        let Some(how) = how_it_ends(session, transfer) else { return };
        let Some(top) = self.stack.last().copied().filter(|_| self.stack.gathers_any()) else { return };
        let mut total = RunningTotal { count: 0, ..self.clock.time().since(&since) };
        total.add(going.before);
        let from = match how {
            How::Left(from) => from,
            How::Pauses(at) => {
                let Some(code) = &mut session.code else { return };
                let paused = Paused { at, going: Going { before: total, ..going } };
                for running in self.stack.running_code() {
                    running.end_paused(&mut code.places);
                    running.paused = Some(paused);
                }
                return;
            }
        };
        // A stub's time is that of the code that calls it.
        let (start, last, functions) = if top.is_stub() {
            let is_from_caller = going.function != from.function;
            let start = if is_from_caller { going.start.into() } else { top.site.ip };
            (start, top.site.ip, [if is_from_caller { going.function } else { top.site.function }; 2])
        } else {
            (going.start.into(), MaybeIp::from(from.ip), [going.function, from.function])
        };
        let is_wanted = |function: FunctionId| {
            session.asked.roles.get(function).is_some_and(|role| role.wanted.is_some())
                || session.asked.regions.functions().contains(function)
        };
        // Where it has jumped into the middle of other functions, their jumps are not in the trace.
        let is_straight = start <= last && functions.into_iter().all(is_wanted);
        let Some(code) = &mut session.code else { return };
        let is_known = code.detail() == CodeDetail::Blocks || is_straight;
        let last = if is_known { last } else { MaybeIp::UNKNOWN };
        let Going { space, begin, .. } = going;
        let span = CodeSpan { space, start, begin, last, is_whole: true };
        for running in self.stack.running_code() {
            running.spans.add(&mut code.places, span, RunningTotal { count: 1, ..total });
        }
    }

    /// The frames are those of the code that control came to.
    pub(crate) fn came_to(&mut self, session: &mut Session<'a>, space: SpaceId, transfer: &Transfer) {
        let (to, begin) = match *transfer {
            Transfer::Branch { to, kind: BranchKind::Return, .. } => (to, CodeBegin::Return),
            // Also where tracing begins: a call from outside of an IP filter.
            Transfer::Branch { to, .. } | Transfer::Start { to, .. } if to.at_entry => (to, CodeBegin::Entry),
            Transfer::Start { to, .. } => (to, CodeBegin::Return),
            Transfer::Branch { to, .. } => (to, CodeBegin::Jump),
            Transfer::End { .. } => return,
        };
        let Target { ip, function, .. } = to;
        self.control.going =
            Some(Going { space, start: ip, begin, function, before: RunningTotal::default() });
        if !self.stack.gathers_any() {
            return;
        }
        let Some(code) = &mut session.code else { return };
        for running in self.stack.running_code() {
            match running.paused {
                Some(paused) if paused.at == ip => {
                    running.paused = None;
                    self.control.going = Some(paused.going);
                }
                _ => running.end_paused(&mut code.places),
            }
        }
    }
}

/// `None`: nothing ran.
fn how_it_ends(session: &Session<'_>, transfer: &Transfer) -> Option<How> {
    match *transfer {
        // It is not executed, and control does not come back to it.
        Transfer::Branch { kind: BranchKind::Abort, from, .. } => Some(How::Pauses(from.ip)),
        Transfer::Branch { kind, from, to } => {
            let is_jump = !matches!(kind, BranchKind::Call | BranchKind::IndirectCall | BranchKind::Return);
            let is_inside = is_jump && from.function == to.function;
            let is_blocks = session.code.as_ref().is_some_and(|code| code.detail() == CodeDetail::Blocks);
            let is_stub = session.map.kind(to.function) == FunctionKind::Plt;
            match (is_inside && is_blocks) || is_stub {
                true => Some(How::Pauses(to.ip)),
                false => Some(How::Left(from)),
            }
        }
        Transfer::End { kind: EndKind::Async(_), from, .. } => Some(How::Pauses(from.ip)),
        Transfer::End { from, .. } => Some(How::Left(from)),
        Transfer::Start { .. } => None,
    }
}
