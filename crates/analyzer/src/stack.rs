//! The frames of a thread: what has been entered and not left.
//!
//! ```text
//!   main            call    chain 0   returns to ...
//!   parse           call    chain 0   returns into main      <- base of its group
//!   parse_number    tail    chain 1   returns into main
//!   convert         tail    chain 2   returns into main      <- top
//! ```
//! A function and the tail calls it ended with are a group: one return leaves them all.

use std::ops::{Deref, DerefMut, Range};

use model::{Avma, FunctionId, FunctionKind, Site, SpaceId};

use crate::children::{Child, ChildPlaces};
use crate::counted::Counted;
use crate::maybe_ip::MaybeIp;
use crate::open_region::OpenRegion;
use crate::own_code::RunningCode;
use crate::regions::AtMark;
use crate::request::Role;
use crate::running::Activation;
use crate::status::Status;
use crate::thread_clock::ThreadTime;
use crate::total::RunningTotal;

/// Frames that a stack may have.  More than an 8 MB stack can hold (a frame takes at least 16 bytes there).
pub(crate) const DEPTH_MAX: usize = 1 << 20;

/// Tail calls in one group.  State machines that only ever jump would otherwise pile up frames for ever.
pub(crate) const CHAIN_MAX: u32 = 1 << 14;

/// `syscall`, `sysenter` and `int 0x80` are two bytes long.
pub(crate) const SYSCALL_LEN: u64 = 2;

/// How a frame came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// Called.
    Call,
    /// Jumped to.
    Tail,
    /// Called at a place inside its caller: a subroutine of hand-written code, or room for a return address
    /// that a retpoline overwrites. It is part of that function, neither caller nor child.
    Inner,
    /// A signal handler, entered by the kernel.
    Signal,
    /// Tracing began at its entry: called from outside the IP filter.
    Filter,
    /// Running when it was first seen.
    Found,
    /// Kernel code that a system call or an interrupt entered: no child of what it interrupted, which has the
    /// whole stay as one ([`crate::kernel_part`]).
    KernelEntry,
    /// The kernel's frame below a signal handler; `site` is the instruction that was interrupted.
    Interrupted,
    /// The kernel's frame below a handler that came in a system call: `site` is after its instruction, which
    /// may also be executed again.
    InterruptedSyscall,
}

impl FrameKind {
    /// It is the kernel's frame below a handler.
    pub(crate) const fn is_mark(self) -> bool {
        matches!(self, Self::Interrupted | Self::InterruptedSyscall)
    }
}

/// The instruction that entered a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntrySite {
    pub(crate) space: SpaceId,
    /// The function that it belongs to: the caller.
    pub(crate) function: FunctionId,
    pub(crate) ip: MaybeIp,
}

impl EntrySite {
    pub(crate) fn of(space: SpaceId, site: Site) -> Self {
        Self { space, function: site.function, ip: site.ip.into() }
    }

    /// It is this one, of the same space.
    #[inline(always)]
    pub(crate) fn set(&mut self, site: Site) {
        (self.function, self.ip) = (site.function, site.ip.into());
    }
}

/// What a frame is to the request. An active one has an [`Activation`]; what ends in one that gathers is a
/// child of the innermost activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameRole {
    /// Nothing.
    None,
    /// A call of the ancestor: active.
    Ancestor,
    /// A call of a wanted function: active, and gathers.
    Wanted,
    /// Part of its caller, which gathers.
    PartOfWanted,
}

impl FrameRole {
    /// Of a call of a function with this role.
    pub(crate) fn of_entered(role: Role) -> Self {
        if role.wanted.is_some() { Self::Wanted } else { Self::Ancestor }
    }

    /// Of a part of this caller.
    pub(crate) fn part_of(caller: Option<&Frame>) -> Self {
        if caller.is_some_and(|caller| caller.role.gathers()) { Self::PartOfWanted } else { Self::None }
    }

    #[inline(always)]
    pub(crate) fn is_active(self) -> bool {
        matches!(self, Self::Ancestor | Self::Wanted)
    }

    #[inline(always)]
    pub(crate) fn gathers(self) -> bool {
        matches!(self, Self::Wanted | Self::PartOfWanted)
    }
}

/// A function that was entered and not left. One comes and goes with each call of the trace: what few of them
/// have is beside it, in [`Stack`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) function: FunctionId,
    pub(crate) site: EntrySite,
    /// Its first instruction, if tracing began there ([`FrameKind::Filter`], [`FrameKind::Signal`]), or if a
    /// frame that was not known returned there ([`FrameKind::Found`]): only the restorer of signals is
    /// returned to so.
    pub(crate) entry: MaybeIp,
    /// Where it returns to. If that is not known its entry was not seen: any return leaves it.
    pub(crate) ret: MaybeIp,
    /// How many tail calls ago its group began.
    pub(crate) chain: u32,
    pub(crate) kind: FrameKind,
    /// It runs outside the IP filter, or in missing code.
    pub(crate) hidden: bool,
    /// What kind of code its function is.
    pub(crate) code: FunctionKind,
    /// A landing that nothing decides may have ended it.
    pub(crate) undecided: bool,
    pub(crate) role: FrameRole,
    pub(crate) begun: ThreadTime,
    /// Where the nodes of its subtree begin, while a tree is gathered.
    pub(crate) first: usize,
}

impl Frame {
    /// The status of its call, which ends with `end`: of one that was found running the start is open.
    #[inline(always)]
    pub(crate) fn status_at(&self, end: Status) -> Status {
        if self.kind == FrameKind::Found { Status::OpenStart } else { end }
    }

    /// Of a function that runs since then, in this space.
    #[inline(always)]
    pub(crate) fn new(function: FunctionId, kind: FrameKind, space: SpaceId, begun: ThreadTime) -> Self {
        Self {
            function,
            site: EntrySite { space, function: FunctionId::UNKNOWN, ip: MaybeIp::UNKNOWN },
            entry: MaybeIp::UNKNOWN,
            ret: MaybeIp::UNKNOWN,
            chain: 0,
            kind,
            hidden: false,
            code: FunctionKind::Symbol,
            undecided: false,
            role: FrameRole::None,
            begun,
            first: 0,
        }
    }

    /// A stub of the PLT.
    #[inline]
    pub(crate) fn is_stub(&self) -> bool {
        self.code == FunctionKind::Plt
    }

    /// It is neither caller nor child; what happens in it happens in its caller.
    #[inline]
    pub(crate) fn is_part_of_caller(&self) -> bool {
        // Out of the IP filter a stub stands for all that it led to.
        self.kind == FrameKind::Inner || self.is_stub() && !self.hidden && self.kind != FrameKind::Found
    }

    /// It runs in sight, and is none of the kernel's.
    #[inline(always)]
    pub(crate) fn is_plain(&self) -> bool {
        !self.hidden && !self.kind.is_mark()
    }

    /// The rules of calls see no difference.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let seen = |f: &Self| (f.function, f.kind, f.site.ip, f.entry, f.ret, f.chain, f.hidden);
        seen(self) == seen(other)
    }

    /// It is a mark, and the interrupted code goes on at `ip`.
    pub(crate) fn goes_on_at(&self, ip: Avma) -> bool {
        match self.kind {
            FrameKind::Interrupted => self.site.ip.is(ip),
            FrameKind::InterruptedSyscall => self.site.ip.is(ip) || self.site.ip.is(ip.plus(SYSCALL_LEN)),
            _ => false,
        }
    }
}

/// The frames of a thread, outermost first.
#[derive(Default)]
pub(crate) struct Stack {
    frames: Vec<Frame>,
    /// One for each frame that [is active](FrameRole::is_active), in their order.
    pub(crate) activations: Vec<Activation>,
    /// Regions that have begun in them, in the order of their frames, and of their beginnings.
    pub(crate) regions: Vec<OpenRegion>,
    /// A frame's index and a function into the middle of which it has jumped: it runs that code, and a
    /// callee may throw back into it.
    runs: Vec<(usize, FunctionId)>,
}

impl Stack {
    #[inline]
    pub(crate) fn push(&mut self, frame: Frame) {
        self.frames.push(frame);
    }

    /// Without the frame on top; if it is active, its activation is to be popped, too.
    #[inline]
    pub(crate) fn pop(&mut self) {
        self.frames.pop();
        while self.runs.last().is_some_and(|(of, _)| *of >= self.frames.len()) {
            self.runs.pop();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.frames.clear();
        self.activations.clear();
        self.regions.clear();
        self.runs.clear();
    }

    /// The frame on top goes on in the middle of another function.
    pub(crate) fn run_code_of(&mut self, function: FunctionId) {
        if let Some(top) = self.len().checked_sub(1)
            && !self.has_code_of(top, function)
        {
            self.runs.push((top, function));
        }
    }

    /// Frame `i` may be in code of this function.
    pub(crate) fn has_code_of(&self, i: usize, function: FunctionId) -> bool {
        let runs = || {
            let first = self.runs.partition_point(|(of, _)| *of < i);
            self.runs.iter().skip(first).any(|run| *run == (i, function))
        };
        self.get(i).is_some_and(|frame| frame.function == function) || runs()
    }

    /// These frames may have ended before.
    pub(crate) fn doubt(&mut self, frames: Range<usize>) {
        let frames = self.frames.get_mut(frames).unwrap_or_default();
        frames.iter_mut().for_each(|frame| frame.undecided = true);
    }

    /// The active frames from the one at `base` on, outermost first.
    pub(crate) fn active(&mut self, base: usize) -> impl Iterator<Item = (&mut Frame, &mut Activation)> {
        let frames = self.frames.get_mut(base..).unwrap_or_default();
        let count = frames.iter().filter(|frame| frame.role.is_active()).count();
        let first = self.activations.len().saturating_sub(count);
        frames.iter_mut().filter(|frame| frame.role.is_active()).zip(self.activations.iter_mut().skip(first))
    }

    /// The thread's off-CPU time at the begin of the oldest active frame or region; `None`: there is none.
    pub(crate) fn off_cpu_from_ns(&self) -> Option<u64> {
        let active =
            self.frames.iter().filter(|frame| frame.role.is_active()).map(|frame| frame.begun.off_cpu_ns);
        active.chain(self.regions.iter().map(|region| region.off_cpu_ns)).min()
    }

    /// All frames but the one on top.
    pub(crate) fn below_top(&self) -> &[Frame] {
        self.frames.split_last().map_or(&[], |(_, below)| below)
    }

    /// Where the nodes of the outermost `len` frames and of their regions begin, outermost first.
    pub(crate) fn firsts(&mut self, len: usize) -> Vec<&mut usize> {
        let mut firsts = Vec::with_capacity(len + self.regions.len());
        let mut regions = self.regions.iter_mut().peekable();
        for (i, frame) in self.frames.iter_mut().enumerate().take(len) {
            firsts.push(&mut frame.first);
            while let Some(region) = regions.next_if(|region| region.frame == i) {
                firsts.push(&mut region.first);
            }
        }
        firsts
    }

    /// The innermost of the first `len` frames that is no part of its caller.
    pub(crate) fn owner(&self, len: usize) -> Option<usize> {
        self.frames.get(..len)?.iter().rposition(|frame| !frame.is_part_of_caller())
    }

    /// A region has begun in the frame on top, and not ended.
    #[inline(always)]
    pub(crate) fn has_regions_on_top(&self) -> bool {
        self.regions.last().is_some_and(|region| region.frame + 1 == self.frames.len())
    }

    /// What ends on top is a child of a call that gathers them.
    #[inline(always)]
    pub(crate) fn gathers_top(&self) -> bool {
        matches!(&*self.frames, [.., caller, _] if caller.role.gathers())
    }

    /// What ends in the frame on top is a child.
    pub(crate) fn gathers(&self) -> bool {
        self.frames.last().is_some_and(|top| top.role.gathers())
    }

    /// What ends in the frame on top is a child of a call, or of a region.
    pub(crate) fn gathers_any(&self) -> bool {
        self.gathers() || !self.regions.is_empty()
    }

    /// A child of the innermost activation, if that gathers it, and of the regions of the innermost of the
    /// first `depth` frames has ended. `counted`: what it executed, where counters were asked for.
    #[inline(always)]
    pub(crate) fn add_child(
        &mut self,
        places: &mut ChildPlaces,
        depth: usize,
        (child, total): (Child, RunningTotal),
        counted: Option<&Counted>,
    ) {
        if self.frames.get(depth.wrapping_sub(1)).is_some_and(|caller| caller.role.gathers())
            && let Some(activation) = self.activations.last_mut()
        {
            match counted {
                None => _ = activation.children.add(places, child, total),
                Some(counted) => activation.children.add_counted(places, child, total, counted),
            }
        }
        if !self.regions.is_empty() {
            self.add_to_regions(places, depth, (child, total), counted);
        }
    }

    #[inline(never)]
    fn add_to_regions(
        &mut self,
        places: &mut ChildPlaces,
        depth: usize,
        (child, total): (Child, RunningTotal),
        counted: Option<&Counted>,
    ) {
        self.regions_of(depth).for_each(|region| match counted {
            None => _ = region.children.add(places, child, total),
            Some(counted) => region.children.add_counted(places, child, total, counted),
        });
    }

    /// The current event leads to these marks: regions that end there are complete if their frame ends by it.
    pub(crate) fn reach_marks(&mut self, marks: &[AtMark]) {
        for open in &mut self.regions {
            open.is_at_end = marks.iter().any(|mark| mark.wanted == open.mark.wanted && mark.ends);
        }
    }

    /// The own code of what the frame on top is the own code of: a call, and the regions that are open there.
    pub(crate) fn running_code(&mut self) -> impl Iterator<Item = &mut RunningCode> {
        let is_of_call = self.gathers();
        let owner = self.owner(self.len());
        let call = self.activations.last_mut().filter(|_| is_of_call);
        let regions = self.regions.iter_mut().rev().take_while(move |region| Some(region.frame) >= owner);
        let regions = regions.filter(move |region| Some(region.frame) == owner);
        call.into_iter().chain(regions.map(|region| &mut region.activation)).map(|running| &mut running.code)
    }

    /// What the regions of the innermost of the first `depth` frames gather.
    fn regions_of(&mut self, depth: usize) -> impl Iterator<Item = &mut Activation> {
        let owner = self.owner(depth);
        let regions = self.regions.iter_mut().rev().take_while(move |region| Some(region.frame) >= owner);
        regions.filter(move |region| Some(region.frame) == owner).map(|region| &mut region.activation)
    }
}

impl Deref for Stack {
    type Target = [Frame];

    #[inline]
    fn deref(&self) -> &[Frame] {
        &self.frames
    }
}

impl DerefMut for Stack {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Frame] {
        &mut self.frames
    }
}
