//! What a right decoder says of a thread, from its truth.

use model::{AsyncCause, Avma, BranchKind, EndKind, Tsc};

use crate::truth::{Event, Events, Kind};

/// What must stand in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Branch(BranchKind),
    Start { after_overflow: bool },
    End(EndKind),
    Gap { truncated: bool },
}

/// An event of the truth that the trace shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) what: Expected,
    pub(super) tsc: Tsc,
    pub(super) from: Avma,
    pub(super) to: Avma,
}

impl Item {
    /// A jump from one function to another, which is left out if both are one function after all.
    pub(super) fn is_jump(&self) -> bool {
        matches!(
            self.what,
            Expected::Branch(BranchKind::Jump | BranchKind::IndirectJump | BranchKind::ConditionalJump)
        )
    }

    /// A call to the next instruction, which is a way to read the program counter.
    pub(super) fn is_call_to_next(&self) -> bool {
        self.what == Expected::Branch(BranchKind::Call) && (2..=8).contains(&self.to.minus(self.from))
    }
}

/// A thread's truth without what the trace does not show.
#[derive(Clone, Debug)]
pub(super) struct Shown<'a> {
    events: Events<'a>,
    /// Packets are being lost, and the gap has been said.
    lost: bool,
}

impl<'a> Shown<'a> {
    pub(super) fn new(events: Events<'a>) -> Self {
        Self { events, lost: false }
    }

    fn shown(&mut self, event: &Event) -> Option<Expected> {
        match event.kind {
            Kind::SwitchOut | Kind::SwitchIn => return None,
            Kind::Overflow | Kind::Truncated => {
                self.lost = true;
                return Some(Expected::Gap { truncated: event.kind == Kind::Truncated });
            }
            _ => (),
        }
        if event.is_lost() {
            // A loss that began while another thread ran on this CPU goes on in this thread.
            let announced = std::mem::replace(&mut self.lost, true);
            return (!announced).then_some(Expected::Gap { truncated: true });
        }
        self.lost = false;
        let kind = match event.kind {
            Kind::Call => BranchKind::Call,
            Kind::IndirectCall => BranchKind::IndirectCall,
            Kind::Return => BranchKind::Return,
            Kind::Jump => BranchKind::Jump,
            Kind::IndirectJump => BranchKind::IndirectJump,
            Kind::ConditionalJump => BranchKind::ConditionalJump,
            Kind::Syscall => return Some(Expected::End(EndKind::Syscall)),
            Kind::Async => return Some(Expected::End(EndKind::Async(AsyncCause::Unknown))),
            Kind::Resume if event.to == Avma(0) => return None, // it resolved outside of traced code
            Kind::Resume => return Some(Expected::Start { after_overflow: true }),
            _ => return Some(Expected::Start { after_overflow: false }),
        };
        Some(if event.left_filter() { Expected::End(EndKind::Branch(kind)) } else { Expected::Branch(kind) })
    }
}

impl Iterator for Shown<'_> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            let event = self.events.next()?;
            if let Some(what) = self.shown(&event) {
                return Some(Item { what, tsc: event.tsc, from: event.from, to: event.to });
            }
        }
    }
}
