//! What the decoder says: control transfers and gaps, per thread, in the order of execution.

use std::convert::Infallible;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::address::{AuxOffset, Avma};
use crate::clock::EventTime;
use crate::code::{FunctionId, SpaceId};
use crate::function_set::FunctionSet;
use crate::gap::Gap;
use crate::ids::{Pid, Tid};
use crate::recording::AuxOwner;
use crate::stretch_counters::StretchCounters;

/// An instruction that control left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Site {
    /// Its address.
    pub ip: Avma,
    /// The function that it belongs to.
    pub function: FunctionId,
    /// Its length in bytes; 0 if it was not decoded (`EndKind::Async`, `BranchKind::Abort`).
    pub len: u8,
}

impl Site {
    /// The address after the instruction: where a call returns to.
    #[inline]
    #[must_use]
    pub const fn next_ip(&self) -> Avma {
        self.ip.plus(self.len as u64)
    }
}

/// An instruction that control reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Target {
    /// Its address.
    pub ip: Avma,
    /// The function that it belongs to.
    pub function: FunctionId,
    /// It is the first instruction of that function.
    pub at_entry: bool,
}

/// Kind of a near branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum BranchKind {
    /// Direct call.
    Call,
    /// Indirect call.
    IndirectCall,
    /// Return.
    Return,
    /// Direct jump.
    Jump,
    /// Indirect jump.
    IndirectJump,
    /// Taken conditional jump.
    ConditionalJump,
    /// A transaction (TSX) was aborted: control goes to its abort handler. `from` is the next instruction
    /// that would have run.
    Abort,
    /// No branch: control runs on from `from` into the next instruction, at which a region begins or ends.
    RunsOn,
}

impl BranchKind {
    /// Its name in listings; `*` marks indirect branches.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::IndirectCall => "call*",
            Self::Return => "return",
            Self::Jump => "jump",
            Self::IndirectJump => "jump*",
            Self::ConditionalJump => "jcc",
            Self::Abort => "abort",
            Self::RunsOn => "runs on",
        }
    }
}

/// What interrupted code, as far as the trace says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AsyncCause {
    /// It does not say: only event trace does (`event=1`, from Alder Lake on).
    #[default]
    Unknown,
    /// An interrupt, by its vector.
    Interrupt(u8),
    /// An exception, by its vector: 14 is a page fault.
    Fault(u8),
    /// System management, INIT, VM exit, shutdown, user interrupt.
    Other,
}

/// How tracing left the code that we see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EndKind {
    /// Far transfer: system call, `iret`, software interrupt.
    Syscall,
    /// Interrupt, fault or signal: asynchronous.  `from` is the next instruction that would have run.
    Async(AsyncCause),
    /// A near branch out of the IP filter, or to missing code from which the return is seen (returns are
    /// not compressed): then a gap follows.
    Branch(BranchKind),
    /// Execution ran on past the end of the IP filter's range.
    FallThrough,
    /// The end of kernel code without text, inside the IP filter: `from` is the last address in it that is
    /// known, that of its start or of a PSB.
    Skipped,
}

/// One change of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Transfer {
    /// Both ends are in traced code.
    Branch {
        /// Kind of the instruction.
        kind: BranchKind,
        /// The instruction.
        from: Site,
        /// Where it went.
        to: Target,
    },
    /// Tracing starts here (TIP.PGE; FUP after OVF): from the kernel, from outside the IP filter, or anew.
    Start {
        /// First instruction.
        to: Target,
        /// Just resumed after a [`Gap`].
        after_gap: bool,
    },
    /// Tracing stops here.
    End {
        /// How.
        kind: EndKind,
        /// The instruction: the one that left, or for `Async` the one that was interrupted.
        from: Site,
        /// Where control went, if the packet says.
        to: Option<Avma>,
    },
}

impl Transfer {
    /// It is about kernel code: a branch in it, or tracing that starts or stops there.
    #[inline]
    #[must_use]
    pub const fn is_in_kernel(&self) -> bool {
        match self {
            Self::Branch { from, .. } | Self::End { from, .. } => from.ip.is_kernel(),
            Self::Start { to, .. } => to.ip.is_kernel(),
        }
    }
}

/// A control transfer with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchEvent {
    /// When.
    pub time: EventTime,
    /// The AUX packet that it was decoded from.
    pub at: AuxOffset,
    /// What.
    pub transfer: Transfer,
}

/// One item of a thread's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// Control went somewhere.
    Branch(BranchEvent),
    /// Something is not known.
    Gap(Gap),
}

impl TraceEvent {
    /// It is about kernel code alone.
    #[inline]
    #[must_use]
    pub const fn is_in_kernel(&self) -> bool {
        matches!(self, Self::Branch(branch) if branch.transfer.is_in_kernel())
    }

    /// When it happened; for a gap, when it began.
    #[inline]
    #[must_use]
    pub fn time(&self) -> EventTime {
        match self {
            Self::Branch(b) => b.time,
            Self::Gap(g) => g.from,
        }
    }

    /// The AUX packet that it was decoded from; for a gap, where it began.
    #[inline]
    #[must_use]
    pub const fn at(&self) -> AuxOffset {
        match self {
            Self::Branch(branch) => branch.at,
            Self::Gap(gap) => gap.at,
        }
    }
}

/// Consecutive events of a thread, and what a [`Digester`] made of them.
#[derive(Debug)]
pub struct DigestedRun<D> {
    /// Places of the events among those that were digested together, or of parts that were joined.
    pub places: Range<usize>,
    /// How many events there are.
    pub events: u64,
    /// Time of the first event.
    pub first: EventTime,
    /// Time of the last event, which is a branch.
    pub last: EventTime,
    /// What the sink takes in the place of the events.
    pub digest: D,
}

/// A part of what a thread did.
#[derive(Debug)]
pub enum RunPart<D> {
    /// An event.
    Event(TraceEvent),
    /// Events that were digested.
    Run(DigestedRun<D>),
}

/// Does work on a thread's events before it is their turn: on any worker, in any order, or in another
/// process.
pub trait Digester: Sync {
    /// What it makes of consecutive events.
    type Digest: Send;

    /// The runs of which it is of use, none within another, in order: of consecutive events of a thread,
    /// without knowing those before.
    fn digest(&self, tid: Tid, space: SpaceId, events: &[TraceEvent]) -> Vec<DigestedRun<Self::Digest>>;

    /// [`Self::digest`] of what a thread did, some of it digested: longer runs, each of several parts.
    fn join(
        &self,
        tid: Tid,
        space: SpaceId,
        parts: &[RunPart<Self::Digest>],
    ) -> Vec<DigestedRun<Self::Digest>>;

    /// A digest as bytes, for the same digester in another process; `None`: there it is of no use.
    fn pack(&self, digest: &Self::Digest) -> Option<Vec<u8>>;

    /// The digest of a run that these bytes are; `None`: they are none, or it is of no use here.
    fn unpack(&self, bytes: &[u8], run: &DigestedRun<()>) -> Option<Self::Digest>;

    /// Workers from which on digesting pays: of fewer, the one that takes events in order has time for them.
    fn workers_min(&self) -> usize;
}

/// A sink that a [`Digester`] works for.
pub trait DigestSink<D>: EventSink {
    /// [`EventSink::events`] of a run: `whole` gives them, where its digest does not do in their place.
    fn run(&mut self, pid: Pid, tid: Tid, space: SpaceId, run: &DigestedRun<D>, whole: &dyn WholeRun<D>);
}

/// What a run was digested from.
pub trait WholeRun<D> {
    /// Gives its parts to a sink: events, and shorter runs.
    fn give(&self, sink: &mut dyn DigestSink<D>);
}

/// The events of a run, at hand.
#[derive(Clone, Copy, Debug)]
pub struct RunEvents<'e> {
    /// Their process.
    pub pid: Pid,
    /// Their thread.
    pub tid: Tid,
    /// Of their addresses.
    pub space: SpaceId,
    /// Themselves.
    pub events: &'e [TraceEvent],
}

impl<D> WholeRun<D> for RunEvents<'_> {
    fn give(&self, sink: &mut dyn DigestSink<D>) {
        sink.events(self.pid, self.tid, self.space, self.events);
    }
}

/// Any sink does without a digester.
impl<S: EventSink> DigestSink<Infallible> for S {
    fn run(
        &mut self,
        _: Pid,
        _: Tid,
        _: SpaceId,
        run: &DigestedRun<Infallible>,
        _: &dyn WholeRun<Infallible>,
    ) {
        match run.digest {}
    }
}

/// Receives what the decoder says.
pub trait EventSink {
    /// The next events of one thread, in order of execution.
    ///
    /// Threads interleave as they ran; one thread's calls come in order, and the same calls come for every
    /// number of workers.  All addresses of `events` are in `space`.  Jumps inside one function are left
    /// out unless all branches were asked for, or those of that function ([`Self::takes_jumps_of`]).
    fn events(&mut self, pid: Pid, tid: Tid, space: SpaceId, events: &[TraceEvent]);

    /// The sink takes counters: [`Self::counted`] is called in the place of [`Self::events`], and no
    /// [`Digester`] works ahead of it.
    fn wants_counters(&self) -> bool {
        false
    }

    /// [`Self::events`] with the thread's counters at each of `events`.
    fn counted(
        &mut self,
        pid: Pid,
        tid: Tid,
        space: SpaceId,
        events: &[TraceEvent],
        counters: StretchCounters<'_>,
    ) {
        let _ = counters;
        self.events(pid, tid, space, events);
    }

    /// The functions that it asks about: calls that returned, and that none of them had to do with, may be
    /// left out. `None`: everything counts.
    fn asks_about(&self) -> Option<FunctionSet> {
        None
    }

    /// The functions of which it takes every taken branch, jumps inside of them included. `None`: of none.
    fn takes_jumps_of(&self) -> Option<FunctionSet> {
        None
    }

    /// The trace unit overflowed `count` times more in a buffer of `owner`, wherever in it: each OVF packet
    /// counts once, also inside of a gap of another cause.
    fn overflows(&mut self, owner: AuxOwner, count: u64) {
        let _ = (owner, count);
    }

    /// `transfers` transfers of a thread were left out, among the events that come next or came last.
    fn left_out(&mut self, tid: Tid, transfers: u64) {
        let _ = (tid, transfers);
    }
}

impl<S: EventSink + ?Sized> EventSink for &mut S {
    fn events(&mut self, pid: Pid, tid: Tid, space: SpaceId, events: &[TraceEvent]) {
        (**self).events(pid, tid, space, events);
    }

    fn wants_counters(&self) -> bool {
        (**self).wants_counters()
    }

    fn counted(
        &mut self,
        pid: Pid,
        tid: Tid,
        space: SpaceId,
        events: &[TraceEvent],
        counters: StretchCounters<'_>,
    ) {
        (**self).counted(pid, tid, space, events, counters);
    }

    fn asks_about(&self) -> Option<FunctionSet> {
        (**self).asks_about()
    }

    fn takes_jumps_of(&self) -> Option<FunctionSet> {
        (**self).takes_jumps_of()
    }

    fn overflows(&mut self, owner: AuxOwner, count: u64) {
        (**self).overflows(owner, count);
    }

    fn left_out(&mut self, tid: Tid, transfers: u64) {
        (**self).left_out(tid, transfers);
    }
}
