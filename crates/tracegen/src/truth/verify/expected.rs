//! What a right decoder says of a thread, from its truth.

use model::{AsyncCause, Avma, BranchKind, EndKind, Executed, GapCause, TraceEvent, Tsc};

use crate::truth::{Event, Events, Kind};

/// How packets were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    Overflow,
    Truncated,
    Damaged,
    /// In another thread on the same CPU, which the trace says.
    OfBefore,
}

impl Loss {
    /// A gap with this cause is such a loss.
    pub(super) fn is_told_by(self, cause: GapCause) -> bool {
        match self {
            Self::Overflow => cause == GapCause::Overflow,
            Self::Truncated => cause == GapCause::Truncated,
            Self::Damaged => cause == GapCause::DamagedPacket,
            Self::OfBefore => matches!(cause, GapCause::Truncated | GapCause::DamagedPacket),
        }
    }
}

/// What must stand in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Branch(BranchKind),
    Start { after_overflow: bool },
    End(EndKind),
    Gap(Loss),
}

/// An event of the truth that the trace shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) what: Expected,
    pub(super) tsc: Tsc,
    pub(super) from: Avma,
    pub(super) to: Avma,
    pub(super) executed: Executed,
    pub(super) cycles: u64,
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

/// What the decoder has of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelText {
    /// Its code: traced kernel code is followed.
    #[default]
    There,
    /// Nothing: traced kernel code is skipped.
    Missing,
    /// Code that is not quite what ran: events found in it do not count, those in user code do.
    Inexact,
}

impl KernelText {
    /// What the decoder found is held against the truth.
    pub(super) fn counts(self, event: &TraceEvent) -> bool {
        self != Self::Inexact || !event.is_in_kernel()
    }
}

/// A thread's truth without what the trace does not show.
#[derive(Clone, Debug)]
pub(super) struct Shown<'a> {
    events: Events<'a>,
    /// Packets are being lost, and the gap has been said.
    lost: bool,
    kernel: KernelText,
    /// Follows the item given last.
    next: Option<Item>,
}

impl<'a> Shown<'a> {
    pub(super) fn new(events: Events<'a>, kernel: KernelText) -> Self {
        Self { events, lost: false, kernel, next: None }
    }

    /// The one or two items of an event.
    fn items(&mut self, event: &Event) -> Option<Item> {
        let what = self.shown(event)?;
        let Event { kind, tsc, from, to, executed, cycles, .. } = *event;
        let far = |what| Item { what, tsc, from, to, executed, cycles };
        let shown = matches!(what, Expected::Start { .. } | Expected::End(_));
        if shown && to != Avma(0) && self.kernel == KernelText::There && !event.left_filter() {
            match kind {
                Kind::Syscall | Kind::Async => {
                    self.next = Some(far(Expected::Start { after_overflow: false }))
                }
                Kind::Enter if from != Avma(0) => {
                    self.next = Some(far(what));
                    return Some(far(Expected::End(EndKind::Syscall)));
                }
                _ => (),
            }
        }
        Some(far(what))
    }

    /// What is seen of kernel code that is skipped: where an IP filter was entered and left.
    fn skipped(event: &Event) -> Option<Expected> {
        if event.kind == Kind::FilterIn {
            return Some(Expected::Start { after_overflow: false });
        }
        event.left_filter().then_some(Expected::End(EndKind::Skipped))
    }

    fn shown(&mut self, event: &Event) -> Option<Expected> {
        match event.kind {
            Kind::SwitchOut => return None,
            Kind::SwitchIn if !event.is_lost() => {
                self.lost = false; // a loss is one CPU's
                return None;
            }
            Kind::Overflow | Kind::Truncated | Kind::Damaged => {
                self.lost = true;
                return Some(Expected::Gap(match event.kind {
                    Kind::Overflow => Loss::Overflow,
                    Kind::Truncated => Loss::Truncated,
                    _ => Loss::Damaged,
                }));
            }
            _ => (),
        }
        if event.is_lost() {
            // A loss that began while another thread ran on this CPU goes on in this thread.
            let announced = std::mem::replace(&mut self.lost, true);
            return (!announced).then_some(Expected::Gap(Loss::OfBefore));
        }
        self.lost = false;
        if self.kernel != KernelText::There && event.is_in_kernel() {
            return if self.kernel == KernelText::Missing { Self::skipped(event) } else { None };
        }
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
            if let Some(next) = self.next.take() {
                return Some(next);
            }
            let event = self.events.next()?;
            if let Some(item) = self.items(&event) {
                return Some(item);
            }
        }
    }
}
