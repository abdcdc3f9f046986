//! The frames of a thread: what has been entered and not left.
//!
//! ```text
//!   main            call    chain 0   returns to ...
//!   parse           call    chain 0   returns into main      <- base of its group
//!   parse_number    tail    chain 1   returns into main
//!   convert         tail    chain 2   returns into main      <- top
//! ```
//! A function and the tail calls it ended with are a group: one return leaves them all.

use model::{AuxOffset, Avma, Cpu, EventTime, FunctionId, SpaceId};

use crate::children::ChildSums;
use crate::report::CallRow;
use crate::session::EndedCall;
use crate::tree::CallTree;

/// Frames that a stack may have.  More than an 8 MB stack can hold (a frame takes at least 16 bytes there).
pub(crate) const DEPTH_MAX: usize = 1 << 20;

/// Tail calls in one group.  State machines that only ever jump would otherwise pile up frames for ever.
pub(crate) const CHAIN_MAX: u32 = 1 << 14;

/// The return address of a frame whose entry was not seen: any return leaves it.
pub(crate) const NOT_KNOWN: Avma = Avma(0);

/// How a frame came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// Called.
    Call,
    /// Jumped to.
    Tail,
    /// Called at a place inside its caller: a subroutine of hand-written code, or room for a return address that a
    /// retpoline overwrites.  It is part of that function, neither caller nor child.
    Inner,
    /// A signal handler, entered by the kernel.
    Signal,
    /// Tracing began at its entry: called from outside the IP filter.
    Filter,
    /// Running when it was first seen.
    Found,
    /// The kernel's frame below a signal handler; `site` is the instruction that was interrupted, or [`NOT_KNOWN`].
    Interrupted,
    /// As above, in a system call: `site` is behind its instruction, which may also be executed again.
    InterruptedSyscall,
}

impl FrameKind {
    /// It is the kernel's frame below a handler.
    pub(crate) const fn is_mark(self) -> bool {
        matches!(self, Self::Interrupted | Self::InterruptedSyscall)
    }
}

/// A function that was entered and not left.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) function: FunctionId,
    /// The function that `site` belongs to.
    pub(crate) caller: FunctionId,
    /// The instruction that entered it; 0 if there is none.
    pub(crate) site: Avma,
    /// Its first instruction, if tracing began there ([`FrameKind::Filter`], [`FrameKind::Signal`]), or if a frame that was
    /// not known returned there ([`FrameKind::Found`]): only the restorer of signals is returned to so.
    pub(crate) entry: Avma,
    /// Where it returns to.
    pub(crate) ret: Avma,
    pub(crate) space: SpaceId,
    /// How many tail calls ago its group began.
    pub(crate) chain: u32,
    pub(crate) kind: FrameKind,
    /// It runs outside the IP filter.
    pub(crate) hidden: bool,
    /// A stub of the PLT.
    pub(crate) is_stub: bool,
    /// Functions into whose middle it has jumped: it runs their code, and what it calls there may throw back into it.
    pub(crate) runs: Vec<FunctionId>,
    /// A landing that nothing decides may have ended it.
    pub(crate) undecided: bool,
    pub(crate) start: EventTime,
    /// The thread's off-CPU time at `start`.
    pub(crate) off_cpu_ns: u64,
    /// Where the nodes of its subtree begin, while a tree is gathered.
    pub(crate) first: usize,
    /// Only calls that matter to the request have one.
    pub(crate) activation: Option<Box<Activation>>,
}

impl Frame {
    /// It may be in code of this function.
    pub(crate) fn has_code_of(&self, function: FunctionId) -> bool {
        self.function == function || self.runs.contains(&function)
    }

    /// It is neither caller nor child; what happens in it happens in its caller.
    pub(crate) const fn is_part_of_caller(&self) -> bool {
        match self.kind {
            FrameKind::Inner => true,
            FrameKind::Found => false,
            // Out of the IP filter a stub stands for all that ran behind it.
            _ => !self.hidden && self.is_stub,
        }
    }

    /// It is a mark, and the interrupted code goes on at `ip`.
    pub(crate) fn goes_on_at(&self, ip: Avma) -> bool {
        /// `syscall`, `sysenter` and `int 0x80` are two bytes long.
        const SYSCALL_LEN: u64 = 2;
        match self.kind {
            FrameKind::Interrupted => ip == self.site,
            FrameKind::InterruptedSyscall => ip == self.site || ip.plus(SYSCALL_LEN) == self.site,
            _ => false,
        }
    }
}

/// What a call of a wanted function (or of the ancestor) gathers while it runs.
#[derive(Debug, Default)]
pub(crate) struct Activation {
    /// Number of the wanted function; `None` for an ancestor only.
    pub(crate) wanted: Option<u32>,
    /// It is an ancestor.
    pub(crate) ancestor: bool,
    /// It was reported before (cut), and was found running again.
    pub(crate) reported: bool,
    /// Place among the entries of the function in the thread.
    pub(crate) number: u64,
    /// Open activations of the function below.
    pub(crate) depth: u32,
    /// Somebody wants its tree.
    pub(crate) has_tree: bool,
    pub(crate) cpu: Option<Cpu>,
    pub(crate) at: AuxOffset,
    pub(crate) children: ChildSums,
    /// Calls that wait for this ancestor's latency.
    pub(crate) waiting: Vec<WaitingCall>,
}

/// A call that enters the figures if its ancestor's latency fits.
#[derive(Debug)]
pub(crate) struct WaitingCall {
    pub(crate) wanted: u32,
    pub(crate) row: CallRow,
    /// The thread's off-CPU time at its begin and at its end.
    pub(crate) off_cpu_ns: (u64, u64),
    pub(crate) children: ChildSums,
    pub(crate) tree: Option<CallTree>,
}

impl WaitingCall {
    pub(crate) fn ended(&self) -> EndedCall<'_> {
        EndedCall { row: &self.row, children: &self.children, off_cpu_ns: self.off_cpu_ns }
    }
}
